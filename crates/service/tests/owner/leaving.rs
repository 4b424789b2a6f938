//! A node leaves the partition, drops what it had of it, and comes back.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, VersionVector};
use whimbrel_mailbox::RowKey;
use whimbrel_replication::wire::{Covered, Leaving};
use whimbrel_service::{
    api::{Failure, MailboxCall, MailboxName, Reply},
    log::{AWAY_KEY, DROPPED_KEY, POSITION_KEY},
    machine::{Input, Machine, RequiredCopies, Ticket},
    owner::{PartitionOwner, keys::partition_of},
    peers::{Frame, Holders, LeftReport, PeerInput, Phase},
};

use super::{
    failover::{look, names, taken_over},
    pair::{Pair, appending, incarnation},
    world::ANNE,
};

/// A pair whose members say who holds the account's partition.
struct Placed {
    pair: Pair,
    holders: Holders,
}

/// Both have written, and have what the other one has.
fn placed() -> Placed {
    let mut pair = Pair::new();
    pair.append(0, "INBOX", 2);
    pair.settle();
    pair.append(1, "INBOX", 2);
    pair.settle();
    let holders = Holders::default();
    Placed { pair, holders }
}

impl Placed {
    /// A node says how it stands; these hear it.
    fn say(&mut self, node: usize, phase: Phase, heard_by: &[usize]) {
        let (id, partition) = (incarnation(node), partition_of(ANNE));
        let before = self.holders.holder_state(id, partition).phase;
        let end = self.left(node).map_or(0, |left| left.end);
        let said = match (before, phase) {
            (_, Phase::Leaves) => self.holders.leave(id, partition),
            (_, Phase::Away) => self.holders.left(id, partition, end),
            (Phase::Away, Phase::Holds) => self.holders.come(id, partition),
            (_, Phase::Holds) => self.holders.stay(id, partition),
        };
        said.expect("in turn");
        self.tell(heard_by);
    }

    fn tell(&mut self, heard_by: &[usize]) {
        for node in heard_by {
            self.pair.nodes[*node].config.holders = self.holders.clone();
            let holders = PeerInput::Holders(self.holders.clone());
            self.pair.peer(*node, holders);
        }
        for node in heard_by {
            self.pair.peer(*node, PeerInput::Open(partition_of(ANNE)));
        }
    }

    fn left(&self, node: usize) -> Option<LeftReport> {
        let reports = self.pair.nodes[node].owner.reports();
        let mut reports = reports.iter();
        reports.find(|of| of.partition == partition_of(ANNE))?.left
    }

    /// The machine of a node starts anew on what is durable.
    fn restart(&mut self, node: usize) {
        self.pair.restart(node);
        self.pair.peer(node, PeerInput::Open(partition_of(ANNE)));
    }

    /// An older copy of node 1's disk is put back: it goes on as another incarnation, of which nobody knows that it ever left anything.
    fn restart_as_another(&mut self) {
        self.holders = Holders::default();
        let config = &mut self.pair.nodes[1].config;
        config.origin = Incarnation::from_hash(77);
        config.slot = 7;
        config.holders = Holders::default();
        self.pair.nodes[1].owner = PartitionOwner::new(config.clone());
        self.pair.peer(1, PeerInput::Open(partition_of(ANNE)));
    }

    /// A message, which the other node has heard of when this is answered: it may have readers.
    fn append(&mut self, node: usize) {
        let request = self.pair.ask(node, ANNE, appending("INBOX", 1), 0);
        self.pair.settle();
        let reply = self.pair.answer(node, request);
        assert!(matches!(reply, Some(Reply::Appended { .. })), "{reply:?}");
    }

    fn uids(&mut self, node: usize) -> Vec<u32> {
        self.pair.uids(node, "INBOX")
    }

