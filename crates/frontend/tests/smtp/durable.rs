//! 250 is said when the queue entry is on disk, and not before: the node dies after every number of steps.

use whimbrel_sim::node::Speed;

use super::world::{ANNE, BOB, Cut, World};

const MESSAGE: &[u8] = b"Subject: once\r\n\r\ntext\r\n.\r\n";

/// A node with a slow disk, and a client that has sent all but the message.
fn begun() -> World {
    let mut world = World::new(Cut::AtOnce);
    world.node.speed = Speed {
        sync_micros: (200, 3000),
        lazy_micros: (0, 3000),
        read_micros: (5, 200),
        verify_micros: (0, 0),
    };
    world.script(
        "smtp
         C: MAIL FROM:<carl@elsewhere.example>
         S: 250 2.1.0 Sender OK
         C: RCPT TO:<anne@example.org>
         S: 250 2.1.5 Recipient OK
         C: RCPT TO:<bob@example.org>
         S: 250 2.1.5 Recipient OK
         C: DATA
         S: 354 End data with <CRLF>.<CRLF>",
    );
    world
}

#[test]
fn a_crash_at_any_step_loses_nothing_that_was_acknowledged_and_doubles_nothing() {
    let mut outcomes = std::collections::BTreeSet::new();
    for steps in 0..25 {
        for seed in 0..20 {
            let mut world = begun();
            world.push(MESSAGE);
            let mut told = String::new();
            for _ in 0..steps {
                told += &world.told();
                world.step();
            }
            told += &world.told();
            let accepted = told.starts_with("250 2.0.0 ");
            assert!(accepted || told.is_empty(), "{told}");
            // 250 means on disk: whatever else is unsynced then, the entry is not.
            world.crash(seed);
            let found = (
                world.arrived(ANNE, "INBOX").len(),
                world.arrived(BOB, "INBOX").len(),
            );
            assert!(
                found == (1, 1) || (!accepted && found == (0, 0)),
                "{steps}, {seed}: {told} {found:?}"
            );
            assert_eq!(world.node.queue_len(), 0);
            let (open, blobs) = world.left_over();
            assert_eq!(
                (open, blobs),
                (0, found.0),
                "{steps}, {seed}: what was not accepted is swept"
            );
            outcomes.insert((accepted, found));
            // A second crash, a while later, changes nothing.
            world.crash(seed + 1);
            assert_eq!(
                (
                    world.arrived(ANNE, "INBOX").len(),
                    world.arrived(BOB, "INBOX").len()
                ),
                found
            );
        }
    }
    let all = [(false, (0, 0)), (false, (1, 1)), (true, (1, 1))];
    assert_eq!(Vec::from_iter(outcomes), all, "each has happened");
}

#[test]
fn a_client_that_leaves_before_the_verdict_has_sent_its_message() {
    for steps in 0..12 {
        let mut world = begun();
        world.push(MESSAGE);
        for _ in 0..steps {
            world.step();
        }
        let told = world.told();
        world.eof();
        assert!(world.client().closed);
        assert_eq!(
            world.told(),
            "",
            "nothing is said to a connection that is gone"
        );
        // Cut off while the last bytes are not yet read by the session, the message was never whole.
        let found = (
            world.bodies(ANNE, "INBOX").len(),
            world.bodies(BOB, "INBOX").len(),
        );
        assert!(
            found == (1, 1) || (told.is_empty() && found == (0, 0)),
            "{steps}: {found:?}"
        );
        assert_eq!(world.left_over(), (0, found.0), "{steps}");
    }
}

#[test]
fn a_failed_sync_says_nothing() {
    let mut world = begun();
    world.push(MESSAGE);
    world.node.disk.faults.sync_fails = true;
    while world.node.step() {
        world.carry();
    }
    assert!(world.node.next_time().is_none(), "the node has stopped");
    assert_eq!(world.told(), "");
    world.node.disk.faults.sync_fails = false;
    world.crash(0);
    assert_eq!(
        world.bodies(ANNE, "INBOX").len(),
        world.bodies(BOB, "INBOX").len()
    );
}
