//! Closing the logs of removed members: each other member reports what it holds of them, and their ends follow from that (`docs/decisions/0024`).

use std::collections::BTreeMap;

use whimbrel_crdt::{Dot, Incarnation, PartitionId};

use super::{Roster, RosterError};
use crate::{
    broken,
    members::{Ends, Gaps, Said},
};

/// What a node holds of another node's log in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The last number accepted from peers, perhaps not on disk yet.
    pub taken: u64,
    /// The last number on disk.
    pub stored: u64,
    /// The last number applied, durably.
    pub applied: u64,
    /// The first op that is not applied here and on which the next batch of this log depends.
    pub lacks: Option<Dot>,
    /// Whether this node is syncing: a snapshot may bring what the logs here lack.
    pub syncing: bool,
}

/// What a node holds of some members' logs, by partition. All partitions that it has are listed.
pub type Holdings = BTreeMap<Incarnation, BTreeMap<PartitionId, Holding>>;

/// Why no further batch of a log will ever be applied.
enum Ended {
    /// All of it is applied.
    Applied,
    /// The next batch depends, directly or through others, on one that nobody has.
    Stranded {
        /// The log that lacks that batch, and its last number here. `Some` if that log is closed or this node is syncing: then all have to report the
        /// same of it.
        gap: Option<Dot>,
    },
}

/// The last numbers by partition.
fn last(
    logs: &BTreeMap<PartitionId, Holding>,
    of: impl Fn(&Holding) -> u64,
) -> BTreeMap<PartitionId, u64> {
    let logs = logs.iter().map(|(partition, log)| (*partition, of(log)));
    logs.filter(|(_, last)| *last > 0).collect()
}

impl Roster {
    /// Reports what `me` holds of the logs of removed members, and closes the logs that can be closed; whether anything changed. Before the caller
    /// looks at `holdings`, the removals must be durable here, and no frame of the removed members may be on the way. `holdings` must contain the
    /// logs of all members that are being closed, and of all that were closed. While one that is being closed is missing, nothing is reported.
    ///
    /// # Errors
    /// [`RosterError::TooLong`]: nothing has changed.
    pub fn settle(&mut self, me: Incarnation, holdings: &Holdings) -> Result<bool, RosterError> {
        let closing = self.members.closing();
        if closing.iter().any(|id| !holdings.contains_key(id)) {
            return Ok(false);
        }
        // A batch that was accepted and is not on disk came, perhaps, before the removal was known: others may never get it. So nothing is reported
        // of any log meanwhile. The same holds while a batch of a closed log is being stored. It may have come through another member that was
        // removed since; and a node that hears that no more comes through that member takes the earlier reports of the first log for final.
        let mut logs = holdings.values().flat_map(BTreeMap::values);
        let comes = logs.any(|log| log.taken > log.stored);
        if comes && !broken("said-before-stored") {
            return Ok(false);
        }
        let (mut changed, mut ended) = (self.clone(), BTreeMap::new());
        for id in closing.into_iter().filter(|_| !self.members.is_out(me)) {
            let logs = &holdings[&id];
            let ends = logs.iter().map(|(partition, log)| {
                let end = self.ended(holdings, *partition, log);
                (*partition, end)
            });
            let ends: BTreeMap<PartitionId, Option<Ended>> = ends.collect();
            let gaps = ends.iter().filter_map(|(partition, end)| match end {
                Some(Ended::Stranded { gap: Some(gap) }) => {
                    Some((*partition, *gap, logs[partition].syncing))
                }
                _ => None,
            });
            let said = self.said_of(id, logs, |log| log.stored, &gaps.collect());
            changed.members.say(me, id, said);
            if ends.values().all(Option::is_some) {
                let end = self.said_of(id, logs, |log| log.applied, &Gaps::new());
                ended.insert(id, (said, end));
            }
        }
        changed.members.close(&ended);
        changed.forget_words();
        changed.fits()?;
        let new = changed != *self;
        *self = changed;
        Ok(new)
    }

