//! What is too much for one call comes in several.

use whimbrel_service::api::{Failure, Flags, MESSAGES_PER_CALL_MAX, MailboxCall, Reply, SessionId};

use super::world::{World, name};

/// What is too much for one call is done in several, each of which is one small commit; others get in between.
#[test]
fn a_large_call_comes_in_several() {
    const COUNT: usize = 9_000;
    let mut world = World::new();
    world.fill("INBOX", COUNT);
    let counted = |world: &mut World, mailbox: &str| world.uids(mailbox).len();
    // Asks until it is done, looks after each call what is left, and lets somebody else write.
    let in_parts = |world: &mut World, mut call: MailboxCall, from: &str| {
        let mut lefts = Vec::new();
        world.batches();
        world.largest();
        loop {
            let reply = world.one_call(call.clone()).unwrap();
            assert!(world.batches() <= 2 && world.largest() < 3 << 20);
            world.append("Drafts", 1, 1, &Flags::none());
            world.batches();
            let left = match world.one_call(MailboxCall::Status { name: name(from) }) {
                Some(Reply::Status(status)) => status.messages as usize,
                _ => 0,
            };
            lefts.push(left);
            let more = match (&reply, &mut call) {
                (Reply::Copied { done, .. }, MailboxCall::Copy { uids, .. }) => {
                    uids.drain(..done);
                    !uids.is_empty()
                }
                (Reply::Expunged { more, .. }, _) => *more,
                (Reply::Partly { rest: goes_on }, MailboxCall::Rename { rest, .. }) => {
                    *rest = *goes_on;
                    true
                }
                (Reply::Partly { .. }, MailboxCall::Delete { .. }) => true,
                (Reply::Done, _) => false,
                other => panic!("{other:?}"),
            };
            if !more {
                return lefts;
            }
        }
    };
    let lefts = [1, 2, 3].map(|calls| COUNT.saturating_sub(calls * MESSAGES_PER_CALL_MAX));
    let uids = world.uids("INBOX");
    let to_archive = MailboxCall::Copy {
        session: SessionId(1),
        name: name("INBOX"),
        uids,
        to: name("Archive"),
        remove: true,
    };
    assert_eq!(in_parts(&mut world, to_archive, "INBOX"), lefts);
    assert_eq!(counted(&mut world, "Archive"), COUNT);
    let uids = world.uids("Archive");
    world.transfer("Archive", uids, "INBOX", true).unwrap();
    let rename = MailboxCall::Rename {
        from: name("INBOX"),
        to: name("old"),
        rest: None,
    };
    assert_eq!(in_parts(&mut world, rename, "INBOX"), lefts);
    assert_eq!(counted(&mut world, "old"), COUNT);
    let uids = world.uids("old");
    let copied = world.transfer("old", uids.clone(), "Trash", false);
    assert!(matches!(copied, Some(Reply::Copied { .. })), "{copied:?}");
    assert_eq!(
        in_parts(&mut world, MailboxCall::Delete { name: name("old") }, "old"),
        lefts
    );
    let uids = world.uids("Trash");
    let deleted = Flags::from_iter([whimbrel_service::api::Flag::Deleted]);
    world.change("Trash", &uids, deleted);
    let expunge = MailboxCall::Expunge {
        session: SessionId(1),
        name: name("Trash"),
        uids: None,
        up_to: u32::MAX,
    };
    assert_eq!(in_parts(&mut world, expunge, "Trash"), lefts);
    // A session that asks for more than it may is refused.
    let uids: Vec<u32> = (1..=MESSAGES_PER_CALL_MAX as u32 + 1).collect();
    world.append(
        "Drafts",
        1,
        1,
        &Flags::from_iter([whimbrel_service::api::Flag::Deleted]),
    );
    for call in [
        MailboxCall::Expunge {
            session: SessionId(1),
            name: name("Drafts"),
            uids: Some(uids.clone()),
            up_to: u32::MAX,
        },
        MailboxCall::Remove {
            name: name("Drafts"),
            uids,
        },
    ] {
        let reply = world.one_call(call);
        assert!(
            matches!(reply, Some(Reply::Failed(Failure::Limit(_)))),
            "{reply:?}"
        );
    }
}

/// What comes into INBOX while its RENAME is under way stays there.
#[test]
fn a_rename_of_a_large_inbox_moves_what_was_there() {
    let mut world = World::new();
    world.fill("INBOX", 5_000);
    let rename = |rest| MailboxCall::Rename {
        from: name("INBOX"),
        to: name("old"),
        rest,
    };
    let Some(Reply::Partly { rest: Some(rest) }) = world.one_call(rename(None)) else {
        panic!("it is done at once")
    };
    world.append("INBOX", 10, 1, &Flags::none());
    // Somebody else may not take the name meanwhile.
    let reply = world.one_call(rename(None));
    assert!(
        matches!(reply, Some(Reply::Failed(Failure::Exists))),
        "{reply:?}"
    );
    let reply = world.one_call(rename(Some(rest)));
    assert!(matches!(reply, Some(Reply::Done)), "{reply:?}");
    assert_eq!(
        (world.uids("INBOX").len(), world.uids("old").len()),
        (10, 5_000)
    );
}

/// RENAME of INBOX is one commit where that is possible, and MOVE where it is not.
#[test]
fn a_rename_of_a_large_inbox() {
    for (count, batches) in [(4_000, 1), (42_000, 12)] {
        let mut world = World::new();
        world.fill("INBOX", count);
        world.batches();
        let rename = MailboxCall::Rename {
            from: name("INBOX"),
            to: name("old"),
            rest: None,
        };
        assert!(matches!(world.call(rename), Reply::Done));
        assert_eq!(world.batches(), batches);
        assert_eq!(world.uids("INBOX").len(), 0);
        assert_eq!(world.uids("old").len(), count);
    }
}
