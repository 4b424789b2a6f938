//! How changes are cut into commits.

use bytes::Bytes;
use whimbrel_service::{
    api::{
        BlobName, Date, Failure, FlagChange, Flags, MailboxCall, NAMES_PER_CALL_MAX, NewMail,
        Replaced, Reply, SessionId,
    },
    content::Content,
    owner::{Config, Incarnation, PartitionOwner},
};

use super::world::{World, name};

fn keywords() -> Flags {
    let text = |n: usize| format!("k{n}-{}", "x".repeat(200));
    (0..100)
        .map(|n| whimbrel_service::api::Keyword::new(&text(n)).unwrap())
        .map(whimbrel_service::api::Flag::Keyword)
        .collect()
}

#[test]
fn a_copy_is_one_commit_whatever_its_size() {
    let mut world = World::new();
    world.fill("INBOX", 30_000);
    let uids = world.uids("INBOX");
    world.batches();
    let Some(Reply::Copied { uids: told, .. }) =
        world.transfer("INBOX", uids.clone(), "Sent", false)
    else {
        panic!()
    };
    assert_eq!(world.batches(), 1);
    assert!(told.iter().map(|pair| pair.0).eq(uids.iter().copied()));
    assert!(told.iter().map(|pair| pair.1).eq(world.uids("Sent")));
}

/// "partial copy MUST NOT be done" (RFC 9051, 6.4.7).
#[test]
fn a_copy_that_does_not_fit_is_refused_before_anything_is_done() {
    let mut world = World::new();
    world.fill("INBOX", 42_000);
    let uids = world.uids("INBOX");
    world.batches();
    let reply = world.transfer("INBOX", uids.clone(), "Sent", false);
    assert!(
        matches!(reply, Some(Reply::Failed(Failure::Limit(_)))),
        "{reply:?}"
    );
    assert_eq!((world.batches(), world.uids("Sent").len()), (0, 0));
    // In parts it can be done.
    for part in uids.chunks(30_000) {
        let reply = world.transfer("INBOX", part.to_vec(), "Sent", false);
        assert!(matches!(reply, Some(Reply::Copied { .. })), "{reply:?}");
    }
    assert_eq!(world.uids("Sent").len(), 42_000);
    // It is the bytes that count: of messages with many keywords far fewer fit.
    for _ in 0..20 {
        world.append("Drafts", 50, 1, &keywords());
    }
    let uids = world.uids("Drafts");
    world.batches();
    let reply = world.transfer("Drafts", uids.clone(), "Trash", false);
    assert!(
        matches!(reply, Some(Reply::Failed(Failure::Limit(_)))),
        "{reply:?}"
    );
    assert_eq!((world.batches(), world.uids("Trash").len()), (0, 0));
    let reply = world.transfer("Drafts", uids[..250].to_vec(), "Trash", false);
    assert!(matches!(reply, Some(Reply::Copied { .. })), "{reply:?}");
}

/// "The server MUST leave each message in a state where it is in at least one of the source or target mailboxes" (RFC 6851, 3.3).
#[test]
fn a_move_is_cut_between_messages() {
    let mut world = World::new();
    world.fill("INBOX", 10_000);
    let uids = world.uids("INBOX");
    for batches in 0..3 {
        let mut world = World::new();
        world.fill("INBOX", 10_000);
        world.batches();
        world.power = batches;
        assert!(
            world
                .transfer("INBOX", uids.clone(), "Sent", true)
                .is_none()
        );
        world.restart();
        let (left, moved) = (world.uids("INBOX").len(), world.uids("Sent").len());
        assert_eq!((left + moved, moved), (10_000, batches * 4096));
    }
    let reply = world.transfer("INBOX", uids, "Sent", true);
    assert!(matches!(reply, Some(Reply::Copied { uids, .. }) if uids.len() == 10_000));
    assert!(world.uids("INBOX").is_empty());
}