    /// Why no further batch of a removed member's log will ever be applied, if nobody holds more of the logs of removed members than this node does.
    fn ended(&self, holdings: &Holdings, partition: PartitionId, log: &Holding) -> Option<Ended> {
        if log.applied == log.stored {
            return Some(Ended::Applied);
        }
        // A snapshot may bring it: nodes that are not syncing then report otherwise.
        let syncing = log.syncing && !broken("syncing-ends-a-log");
        let stranded =
            |gap: Option<Dot>| (!broken("stranded-waited-for")).then_some(Ended::Stranded { gap });
        let mut log = *log;
        // Each step goes back in causal order, so no log comes twice.
        for _ in holdings {
            let lacks = log.lacks?;
            let member = self.members.get(lacks.origin);
            if member.is_some() && !self.members.is_out(lacks.origin) {
                return None;
            }
            let Some(of) = holdings.get(&lacks.origin) else {
                // The writer of that log was let in by no member, so nothing of it comes.
                return stranded(syncing.then_some(Dot::new(lacks.origin, 0)));
            };
            let held = of.get(&partition).copied().unwrap_or_default();
            if held.stored < lacks.seq {
                // Some node once had all of a closed log, and may be lost.
                let closed = member.and_then(|member| member.closed());
                let is_said = closed.is_some() || syncing;
                return stranded(is_said.then_some(Dot::new(lacks.origin, held.stored)));
            }
            if held.applied >= lacks.seq {
                return None;
            }
            log = held;
        }
        None
    }

    fn said_of(
        &self,
        id: Incarnation,
        logs: &BTreeMap<PartitionId, Holding>,
        of: impl Fn(&Holding) -> u64,
        gaps: &Gaps,
    ) -> Said {
        Said::of(self.members.sponsored(id), &last(logs, of), gaps)
    }

