//! The logs of removed members: what this node holds of them is said, they are closed when all say the same, and whoever has all of a closed log
//! takes nothing beyond its end.
//!
//! What comes from a removed member itself must have come to its end before anything is said: others may never get it. On a log that is closed may
//! rest what is in one that is being closed.

use std::{collections::BTreeMap, time::Duration};

use whimbrel_crdt::{Incarnation, mutants::broken};
use whimbrel_replication::{
    members::Ends,
    roster::{Holdings, Roster},
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
        let logs = &report.open.as_ref()?.logs;
        for (id, of) in &mut holdings {
            of.insert(report.partition, logs.get(id).copied().unwrap_or_default());
        }
    }
    Some(holdings)
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
}