/// A row of a message with many keywords is a hundred times as long as another one: no commit grows with that.
#[test]
fn many_keywords_make_smaller_batches() {
    let mut world = World::new();
    world.fill("INBOX", 2000);
    let uids = world.uids("INBOX");
    world.batches();
    let store = |uids: &[u32], change, flags: &Flags| MailboxCall::Store {
        session: SessionId(1),
        name: name("INBOX"),
        uids: uids.to_vec(),
        change,
        flags: flags.clone(),
        unchanged_since: None,
    };
    let reply = world.call(store(&uids, FlagChange::Add, &keywords()));
    assert!(matches!(reply, Reply::Stored { rows, .. } if rows.len() == 2000));
    assert!(world.batches() > 2);
    world.transfer("INBOX", uids.clone(), "Sent", true).unwrap();
    let uids = world.uids("Sent");
    assert_eq!(uids.len(), 2000);
    world.transfer("Sent", uids, "INBOX", true).unwrap();
    let uids = world.uids("INBOX");
    let deleted: Flags = [whimbrel_service::api::Flag::Deleted].into_iter().collect();
    world.call(store(&uids, FlagChange::Add, &deleted));
    let expunge = MailboxCall::Expunge {
        session: SessionId(1),
        name: name("INBOX"),
        uids: Some(uids[..500].to_vec()),
        up_to: u32::MAX,
    };
    assert!(matches!(world.call(expunge), Reply::Expunged { uids, .. } if uids.len() == 500));
    world.create("box");
    world
        .transfer("INBOX", uids[500..].to_vec(), "box", true)
        .unwrap();
    assert_eq!(world.uids("box").len(), 1500);
    let delete = MailboxCall::Delete { name: name("box") };
    assert!(matches!(world.call(delete), Reply::Done));
    assert!(world.batches() > 10);
}

#[test]
fn an_append_is_one_commit_or_refused() {
    let mut world = World::new();
    let reply = world.append("INBOX", 1000, 4000, &Flags::none());
    assert!(
        matches!(reply, Reply::Appended { uids, .. } if uids.len() == 1000 && uids.is_sorted())
    );
    // The account is opened by a batch of its own.
    assert_eq!(world.batches(), 2);
    let reply = world.append("INBOX", 1000, 8000, &Flags::none());
    assert!(
        matches!(reply, Reply::Failed(Failure::Limit(_))),
        "{reply:?}"
    );
    assert_eq!((world.batches(), world.uids("INBOX").len()), (0, 1000));
}

/// REPLACE is one commit: a crash leaves the old message or the new one.
#[test]
fn a_replace_is_one_commit() {
    let mut world = World::new();
    world.append("INBOX", 1, 1, &Flags::none());
    let old = world.uids("INBOX");
    for power in [0, 1] {
        world.power = power;
        let NewMail {
            flags,
            date,
            size,
            open_end,
            blob,
            content,
        } = NewMail {
            flags: Flags::none(),
            date: Date {
                seconds: 1,
                zone_minutes: 0,
            },
            size: 1,
            open_end: false,
            blob: BlobName {
                hash: [9; 32],
                upload: [9; 16],
            },
            content: Content {
                prefix: Bytes::new(),
                summary: Bytes::new(),
            }
            .encode(),
        };
        let reply = world.try_call(MailboxCall::Append {
            session: SessionId(1),
            name: name("INBOX"),
            messages: vec![NewMail {
                flags,
                date,
                size,
                open_end,
                blob,
                content,
            }],
            replaces: Some(Replaced {
                name: name("INBOX"),
                uid: old[0],
            }),
        });
        assert_eq!(reply.is_some(), power == 1);
        world.restart();
        let now = world.uids("INBOX");
        assert_eq!(now.len(), 1);
        assert_eq!(now == old, power == 0);
    }
}

/// Rule 4 of the UIDs: what comes under a name has UIDs above those that were announced there, however many messages that concerns.
#[test]
fn a_rename_onto_an_announced_name_of_many_late_messages() {
    let mut world = World::new();
    world.create("old");
    world.fill("old", 60_000);
    world.create("new");
    world.append("new", 1, 1, &Flags::none());
    let mark = world.uids("new")[0] + 1;
    world.call(MailboxCall::Delete { name: name("new") });
    assert!(world.uids("old").iter().all(|uid| *uid < mark));
    world.batches();
    let rename = MailboxCall::Rename {
        from: name("old"),
        to: name("new"),
        rest: None,
    };
    // A crash in its middle leaves the old name, and all messages under it.
    world.power = 1;
    assert!(world.try_call(rename.clone()).is_none());
    world.restart();
    assert_eq!(world.uids("old").len(), 60_000);
    assert!(matches!(world.call(rename), Reply::Done));
    let uids = world.uids("new");
    assert_eq!(uids.len(), 60_000);
    assert!(uids[0] >= mark);
}

/// One name is enough for a client to ask for much: ten thousand names are renamed at once, in one commit, or not at all.
#[test]
fn a_rename_of_many_names() {
    let mut world = World::new();
    for n in 0..9_000 {
        world.create(&format!("a/{n}"));
    }
    world.batches();
    let rename = |from: &str, to: &str| MailboxCall::Rename {
        from: name(from),
        to: name(to),
        rest: None,
    };
    assert!(matches!(world.call(rename("a", "b")), Reply::Done));
    assert_eq!(world.batches(), 1);
    let long = ["x"; 15].map(|x| x.repeat(60)).join("/");
    let reply = world.call(rename("b", &long));
    assert!(
        matches!(reply, Reply::Failed(Failure::Limit(_))),
        "{reply:?}"
    );
    assert_eq!(world.batches(), 0);
}