    /// Nothing is left at node 1 but where its own log ended.
    fn is_gone(&self) -> bool {
        let node = &self.pair.nodes[1];
        let rows: Vec<&Vec<u8>> = node.rows.keys().collect();
        let logs: Vec<Incarnation> = node.logs.keys().map(|(_, of)| *of).collect();
        rows == [AWAY_KEY] && node.held.is_empty() && logs == [incarnation(1)]
    }

    /// Node 1 leaves, and all of it goes.
    fn leave(&mut self) {
        self.say(1, Phase::Leaves, &[0, 1]);
        self.pair.settle();
        assert!(self.left(1).is_some_and(|left| !left.is_gone));
        self.say(1, Phase::Away, &[0, 1]);
        self.pair.settle();
        assert!(self.left(1).is_some_and(|left| left.is_gone) && self.is_gone());
    }

    fn come_back(&mut self) {
        self.say(1, Phase::Holds, &[0, 1]);
        self.pair.settle();
    }
}

#[test]
fn a_node_leaves_when_the_other_has_all_and_comes_back() {
    let mut placed = placed();
    let uids = placed.uids(1);
    assert_eq!(uids.len(), 4);
    placed.pair.unlink();
    placed.pair.append(1, "INBOX", 1);
    let request = placed.pair.ask(1, ANNE, appending("INBOX", 1), 1);
    assert!(matches!(
        placed.pair.answer(1, request),
        Some(Reply::Failed(Failure::TooFewNodes))
    ));
    placed.say(1, Phase::Leaves, &[0, 1]);
    placed.pair.settle();
    assert_eq!(placed.left(1), None, "nobody can be asked");
    let request = placed.pair.ask(1, ANNE, appending("INBOX", 1), 0);
    assert!(
        matches!(placed.pair.answer(1, request), Some(Reply::Failed(_))),
        "it serves nobody"
    );
    placed.pair.link();
    placed.pair.settle();
    let left = placed.left(1).expect("the other one has all");
    assert!(!left.is_gone && placed.pair.nodes[1].rows.len() > 5);
    assert_eq!(placed.uids(0).len(), 5);
    placed.say(1, Phase::Away, &[0, 1]);
    placed.pair.settle();
    assert!(placed.is_gone());
    // What is done meanwhile does not reach it, nor does anybody wait for it.
    placed.append(0);
    assert!(placed.is_gone());
    let end = left.end;
    placed.come_back();
    assert_eq!(placed.left(1), None);
    let (there, here) = (placed.uids(0), placed.uids(1));
    assert_eq!(here, there);
    assert_eq!(here.len(), 6);
    // It goes on where its log was, and both have all.
    placed.append(1);
    let (there, here) = (placed.uids(0), placed.uids(1));
    assert!(here == there && here.len() == 7 && here.is_sorted());
    let logs = &placed.pair.nodes[0].logs;
    let log = &logs[&(partition_of(ANNE), incarnation(1))];
    let first = log.iter().find(|entry| entry.last > end);
    assert_eq!(first.map(|entry| entry.first), Some(end + 1));
    // And once more.
    placed.leave();
    placed.come_back();
    assert_eq!(placed.uids(1), there);
}

/// However often it dies while it drops what it had, the rest goes, and it can come back.
#[test]
fn what_was_left_goes_across_crashes() {
    let mut placed = placed();
    placed.say(1, Phase::Leaves, &[0, 1]);
    placed.pair.settle();
    let end = placed.left(1).expect("the other one has all").end;
    // It dies before the others hear that it is away: it asks anew.
    placed.restart(1);
    assert_eq!(placed.left(1), None);
    placed.pair.settle();
    assert_eq!(placed.left(1).map(|left| left.end), Some(end));
    placed.pair.nodes[1].slow = Some(VecDeque::new());
    placed.say(1, Phase::Away, &[0, 1]);
    let mut starts = 0;
    while !placed.is_gone() {
        starts += 1;
        assert!(starts < 20, "it does not come to an end");
        // One commit more is durable, which the machine has not heard.
        placed.pair.nodes[1].slow = Some(VecDeque::new());
        placed.restart(1);
    }
    assert!(starts > 1);
    placed.pair.nodes[1].slow = None;
    placed.restart(1);
    placed.pair.settle();
    assert!(placed.left(1).is_some_and(|left| left.is_gone));
    // It dies when it has said that it is back.
    placed.pair.nodes[1].slow = Some(VecDeque::new());
    placed.say(1, Phase::Holds, &[0, 1]);
    placed.pair.nodes[1].slow = None;
    placed.restart(1);
    placed.pair.settle();
    let there = placed.uids(0);
    assert_eq!((placed.uids(1), there.len()), (there, 4));
}

