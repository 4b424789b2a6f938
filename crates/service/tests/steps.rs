//! What an operation on a mailbox costs, counted in messages that are looked at: it follows what has changed or is told, not what is there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_mailbox::steps;
use whimbrel_service::{
    api::{
        AccountId, BlobName, Call, Date, Flag, FlagChange, Flags, MailboxCall, MailboxName,
        NewMail, Reply, SessionId,
    },
    content::Content,
    machine::{Birth, Input, Machine, Now, Output, RequestId},
    owner::{Config, PartitionOwner},
};
use whimbrel_storage::Mutation;

const ANNE: AccountId = AccountId([1; 16]);
const SESSION: SessionId = SessionId(1);

/// The owner on a map.
struct World {
    owner: PartitionOwner,
    rows: BTreeMap<Vec<u8>, Bytes>,
    requests: u64,
    now: Now,
}

impl World {
    /// With so many messages in INBOX.
    fn new(messages: usize) -> World {
        let mut world = World {
            owner: PartitionOwner::new(Config {
                accounts_bytes_max: 1 << 30,
                ..Config::default()
            }),
            rows: BTreeMap::new(),
            requests: 0,
            now: Now {
                wall_micros: 1_700_000_000_000_000,
                mono_micros: 1,
            },
        };
        for _ in 0..messages / 1000 {
            world.append(1000);
        }
        world
    }

