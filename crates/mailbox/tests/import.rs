//! Messages from elsewhere: each is added once, whatever became of it.

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

/// What a message is elsewhere, and what it brings here.
fn from_elsewhere(id: u8, flags: Flags, hash: u8, upload: u8) -> (EntryId, NewMessage) {
    let message = NewMessage {
        flags,
        blob: BlobName {
            hash: [hash; 32],
            upload: [upload; 16],
        },
        size: 10,
        open_end: false,
        date: Date {
            seconds: 1,
            zone_minutes: 60,
        },
        content: b"summary".to_vec(),
    };
    (EntryId([id; 16]), message)
}

/// Operations that begin with this dot, of somebody who had applied `deps`.
fn apply(
    replica: &mut Replica,
    first: Dot,
    hlc: u64,
    (deps, applied): (&VersionVector, &VersionVector),
    ops: Vec<Op>,
) {
    let step = Step {
        origin: first.origin,
        first: first.seq,
        hlc,
        deps,
        applied,
        now_micros: hlc,
        peers: &Peers::none(),
    };
    replica.apply(&step, ops).expect("causal");
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
        let (hlc, first) = (self.now(), Dot::new(origin(), first));
        apply(&mut self.replica, first, hlc, (&deps, &self.applied), ops);
    }

    /// Brings these messages into a mailbox; how many are new.
    fn import(&mut self, to: &str, ids: &[u8]) -> Vec<u32> {
        let seen = || Flags::from_iter([Flag::Seen]);
        let message = |id: &u8| from_elsewhere(*id, seen(), *id, self.seq as u8);
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
        let first = Dot::new(origin(), first);
        apply(two, first, one.now(), (&deps, shared), ops);
    };
    let inbox = name("INBOX");
    let message = || vec![from_elsewhere(1, Flags::none(), 1, 1)];
    let plan = one.replica.plan_import(&one.at(), &inbox, message());
    let plan = plan.expect("planned");
    step(&mut one, &mut two, &mut shared, plan.ops);
    let plan = one.replica.plan_expunge(&inbox, &plan.outcome);
    step(&mut one, &mut two, &mut shared, plan.expect("planned").ops);

    let collect = |replica: &mut Replica, stable: &VersionVector| {
        let collected = replica.collect(stable, &|_, _| true, Tombstones::Left, usize::MAX);
        let blob = collected.messages.iter().map(|of| of.content.is_some());
        assert_eq!(blob.collect::<Vec<_>>(), [true]);
        assert_eq!(replica.hidden(), 0);
    };
    collect(&mut one.replica, &shared);
    let plan = one.replica.plan_import(&one.at(), &inbox, message());
    let plan = plan.expect("planned");
    step(&mut one, &mut two, &mut shared, plan.ops);
    collect(&mut two, &shared);
    let count = |replica: &Replica| replica.status(&inbox).expect("it exists").messages;
    assert_eq!(count(&one.replica), count(&two));

    // Nor after a load of its rows.
    let rows = one.replica.all_rows();
    let loaded = Replica::load(one.replica.account(), 1, rows, &one.applied);
    one.replica = loaded.expect("its own rows");
    assert_eq!(one.import("INBOX", &[1]), []);
    assert_eq!(count(&one.replica), 0);
}

/// Where nobody may remember it, it is forgotten, and comes back.
#[test]
fn what_leaves_no_tombstone_comes_back() {
    let mut world = World::new();
    let uids = world.import("INBOX", &[1, 2]);
    let plan = world.replica.plan_expunge(&name("INBOX"), &uids);
    world.apply(plan.expect("planned").ops);
    let stable = world.applied.clone();
    let none = Tombstones::None;
    let collected = world
        .replica
        .collect(&stable, &|_, _| true, none, usize::MAX);
    assert_eq!(collected.messages.len(), 2);
    assert_eq!(world.import("INBOX", &[1]).len(), 1);
    assert_eq!(world.count("INBOX"), 1);
}

/// Of three nodes one has only a tombstone, one the record of what was removed, and one, which has come back with an older disk, imports the message
/// again before it knows of either, from a source that gives other bytes by now: it stays removed at all of them, whichever way they come to know. A
/// copy stays, with one blob.
#[test]
fn what_has_a_tombstone_stays_removed() {
    for copies in [0, 1] {
        stays_removed(copies);
    }
}