#[test]
fn who_leaves_or_does_not_know_is_not_relied_on() {
    // Node 0 has not heard of it.
    let mut ignorant = placed();
    ignorant.say(1, Phase::Leaves, &[1]);
    ignorant.pair.settle();
    assert_eq!(ignorant.left(1), None);
    ignorant.tell(&[0]);
    ignorant.pair.settle();
    assert!(ignorant.left(1).is_some());
    // Node 0 leaves, too, and node 1 has not heard of that.
    let mut both = placed();
    both.say(1, Phase::Leaves, &[0, 1]);
    let known = both.holders.clone();
    both.say(0, Phase::Leaves, &[0]);
    let config = &mut both.pair.nodes[1].config;
    config.holders = known;
    both.pair.settle();
    assert!(both.left(1).is_none() && both.left(0).is_none());
    // It stays after all.
    both.say(0, Phase::Holds, &[0, 1]);
    both.pair.settle();
    assert!(both.left(1).is_some() && both.left(0).is_none());
    let uids = both.uids(0);
    assert_eq!(uids.len(), 4);
}

#[test]
fn who_stays_goes_on() {
    let mut placed = placed();
    placed.say(1, Phase::Leaves, &[0, 1]);
    placed.pair.settle();
    assert!(placed.left(1).is_some());
    placed.say(1, Phase::Holds, &[0, 1]);
    placed.pair.settle();
    assert_eq!(placed.left(1), None);
    placed.append(1);
    placed.append(0);
    assert_eq!((placed.uids(0).len(), placed.uids(1).len()), (6, 6));
}

/// A message whose body is not at the other one is at this one alone.
#[test]
fn a_body_that_the_others_lack_is_not_left() {
    let mut placed = placed();
    placed.pair.nowhere = true;
    placed.pair.append(1, "INBOX", 1);
    placed.pair.settle();
    let missing = placed.pair.coming[0].last().copied().expect("a body");
    placed.say(1, Phase::Leaves, &[0, 1]);
    placed.pair.settle();
    assert_eq!(placed.left(1), None);
    let now = placed.pair.now.mono_micros;
    placed.pair.peer(0, PeerInput::Body(missing, now));
    placed.pair.settle();
    assert!(placed.left(1).is_some());
}

/// A message whose body is not here yet was not shown, and may have a lower UID than some that were.
#[test]
fn a_body_that_the_others_have_is_waited_for() {
    let mut placed = placed();
    placed.pair.nowhere = true;
    placed.pair.append(0, "INBOX", 1);
    placed.pair.settle();
    let missing = placed.pair.coming[1].last().copied().expect("a body");
    placed.say(1, Phase::Leaves, &[0, 1]);
    placed.pair.settle();
    assert_eq!(placed.left(1), None);
    let now = placed.pair.now.mono_micros;
    placed.pair.peer(1, PeerInput::Body(missing, now));
    placed.pair.settle();
    assert!(placed.left(1).is_some());
}

