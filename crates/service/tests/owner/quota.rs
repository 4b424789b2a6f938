//! What an account may hold, and what is refused beyond.

use whimbrel_directory::OwnQuota;
use whimbrel_mailbox::KEYWORDS_OF_ACCOUNT_MAX;
use whimbrel_service::{
    api::{Failure, Flag, FlagChange, Flags, Keyword, MailboxCall, Quota, Reply, SessionId, Usage},
    machine::{Input, RequestId},
    owner::Config,
};

use super::world::{ANNE, World, name};

fn world(quota: Quota) -> World {
    World::with(Config {
        quota,
        ..Config::default()
    })
}

fn usage(world: &mut World) -> (u64, u64, u64) {
    match world.call(MailboxCall::Usage) {
        Reply::Usage(Usage {
            bytes,
            messages,
            mailboxes,
            ..
        }) => (bytes, messages, mailboxes),
        reply => panic!("{reply:?}"),
    }
}

fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Failed(Failure::OverQuota(_)))
}

fn create(world: &mut World, mailbox: &str) -> Reply {
    world.call(MailboxCall::Create {
        name: name(mailbox),
        special_use: None,
    })
}

#[test]
fn messages() {
    let mut world = world(Quota {
        messages_max: Some(10),
        ..Quota::default()
    });
    world.fill("INBOX", 6);
    assert_eq!(usage(&mut world), (6, 6, 6));
    let uids = world.uids("INBOX");
    let reply = world.transfer("INBOX", uids.clone(), "Sent", false);
    assert!(is_refused(&reply.expect("an answer")));
    let reply = world.transfer("INBOX", uids[..4].to_vec(), "Sent", false);
    assert!(matches!(reply, Some(Reply::Copied { .. })));
    assert_eq!(usage(&mut world), (10, 10, 6));
    // A move adds nothing. What is written is what is read.
    let reply = world.transfer("INBOX", uids.clone(), "Trash", true);
    assert!(matches!(reply, Some(Reply::Copied { .. })));
    world.restart();
    assert_eq!(usage(&mut world), (10, 10, 6));
    // Less makes room.
    let uids = world.uids("Trash");
    world.call(MailboxCall::Remove {
        name: name("Trash"),
        uids,
    });
    assert_eq!(usage(&mut world).1, 4);
    world.fill("INBOX", 6);
    assert_eq!(usage(&mut world).1, 10);
}

/// The directory gives an account limits of its own, and takes them back.
#[test]
fn of_one_account() {
    let mut world = world(Quota {
        messages_max: Some(2),
        ..Quota::default()
    });
    let append =
        |world: &mut World, count| is_refused(&world.append("INBOX", count, 1, &Flags::none()));
    let set = |world: &mut World, messages, bytes| {
        let quota = OwnQuota {
            messages,
            bytes,
            ..OwnQuota::default()
        };
        let _ = world.input(Input::Quota(ANNE, quota), RequestId(0));
    };
    assert!(append(&mut world, 3));
    set(&mut world, Some(3), None);
    assert!(!append(&mut world, 3));
    set(&mut world, Some(u64::MAX), Some(4));
    assert_eq!(
        [append(&mut world, 1), append(&mut world, 1)],
        [false, true]
    );
    set(&mut world, None, None);
    assert!(append(&mut world, 1));
    assert_eq!(usage(&mut world).1, 4);
}

/// The test's messages have one byte each.
#[test]
fn bytes() {
    let mut world = world(Quota {
        bytes_max: Some(3),
        ..Quota::default()
    });
    let mut append = |count| is_refused(&world.append("INBOX", count, 1, &Flags::none()));
    assert_eq!(
        [append(2), append(2), append(1), append(1)],
        [false, true, false, true]
    );
    assert_eq!(usage(&mut world).0, 3);
}

