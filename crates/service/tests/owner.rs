//! An owner by itself: how its changes are cut into commits.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    api::{
        AccountId, BlobName, Call, Date, Failure, FlagChange, Flags, MailboxCall, MailboxName,
        NewMail, Replaced, Reply, SessionId,
    },
    content::Content,
    machine::{Birth, Input, Machine, Now, Output, RequestId},
    owner::{Config, Incarnation, PartitionOwner},
};
use whimbrel_storage::{COMMIT_BYTES_MAX, Mutation};

const ANNE: AccountId = AccountId([1; 16]);

/// The owner on a map; it stands still, or loses power, when it has had so many commits.
struct World {
    owner: PartitionOwner,
    rows: BTreeMap<Vec<u8>, Bytes>,
    /// Sizes of the commits with operations in them.
    batches: Vec<usize>,
    /// The largest commit of any kind.
    largest: usize,
    /// Which blobs are held by whom.
    held: BTreeSet<(whimbrel_storage::BlobName, Bytes)>,
    /// After how many more batches the power fails.
    power: usize,
    /// After how many more commits without operations it fails.
    power_for_rows: usize,
    requests: u64,
    now: Now,
}

fn name(text: &str) -> MailboxName {
    MailboxName::new(text).unwrap()
}

impl World {
    fn new() -> World {
        World {
            owner: PartitionOwner::new(Config::default()),
            rows: BTreeMap::new(),
            batches: Vec::new(),
            largest: 0,
            held: BTreeSet::new(),
            power: usize::MAX,
            power_for_rows: usize::MAX,
            requests: 0,
            now: Now {
                wall_micros: 1_700_000_000_000_000,
                mono_micros: 1,
            },
        }
    }

    /// `None`: the power failed.
    fn try_call(&mut self, call: MailboxCall) -> Option<Reply> {
        self.requests += 1;
        self.now.wall_micros += 1000;
        self.now.mono_micros += 1000;
        let request = RequestId(self.requests);
        let account = ANNE;
        let call = Call::Mailbox { account, call };
        self.input(Input::Call(request, call), request)
    }