/// Of an account that cannot go on what was not shown is not claimed again.
#[test]
pub(crate) fn who_has_an_account_in_part_does_not_leave() {
    let mut placed = placed();
    let is_mailbox = |row: &RowKey| matches!(row, RowKey::Mailbox(_));
    let row = placed.pair.nodes[1].rows_of(is_mailbox).into_keys().next();
    let (row, damaged) = (row.expect("INBOX"), Bytes::from_static(&[9]));
    let good = placed.pair.nodes[1].rows.insert(row.clone(), damaged);
    placed.restart(1);
    let reply = placed.pair.try_call(1, ANNE, MailboxCall::list());
    assert!(!matches!(reply, Some(Reply::Mailboxes { .. })), "{reply:?}");
    assert_eq!(placed.pair.stalled(), 1);
    placed.say(1, Phase::Leaves, &[0, 1]);
    placed.pair.settle();
    assert_eq!(placed.left(1), None);
    placed.pair.nodes[1].rows.insert(row, good.expect("a row"));
    placed.restart(1);
    placed.pair.settle();
    assert!(placed.left(1).is_some());
}

/// More may have come to the disk since it was asked.
#[test]
fn an_answer_counts_for_what_was_asked() {
    let mut placed = placed();
    // Node 0 has not heard of it, and answers nothing by itself.
    placed.say(1, Phase::Leaves, &[1]);
    placed.pair.settle();
    let logs = placed.pair.nodes[1].logs.iter();
    let ends = logs.map(|((_, of), log)| (*of, log.last().map_or(0, |entry| entry.last)));
    let ends: Vec<(Incarnation, u64)> = ends.collect();
    let all: VersionVector = ends.iter().copied().collect();
    let less = |of: usize| -> VersionVector {
        let ends = ends.iter().enumerate();
        ends.map(|(at, (id, last))| (*id, last - u64::from(at == of)))
            .collect()
    };
    for (has, counts) in [(less(0), false), (less(1), false), (all.clone(), true)] {
        let covered = Covered {
            partition: partition_of(ANNE),
            has,
            lacks: Vec::new(),
            holders: [incarnation(0), incarnation(1)].into(),
        };
        let frame = Frame::Covered(covered.clone());
        placed.pair.peer(1, PeerInput::Frame(incarnation(0), frame));
        placed.pair.settle();
        assert_eq!(placed.left(1).is_some(), counts, "{covered:?} of {all:?}");
    }
}

/// What one that leaves alone has others must get, before they say that they have it.
#[test]
pub(crate) fn who_lacks_something_does_not_answer() {
    let mut placed = placed();
    placed.say(1, Phase::Leaves, &[0]);
    let partition = partition_of(ANNE);
    let logs = placed.pair.nodes[1].logs.iter();
    let ends = logs.map(|((_, of), log)| (*of, log.last().map_or(0, |entry| entry.last)));
    let all: VersionVector = ends.collect();
    let mut more = all.clone();
    more.advance(incarnation(1), all.get(incarnation(1)) + 1);
    for (has, answers) in [(more, 0), (all, 1)] {
        placed.pair.sent.clear();
        let frame = Frame::Leaving(Leaving { partition, has });
        placed.pair.peer(0, PeerInput::Frame(incarnation(1), frame));
        placed.pair.settle();
        let sent = placed.pair.sent.iter();
        let covered = sent.filter(|frame| matches!(frame, Frame::Covered(_)));
        assert_eq!(covered.count(), answers);
    }
}