    /// The members whose closed logs are complete and applied here, with their ends: nothing lies beyond these.
    pub fn complete(&self, holdings: &Holdings) -> Ends {
        let complete = holdings.iter().filter(|(id, logs)| {
            let closed = self.members.get(**id).and_then(|member| member.closed());
            closed == Some(self.said_of(**id, logs, |log| log.applied, &Gaps::new()))
        });
        let ends = complete.map(|(id, logs)| (*id, last(logs, |log| log.applied)));
        ends.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::members::ends_in;

    #[test]
    fn logs_are_closed_when_all_others_hold_the_same() {
        let mut one = removed();
        let mut two = one.clone();
        assert_eq!(one.settle(node(1), &held(3, 5, 5, 5)), Ok(true));
        assert_eq!(two.settle(node(2), &held(3, 4, 4, 4)), Ok(true));
        one.join(&two).unwrap();
        assert_eq!(one.settle(node(1), &held(3, 5, 5, 5)), Ok(false));
        assert!(one.slots().contains_key(&node(3)), "they differ");
        // The other node gets what it lacks: being stored, on disk, applied.
        assert_eq!(two.settle(node(2), &held(3, 5, 4, 4)), Ok(false));
        two.settle(node(2), &held(3, 5, 5, 4)).unwrap();
        one.join(&two).unwrap();
        two.join(&one).unwrap();
        assert_eq!(two.settle(node(2), &held(3, 5, 5, 4)), Ok(false));
        assert_eq!(two.settle(node(2), &held(3, 5, 5, 5)), Ok(true));
        assert!(!two.slots().contains_key(&node(3)));
        assert!(one.former().is_empty());
        assert_eq!(two.former().into_keys().collect::<Vec<_>>(), [node(3)]);
        let ends: Ends = [(node(3), [(HERE, 5)].into())].into();
        assert_eq!(two.complete(&held(3, 5, 5, 5)), ends);
        assert_eq!(ends_in(&ends, HERE), [(node(3), 5)].into());
        assert_eq!(ends_in(&ends, PartitionId::QUEUE), [(node(3), 0)].into());
        assert!(two.complete(&held(3, 5, 5, 4)).is_empty());
        assert!(two.complete(&held(3, 4, 4, 4)).is_empty());
        // It is closed for each node that hears of it, whatever was reported before.
        let mut late = one.clone();
        late.join(&two).unwrap();
        two.join(&one).unwrap();
        assert_eq!(late, two);
    }

    fn stranded(of: u64, stored: u64, applied: u64, on: (u64, u64)) -> Holdings {
        let holding = Holding {
            taken: stored,
            stored,
            applied,
            lacks: Some(Dot::new(node(on.0), on.1)),
            syncing: false,
        };
        [(node(of), [(HERE, holding)].into())].into()
    }

    #[test]
    fn batches_that_depend_on_lost_ones_are_not_waited_for() {
        let mut roster = removed();
        roster.sponsor(node(1), node(4), "d").unwrap();
        roster.remove(node(1), node(4), 9).unwrap();
        // The third node wrote its sixth op when it had the fourth node's third, which nobody has.
        let mut holdings = held(4, 2, 2, 2);
        holdings.extend(stranded(3, 7, 5, (4, 3)));
        roster.settle(node(1), &holdings).unwrap();
        assert_eq!(roster.members().closing(), [node(3), node(4)]);
        let mut other = roster.clone();
        // The other node may have it.
        let mut more = held(4, 3, 3, 3);
        more.extend(held(3, 7, 7, 7));
        other.settle(node(2), &more).unwrap();
        other.settle(node(1), &holdings).unwrap();
        assert_eq!(other.members().closing(), [node(3), node(4)]);
        roster.settle(node(2), &holdings).unwrap();
        let ends: Ends = [(node(3), [(HERE, 5)].into()), (node(4), [(HERE, 2)].into())].into();
        assert!(roster.members().closing().is_empty());
        assert_eq!(roster.complete(&holdings), ends);
    }

    /// The third node's log was closed below what had come through the fourth. No node could follow the one that had applied that.
    #[test]
    fn nothing_is_reported_while_a_batch_is_being_stored() {
        let mut one = removed();
        let mut two = one.clone();
        one.settle(node(1), &held(3, 5, 5, 5)).unwrap();
        two.settle(node(2), &held(3, 5, 5, 5)).unwrap();
        // The fourth node, through which the third's sixth op has come to the first, is removed in its turn.
        one.sponsor(node(1), node(4), "d").unwrap();
        one.remove(node(1), node(4), 9).unwrap();
        two.join(&one).unwrap();
        let of_fourth = held(4, 2, 2, 2);
        let both =
            |third: Holdings| -> Holdings { third.into_iter().chain(of_fourth.clone()).collect() };
        let coming = both(held(3, 6, 5, 5));
        assert_eq!(one.settle(node(1), &coming), Ok(false));
        two.join(&one).unwrap();
        two.settle(node(2), &both(held(3, 5, 5, 5))).unwrap();
        assert_eq!(two.members().closing(), [node(3), node(4)]);
        let all = both(held(3, 6, 6, 6));
        one.settle(node(1), &all).unwrap();
        two.join(&one).unwrap();
        two.settle(node(2), &all).unwrap();
        assert!(two.members().closing().is_empty());
        assert_eq!(two.complete(&all)[&node(3)], [(HERE, 6)].into());
    }

    /// Three and four were removed. One node holds less than two, and reports that it lacks in one partition what two has. That is lost then, with
    /// what two alone had.
    #[test]
    fn a_report_may_fall_when_another_node_is_lost() {
        let mut one = removed();
        one.sponsor(node(1), node(5), "e").unwrap();
        let mut five = one.clone();
        one.settle(node(1), &held(3, 9, 9, 9)).unwrap();
        five.settle(node(5), &held(3, 8, 8, 8)).unwrap();
        one.join(&five).unwrap();
        one.remove(node(1), node(2), 9).unwrap();
        five.join(&one).unwrap();
        let eight = |roster: &mut Roster, me: u64| {
            let mut holdings = held(3, 8, 8, 8);
            // The holdings have nothing of the second node: nothing is reported at all.
            assert_eq!(roster.settle(node(me), &holdings), Ok(false));
            holdings.extend(held(2, 1, 1, 1));
            roster.settle(node(me), &holdings).unwrap();
        };
        eight(&mut five, 5);
        eight(&mut one, 1);
        five.join(&one).unwrap();
        eight_is_all(&mut five);
        one.join(&five).unwrap();
        assert_eq!(one, five);
        // Earlier and later reports can be told apart, whichever comes first.
        let mut late = removed();
        late.join(&five).unwrap();
        assert_eq!(late, five);
    }

    fn eight_is_all(roster: &mut Roster) {
        let mut holdings = held(3, 8, 8, 8);
        holdings.extend(held(2, 1, 1, 1));
        roster.settle(node(5), &holdings).unwrap();
        assert!(roster.members().closing().is_empty());
        let ends: Ends = [(node(2), [(HERE, 1)].into()), (node(3), [(HERE, 8)].into())].into();
        assert_eq!(roster.complete(&holdings), ends);
    }

    /// Some node once had all of a closed log. If all such nodes are lost, batches that depend on it are not waited for. If one node has more of it
    /// than others, they are.
    #[test]
    fn a_closed_log_may_be_lost_in_part() {
        let mut roster = removed();
        roster.settle(node(1), &held(3, 5, 5, 5)).unwrap();
        roster.settle(node(2), &held(3, 5, 5, 5)).unwrap();
        assert!(roster.members().closing().is_empty());
        roster.sponsor(node(1), node(4), "d").unwrap();
        roster.sponsor(node(1), node(5), "e").unwrap();
        roster.remove(node(5), node(1), 9).unwrap();
        roster.remove(node(5), node(2), 9).unwrap();
        let holdings = |of_third: u64| {
            let mut holdings = held(3, of_third, of_third, of_third);
            holdings.extend(stranded(1, 7, 6, (2, 4)));
            holdings.extend(stranded(2, 4, 2, (3, 4)));
            holdings
        };
        let closes = |fourth: u64, fifth: u64| {
            let mut roster = roster.clone();
            for _ in 0..2 {
                for (me, of_third) in [(4, fourth), (5, fifth)] {
                    roster.settle(node(me), &holdings(of_third)).unwrap();
                }
            }
            let ends = roster.complete(&holdings(fourth));
            roster.members().closing().is_empty().then_some(ends)
        };
        let ends: Ends = [(node(1), [(HERE, 6)].into()), (node(2), [(HERE, 2)].into())].into();
        assert_eq!(closes(3, 3), Some(ends));
        assert_eq!(closes(3, 2), None, "one gives it to the other");
    }

    #[test]
    fn batches_that_may_still_come_are_waited_for() {
        let closes = |holdings: &Holdings| {
            let mut roster = removed();
            roster.sponsor(node(1), node(4), "d").unwrap();
            roster.remove(node(1), node(4), 9).unwrap();
            for me in [1, 2] {
                roster.settle(node(me), holdings).unwrap();
            }
            roster.members().closing().is_empty()
        };
        let third = |on| {
            let mut holdings = held(4, 2, 2, 2);
            holdings.extend(stranded(3, 7, 5, on));
            closes(&holdings)
        };
        assert!(third((4, 3)));
        assert!(third((9, 1)), "of whom no member knows");
        assert!(!third((2, 1)), "a member has it");
        assert!(!third((4, 2)), "it is about to be applied");
        // Its dependency is here, and has a dependency itself.
        let both = |on| {
            let mut holdings = stranded(4, 2, 1, on);
            holdings.extend(stranded(3, 7, 5, (4, 2)));
            closes(&holdings)
        };
        assert!(both((9, 1)));
        assert!(!both((2, 1)));
        // This cannot happen; the search ends all the same.
        assert!(!both((3, 6)));
    }
}
