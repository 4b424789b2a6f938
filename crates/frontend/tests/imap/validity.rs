//! Numbers that mean something else here: UIDs after UIDVALIDITY has risen (docs/design.md#rule-7), MODSEQs of another node in conditions.

use super::world::{Cut, World};

fn say(world: &mut World, line: &str) -> String {
    world.send("A", format!("{line}\r\n").as_bytes());
    world.run();
    String::from_utf8(std::mem::take(&mut world.get("A").outbox)).unwrap()
}

/// A session that has selected two messages.
fn world() -> World {
    let mut world = World::new(Cut::AtOnce);
    world.connect("A", true);
    world.run();
    assert!(say(&mut world, "l LOGIN anne secret").contains("l OK"));
    for _ in 0..2 {
        let appended = say(
            &mut world,
            "a APPEND INBOX (\\Deleted) {14+}\r\nSubject: x\r\n\r\n",
        );
        assert!(appended.contains("APPENDUID"), "{appended}");
    }
    assert!(say(&mut world, "s SELECT INBOX").contains("* 2 EXISTS"));
    world
}

#[test]
fn uids_are_of_the_uidvalidity_that_was_told() {
    for command in [
        "STORE 1 FLAGS (\\Seen)",
        "UID STORE 1:* +FLAGS.SILENT (\\Seen)",
        "COPY 1 Archive",
        "MOVE 1 Archive",
        "UID EXPUNGE 1:*",
        "EXPUNGE",
        "FETCH 1:2 (FLAGS)",
        "FETCH 1 BODY[]",
        "SEARCH UNSEEN",
        "SEARCH LARGER 1",
        "REPLACE 1 INBOX {14+}\r\nSubject: y\r\n\r\n",
    ] {
        let mut world = world();
        world.fake.uid_validity = 8;
        world.fake.writes.clear();
        let answer = say(&mut world, &format!("c {command}"));
        assert!(answer.contains("c NO [NONEXISTENT]"), "{command}: {answer}");
        assert!(!answer.contains(" FETCH ("), "{command}: {answer}");
        assert_eq!(world.fake.writes, [], "{command}");
        // What names no UIDs of the selected mailbox goes on.
        let answer = say(&mut world, "c STATUS Archive (UIDVALIDITY)");
        assert!(answer.contains("UIDVALIDITY 8"), "{answer}");
    }
}

#[test]
fn a_modseq_that_was_not_told_here_is_no_condition() {
    for (disbelieves, search, found) in [
        (false, "SEARCH MODSEQ 1000000", ""),
        (true, "SEARCH MODSEQ 1000000", " 1 2"),
        (true, "SEARCH MODSEQ 1000000 DELETED", " 1 2"),
        (true, "SEARCH OR MODSEQ 1000000 UNDELETED", " 1 2"),
        (true, "SEARCH NOT MODSEQ 1000000", ""),
        (true, "SEARCH MODSEQ 1000000 UNDELETED", ""),
    ] {
        let mut world = world();
        world.fake.disbelieves = disbelieves;
        let answer = say(&mut world, &format!("c {search}"));
        assert!(answer.contains("c OK"), "{answer}");
        let line = answer.lines().find(|line| line.starts_with("* SEARCH"));
        let line = line.expect("an untagged answer");
        let numbers = line.trim_start_matches("* SEARCH");
        let numbers = numbers.split(" (").next().unwrap();
        assert_eq!(numbers, found, "{search}, {disbelieves}: {answer}");
    }
}
