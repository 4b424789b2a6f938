//! An older copy of the disk put back: what an account does when it is loaded under another incarnation.

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_mailbox::{
    AccountId, At, BlobName, Date, EntryId, Flags, MailboxName, NewMessage, Op, Peers, Renewed,
    Replica, RestoreRecovery, RowKey, Step, Tombstones,
};

const ANNE: AccountId = AccountId([1; 16]);
const NOW: u64 = 1_800_000_000_000_000;

/// A replica with what its owner does around it.
struct Node {
    replica: Replica,
    origin: Incarnation,
    applied: VersionVector,
    now: u64,
}

impl Node {
    fn new() -> Node {
        let mut replica = Replica::new(ANNE, 0);
        replica.begin(&renewal(1));
        let ops = replica.plan_open((NOW / 1_000_000) as u32, 0, &[]).ops;
        let mut node = Node {
            replica,
            origin: Incarnation::from_hash(1),
            applied: VersionVector::new(),
            now: NOW,
        };
        node.apply(ops);
        node
    }

    fn at(&self) -> At {
        let next = Dot::new(self.origin, self.applied.get(self.origin) + 1);
        At {
            now_micros: self.now,
            next,
        }
    }

    fn apply(&mut self, mut ops: Vec<Op>) {
        loop {
            let first = self.applied.get(self.origin) + 1;
            self.now += 1_000;
            let deps = self.applied.clone();
            self.applied
                .advance(self.origin, first + ops.len() as u64 - 1);
            let step = Step {
                origin: self.origin,
                first,
                hlc: self.now,
                deps: &deps,
                applied: &self.applied,
                now_micros: self.now,
                peers: &Peers::none(),
            };
            let effects = self.replica.apply(&step, ops).unwrap();
            if !effects.late {
                return;
            }
            ops = self.replica.plan_late(&self.at(), &Peers::none()).ops;
        }
    }

    fn append(&mut self, name: &MailboxName, count: usize) -> Vec<u32> {
        let plan = self
            .replica
            .plan_append(&self.at(), name, vec![message(); count])
            .unwrap();
        self.apply(plan.ops);
        self.replica.announce(name);
        plan.outcome
    }

    /// What a queue entry is delivered as; its UID.
    fn deliver(&mut self, entry: u8) -> u32 {
        let inbox = MailboxName::inbox();
        let entry = EntryId([entry; 16]);
        let plan = self
            .replica
            .plan_deliver(&self.at(), entry, &inbox, &inbox, message());
        self.apply(plan.unwrap().ops);
        let uids = self.uids();
        uids[uids.len() - 1]
    }

    fn uids(&self) -> Vec<u32> {
        self.replica.uids(&MailboxName::inbox())
    }

    fn next(&mut self, name: &MailboxName) -> u32 {
        self.replica.announce(name);
        self.replica.status(name).unwrap().uidnext
    }

    /// What is on disk now, loaded by another incarnation with another slot.
    fn put_back(&self, id: u64, slot: u8, renewal: &RestoreRecovery) -> (Node, Renewed) {
        let replica = Replica::load(ANNE, slot, self.replica.all_rows(), &self.applied).unwrap();
        let mut node = Node {
            replica,
            origin: Incarnation::from_hash(id),
            applied: self.applied.clone(),
            now: self.now,
        };
        assert!(node.replica.needs_renewal(renewal));
        let outcome = node.renew(renewal);
        assert!(!node.replica.needs_renewal(renewal));
        let again = Replica::load(ANNE, slot, node.replica.all_rows(), &node.applied).unwrap();
        assert!(!again.needs_renewal(renewal), "it is kept");
        (node, outcome)
    }

    fn renew(&mut self, renewal: &RestoreRecovery) -> Renewed {
        let plan = self.replica.plan_renewal(&self.at(), renewal);
        self.replica.renew(renewal, plan.outcome, self.now);
        self.apply(plan.ops);
        plan.outcome
    }