/// What others write meanwhile names bodies that are on their way: who leaves has none of it, and is not kept by that. A body of what it has that is
/// found to be missing does keep it.
#[test]
fn bodies_of_what_came_later_keep_nobody() {
    let mut placed = placed();
    let partition = partition_of(ANNE);
    let has = |placed: &Placed| -> VersionVector {
        let logs = placed.pair.nodes[1].logs.iter();
        let ends = logs.map(|((_, of), log)| (*of, log.last().map_or(0, |entry| entry.last)));
        ends.collect()
    };
    let lacks = |placed: &mut Placed, has: &VersionVector| {
        placed.pair.sent.clear();
        let has = has.clone();
        let frame = Frame::Leaving(Leaving { partition, has });
        placed.pair.peer(0, PeerInput::Frame(incarnation(1), frame));
        placed.pair.settle();
        let covered = placed.pair.sent.iter().find_map(|frame| match frame {
            Frame::Covered(covered) => Some(covered.lacks.len()),
            _ => None,
        });
        covered.expect("an answer")
    };
    let before = has(&placed);
    // Node 1 stands for all who go on: it has not heard that it leaves.
    placed.say(1, Phase::Leaves, &[0]);
    assert_eq!(lacks(&mut placed, &before), 0);
    placed.pair.nowhere = true;
    placed.pair.append(1, "INBOX", 1);
    placed.pair.settle();
    let missing = placed.pair.coming[0].last().copied().expect("a body");
    assert_eq!(lacks(&mut placed, &before), 0);
    let after = has(&placed);
    assert_eq!(lacks(&mut placed, &after), 1);
    let now = placed.pair.now.mono_micros;
    placed.pair.peer(0, PeerInput::Body(missing, now));
    placed.pair.settle();
    assert_eq!(lacks(&mut placed, &after), 0);
    placed.pair.peer(0, PeerInput::Missed(ANNE, missing));
    placed.pair.settle();
    assert_eq!(lacks(&mut placed, &after), 1);
}

/// All who hold the partition are lost before one that came back has their state: it goes on with nothing, whether it had written there or not, and
/// in a new epoch: of the UIDs that were told nobody knows any more, nor does it of its own.
#[test]
fn it_begins_with_nothing_when_nobody_else_is_left() {
    for (wrote, dies) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut pair = Pair::new();
        pair.append(0, "INBOX", 2);
        pair.settle();
        if wrote {
            pair.append(1, "INBOX", 2);
            pair.settle();
        }
        let holders = Holders::default();
        let mut placed = Placed { pair, holders };
        let inbox = MailboxName::inbox();
        let told = placed.pair.selected(1, ANNE, &inbox);
        placed.say(1, Phase::Leaves, &[0, 1]);
        placed.pair.settle();
        placed.say(1, Phase::Away, &[0, 1]);
        placed.pair.settle();
        assert!(placed.left(1).is_some_and(|left| left.is_gone));
        placed.pair.unlink();
        placed.come_back();
        let is_syncing = |placed: &Placed| {
            let reports = placed.pair.nodes[1].owner.reports();
            reports.iter().any(|report| report.syncing)
        };
        assert!(is_syncing(&placed), "{wrote}: the other one is a member");
        if dies {
            // The next commit is durable, which the machine has not heard.
            placed.pair.nodes[1].slow = Some(VecDeque::new());
            placed.pair.close();
            placed.pair.nodes[1].slow = None;
            placed.restart(1);
        }
        placed.pair.close();
        placed.pair.settle();
        assert!(!is_syncing(&placed), "{wrote}");
        let warned = |placed: &Placed, what: &str| {
            let warnings = placed.pair.nodes[1].warnings.iter();
            warnings.filter(|text| text.contains(what)).count()
        };
        assert_eq!(warned(&placed, "nobody is left"), 1, "{wrote}");
        let lost = warned(&placed, "are lost with those who held it");
        assert_eq!(lost, usize::from(wrote));
        let mut validities = None;
        // Nor does it look for anybody after a start.
        for messages in 1..3 {
            placed.append(1);
            let (validity, uids) = placed.pair.selected(1, ANNE, &inbox);
            assert_eq!(uids.len(), messages, "{wrote}");
            assert!(validity > told.0, "{wrote} {dies}: {validity} {told:?}");
            assert_eq!(*validities.get_or_insert(validity), validity, "once");
            placed.restart(1);
            placed.pair.settle();
            assert!(!is_syncing(&placed), "{wrote}");
        }
    }
}