    fn call(&mut self, call: MailboxCall) -> Reply {
        self.requests += 1;
        self.now.wall_micros += 1000;
        let request = RequestId(self.requests);
        let account = ANNE;
        let call = Call::Mailbox { account, call };
        self.owner.handle(self.now, Input::Call(request, call));
        let mut answer = None;
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Reply(_, reply) => answer = Some(reply),
                Output::Commit(ticket, commit) => {
                    for mutation in commit.mutations {
                        if let Mutation::Put { key, value } = mutation {
                            self.rows.insert(key.to_vec(), value);
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
        let answer = answer.expect("every call is answered");
        assert!(!matches!(answer, Reply::Failed(_)), "{answer:?}");
        answer
    }

    fn append(&mut self, count: usize) -> Reply {
        let content = Content {
            prefix: Bytes::new(),
            summary: Bytes::new(),
        };
        let message = NewMail {
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
            content: content.encode(),
        };
        self.call(MailboxCall::Append {
            session: SESSION,
            name: MailboxName::inbox(),
            messages: vec![message; count],
            replaces: None,
        })
    }

    fn select(&mut self) -> (Vec<u32>, u64) {
        let select = MailboxCall::Select {
            session: SESSION,
            name: MailboxName::inbox(),
            read_only: false,
        };
        match self.call(select) {
            Reply::Selected(selected) => (selected.uids, selected.as_of),
            other => panic!("{other:?}"),
        }
    }

    fn store(&mut self, uids: &[u32], flag: Flag) {
        self.call(MailboxCall::Store {
            session: SESSION,
            name: MailboxName::inbox(),
            uids: uids.to_vec(),
            change: FlagChange::Add,
            flags: [flag].into_iter().collect(),
            unchanged_since: None,
        });
    }

    fn changes(&mut self, since: u64) -> Reply {
        self.call(MailboxCall::Changes {
            session: SESSION,
            since,
            expunges: true,
        })
    }
}

/// What each operation looks at in a mailbox of so many messages.
fn costs(messages: usize) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(messages);
    let inbox = MailboxName::inbox();
    let (uids, as_of) = world.select();
    assert_eq!(uids.len(), messages);
    let mut costs = BTreeMap::new();
    let mut cost = |what, _: Reply| {
        costs.insert(what, steps::take());
    };
    let every = |count: usize| -> Vec<u32> {
        uids.iter()
            .copied()
            .step_by(uids.len() / count)
            .take(count)
            .collect()
    };
    steps::take();
    let reply = world.call(MailboxCall::Status {
        name: inbox.clone(),
    });
    cost("STATUS", reply);
    let reply = world.append(1);
    cost("APPEND", reply);
    let reply = world.changes(as_of);
    cost("changes after APPEND", reply);
    world.store(&every(100), Flag::Flagged);
    steps::take();
    let reply = world.call(MailboxCall::Since {
        name: inbox.clone(),
        modseq: as_of,
        vanished: true,
    });
    assert!(matches!(&reply, Reply::Since(since) if since.believed && since.changed.len() == 101));
    cost("QRESYNC after 100 changes", reply);
    let reply = world.changes(as_of);
    assert!(matches!(&reply, Reply::Changes(changes) if changes.changed.len() == 101));
    cost("changes after 100 changes", reply);
    let reply = world.call(MailboxCall::Rows {
        name: inbox.clone(),
        uids: uids[uids.len() / 2..][..1000].to_vec(),
    });
    assert!(matches!(&reply, Reply::Rows(rows) if rows.len() == 1000));
    cost("rows of 1000 neighbours", reply);
    let reply = world.call(MailboxCall::Rows {
        name: inbox.clone(),
        uids: every(100),
    });
    assert!(matches!(&reply, Reply::Rows(rows) if rows.len() == 100));
    cost("rows of 100 far apart", reply);
    let reply = world.call(MailboxCall::Flagged {
        name: inbox.clone(),
        uids: uids[..1000].to_vec(),
        set: [Flag::Flagged].into_iter().collect(),
        unset: Flags::none(),
    });
    cost("flagged of 1000", reply);
    world.store(&every(1), Flag::Deleted);
    steps::take();
    let reply = world.call(MailboxCall::Expunge {
        session: SESSION,
        name: inbox.clone(),
        uids: None,
        up_to: u32::MAX,
    });
    assert!(matches!(&reply, Reply::Expunged { uids, .. } if uids.len() == 1));
    cost("EXPUNGE of one", reply);
    let reply = world.changes(as_of);
    cost("changes after EXPUNGE", reply);
    let reply = world.call(MailboxCall::Copy {
        session: SESSION,
        name: inbox.clone(),
        uids: every(10)[1..].to_vec(),
        to: MailboxName::new("Trash").unwrap(),
        remove: true,
    });
    cost("MOVE of nine", reply);
    let (uids, mut as_of) = world.select();
    costs.insert("SELECT", steps::take());
    // Another session changes everything: this one is told in parts.
    for chunk in uids.chunks(1000) {
        world.store(chunk, Flag::Seen);
    }
    let (mut told, mut most) = (0, 0);
    loop {
        steps::take();
        let Reply::Changes(changes) = world.changes(as_of) else {
            panic!("changes are answered with changes")
        };
        most = most.max(steps::take());
        told += changes.changed.len();
        as_of = changes.as_of;
        if !changes.more {
            break;
        }
    }
    assert_eq!(told, uids.len());
    costs.insert("a part of the changes of everything", most);
    costs
}

#[test]
fn cost_follows_what_changes_or_is_told() {
    let (small, large) = (costs(20_000), costs(200_000));
    for (what, small) in &small {
        let large = large[what];
        match *what {
            // It tells all UIDs.
            "SELECT" => assert!(large <= 200_000 + 8192, "{what}: {large}"),
            // Fewer of the first 1000 were flagged, whose rows are told.
            "flagged of 1000" => assert!(large <= *small, "{what}: {small}, {large}"),
            _ => assert_eq!(*small, large, "{what}"),
        }
    }
    let at_most = |what, most: u64| assert!(large[what] <= most, "{what}: {}", large[what]);
    at_most("STATUS", 0);
    at_most("APPEND", 4);
    at_most("changes after APPEND", 4);
    at_most("QRESYNC after 100 changes", 101);
    at_most("changes after 100 changes", 100 * 12);
    at_most("a part of the changes of everything", 2000 + 2002);
    at_most("rows of 1000 neighbours", 2002);
    at_most("rows of 100 far apart", 100 * 12);
    at_most("flagged of 1000", 1100);
    at_most("EXPUNGE of one", 8);
    at_most("MOVE of nine", 100);
}