    /// An older copy, with these rows and what it had applied, that is to be renewed and is joined with a snapshot of this node before.
    fn joined_by(
        &self,
        rows: Vec<(RowKey, Vec<u8>)>,
        applied: &VersionVector,
        renewal: &RestoreRecovery,
    ) -> Node {
        let mut older = Node {
            replica: Replica::load(ANNE, 5, rows, applied).unwrap(),
            origin: renewal.incarnation,
            applied: self.applied.clone(),
            now: self.now,
        };
        older
            .replica
            .lead(&older.at(), renewal, Some(&self.replica));
        let (now, peers) = (older.now, Peers::none());
        older
            .replica
            .join(applied, &self.replica, &self.applied, now, &peers);
        older
    }
}

fn message() -> NewMessage {
    NewMessage {
        flags: Flags::none(),
        blob: BlobName {
            hash: [0; 32],
            upload: [0; 16],
        },
        size: 1,
        open_end: false,
        date: Date {
            seconds: 0,
            zone_minutes: 0,
        },
        content: Vec::new(),
    }
}

fn renewal(id: u64) -> RestoreRecovery {
    RestoreRecovery {
        incarnation: Incarnation::from_hash(id),
        round: 0,
        lead: 1000,
    }
}

/// An account that was renewed once is renewed again when an older copy of the disk is put back once more.
#[test]
pub(crate) fn each_older_copy_is_renewed() {
    let first = Node::new();
    let (second, _) = first.put_back(2, 1, &renewal(2));
    let _ = second.put_back(3, 2, &renewal(3));
}

#[test]
fn uids_of_the_lost_time_are_given_to_nobody() {
    let inbox = MailboxName::inbox();
    let mut lost = Node::new();
    let kept = lost.append(&inbox, 3);
    let (mut node, renewed) = lost.put_back(2, 5, &renewal(2));
    let Renewed::Ahead(_) = renewed else {
        panic!("{renewed:?}")
    };
    // What the copy does not know.
    let mut gone = lost.append(&inbox, 900);
    let announced = lost.next(&inbox);
    assert_eq!(
        node.replica.uids(&inbox),
        kept,
        "what there is keeps its UIDs"
    );
    assert!(node.next(&inbox) >= announced, "UIDNEXT does not go back");
    let new = node.append(&inbox, 900);
    assert!(new.iter().all(|uid| *uid >= announced));
    gone.retain(|uid| new.contains(uid));
    assert_eq!(gone, [0u32; 0]);
    // Nor are they so low under a name that may have been announced in that time.
    let (other, elsewhere) = (
        MailboxName::new("a").unwrap(),
        MailboxName::new("b").unwrap(),
    );
    let create = node.replica.plan_create(&node.at(), &other, None).unwrap();
    node.apply(create.ops);
    let copy = node
        .replica
        .plan_copy(&node.at(), &inbox, &kept, &other)
        .unwrap();
    node.apply(copy.ops);
    let rename = node
        .replica
        .plan_rename(&node.at(), &other, &elsewhere)
        .unwrap();
    node.apply(rename.ops);
    assert!(
        node.replica
            .uids(&elsewhere)
            .iter()
            .all(|uid| *uid >= announced)
    );
}

#[test]
fn modseqs_of_the_lost_time_are_not_believed() {
    let inbox = MailboxName::inbox();
    let mut lost = Node::new();
    let kept = lost.append(&inbox, 2);
    let known = lost.replica.status(&inbox).unwrap().highestmodseq;
    assert!(lost.replica.is_own_modseq(known));
    // Even if the slot is the same by chance.
    for slot in [5, 0] {
        let (node, _) = lost.put_back(2, slot, &renewal(2));
        assert!(!node.replica.is_own_modseq(known));
        for uid in &kept {
            let modseq = node.replica.row(&inbox, *uid).unwrap().modseq;
            assert!(modseq > known && node.replica.is_own_modseq(modseq));
        }
        let changed = node.replica.changed_since(&inbox, known);
        assert_eq!(changed, kept, "all that is visible has changed");
        assert_eq!(node.replica.vanished_since(&inbox, known), None);
    }
}