/// What others had written of an account is found, and not what this node had told of it: it may have UIDs of its slot to give that it gave before.
#[test]
fn what_is_found_of_an_account_begins_in_a_new_epoch() {
    let mut placed = placed();
    let inbox = MailboxName::inbox();
    let told = placed.pair.selected(1, ANNE, &inbox);
    placed.leave();
    placed.pair.unlink();
    placed.come_back();
    placed.pair.close();
    placed.pair.settle();
    let found = placed.pair.nodes[0].rows_of(|_| true);
    placed.pair.nodes[1].rows.extend(found);
    placed.restart(1);
    placed.pair.settle();
    let (validity, _) = placed.pair.selected(1, ANNE, &inbox);
    assert!(validity > told.0, "{validity} {told:?}");
    placed.restart(1);
    let again = placed.pair.selected(1, ANNE, &inbox);
    assert_eq!(again.0, validity, "once");
}

#[test]
fn it_leaves_when_enough_others_hold_the_partition() {
    for (least, leaves) in [(1, true), (2, false)] {
        let mut placed = placed();
        for node in &mut placed.pair.nodes {
            node.config.holders_min = least;
        }
        placed.restart(1);
        placed.pair.settle();
        placed.say(1, Phase::Leaves, &[0, 1]);
        placed.pair.settle();
        assert_eq!(placed.left(1).is_some(), leaves, "{least}");
    }
}

/// A delivery is for others to make, from the moment at which it begins to leave.
#[test]
fn who_leaves_makes_no_delivery() {
    let mut placed = placed();
    let entry = std::sync::Arc::new(super::remote_batches::entry());
    let deliver = |placed: &mut Placed, ticket: u64| {
        let input = Input::Deliver {
            ticket: Ticket(ticket),
            entry: entry.clone(),
            index: 0,
            others: RequiredCopies::default(),
        };
        placed.pair.input(1, input);
        placed.pair.nodes[1].delivered.clone()
    };
    placed.say(1, Phase::Leaves, &[0, 1]);
    assert_eq!(deliver(&mut placed, 1), [(Ticket(1), false)]);
    placed.pair.settle();
    placed.say(1, Phase::Away, &[0, 1]);
    placed.pair.settle();
    assert_eq!(deliver(&mut placed, 2).last(), Some(&(Ticket(2), false)));
    placed.come_back();
    assert_eq!(deliver(&mut placed, 3).last(), Some(&(Ticket(3), true)));
}

/// An older copy of the disk is put back, of a moment at which the partition was dropped in part: the node goes on as another incarnation, which
/// holds everything as far as anybody knows.
#[test]
fn what_another_incarnation_has_left_is_not_served() {
    for commits in 1..6 {
        let mut placed = placed();
        placed.say(1, Phase::Leaves, &[0, 1]);
        placed.pair.settle();
        placed.pair.nodes[1].slow = Some(VecDeque::new());
        placed.say(1, Phase::Away, &[0, 1]);
        for _ in 1..commits {
            placed.pair.nodes[1].slow = Some(VecDeque::new());
            placed.restart(1);
        }
        placed.pair.unlink();
        placed.pair.nodes[1].slow = None;
        placed.restart_as_another();
        let request = placed.pair.ask(1, ANNE, appending("INBOX", 1), 0);
        let reply = placed.pair.answer(1, request);
        assert!(
            matches!(reply, None | Some(Reply::Failed(_))),
            "{commits}: {reply:?}"
        );
        let reports = placed.pair.nodes[1].owner.reports();
        assert!(
            reports
                .iter()
                .all(|report| report.syncing && report.left.is_none()),
            "{commits}"
        );
        // Nor after another start.
        let config = placed.pair.nodes[1].config.clone();
        placed.pair.nodes[1].owner = PartitionOwner::new(config);
        placed.pair.peer(1, PeerInput::Open(partition_of(ANNE)));
        let reports = placed.pair.nodes[1].owner.reports();
        assert!(reports.iter().all(|report| report.syncing), "{commits}");
    }
}

