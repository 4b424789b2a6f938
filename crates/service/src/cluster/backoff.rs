//! What this node tries to leave, and what comes to it: neither may wait for ever for others that cannot do their part.
//!
//! Who leaves a partition serves and takes nothing of it. If those who stay cannot say that they have all (an account is stalled there, say), it is
//! held again after a while ([`LEAVING_MAX`]), and the next try begins later each time. A partition of which nothing comes for long ([`SILENT_MAX`])
//! takes no place of those that could.
//!
//! Times are since the start of the process; nothing of this is kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use whimbrel_crdt::PartitionId;

/// Those who stay had all that clients may know when it began: they lack what was written since, and answer in seconds.
const LEAVING_MAX: Duration = Duration::from_secs(60);

/// Before the second try; doubled for each one that follows.
const PAUSE_MIN: Duration = Duration::from_secs(120);

/// What keeps a holder from answering may be for people to mend.
const PAUSE_MAX: Duration = Duration::from_secs(2 * 3600);

/// A state is sent again within seconds, another donor asked after 15 s, a body again after 5 s.
const SILENT_MAX: Duration = Duration::from_secs(300);

/// Of all partitions that are, or were, under way.
#[derive(Debug, Default)]
pub(super) struct Tries {
    leaving: BTreeMap<PartitionId, Leaving>,
    coming: BTreeMap<PartitionId, Coming>,
}

#[derive(Debug, Default)]
struct Leaving {
    since: Option<Duration>,
    /// So often it was held again.
    vain: u32,
    not_before: Duration,
}

/// What came, and what is missing: as long as it changes more may come.
pub(super) type Far = (u64, u64);

#[derive(Debug)]
struct Coming {
    far: Far,
    since: Duration,
}

impl Tries {
    /// Whether it may be begun to leave it.
    pub(super) fn may_leave(&self, partition: PartitionId, now: Duration) -> bool {
        let last = self.leaving.get(&partition);
        last.is_none_or(|last| last.not_before <= now)
    }

    /// These are being left, and those who stay have not all: which of them for too long.
    pub(super) fn leaving(
        &mut self,
        partitions: &BTreeSet<PartitionId>,
        now: Duration,
    ) -> BTreeSet<PartitionId> {
        for (partition, of) in &mut self.leaving {
            of.since = of.since.filter(|_| partitions.contains(partition));
        }
        let mut over = BTreeSet::new();
        for partition in partitions {
            let of = self.leaving.entry(*partition).or_default();
            let since = *of.since.get_or_insert(now);
            if now >= since + LEAVING_MAX {
                over.insert(*partition);
            }
        }
        over
    }

    /// It is held again, since it was tried for too long.
    pub(super) fn in_vain(&mut self, partition: PartitionId, now: Duration) {
        let of = self.leaving.entry(partition).or_default();
        let pause = PAUSE_MIN.saturating_mul(1 << of.vain.min(16));
        of.since = None;
        of.vain += 1;
        of.not_before = now + pause.min(PAUSE_MAX);
    }

    /// It was left.
    pub(super) fn left(&mut self, partition: PartitionId) {
        self.leaving.remove(&partition);
    }

    /// These are held and not whole, each so far: how many of them go on.
    pub(super) fn coming(&mut self, far: &BTreeMap<PartitionId, Far>, now: Duration) -> usize {
        self.coming
            .retain(|partition, _| far.contains_key(partition));
        let mut go_on = 0;
        for (partition, far) in far {
            let begins = Coming {
                far: *far,
                since: now,
            };
            let of = self.coming.entry(*partition).or_insert(begins);
            if of.far != *far {
                *of = Coming {
                    far: *far,
                    since: now,
                };
            }
            go_on += usize::from(now < of.since + SILENT_MAX);
        }
        go_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PartitionId = PartitionId::accounts(1);
    const TWO: PartitionId = PartitionId::accounts(2);

    #[test]
    fn what_cannot_be_left_is_tried_less_and_less_often() {
        let (mut tries, mut now) = (Tries::default(), Duration::ZERO);
        let both = BTreeSet::from([ONE, TWO]);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            assert!(tries.may_leave(ONE, now));
            assert_eq!(tries.leaving(&both, now), BTreeSet::new());
            now += LEAVING_MAX - Duration::from_secs(1);
            assert_eq!(tries.leaving(&both, now), BTreeSet::new());
            now += Duration::from_secs(1);
            assert_eq!(tries.leaving(&both, now), both);
            tries.in_vain(ONE, now);
            tries.left(TWO);
            assert!(tries.may_leave(TWO, now), "that was no vain try");
            let before = now;
            while !tries.may_leave(ONE, now) {
                now += Duration::from_secs(60);
            }
            pauses.push((now - before).as_secs() / 60);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 120, 120, 120]);
        // When it was left at last, and is to be left again some day, that is a first try.
        tries.left(ONE);
        tries.leaving(&both, now);
        tries.in_vain(ONE, now + LEAVING_MAX);
        assert!(tries.may_leave(ONE, now + LEAVING_MAX + PAUSE_MIN));
    }

    #[test]
    fn what_was_held_again_for_another_reason_begins_anew() {
        let mut tries = Tries::default();
        let one = BTreeSet::from([ONE]);
        tries.leaving(&one, Duration::ZERO);
        tries.leaving(&BTreeSet::new(), LEAVING_MAX / 2);
        assert!(tries.may_leave(ONE, LEAVING_MAX / 2));
        let begun = LEAVING_MAX;
        assert_eq!(tries.leaving(&one, begun), BTreeSet::new());
        assert_eq!(tries.leaving(&one, begun + LEAVING_MAX), one);
    }

    #[test]
    fn what_does_not_come_takes_no_place() {
        let mut tries = Tries::default();
        let at = |far: u64| BTreeMap::from([(ONE, (7, 0)), (TWO, (9, far))]);
        assert_eq!(tries.coming(&at(1), Duration::ZERO), 2);
        assert_eq!(tries.coming(&at(2), SILENT_MAX / 2), 2);
        assert_eq!(tries.coming(&at(2), SILENT_MAX), 1, "the first is silent");
        assert_eq!(tries.coming(&at(2), SILENT_MAX * 2), 0);
        assert_eq!(tries.coming(&at(3), SILENT_MAX * 2), 1, "it goes on");
        assert_eq!(tries.coming(&BTreeMap::new(), SILENT_MAX * 2), 0);
        assert_eq!(tries.coming(&at(3), SILENT_MAX * 3), 2, "they come again");
    }
}
