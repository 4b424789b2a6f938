//! Messages from elsewhere: each is added once, whatever became of it.

#![allow(missing_docs)]

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_mailbox::*;

struct World {
    replica: Replica,
    applied: VersionVector,
    seq: u64,
}

fn origin() -> Incarnation {
    Incarnation::new(7).expect("not zero")
}

fn name(text: &str) -> MailboxName {
    MailboxName::new(text).expect("valid")
}

impl World {
    fn new() -> World {
        let mut world = World {
            replica: Replica::new(AccountId([9; 16]), 1),
            applied: VersionVector::new(),
            seq: 0,
        };
        let plan =
            world
                .replica
                .plan_open(1_700_000_000, 3, &[(name("Sent"), Some(SpecialUse::Sent))]);
        world.apply(plan.ops);
        world
    }

    fn at(&self) -> At {
        At {
            now_micros: self.now(),
            next: Dot::new(origin(), self.seq + 1),
        }
    }

    fn now(&self) -> u64 {
        1_700_000_100_000_000 + self.seq * 10
    }

    fn apply(&mut self, ops: Vec<Op>) {
        let (deps, first) = (self.applied.clone(), self.seq + 1);
        self.seq += ops.len() as u64;
        self.applied.advance(origin(), self.seq);
        let (hlc, peers) = (self.now(), Peers::none());
        let step = Step {
            origin: origin(),
            first,
            hlc,
            deps: &deps,
            applied: &self.applied,
            now_micros: hlc,
            peers: &peers,
        };
        self.replica.apply(&step, ops).expect("causal");
    }

    /// Brings these messages into a mailbox; how many are new.
    fn import(&mut self, to: &str, ids: &[u8]) -> Vec<u32> {
        let message = |id: &u8| {
            let message = NewMessage {
                flags: Flags::from_iter([Flag::Seen]),
                blob: BlobName {
                    hash: [*id; 32],
                    upload: [self.seq as u8; 16],
                },
                size: 10,
                open_end: false,
                date: Date {
                    seconds: 1,
                    zone_minutes: 60,
                },
                content: b"summary".to_vec(),
            };
            (EntryId([*id; 16]), message)
        };
        let messages = ids.iter().map(message).collect();
        let plan = self.replica.plan_import(&self.at(), &name(to), messages);
        let plan = plan.expect("planned");
        self.apply(plan.ops);
        plan.outcome
    }

    fn count(&self, of: &str) -> u32 {
        self.replica.status(&name(of)).expect("it exists").messages
    }
}

#[test]
fn a_message_is_added_once() {
    let mut world = World::new();
    let uids = world.import("INBOX", &[1, 2, 2, 3]);
    assert_eq!((uids.len(), world.count("INBOX")), (3, 3));
    assert!(uids.is_sorted());
    let unseen = world
        .replica
        .status(&name("INBOX"))
        .expect("it exists")
        .unseen;
    assert_eq!(unseen, 0, "its flags came along");
    assert_eq!(world.import("INBOX", &[3, 4, 1]).len(), 1);

    // Moved, and into another mailbox.
    let plan = world
        .replica
        .plan_move(&world.at(), &name("INBOX"), &uids[..1], &name("Sent"));
    world.apply(plan.expect("planned").ops);
    assert_eq!(world.import("INBOX", &[1]), []);
    assert_eq!(world.import("Sent", &[2]), []);
    assert_eq!((world.count("INBOX"), world.count("Sent")), (3, 1));

    // Removed: as long as it is remembered.
    let plan = world.replica.plan_expunge(&name("INBOX"), &uids[1..2]);
    world.apply(plan.expect("planned").ops);
    assert_eq!(world.import("INBOX", &[2]), []);
    assert_eq!(world.count("INBOX"), 2);
}

/// One node forgets what was removed, the other does not yet: a further import at the first must not bring back for one what is dead for the other.
#[test]
fn nodes_agree_on_what_was_imported_again() {
    let mut one = World::new();
    let mut two = one.replica.clone();
    let mut shared = one.applied.clone();
    let step = |one: &mut World, two: &mut Replica, shared: &mut VersionVector, ops: Vec<Op>| {
        let first = one.seq + 1;
        let deps = shared.clone();
        one.apply(ops.clone());
        *shared = one.applied.clone();
        let step = Step {
            origin: origin(),
            first,
            hlc: one.now(),
            deps: &deps,
            applied: shared,
            now_micros: one.now(),
            peers: &Peers::none(),
        };
        two.apply(&step, ops).map(drop)
    };
    let inbox = name("INBOX");
    let message = || {
        let message = NewMessage {
            flags: Flags::none(),
            blob: BlobName {
                hash: [1; 32],
                upload: [1; 16],
            },
            size: 10,
            open_end: false,
            date: Date {
                seconds: 1,
                zone_minutes: 60,
            },
            content: b"summary".to_vec(),
        };
        vec![(EntryId([1; 16]), message)]
    };
    let plan = one.replica.plan_import(&one.at(), &inbox, message());
    let plan = plan.expect("planned");
    step(&mut one, &mut two, &mut shared, plan.ops).expect("causal");
    let plan = one.replica.plan_expunge(&inbox, &plan.outcome);
    step(&mut one, &mut two, &mut shared, plan.expect("planned").ops).expect("causal");

    // As an owner of a cluster asks: no queue entry is under way.
    let finished = |tag, _: &VersionVector| tag != EntryTag::IMPORT;
    one.replica.collect(&shared, &finished, usize::MAX);
    let plan = one.replica.plan_import(&one.at(), &inbox, message());
    let plan = plan.expect("planned");
    step(&mut one, &mut two, &mut shared, plan.ops).expect("causal");
    two.collect(&shared, &finished, usize::MAX);
    let count = |replica: &Replica| replica.status(&inbox).expect("it exists").messages;
    assert_eq!(count(&one.replica), count(&two));

    // Where it is said that nobody has it otherwise it is forgotten, and comes back.
    one.replica.collect(&shared, &|_, _| true, usize::MAX);
    assert_eq!(one.replica.hidden(), 0);
    assert_eq!(one.import("INBOX", &[1]).len(), 1);
}