#[test]
fn a_client_that_names_a_uid_of_the_lost_time_is_believed() {
    let inbox = MailboxName::inbox();
    let mut lost = Node::new();
    let kept = lost.append(&inbox, 3);
    let (mut node, _) = lost.put_back(2, 5, &renewal(2));
    // More than the lead allows for.
    lost.append(&inbox, 6_000);
    let announced = lost.next(&inbox);
    let new = node.append(&inbox, 2);
    assert!(
        new.iter().all(|uid| *uid < announced),
        "the lead was too short"
    );
    assert_eq!(node.replica.lost(&inbox, &kept), None, "nothing unknown");
    assert_eq!(
        node.replica
            .lost(&inbox, &[u32::MAX, announced + (1 << 28)]),
        None,
        "not plausible"
    );
    let takeover = node.replica.lost(&inbox, &[announced, 7]).unwrap();
    assert!(takeover.named[0].1 >= announced - 1);
    loop {
        let plan = node.replica.plan_takeover(&node.at(), &takeover);
        if plan.ops.is_empty() {
            break;
        }
        node.apply(plan.ops);
    }
    let at = node.at();
    node.replica.raise_marks(&at, &takeover);
    let uids = node.replica.uids(&inbox);
    assert_eq!(uids[..3], kept, "the client knows these");
    assert!(
        uids[3..].iter().all(|uid| *uid >= announced),
        "and has not seen these: {uids:?}"
    );
    assert_eq!(uids.len(), 5);
    assert!(node.next(&inbox) > announced);
    assert!(node.append(&inbox, 1)[0] > announced);
    assert_eq!(node.replica.lost(&inbox, &[announced]), None);
}

#[test]
fn when_the_slots_are_used_up_uidvalidity_rises() {
    let inbox = MailboxName::inbox();
    let mut lost = Node::new();
    let kept = lost.append(&inbox, 5_000);
    let validity = lost.replica.uidvalidity();
    let next_round = RestoreRecovery {
        round: 1,
        ..renewal(2)
    };
    let (node, renewed) = lost.put_back(2, 0, &next_round);
    assert_eq!(renewed, Renewed::Epoch);
    assert!(node.replica.uidvalidity() > validity);
    assert_eq!(node.replica.uids(&inbox).len(), kept.len());
    assert!(node.replica.is_clean());
    let loaded = Replica::load(ANNE, 0, node.replica.all_rows(), &node.applied).unwrap();
    assert_eq!(loaded.uids(&inbox), node.replica.uids(&inbox));
    // Near the end of the UIDs, too.
    let far = RestoreRecovery {
        lead: 1 << 26,
        ..renewal(3)
    };
    assert_eq!(lost.put_back(3, 1, &far).1, Renewed::Epoch);
}

/// Where an account was done away with, and opened anew by what another node had written, the operation by which an epoch rose had been passed over:
/// what was claimed in that epoch was never visible, and claiming it again did not help.
#[test]
fn who_claims_in_a_later_epoch_is_followed_into_it() {
    let inbox = MailboxName::inbox();
    let (mut node, mut other) = (Node::new(), Node::new());
    other.append(&inbox, 1);
    node.apply(node.replica.plan_epoch(&node.at(), 0).ops);
    let plan = node
        .replica
        .plan_append(&node.at(), &inbox, vec![message(); 2]);
    let ops = plan.unwrap().ops;
    let epoch = node.replica.uidvalidity();
    assert_eq!(Op::epoch_of_all(&ops), epoch);
    other.replica.follow_epoch(Op::epoch_of_all(&ops));
    let step = Step {
        origin: Incarnation::from_hash(2),
        first: 1,
        hlc: other.now,
        deps: &VersionVector::new(),
        applied: &other.applied,
        now_micros: other.now,
        peers: &Peers::none(),
    };
    let effects = other.replica.apply(&step, ops).unwrap();
    assert_eq!(other.replica.uidvalidity(), epoch);
    assert_eq!(other.uids().len(), 2);
    // What was there before is claimed again.
    assert!(effects.late);
    other.apply(other.replica.plan_late(&other.at(), &Peers::none()).ops);
    assert_eq!(other.uids().len(), 3);
    // An earlier one changes nothing.
    other.replica.follow_epoch(0);
    assert_eq!(other.replica.uidvalidity(), epoch);
}