fn stays_removed(copies: u32) {
    let mut one = World::new();
    let (rows, deps) = (one.replica.all_rows(), one.applied.clone());
    let older = Replica::load(one.replica.account(), 2, rows, &deps);
    let mut older = older.expect("its own rows");
    let uids = one.import("INBOX", &[1]);
    for _ in 0..copies {
        let plan = one
            .replica
            .plan_copy(&one.at(), &name("INBOX"), &uids, &name("Sent"));
        one.apply(plan.expect("planned").ops);
    }
    let plan = one.replica.plan_expunge(&name("INBOX"), &uids);
    one.apply(plan.expect("planned").ops);
    let removed = one.replica.clone();
    let stable = one.applied.clone();
    let collect = |replica: &mut Replica, stable: &VersionVector| {
        replica.take_dirty();
        let collected = replica.collect(stable, &|_, _| true, Tombstones::Left, usize::MAX);
        let contents = collected.messages.iter().map(|of| of.content.is_some());
        (contents.collect::<Vec<_>>(), replica.take_dirty())
    };
    let rows_of = |rows: &[(RowKey, Option<Vec<u8>>)], is: fn(&RowKey) -> bool| {
        rows.iter().filter(|(row, _)| is(row)).count()
    };
    let (dropped, rows) = collect(&mut one.replica, &stable);
    assert_eq!(dropped, [copies == 0]);
    let is_content = |row: &RowKey| matches!(row, RowKey::Content(_));
    assert_eq!(rows_of(&rows, is_content), usize::from(copies == 0));

    let back = Incarnation::new(8).expect("not zero");
    let at = At {
        now_micros: one.now(),
        next: Dot::new(back, 1),
    };
    let message = from_elsewhere(1, Flags::none(), 2, 1);
    let plan = older.plan_import(&at, &name("INBOX"), vec![message]);
    let ops = plan.expect("planned").ops;
    let mut theirs = deps.clone();
    theirs.advance(back, ops.len() as u64);
    let hlc = one.now() + 1_000;
    let hear = |replica: &mut Replica, applied: &VersionVector| {
        apply(replica, at.next, hlc, (&deps, applied), ops.clone());
    };
    hear(&mut older, &theirs);
    let count = |replica: &Replica, of: &str| {
        let status = replica.status(&name(of));
        status.expect("it exists").messages
    };
    assert_eq!(count(&older, "INBOX"), 1);
    let mut all = stable.clone();
    all.merge(&theirs);
    let holds = |replica: &Replica, hidden: usize| {
        assert_eq!(
            (count(replica, "INBOX"), count(replica, "Sent")),
            (0, copies)
        );
        assert_eq!(replica.hidden(), hidden);
        // The content row is of the origin.
        let mut origins: Vec<MessageId> = replica.contents().map(|(origin, _)| origin).collect();
        let blobs = origins.len();
        origins.dedup();
        assert_eq!(origins.len(), blobs);
    };

    // By operations, where there is a tombstone: its record is there again, and goes as before.
    let mut by_ops = one.replica.clone();
    hear(&mut by_ops, &all);
    holds(&by_ops, 1);
    // Of the two blobs it is the greater one, in the copy, too.
    let contents = rows_of(&by_ops.take_dirty(), is_content);
    assert_eq!(contents, 1);
    assert_eq!(by_ops.take_replaced().len(), copies as usize);
    assert_eq!(collect(&mut by_ops, &all).0, [copies == 0]);
    holds(&by_ops, 0);

    // By snapshots, in all directions, and as a load finds it.
    let join = |mine: &Replica, mine_at, other: &Replica, other_at| {
        let mut joined = mine.clone();
        joined.join(mine_at, other, other_at, hlc, &Peers::none());
        let hidden = joined.hidden();
        holds(&joined, hidden);
        let rows = joined.all_rows();
        let mut loaded = Replica::load(joined.account(), 1, rows, &all).expect("its own rows");
        holds(&loaded, hidden);
        assert_eq!(collect(&mut loaded, &all).0.len(), hidden);
        holds(&loaded, 0);
        let left = loaded.all_rows().into_iter();
        let left = left.filter(|(row, _)| matches!(row, RowKey::Tombstone(_)));
        assert_eq!(left.count(), 1);
        // The last copy takes the content along.
        if copies > 0 {
            let uids = loaded.uids(&name("Sent"));
            let plan = loaded.plan_expunge(&name("Sent"), &uids).expect("planned");
            let first = Dot::new(back, all.get(back) + 1);
            let mut later = all.clone();
            later.advance(back, first.seq);
            apply(&mut loaded, first, hlc + 1_000, (&all, &later), plan.ops);
            assert_eq!(collect(&mut loaded, &later).0, [true]);
        }
    };
    for removed in [&one.replica, &removed] {
        join(removed, &stable, &older, &theirs);
        join(&older, &theirs, removed, &stable);
    }
    join(&one.replica, &stable, &removed, &stable);
    join(&removed, &stable, &one.replica, &stable);
    let new = Replica::new(AccountId([9; 16]), 3);
    join(&new, &VersionVector::new(), &one.replica, &stable);
}

/// What leaves no tombstone is brought back while a copy of it is there: both have one content, which goes with the last of them, in whatever order.
#[test]
fn what_comes_back_shares_the_content_of_its_copy() {
    for copy_first in [false, true] {
        let mut world = World::new();
        let uids = world.import("INBOX", &[1]);
        let plan = world
            .replica
            .plan_copy(&world.at(), &name("INBOX"), &uids, &name("Sent"));
        world.apply(plan.expect("planned").ops);
        let remove = |world: &mut World, from: &str| {
            let uids = world.replica.uids(&name(from));
            let plan = world.replica.plan_expunge(&name(from), &uids);
            world.apply(plan.expect("planned").ops);
            let stable = world.applied.clone();
            let collected =
                world
                    .replica
                    .collect(&stable, &|_, _| true, Tombstones::None, usize::MAX);
            let contents = collected.messages.into_iter();
            contents.filter_map(|gone| gone.content).count()
        };
        assert_eq!(remove(&mut world, "INBOX"), 0, "the copy has it");
        world.import("INBOX", &[1]);
        let contents: Vec<_> = world.replica.contents().collect();
        assert!(
            contents.iter().all(|content| *content == contents[0]),
            "{contents:?}"
        );
        let order = match copy_first {
            true => ["Sent", "INBOX"],
            false => ["INBOX", "Sent"],
        };
        assert_eq!(remove(&mut world, order[0]), 0, "the other one has it");
        assert_eq!(remove(&mut world, order[1]), 1);
    }
}