/// Nothing that names a whole mailbox makes commits that are larger for a larger one, whatever it does to each message.
#[test]
fn no_commit_grows_with_the_mailbox() {
    let largest = |count: usize| {
        let mut world = World::new();
        world.fill("INBOX", count);
        let flag = |flag| Flags::from_iter([flag]);
        let mut sizes = Vec::new();
        let mut done = |what, world: &mut World| {
            assert!(world.batches() >= count / 4096, "{what}");
            sizes.push((what, world.largest()));
        };
        let uids = world.uids("INBOX");
        done("fill", &mut world);
        world.change("INBOX", &uids, flag(whimbrel_service::api::Flag::Seen));
        done("STORE", &mut world);
        world.transfer("INBOX", uids, "Trash", true).unwrap();
        done("MOVE", &mut world);
        world.raise_uid_validity(1_800_000_000);
        let uids = world.uids("Trash");
        assert_eq!(uids.len(), count);
        done("epoch", &mut world);
        world.change("Trash", &uids, flag(whimbrel_service::api::Flag::Deleted));
        done("STORE", &mut world);
        let reply = world.call(MailboxCall::Expunge {
            session: SessionId(1),
            name: name("Trash"),
            uids: None,
            up_to: u32::MAX,
        });
        assert!(matches!(reply, Reply::Expunged { uids, .. } if uids.len() == count));
        done("EXPUNGE", &mut world);
        world.collect();
        let rows = world.rows.len();
        assert!(rows < 100, "{rows} rows are left");
        sizes.push(("collection", world.largest()));
        world.create("box");
        world.fill("box", count);
        world.batches();
        world.call(MailboxCall::Delete { name: name("box") });
        assert!(world.batches() >= count / 4096);
        sizes.push(("DELETE", world.largest()));
        sizes
    };
    let (smaller, larger) = (largest(20_000), largest(30_000));
    for ((what, smaller), (_, larger)) in smaller.into_iter().zip(larger) {
        assert!(
            larger <= smaller + smaller / 50,
            "{what}: {smaller}, {larger} bytes"
        );
        assert!(larger < 4 << 20, "{what}: {larger} bytes");
    }
}

/// All claims are made again: the rows of the account are written anew, but not at once, and a crash between two commits loses nothing.
#[test]
fn an_epoch_of_messages_with_many_keywords() {
    let mut world = World::new();
    for _ in 0..20 {
        world.append("INBOX", 100, 1, &keywords());
    }
    assert_eq!(world.uids("INBOX").len(), 2000);
    world.batches();
    // The commit of the epoch itself, one of claims, and no more.
    world.power = 2;
    world.raise_uid_validity(1_800_000_000);
    assert_eq!(world.batches(), 2);
    world.restart();
    let uids = world.uids("INBOX");
    assert_eq!(uids.len(), 2000);
    assert!(uids.is_sorted_by(|a, b| a < b));
    let batches = world.batches();
    assert!(batches > 3, "{batches}");
}

/// An account with as many names as there can be, all as long as they can be, on a disk that is put back: still it can be loaded.
#[test]
fn a_renewal_of_many_long_names() {
    let mut world = World::new();
    let long = "x".repeat(900);
    for n in 0..9_990 {
        world.create(&format!("{long}{n}"));
    }
    let renewed = || {
        PartitionOwner::new(Config {
            origin: Incarnation::from_hash(2),
            slot: 1,
            ..Config::default()
        })
    };
    world.largest();
    // Power fails between the marks and the rest.
    world.owner = renewed();
    world.power = 0;
    assert!(world.try_call(MailboxCall::list()).is_none());
    assert!(world.largest() > 8 << 20);
    world.owner = renewed();
    world.power = usize::MAX;
    let (mut after, mut count) = (None, 0);
    loop {
        let call = MailboxCall::List {
            top: None,
            after,
            uses: false,
        };
        let Reply::Mailboxes { names, more } = world.call(call) else {
            panic!("a page of names");
        };
        assert!(names.len() <= NAMES_PER_CALL_MAX + 32);
        count += names.len();
        after = names.last().map(|mailbox| mailbox.name.clone());
        if !more {
            break;
        }
    }
    assert_eq!(count, 9_996);
    world.append("INBOX", 1, 1, &Flags::none());
    // Of what was told under any of the names nothing is told again.
    let uids = world.uids("INBOX");
    assert!(uids[0] / 64 > 1 << 18, "{uids:?}");
    world.owner = renewed();
    world.batches();
    assert_eq!(world.uids("INBOX"), uids);
    assert_eq!(world.batches(), 0, "it is renewed once");
}