/// An epoch and the claims that follow from it are many writes: a crash between them.
#[test]
fn an_epoch_that_a_crash_interrupts_goes_on() {
    let inbox = MailboxName::inbox();
    let mut node = Node::new();
    node.append(&inbox, 10_000);
    node.replica.take_dirty();
    let mut disk: std::collections::BTreeMap<_, _> = node.replica.all_rows().into_iter().collect();
    let plan = node.replica.plan_epoch(&node.at(), 0);
    // One that no other node gives.
    let slot = u32::from(node.replica.slot());
    assert!(matches!(plan.ops[..], [Op::Epoch { uidvalidity }] if uidvalidity % 64 == slot));
    let validity = node.replica.uidvalidity();
    let mut ops = plan.ops;
    for _ in 0..2 {
        let first = node.applied.get(node.origin) + 1;
        node.applied
            .advance(node.origin, first + ops.len() as u64 - 1);
        node.now += 1_000_000;
        let (deps, peers) = (node.applied.clone(), Peers::none());
        let step = Step {
            origin: node.origin,
            first,
            hlc: node.now,
            deps: &deps,
            applied: &node.applied,
            now_micros: node.now,
            peers: &peers,
        };
        node.replica.apply(&step, ops).unwrap();
        let rows = node.replica.take_dirty();
        assert!(rows.len() < 4_200, "{} rows in one write", rows.len());
        for (key, row) in rows {
            match row {
                Some(row) => disk.insert(key, row),
                None => disk.remove(&key),
            };
        }
        ops = node.replica.plan_late(&node.at(), &peers).ops;
    }
    let mut again = Node {
        replica: Replica::load(ANNE, 0, disk, &node.applied).unwrap(),
        ..node
    };
    assert!(again.replica.uidvalidity() > validity);
    assert_eq!(again.replica.uids(&inbox).len(), 4_096);
    let late = again.replica.plan_late(&again.at(), &Peers::none());
    again.apply(late.ops);
    assert_eq!(again.replica.uids(&inbox).len(), 10_000);
}

/// An older copy has a delivery that was removed, and collected everywhere: by a snapshot of a node that knew it and has no record of it, it is gone. What
/// that one never knew stays, whether or not it knew all else.
#[test]
fn a_delivery_that_was_collected_does_not_come_back_by_an_older_copy() {
    for delivered_since in [false, true] {
        let mut node = Node::new();
        let uid = node.deliver(1);
        let kept = node.deliver(2);
        let (mut older, _) = node.put_back(2, 5, &renewal(2));
        let before = node.applied.clone();
        let plan = node.replica.plan_expunge(&MailboxName::inbox(), &[uid]);
        node.apply(plan.unwrap().ops);
        let (applied, tombstones) = (node.applied.clone(), Tombstones::Left);
        let collected = node
            .replica
            .collect(&applied, &|_, _| true, tombstones, usize::MAX);
        assert_eq!(collected.messages.len(), 1);

        let mut mine = before;
        let mut expected = vec![kept];
        if delivered_since {
            expected.push(older.deliver(3));
            mine = older.applied.clone();
        } else {
            // As its disk had it.
            let rows = older.replica.all_rows();
            older.replica = Replica::load(ANNE, 5, rows, &mine).unwrap();
        }
        older
            .replica
            .join(&mine, &node.replica, &applied, NOW, &Peers::none());
        assert_eq!(older.uids(), expected);
    }
}