/// The same, of a moment at which the partition was held again, and nothing had come yet: no log has what the node wrote in its earlier life.
#[test]
fn what_another_incarnation_came_back_to_and_lacked_is_dropped() {
    let mut placed = placed();
    placed.leave();
    placed.pair.unlink();
    placed.say(1, Phase::Holds, &[0, 1]);
    let reports = placed.pair.nodes[1].owner.reports();
    assert!(
        reports
            .iter()
            .all(|report| report.syncing && report.left.is_none())
    );
    placed.restart_as_another();
    let node = &placed.pair.nodes[1];
    let rows: Vec<&[u8]> = node.rows.keys().map(Vec::as_slice).collect();
    assert!(node.logs.is_empty() && rows == [DROPPED_KEY, POSITION_KEY]);
    let reports = node.owner.reports();
    assert!(
        reports
            .iter()
            .all(|report| report.syncing && report.left.is_none())
    );
}

/// An older copy of a disk was put back, and what the node wrote since came to it again from another one and is not applied: it waits for its time,
/// or for operations that are not there yet. Nothing is dropped for that: perhaps only this disk has what is on it.
#[test]
fn what_another_incarnation_wrote_and_is_not_applied_yet_drops_nothing() {
    for once_left in [false, true] {
        let mut placed = placed();
        if once_left {
            placed.leave();
            placed.come_back();
        }
        let copy = placed.pair.nodes[1].rows.clone();
        placed.pair.unlink();
        placed.pair.append(1, "INBOX", 1);
        let node = &mut placed.pair.nodes[1];
        assert_ne!(node.rows, copy);
        // The log alone has it.
        node.rows = copy.clone();
        let bodies = node.held.len();
        placed.restart_as_another();
        let node = &placed.pair.nodes[1];
        let gone = copy.keys().find(|key| !node.rows.contains_key(*key));
        assert_eq!(gone, None, "{once_left}");
        assert_eq!(node.held.len(), bodies, "{once_left}");
    }
}

/// A client of an earlier life names what it was told then, here or at the other node: what came from there under lower UIDs was claimed again before
/// the node left.
#[test]
fn who_was_there_in_an_earlier_life_overlooks_nothing() {
    for (asked, with_qresync) in [(0, true), (0, false), (1, true), (1, false)] {
        let mut placed = placed();
        placed.pair.unlink();
        placed.pair.append(0, "INBOX", 1);
        placed.pair.append(1, "INBOX", 4);
        let knows = look(&mut placed.pair, 1);
        let known = placed.uids(1);
        placed.say(1, Phase::Leaves, &[0, 1]);
        placed.pair.link();
        placed.pair.settle();
        placed.say(1, Phase::Away, &[0, 1]);
        placed.pair.settle();
        placed.come_back();
        let modseq = with_qresync.then_some(knows.modseq);
        names(&mut placed.pair, asked, knows.uid_next, modseq);
        let after = placed.uids(asked);
        let below = after.iter().filter(|uid| **uid < knows.uid_next);
        assert_eq!((known.len(), below.count()), (8, 8), "{asked}");
        assert_eq!(after.len(), 9);
        assert_eq!(after[..8], known, "what it had seen has its UIDs");
        assert_eq!(taken_over(&placed.pair), (0, 0, 0), "{asked}");
    }
}

/// What it knew has gone meanwhile, and of what it was told then nothing is known any more: UIDNEXT does not fall.
#[test]
fn who_was_there_in_an_earlier_life_is_told_no_lesser_uidnext() {
    let mut placed = placed();
    let knows = look(&mut placed.pair, 1);
    placed.pair.remove(1, "INBOX");
    placed.pair.settle();
    placed.leave();
    placed.come_back();
    let before = look(&mut placed.pair, 1);
    assert!(before.uid_next < knows.uid_next, "it knows nothing of that");
    names(&mut placed.pair, 1, knows.uid_next - 1, Some(knows.modseq));
    assert_eq!(look(&mut placed.pair, 1).uid_next, knows.uid_next);
    assert_eq!(taken_over(&placed.pair), (0, 0, 0));
}
