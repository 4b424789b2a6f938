//! Messages whose blobs come later than the operations that name them.

use std::collections::BTreeMap;

use whimbrel_crdt::{Dot, Incarnation, VersionVector};
use whimbrel_mailbox::*;

use crate::message::{BLOB, message};

const ACCOUNT: AccountId = AccountId([9; 16]);
const START: u64 = 1_700_000_100_000_000;

/// One replica, which applies what is made here or elsewhere.
struct Node {
    replica: Replica,
    applied: VersionVector,
    /// The monotonic clock; at the end of time nobody waits.
    mono: u64,
    /// Who reads elsewhere.
    readers: Vec<Peer>,
    rows: BTreeMap<RowKey, Vec<u8>>,
}

fn maker(slot: u8) -> Incarnation {
    Incarnation::new(u64::from(slot)).expect("not zero")
}

impl Node {
    fn new(slot: u8) -> Node {
        Node {
            replica: Replica::new(ACCOUNT, slot),
            applied: VersionVector::new(),
            mono: u64::MAX,
            readers: Vec::new(),
            rows: BTreeMap::new(),
        }
    }

    fn at(&self) -> At {
        let origin = maker(self.replica.slot());
        At {
            now_micros: START,
            next: Dot::new(origin, self.applied.get(origin) + 1),
        }
    }

    fn apply(&mut self, origin: Incarnation, ops: Vec<Op>) -> Effects {
        let deps = self.applied.clone();
        let first = self.applied.get(origin) + 1;
        self.applied.advance(origin, first - 1 + ops.len() as u64);
        let peers = Peers::new(self.mono, self.readers.clone());
        let step = Step {
            origin,
            first,
            hlc: START + first,
            deps: &deps,
            applied: &self.applied,
            now_micros: START + first,
            peers: &peers,
        };
        let effects = self.replica.apply(&step, ops).expect("in order");
        self.save();
        effects
    }

    fn save(&mut self) {
        for (row, value) in self.replica.take_dirty() {
            match value {
                Some(value) => _ = self.rows.insert(row, value),
                None => _ = self.rows.remove(&row),
            }
        }
    }

    fn load(&mut self, missing_blobs: &[BlobName]) {
        let slot = self.replica.slot();
        let rows = self.rows.clone();
        self.replica = Replica::load(ACCOUNT, slot, rows, &self.applied).expect("its own rows");
        let missing_blobs: BTreeMap<BlobName, ()> =
            missing_blobs.iter().map(|blob| (*blob, ())).collect();
        self.replica.lack_all(&missing_blobs);
        self.replica.release(START, &Peers::none());
    }

    fn visible(&self) -> Vec<u32> {
        self.replica.uids(&MailboxName::inbox())
    }
}

/// Node 1 adds a message; node 2 has applied all of it, and lacks the blob.
fn two() -> (Node, Node, u32) {
    two_at(u64::MAX)
}

fn two_at(mono: u64) -> (Node, Node, u32) {
    let (mut one, mut two) = (Node::new(1), Node::new(2));
    let open = one.replica.plan_open(1_700_000_000, 3, &[]).ops;
    one.apply(maker(1), open.clone());
    two.apply(maker(1), open);
    two.mono = mono;
    let (inbox, new) = (MailboxName::inbox(), vec![message(BLOB)]);
    let plan = one.replica.plan_append(&one.at(), &inbox, new);
    let plan = plan.expect("INBOX is there");
    one.apply(maker(1), plan.ops.clone());
    two.replica.lack(BLOB);
    let effects = two.apply(maker(1), plan.ops);
    assert!(!effects.late && effects.changed.is_empty(), "{effects:?}");
    (one, two, plan.outcome[0])
}

#[test]
fn a_message_is_visible_when_its_blob_is_here() {
    let (one, mut two, uid) = two();
    assert_eq!(one.visible(), [uid]);
    assert_eq!(two.visible(), []);
    assert!(!two.replica.is_clean());
    let status = two.replica.status(&MailboxName::inbox()).expect("INBOX");
    assert_eq!((status.messages, status.uidnext), (0, 1));
    let effects = two.replica.blob_arrived(&BLOB, START + 9, &Peers::none());
    assert_eq!(effects.changed, [MailboxName::inbox()]);
    assert_eq!(two.visible(), [uid]);
    assert!(two.replica.is_clean());
}