    /// The answer to `request`, if one comes.
    fn input(&mut self, input: Input, request: RequestId) -> Option<Reply> {
        self.owner.handle(self.now, input);
        let mut answer = None;
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Reply(to, reply) if to == request => answer = Some(reply),
                Output::Commit(ticket, commit) => {
                    let bytes = commit.bytes();
                    assert!(bytes <= COMMIT_BYTES_MAX, "a commit of {bytes} bytes");
                    self.largest = self.largest.max(bytes);
                    if commit.entry.is_some() {
                        if self.power == 0 {
                            return None;
                        }
                        self.power -= 1;
                        self.batches.push(bytes);
                    } else {
                        if self.power_for_rows == 0 {
                            return None;
                        }
                        self.power_for_rows -= 1;
                    }
                    for mutation in commit.mutations {
                        match mutation {
                            Mutation::Put { key, value } => {
                                self.rows.insert(key.to_vec(), value);
                            }
                            Mutation::Delete { key } => {
                                self.rows.remove(&key[..]);
                            }
                            Mutation::Reference { blob, holder } => {
                                self.held.insert((blob, holder));
                            }
                            Mutation::Release { blob, holder } => {
                                assert!(self.held.remove(&(blob, holder)));
                            }
                        }
                    }
                    self.owner.handle(self.now, Input::Committed(ticket));
                }
                Output::Load {
                    ticket, from, to, ..
                } => {
                    let rows = self.rows.range(from..to);
                    let rows = rows.map(|(k, v)| (k.clone(), v.clone())).collect();
                    let done = true;
                    self.owner
                        .handle(self.now, Input::Loaded { ticket, rows, done });
                }
                Output::AskBirth(account) => {
                    let birth = Birth {
                        created: 7,
                        uid_validity: 7,
                    };
                    self.owner
                        .handle(self.now, Input::Birth(account, Some(birth)));
                }
                Output::Fatal(cause) => panic!("{cause}"),
                _ => {}
            }
        }
        answer
    }

    fn call(&mut self, call: MailboxCall) -> Reply {
        self.try_call(call).expect("every call is answered")
    }

    /// A start on what was written.
    fn restart(&mut self) {
        self.owner = PartitionOwner::new(Config::default());
        self.power = usize::MAX;
        self.power_for_rows = usize::MAX;
    }

    fn create(&mut self, mailbox: &str) {
        let call = MailboxCall::Create {
            name: name(mailbox),
            special_use: None,
        };
        let reply = self.call(call);
        assert!(!matches!(reply, Reply::Failed(_)), "{reply:?}");
    }

    fn append(&mut self, mailbox: &str, count: usize, summary: usize, flags: &Flags) -> Reply {
        let content = Content {
            prefix: Bytes::new(),
            summary: vec![b's'; summary].into(),
        };
        let message = NewMail {
            flags: flags.clone(),
            date: Date {
                seconds: 1,
                zone_minutes: 0,
            },
            size: 1,
            blob: BlobName {
                hash: [9; 32],
                upload: [9; 16],
            },
            content: content.encode(),
        };
        self.call(MailboxCall::Append {
            session: SessionId(1),
            name: name(mailbox),
            messages: vec![message; count],
            replaces: None,
        })
    }

    fn fill(&mut self, mailbox: &str, count: usize) {
        for _ in 0..count.div_ceil(1000) {
            let reply = self.append(mailbox, count.min(1000), 1, &Flags::none());
            assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
        }
    }

    fn uids(&mut self, mailbox: &str) -> Vec<u32> {
        let select = MailboxCall::Select {
            session: SessionId(2),
            name: name(mailbox),
            read_only: true,
        };
        match self.call(select) {
            Reply::Selected(selected) => selected.uids,
            other => panic!("{other:?}"),
        }
    }

    fn transfer(&mut self, from: &str, uids: Vec<u32>, to: &str, remove: bool) -> Option<Reply> {
        self.try_call(MailboxCall::Copy {
            session: SessionId(1),
            name: name(from),
            uids,
            to: name(to),
            remove,
        })
    }

    /// UIDVALIDITY has to be at least this.
    fn raise_uid_validity(&mut self, least: u32) {
        self.input(Input::LeastUidValidity(ANNE, least), RequestId(0));
    }

    /// What was hidden long enough is dropped, until nothing is due or the power fails.
    fn collect(&mut self) {
        self.owner.handle(self.now, Input::QueueRecovered);
        while let Some(at) = self.owner.deadline() {
            self.now.mono_micros = self.now.mono_micros.max(at);
            self.input(Input::Time, RequestId(0));
            if self.power_for_rows == 0 {
                return;
            }
        }
    }

    /// How many rows of an account there are of this kind.
    fn rows_of(&self, kind: impl Fn(&RowKey) -> bool) -> usize {
        let keys = self.rows.keys().filter_map(|key| key.get(17..));
        keys.filter_map(|key| RowKey::from_bytes(key).ok())
            .filter(kind)
            .count()
    }

    fn change(&mut self, mailbox: &str, uids: &[u32], flags: Flags) {
        let reply = self.call(MailboxCall::Store {
            session: SessionId(1),
            name: name(mailbox),
            uids: uids.to_vec(),
            change: FlagChange::Add,
            flags,
            unchanged_since: None,
        });
        assert!(matches!(reply, Reply::Stored { rows, .. } if rows.len() == uids.len()));
    }

    /// The largest commit that was made since the last look.
    fn largest(&mut self) -> usize {
        std::mem::take(&mut self.largest)
    }

    /// How many batches were written since the last look.
    fn batches(&mut self) -> usize {
        std::mem::take(&mut self.batches).len()
    }
}

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
            blob,
            content,
        } = NewMail {
            flags: Flags::none(),
            date: Date {
                seconds: 1,
                zone_minutes: 0,
            },
            size: 1,
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

/// A collection is cut between messages: a crash between two of its commits leaves no content row and no hold of a blob behind that nothing leads
/// to any more.
#[test]
fn a_crash_within_a_collection_leaves_nothing_for_ever() {
    let mut commits = 0;
    for power in 0.. {
        let mut world = World::new();
        world.fill("INBOX", 10_000);
        // Some have copies, of which the last one to go takes the content row along.
        let uids = world.uids("INBOX");
        let copied = world.transfer("INBOX", uids[2_000..5_000].to_vec(), "Sent", false);
        assert!(matches!(copied, Some(Reply::Copied { .. })), "{copied:?}");
        let contents = |key: &RowKey| matches!(key, RowKey::Content(_));
        let messages = |key: &RowKey| matches!(key, RowKey::Message(_));
        for mailbox in ["INBOX", "Sent"] {
            let uids = world.uids(mailbox);
            let reply = world.call(MailboxCall::Remove {
                name: name(mailbox),
                uid_validity: 7,
                uids,
            });
            assert!(matches!(reply, Reply::Done), "{reply:?}");
        }
        assert_eq!(
            (world.rows_of(messages), world.rows_of(contents)),
            (13_000, 10_000)
        );
        assert_eq!(world.held.len(), 10_000);
        world.power_for_rows = power;
        world.collect();
        let crashed = world.power_for_rows == 0;
        // What is left can be read.
        world.restart();
        assert!(world.uids("INBOX").is_empty());
        assert_eq!(world.rows_of(contents), world.held.len());
        world.collect();
        assert_eq!((world.rows_of(messages), world.rows_of(contents)), (0, 0));
        assert_eq!(world.held.len(), 0);
        if !crashed {
            break;
        }
        commits += 1;
    }
    assert!(commits > 3, "{commits}");
}

/// RENAME of INBOX is one commit where that is possible, and MOVE where it is not.
#[test]
fn a_rename_of_a_large_inbox() {
    for (count, batches) in [(25_000, 1), (42_000, 12)] {
        let mut world = World::new();
        world.fill("INBOX", count);
        world.batches();
        let rename = MailboxCall::Rename {
            from: name("INBOX"),
            to: name("old"),
        };
        assert!(matches!(world.call(rename), Reply::Done));
        assert_eq!(world.batches(), batches);
        assert_eq!(world.uids("INBOX").len(), 0);
        assert_eq!(world.uids("old").len(), count);
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
    assert!(world.try_call(MailboxCall::List).is_none());
    assert!(world.largest() > 8 << 20);
    world.owner = renewed();
    world.power = usize::MAX;
    assert!(
        matches!(world.call(MailboxCall::List), Reply::Mailboxes(names) if names.len() == 9_996)
    );
    world.append("INBOX", 1, 1, &Flags::none());
    // Of what was told under any of the names nothing is told again.
    let uids = world.uids("INBOX");
    assert!(uids[0] / 64 > 1 << 18, "{uids:?}");
    world.owner = renewed();
    world.batches();
    assert_eq!(world.uids("INBOX"), uids);
    assert_eq!(world.batches(), 0, "it is renewed once");
}
