//! The logs of removed members: what this node holds of them is said, they are closed when all say the same, and whoever has all of a closed log
//! takes nothing beyond its end.
//!
//! What comes from a removed member itself must have come to its end before anything is said: others may never get it. On a log that is closed may
//! rest what is in one that is being closed.
//!
//! Of partitions that this node does not hold it says what their holders say ([`HolderReports`]).
//!
//! Reading order: [`Closing`], [`holdings`]; [`HolderReports`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use whimbrel_crdt::{Incarnation, PartitionId, mutants::broken};
use whimbrel_replication::{
    members::Ends,
    roster::{Holding, Holdings, Roster},
};

use crate::peers::PartitionReport;

/// How often a node looks what is here of removed members' logs. Nothing is looked at while there is none that is not closed.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Logs that are closed and not completely here are looked at this often at first, and half as often each time: holders of what this node does not
/// hold are asked, and of some logs nobody has all.
const CLOSED_EVERY_MAX: Duration = Duration::from_secs(60);

/// What a node knows of the logs of removed members.
#[derive(Debug, Default)]
pub struct Closing {
    /// The closed logs of which all is here, and where they end.
    complete: Ends,
    next: Closed,
}

/// When closed logs are looked at next.
#[derive(Debug, Default)]
struct Closed {
    of: Vec<Incarnation>,
    pause: Duration,
    at: Option<Duration>,
}

/// A closed log of which all is here since this look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NowComplete {
    /// Whose.
    pub of: Incarnation,
    /// Operations in it that depend on others which were lost with a removed member: no node can apply them.
    pub stranded: u64,
}

impl Closing {
    /// The closed logs of which all is here.
    #[must_use]
    pub fn complete(&self) -> &Ends {
        &self.complete
    }

    /// Whose logs are to be looked at now; mostly none. `now`: since the start of the process.
    pub fn due(
        &mut self,
        roster: &Roster,
        is_linked: impl Fn(Incarnation) -> bool,
        now: Duration,
    ) -> Vec<Incarnation> {
        let closing = roster.members().closing();
        let mut closed: Vec<Incarnation> = roster.former().into_keys().collect();
        if closing.is_empty() || broken("removed-are-not-closed") {
            closed.retain(|id| !self.complete.contains_key(id));
            return self.next.due(closed, now);
        }
        if closing.iter().any(|id| is_linked(*id)) {
            return Vec::new();
        }
        closing.into_iter().chain(closed).collect()
    }

    /// What is here of these logs was said to the members. The logs of which all is here since then: the machines are told of [`Closing::complete`].
    pub fn said(&mut self, roster: &Roster, holdings: &Holdings) -> Vec<NowComplete> {
        let complete = roster.complete(holdings).into_iter();
        let new: Ends = complete
            .filter(|(id, _)| !self.complete.contains_key(id))
            .collect();
        let now_complete = new.keys().map(|id| {
            let logs = holdings.get(id).into_iter().flat_map(BTreeMap::values);
            NowComplete {
                of: *id,
                stranded: logs.map(|log| log.stored - log.applied).sum(),
            }
        });
        let now_complete = now_complete.collect();
        self.complete.extend(new);
        now_complete
    }
}

/// What is here of these logs in the partitions that this node holds; `None`: a partition is being opened.
#[must_use]
pub fn holdings(reports: &[PartitionReport], of: &[Incarnation]) -> Option<Holdings> {
    let mut holdings: Holdings = of.iter().map(|id| (*id, BTreeMap::new())).collect();
    for report in reports.iter().filter(|report| report.left.is_none()) {
        for (id, log) in report.logs_of(of)? {
            holdings
                .entry(id)
                .or_default()
                .insert(report.partition, log);
        }
    }
    Some(holdings)
}

/// The partitions that this node does not hold, of which the holders are asked.
#[must_use]
pub fn left(reports: &[PartitionReport]) -> BTreeSet<PartitionId> {
    let left = reports.iter().filter(|report| report.left.is_some());
    left.map(|report| report.partition).collect()
}

/// What one holder has of each of the logs in a partition.
type Said = BTreeMap<Incarnation, Holding>;

/// What the holders of partitions that this node does not hold have of the logs of removed members.
///
/// It counts when all holders of a partition say the same: what one of them alone has may be lost with it. If they are lost with what they said,
/// this node says less from then on.
#[derive(Debug)]
pub struct HolderReports<'a> {
    of: &'a [Incarnation],
    /// For each partition: the reports of complete holders, and of holders that are coming back to it.
    said: BTreeMap<PartitionId, [Vec<Said>; 2]>,
}

impl<'a> HolderReports<'a> {
    /// Of the logs of these.
    #[must_use]
    pub fn new(of: &'a [Incarnation]) -> Self {
        HolderReports {
            of,
            said: BTreeMap::new(),
        }
    }

    /// Takes in what a holder has of the logs in a partition; `syncing`: it is coming back to the partition. `false`: it did not report all logs, and
    /// counts as not asked, since it may have left the partition between two questions.
    pub fn said(&mut self, partition: PartitionId, syncing: bool, logs: Said) -> bool {
        let complete = self.of.iter().all(|of| logs.contains_key(of));
        if complete {
            self.said.entry(partition).or_default()[usize::from(syncing)].push(logs);
        }
        complete
    }