/// The same when an epoch came between, and by a snapshot of a node that got all from one that knew it.
#[test]
fn a_delivery_of_the_last_epoch_that_was_collected_does_not_come_back() {
    for by_another in [false, true] {
        let inbox = MailboxName::inbox();
        let mut node = Node::new();
        let uid = node.deliver(1);
        node.deliver(2);
        let (mut older, _) = node.put_back(2, 5, &renewal(2));
        node.apply(node.replica.plan_expunge(&inbox, &[uid]).unwrap().ops);
        let (applied, tombstones) = (node.applied.clone(), Tombstones::Left);
        let collected = node
            .replica
            .collect(&applied, &|_, _| true, tombstones, usize::MAX);
        assert_eq!(collected.messages.len(), 1);
        node.apply(node.replica.plan_epoch(&node.at(), 0).ops);
        // It is kept.
        node.replica = Replica::load(ANNE, 0, node.replica.all_rows(), &node.applied).unwrap();
        if by_another {
            let mut other = Replica::new(ANNE, 7);
            let nothing = VersionVector::new();
            other.join(&nothing, &node.replica, &node.applied, NOW, &Peers::none());
            node.replica = other;
        }
        assert_eq!(node.uids().len(), 1);

        older.deliver(3);
        let mine = older.applied.clone();
        older
            .replica
            .join(&mine, &node.replica, &node.applied, NOW, &Peers::none());
        older.applied.merge(&node.applied);
        let late = older.replica.plan_late(&older.at(), &Peers::none());
        older.apply(late.ops);
        assert_eq!(older.uids().len(), 2, "the second and the third");
    }
}

/// What comes to an older copy before it is renewed (a snapshot, here) may be below what was announced in the lost time: it is not
/// visible under its UID of then.
#[test]
fn what_comes_with_a_snapshot_is_not_visible_below_what_was_announced() {
    let inbox = MailboxName::inbox();
    let mut node = Node::new();
    let kept = node.append(&inbox, 1);
    let rows = node.replica.all_rows();
    let mine = node.applied.clone();
    // Announced in the lost time, when this message was late here and was visible elsewhere.
    node.append(&inbox, 2);
    let announced = node.next(&inbox);

    let again = renewal(2);
    let mut older = node.joined_by(rows, &mine, &again);
    assert_eq!(older.uids(), kept, "what the copy has keeps its UID");
    older.renew(&again);
    let plan = older.replica.plan_late(&older.at(), &Peers::none());
    older.apply(plan.ops);
    let uids = older.uids();
    assert_eq!((uids[0], uids.len()), (kept[0], 3));
    let next = older.next(&inbox);
    assert!(uids[1..].iter().all(|uid| (announced..next).contains(uid)));
}

/// The same if UIDVALIDITY has risen since the copy was made: marks are of an epoch.
#[test]
fn what_comes_with_a_snapshot_of_a_later_epoch_is_not_visible_below_what_was_announced() {
    let inbox = MailboxName::inbox();
    let mut node = Node::new();
    node.append(&inbox, 1);
    let rows = node.replica.all_rows();
    let mine = node.applied.clone();
    let plan = node.replica.plan_epoch(&node.at(), 0);
    node.apply(plan.ops);
    let plan = node.replica.plan_late(&node.at(), &Peers::none());
    node.apply(plan.ops);
    // Announced in the lost time, when this message was late here and was visible elsewhere.
    node.append(&inbox, 2);
    let announced = node.next(&inbox);

    let again = renewal(2);
    let mut older = node.joined_by(rows, &mine, &again);
    older.renew(&again);
    let plan = older.replica.plan_late(&older.at(), &Peers::none());
    older.apply(plan.ops);
    let (uids, next) = (older.uids(), older.next(&inbox));
    assert_eq!(older.replica.uidvalidity(), node.replica.uidvalidity());
    assert_eq!(uids.len(), 3);
    assert!(
        uids.iter().all(|uid| (announced..next).contains(uid)),
        "{uids:?}, {announced}"
    );
}
