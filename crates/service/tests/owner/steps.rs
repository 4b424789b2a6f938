//! What an operation on a mailbox costs, counted in messages that are looked at: it follows what has changed or is told, not what is there.

use std::collections::BTreeMap;

use whimbrel_mailbox::steps;
use whimbrel_service::{
    api::{Flag, FlagChange, Flags, MailboxCall, MailboxName, Reply, SessionId},
    owner::Config,
};

use super::world::World;

/// With so many messages in INBOX.
fn full(messages: usize) -> World {
    let mut world = World::with(Config {
        accounts_bytes_max: 1 << 30,
        ..Config::default()
    });
    world.fill("INBOX", messages);
    world
}

impl World {
    /// One call that is not refused.
    fn asked(&mut self, call: MailboxCall) -> Reply {
        let reply = self.one_call(call).unwrap();
        assert!(!matches!(reply, Reply::Failed(_)), "{reply:?}");
        reply
    }

    fn select(&mut self) -> (Vec<u32>, u64) {
        let select = MailboxCall::Select {
            session: SessionId(1),
            name: MailboxName::inbox(),
            read_only: false,
        };
        match self.asked(select) {
            Reply::Selected(selected) => (selected.uids.to_vec(), selected.as_of),
            other => panic!("{other:?}"),
        }
    }

    fn store(&mut self, uids: &[u32], flag: Flag) {
        self.asked(MailboxCall::Store {
            session: SessionId(1),
            name: MailboxName::inbox(),
            uids: uids.to_vec(),
            change: FlagChange::Add,
            flags: [flag].into_iter().collect(),
            unchanged_since: None,
        });
    }

    fn changes(&mut self, since: u64) -> Reply {
        self.asked(MailboxCall::Changes {
            session: SessionId(1),
            since,
            expunges: true,
        })
    }
}

/// What each operation looks at in a mailbox of so many messages.
fn costs(messages: usize) -> BTreeMap<&'static str, u64> {
    let mut world = full(messages);
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
    let reply = world.asked(MailboxCall::Status {
        name: inbox.clone(),
    });
    cost("STATUS", reply);
    let reply = world.append("INBOX", 1, 0, &Flags::none());
    cost("APPEND", reply);
    let reply = world.changes(as_of);
    cost("changes after APPEND", reply);
    world.store(&every(100), Flag::Flagged);
    steps::take();
    let reply = world.asked(MailboxCall::Since {
        name: inbox.clone(),
        modseq: as_of,
        vanished: true,
    });
    assert!(matches!(&reply, Reply::Since(since) if since.believed && since.changed.len() == 101));
    cost("QRESYNC after 100 changes", reply);
    let reply = world.changes(as_of);
    assert!(matches!(&reply, Reply::Changes(changes) if changes.changed.len() == 101));
    cost("changes after 100 changes", reply);
    let reply = world.asked(MailboxCall::Rows {
        name: inbox.clone(),
        uids: uids[uids.len() / 2..][..1000].to_vec(),
    });
    assert!(matches!(&reply, Reply::Rows(rows) if rows.len() == 1000));
    cost("rows of 1000 neighbours", reply);
    let reply = world.asked(MailboxCall::Rows {
        name: inbox.clone(),
        uids: every(100),
    });
    assert!(matches!(&reply, Reply::Rows(rows) if rows.len() == 100));
    cost("rows of 100 far apart", reply);
    let all = |set: Flag| MailboxCall::Flagged {
        name: inbox.clone(),
        from: 1,
        to: u32::MAX,
        set: [set].into_iter().collect(),
        unset: Flags::none(),
    };
    let reply = world.asked(all(Flag::Flagged));
    assert!(matches!(&reply, Reply::Flagged { rows, up_to: u32::MAX } if rows.len() == 100));
    cost("the 100 flagged", reply);
    world.store(&uids[..1], Flag::Answered);
    steps::take();
    let reply = world.asked(all(Flag::Answered));
    assert!(
        matches!(&reply, Reply::Flagged { rows, up_to } if rows.len() == 1 && *up_to < uids[17_000])
    );
    cost("a part of a search by a flag without a list", reply);
    world.store(&every(1), Flag::Deleted);
    steps::take();
    let reply = world.asked(MailboxCall::Expunge {
        session: SessionId(1),
        name: inbox.clone(),
        uids: None,
        up_to: u32::MAX,
    });
    assert!(matches!(&reply, Reply::Expunged { uids, .. } if uids.len() == 1));
    cost("EXPUNGE of one", reply);
    let reply = world.changes(as_of);
    cost("changes after EXPUNGE", reply);
    let reply = world.asked(MailboxCall::Copy {
        session: SessionId(1),
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
        assert_eq!(*small, large, "{what}");
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
    at_most("the 100 flagged", 200);
    at_most("a part of a search by a flag without a list", 16 * 1024 + 1);
    at_most("SELECT", 0);
    at_most("EXPUNGE of one", 8);
    at_most("MOVE of nine", 100);
}