/// Small blobs come before large ones: what has a greater claim waits for two seconds, so that the lower one is not late.
#[test]
fn what_is_above_waits_for_the_blob() {
    let check = |came_at: u64, late: bool| {
        let (one, mut two, lower) = two_at(7);
        let other = BlobName {
            upload: [3; 16],
            ..BLOB
        };
        let (inbox, new) = (MailboxName::inbox(), vec![message(other)]);
        let plan = one
            .replica
            .plan_append(&one.at(), &inbox, new)
            .expect("INBOX");
        let upper = plan.outcome[0];
        let effects = two.apply(maker(1), plan.ops);
        assert_eq!(
            (two.visible(), effects.wait_until),
            (vec![], Some(2_000_007))
        );
        assert!(!two.replica.announce(&inbox));
        let peers = Peers::new(came_at, Vec::new());
        two.replica.release(START + 9, &peers);
        two.replica.announce(&inbox);
        let effects = two.replica.blob_arrived(&BLOB, START + 9, &peers);
        assert_eq!((effects.late, effects.wait_until), (late, None));
        let all = if late {
            vec![upper]
        } else {
            vec![lower, upper]
        };
        assert_eq!(two.visible(), all);
    };
    check(2_000_006, false);
    check(2_000_007, true);
}

/// No node has it, or none that is linked: what is above is visible at once, and the blob's message when it comes after all, above what was announced
/// meanwhile.
#[test]
fn nothing_waits_for_a_blob_that_nobody_has() {
    let (one, mut two, lower) = two_at(7);
    let other = BlobName {
        upload: [3; 16],
        ..BLOB
    };
    let (inbox, new) = (MailboxName::inbox(), vec![message(other)]);
    let plan = one.replica.plan_append(&one.at(), &inbox, new);
    let plan = plan.expect("INBOX");
    let upper = plan.outcome[0];
    two.apply(maker(1), plan.ops);
    assert_eq!(two.visible(), []);
    assert!(two.replica.awaits(&BLOB) && !two.replica.awaits(&other));
    let peers = Peers::new(9, Vec::new());
    let effects = two.replica.nobody_has(&BLOB, START + 9, &peers);
    assert_eq!((two.visible(), effects.wait_until), (vec![upper], None));
    assert!(!two.replica.awaits(&BLOB) && two.replica.lacks(&BLOB));
    two.replica.announce(&inbox);
    let effects = two.replica.blob_arrived(&BLOB, START + 10, &peers);
    assert!(effects.late && lower < upper);
    assert_eq!(two.visible(), [upper]);
}

/// As [`two_at`], and above that message is another one, for which the only other reader was heard: it waits for the lower one's blob alone, though
/// it would wait for that reader for longer.
fn two_above() -> (Node, Node, u32, u32) {
    let (one, mut two, lower) = two_at(7);
    two.readers = vec![Peer {
        slot: 3,
        heard: u32::MAX,
        timeout_micros: 20_000_000,
    }];
    let other = BlobName {
        upload: [3; 16],
        ..BLOB
    };
    let (inbox, new) = (MailboxName::inbox(), vec![message(other)]);
    let plan = two.replica.plan_append(&two.at(), &inbox, new);
    let plan = plan.expect("INBOX");
    let upper = plan.outcome[0];
    let effects = two.apply(maker(2), plan.ops);
    assert_eq!(
        (two.visible(), effects.wait_until),
        (vec![], Some(2_000_007))
    );
    (one, two, lower, upper)
}

/// Nobody calls again when the blob is given up: it is said when that is.
#[test]
fn the_end_of_the_wait_for_a_blob_is_announced() {
    let (_, mut two, _, upper) = two_above();
    let at = |mono| Peers::new(mono, two.readers.clone());
    let (before, then) = (at(2_000_006), at(2_000_007));
    let effects = two.replica.release(START + 9, &before);
    assert_eq!(
        (two.visible(), effects.wait_until),
        (vec![], Some(2_000_007))
    );
    let effects = two.replica.release(START + 9, &then);
    assert_eq!((two.visible(), effects.wait_until), (vec![upper], None));
}

/// The step that finds that the wait is over may be one of something else.
#[test]
fn any_step_ends_a_wait_that_is_over() {
    let (_, mut two, _, upper) = two_above();
    two.mono = 2_000_007;
    let name = MailboxName::new("Other").expect("a name");
    let effects = two.apply(maker(1), vec![Op::Subscribe { name }]);
    assert_eq!((two.visible(), effects.wait_until), (vec![upper], None));
}

/// Whose blob is awaited is removed, or claimed anew, above what waits for it.
#[test]
fn what_goes_keeps_nothing_waiting() {
    let check = |ops: &dyn Fn(&Replica, u32) -> Vec<Op>| {
        let (one, mut two, lower, upper) = two_above();
        let ops = ops(&one.replica, lower);
        two.mono = 8;
        let effects = two.apply(maker(1), ops);
        assert_eq!((two.visible(), effects.wait_until), (vec![upper], None));
    };
    let inbox = MailboxName::inbox();
    check(&|one, lower| one.plan_expunge(&inbox, &[lower]).expect("INBOX").ops);
    check(&|one, lower| {
        let message = one.row(&inbox, lower).expect("it is visible there").message;
        let claim = Claim {
            message,
            placement: one.placed(&message).expect("it is there"),
            uid: 64_001,
        };
        let (claims, epoch) = (vec![claim], one.epoch());
        vec![Op::Claim { claims, epoch }]
    });
}