#[test]
fn mailboxes() {
    let mut world = world(Quota {
        mailboxes_max: Some(8),
        ..Quota::default()
    });
    // INBOX and five others are there from the beginning.
    assert_eq!(usage(&mut world).2, 6);
    assert!(is_refused(&create(&mut world, "a/b/c")));
    assert!(matches!(create(&mut world, "a/b"), Reply::Created(_)));
    assert!(is_refused(&create(&mut world, "c")));
    let rename = |from: &str, to: &str| MailboxCall::Rename {
        from: name(from),
        to: name(to),
        rest: None,
    };
    assert!(is_refused(&world.call(rename("a/b", "x/y"))));
    assert!(matches!(world.call(rename("a/b", "a/c")), Reply::Done));
    assert_eq!(usage(&mut world).2, 8);
}

/// Mail that was accepted is delivered.
#[test]
fn deliveries_are_not_refused() {
    let mut world = world(Quota {
        messages_max: Some(1),
        ..Quota::default()
    });
    world.deliver(1);
    world.deliver(2);
    assert_eq!(usage(&mut world).1, 2);
}

/// An account that is watched stays in memory, and does not grow beyond what all may take. Small ones go on.
#[test]
fn memory() {
    let mut world = World::with(Config {
        accounts_bytes_max: 1 << 20,
        ..Config::default()
    });
    world.uids("INBOX");
    let mut grown = 0;
    let refused = loop {
        match world.append("INBOX", 1000, 1, &Flags::none()) {
            Reply::Appended { .. } => grown += 1000,
            reply => break reply,
        }
        assert!(grown < 100_000, "it grows without end");
    };
    assert!(
        matches!(refused, Reply::Failed(Failure::Limit(_))),
        "{refused:?}"
    );
    let uids = world.uids("INBOX");
    assert_eq!(uids.len(), grown);
    let refused = world.transfer("INBOX", uids.clone(), "Sent", false);
    assert!(matches!(refused, Some(Reply::Failed(Failure::Limit(_)))));
    // What makes it no larger is done, and mail is delivered.
    let reply = world.transfer("INBOX", uids[..100].to_vec(), "Trash", true);
    assert!(matches!(reply, Some(Reply::Copied { .. })));
    world.deliver(1);
    assert_eq!(usage(&mut world).1, grown as u64 + 1);
}

/// An account has so many different keywords. Those that no message has any more make room for others.
#[test]
fn keywords() {
    let keywords = |message: usize| -> Flags {
        let all = (0..100).map(|n| Keyword::new(&format!("k{message}-{n}")).unwrap());
        all.map(Flag::Keyword).collect()
    };
    let mut world = World::new();
    let append = |world: &mut World, n| world.append("INBOX", 1, 1, &keywords(n));
    let mut there = 0;
    let refused = loop {
        match append(&mut world, there) {
            Reply::Appended { .. } => there += 1,
            reply => break reply,
        }
        assert!(there * 100 <= KEYWORDS_OF_ACCOUNT_MAX, "there is no limit");
    };
    assert!(
        matches!(refused, Reply::Failed(Failure::Limit(_))),
        "{refused:?}"
    );
    assert_eq!(there, KEYWORDS_OF_ACCOUNT_MAX / 100);
    // Others cannot be set, those that are there can.
    let uids = world.uids("INBOX");
    let store = |uid: u32, change, flags| MailboxCall::Store {
        session: SessionId(1),
        name: name("INBOX"),
        uids: vec![uid],
        change,
        flags,
        unchanged_since: None,
    };
    let reply = world.call(store(uids[0], FlagChange::Replace, keywords(1)));
    assert!(matches!(reply, Reply::Stored { .. }), "{reply:?}");
    // That was the only message with the first hundred.
    let reply = append(&mut world, there);
    assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    let reply = world.call(store(uids[2], FlagChange::Add, keywords(there + 1)));
    assert!(
        matches!(reply, Reply::Failed(Failure::Limit(_))),
        "{reply:?}"
    );
    world.restart();
    assert!(matches!(
        append(&mut world, there + 1),
        Reply::Failed(Failure::Limit(_))
    ));
}