    /// What all holders of these partitions say; `None`: of some partition nobody says anything, or not all the same. `closed`: logs that are closed.
    #[must_use]
    pub fn agreed(
        &self,
        partitions: &BTreeSet<PartitionId>,
        closed: &BTreeSet<Incarnation>,
    ) -> Option<Holdings> {
        let mut holdings = Holdings::new();
        for partition in partitions {
            for (of, log) in agreed(self.said.get(partition)?, closed)? {
                holdings.entry(of).or_default().insert(*partition, log);
            }
        }
        Some(holdings)
    }
}

/// A holder that is coming back says less than there is, and counts when there is no other. Of what they have applied the least counts. Of closed logs
/// they need not have the same: what lies beyond the end is on the disk of one, and another was told of the end.
fn agreed([complete, syncing]: &[Vec<Said>; 2], closed: &BTreeSet<Incarnation>) -> Option<Said> {
    let said = if complete.is_empty() {
        syncing
    } else {
        complete
    };
    let (first, others) = said.split_first()?;
    let mut agreed = first.clone();
    for other in others {
        for (of, log) in &mut agreed {
            let is_same = |theirs: &&Holding| theirs.stored == log.stored || closed.contains(of);
            let theirs = other.get(of).filter(is_same)?;
            if (theirs.applied, theirs.stored) < (log.applied, log.stored) {
                *log = *theirs;
            }
        }
    }
    Some(agreed)
}

impl Closed {
    /// Those of these that are to be looked at now.
    fn due(&mut self, of: Vec<Incarnation>, now: Duration) -> Vec<Incarnation> {
        if self.of != of {
            (self.of, self.pause, self.at) = (of, LOOK_EVERY / 2, None);
        }
        if self.at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.pause = (self.pause * 2).min(CLOSED_EVERY_MAX);
        self.at = Some(now + self.pause);
        self.of.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_logs_are_looked_at_less_and_less_often() {
        let node = |id: u64| Incarnation::new(id).expect("not zero");
        let mut closed = Closed::default();
        let of = vec![node(1), node(2)];
        let looks = |closed: &mut Closed, of: &[Incarnation], from: u64, to: u64| {
            let seconds = from..to;
            let due = seconds.filter(|second| {
                let now = Duration::from_secs(*second);
                !closed.due(of.to_vec(), now).is_empty()
            });
            due.collect::<Vec<u64>>()
        };
        assert_eq!(
            looks(&mut closed, &of, 0, 200),
            [0, 1, 2, 4, 8, 16, 32, 64, 124, 184]
        );
        // One is complete, or another is closed.
        assert_eq!(looks(&mut closed, &of[..1], 200, 203), [200, 201, 202]);
        assert!(looks(&mut closed, &[], 203, 210).is_empty());
    }

    fn said(logs: &[(u64, u64, u64)]) -> Said {
        let log = |(of, stored, applied): &(u64, u64, u64)| {
            let log = Holding {
                taken: *stored,
                stored: *stored,
                applied: *applied,
                ..Holding::default()
            };
            (Incarnation::from_hash(*of), log)
        };
        logs.iter().map(log).collect()
    }

    #[test]
    fn all_holders_must_say_the_same() {
        let check = |complete: &[Said], syncing: &[Said], expected: Option<Said>| {
            let none = BTreeSet::new();
            let said = [complete.to_vec(), syncing.to_vec()];
            assert_eq!(agreed(&said, &none), expected);
        };
        let [ten, nine, behind] =
            [(10, 10), (9, 9), (10, 8)].map(|(stored, applied)| [said(&[(1, stored, applied)])]);
        check(&[], &[], None);
        check(&ten, &[], Some(ten[0].clone()));
        check(&[&ten[..], &nine].concat(), &[], None);
        check(&ten, &nine, Some(ten[0].clone()));
        check(&[], &nine, Some(nine[0].clone()));
        check(&[&ten[..], &behind].concat(), &[], Some(behind[0].clone()));
        // One of two holders was told where a closed log ends, and the other has started since.
        let beyond = [said(&[(1, 12, 10)])];
        let closed = [Incarnation::from_hash(1)].into();
        for complete in [[&ten[..], &beyond].concat(), [&beyond[..], &ten].concat()] {
            let said = agreed(&[complete, Vec::new()], &closed);
            assert_eq!(said, Some(ten[0].clone()));
        }
    }

    #[test]
    fn a_holder_that_speaks_of_some_logs_was_not_asked() {
        let of = [1, 2].map(Incarnation::from_hash);
        let here: BTreeSet<PartitionId> = [PartitionId(7)].into();
        let mut reports = HolderReports::new(&of);
        assert!(!reports.said(PartitionId(7), false, said(&[(1, 5, 5)])));
        assert_eq!(reports.agreed(&here, &BTreeSet::new()), None);
        let both = said(&[(1, 5, 5), (2, 3, 3)]);
        assert!(reports.said(PartitionId(7), false, both.clone()));
        let agreed = reports
            .agreed(&here, &BTreeSet::new())
            .expect("one says it");
        assert_eq!(agreed[&of[1]][&PartitionId(7)], both[&of[1]]);
    }
}