/// A client that knows of a copy that waits for its blob finds it: it is to be taken back, if other nodes must have it and do not.
#[test]
fn what_is_held_back_is_found_by_its_claim() {
    let (_, mut two, uid) = two();
    two.replica.blob_arrived(&BLOB, START + 9, &Peers::none());
    // It was lost meanwhile: what is visible stays, and what is new is held back.
    two.replica.lack(BLOB);
    let inbox = MailboxName::inbox();
    let plan = two.replica.plan_copy(&two.at(), &inbox, &[uid], &inbox);
    let plan = plan.expect("INBOX is there");
    let copy = plan.outcome.uids[0].1;
    two.apply(maker(2), plan.ops);
    assert_eq!(two.visible(), [uid]);
    let found = two.replica.claimant(&inbox, copy);
    let message = found.expect("it is held back");
    assert_ne!(Some(message), two.replica.claimant(&inbox, uid));
    assert_eq!(two.replica.visibility(&message), Visibility::Lacks);
    assert_eq!(two.replica.claimant(&inbox, copy + 64), None);
    two.replica.blob_arrived(&BLOB, START + 10, &Peers::none());
    assert_eq!(
        two.replica.visibility(&message),
        Visibility::VisibleMessage(copy)
    );
}

/// A blob for which nothing waits any more. What waits for other nodes goes on waiting, and no row of it is written again.
#[test]
fn a_body_leaves_alone_what_waits_for_others() {
    let (_, mut two, lower) = two_at(7);
    two.readers = vec![Peer {
        slot: 3,
        heard: 0,
        timeout_micros: 20_000_000,
    }];
    let other = BlobName {
        upload: [3; 16],
        ..BLOB
    };
    let inbox = MailboxName::inbox();
    let plan = two
        .replica
        .plan_append(&two.at(), &inbox, vec![message(other)]);
    let effects = two.apply(maker(2), plan.expect("INBOX").ops);
    assert_eq!(
        (two.visible(), effects.wait_until),
        (vec![], Some(20_000_007))
    );
    let peers = Peers::new(3_000_000, two.readers.clone());
    two.replica.release(START + 9, &peers);
    let effects = two.replica.blob_arrived(&BLOB, START + 9, &peers);
    assert_eq!(
        (two.visible(), effects.wait_until),
        (vec![], Some(20_000_007))
    );
    for (row, value) in two.replica.take_dirty() {
        assert!(
            two.rows.get(&row) != value.as_ref(),
            "{row:?} is there already"
        );
    }
    let heard = Peers::new(3_000_000, Vec::new());
    two.replica.release(START + 9, &heard);
    let visible = two.visible();
    assert!(visible.len() == 2 && visible[0] == lower, "{visible:?}");
}

#[test]
fn a_load_finds_again_what_is_held_back() {
    let (_, mut two, uid) = two();
    two.load(&[BLOB]);
    assert_eq!(two.visible(), []);
    two.replica.blob_arrived(&BLOB, START + 9, &Peers::none());
    two.save();
    assert_eq!(two.visible(), [uid]);
    two.load(&[]);
    assert_eq!(two.visible(), [uid]);
}

/// A UIDNEXT above its UID was announced while the blob was under way: it is late.
#[test]
fn what_was_held_back_for_long_is_late() {
    let (_, mut two, uid) = two();
    let message = NewMessage {
        flags: Flags::none(),
        blob: BlobName {
            hash: [7; 32],
            ..BLOB
        },
        size: 5,
        open_end: false,
        date: Date {
            seconds: 1,
            zone_minutes: 0,
        },
        content: Vec::new(),
    };
    let inbox = MailboxName::inbox();
    let plan = two.replica.plan_append(&two.at(), &inbox, vec![message]);
    let plan = plan.expect("INBOX is there");
    two.apply(maker(2), plan.ops);
    two.replica.announce(&inbox);
    let effects = two.replica.blob_arrived(&BLOB, START + 9, &Peers::none());
    assert!(effects.late);
    let claims = two.replica.plan_late(&two.at(), &Peers::none()).ops;
    two.apply(maker(2), claims);
    let visible = two.visible();
    assert!(visible.len() == 2 && visible[1] > visible[0] && !visible.contains(&uid));
}

/// Removed elsewhere before its blob came: nothing is visible, nor brought back by the blob.
#[test]
fn what_was_removed_meanwhile_stays_removed() {
    let (one, mut two, uid) = two();
    let inbox = MailboxName::inbox();
    let plan = one.replica.plan_expunge(&inbox, &[uid]);
    two.apply(maker(1), plan.expect("it is visible there").ops);
    assert_eq!(two.replica.hidden(), 1);
    two.replica.blob_arrived(&BLOB, START + 9, &Peers::none());
    assert_eq!(two.visible(), []);
    assert_eq!(two.replica.hidden(), 1);
}
