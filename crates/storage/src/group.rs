//! Group commit: many commits, one sync. A pure state machine: no clock, no thread, no disk.
//!
//! The driver submits what comes, and whenever no sync is under way takes *everything* that waits (up to a bound in bytes)
//! as the next group, writes it, syncs once, and reports. So a group grows by itself while the disk is busy, and no timer
//! holds back what somebody waits for: a lone commit is started at once.
//!
//! Clients that wait for one commit before they send the next tend to fall into two halves that wait for each other: those
//! acknowledged by one sync come back just after the next has begun. [`GroupCommit::may_grow`] tells the driver when that is
//! about to happen; it then first lets run what is ready to run (the tasks it has just woken; in a simulation all events of
//! the same instant), which costs no time that anyone waits for.
//!
//! Some commits are *lazy*: nobody waits for them ([`Commit::lazy`](crate::Commit::lazy)). While nothing else waits
//! ([`GroupCommit::may_wait`]), the driver may hold them back, for about as long as a sync takes: most of the time a commit
//! that somebody waits for comes meanwhile, and one sync does for all, where the lazy ones alone would have kept the disk busy and
//! let the other wait for it. They lose nothing by it: their place in the order stays, and nobody is told that they are
//! durable before they are.
//!
//! Invariants:
//!
//! - at most one group is under way;
//! - groups take commits in the order in which they were submitted;
//! - after a failed sync nothing is ever started or accepted again. What the disk holds is unknown then (the kernel may have
//!   dropped dirty pages and reported that only once), so going on could acknowledge what is lost.

use std::collections::VecDeque;

use crate::StoreError;

/// Bytes after which no further commit joins a group: bounds the memory of one write, and how long one sync takes.
pub const GROUP_BYTES_MAX_DEFAULT: usize = 4 << 20;

/// The queue before the one sync that may be under way. `T` is a commit together with its waiting caller.
#[derive(Debug)]
pub struct GroupCommit<T> {
    waiting: VecDeque<Waiting<T>>,
    waiting_bytes: usize,
    /// How many waiting commits are not lazy.
    urgent: usize,
    group_bytes_max: usize,
    under_way: bool,
    poison: Option<StoreError>,
    groups: u64,
    items: u64,
    last_len: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    bytes: usize,
    lazy: bool,
}

impl<T> GroupCommit<T> {
    /// An empty queue whose groups hold at most `group_bytes_max` bytes (but always at least one commit).
    #[must_use]
    pub fn new(group_bytes_max: usize) -> Self {
        GroupCommit {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            urgent: 0,
            group_bytes_max,
            under_way: false,
            poison: None,
            groups: 0,
            items: 0,
            last_len: 0,
        }
    }

    /// Queues a commit of `bytes` bytes. After a failed sync it is given back with the failure.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`], for ever after a failed sync.
    pub fn submit(&mut self, item: T, bytes: usize) -> Result<(), (T, StoreError)> {
        self.enqueue(item, bytes, false)
    }

    /// As [`GroupCommit::submit`], for a commit that nobody waits for.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`], for ever after a failed sync.
    pub fn submit_lazy(&mut self, item: T, bytes: usize) -> Result<(), (T, StoreError)> {
        self.enqueue(item, bytes, true)
    }

    fn enqueue(&mut self, item: T, bytes: usize, lazy: bool) -> Result<(), (T, StoreError)> {
        if let Some(poison) = &self.poison {
            return Err((item, poison.clone()));
        }
        self.waiting.push_back(Waiting { item, bytes, lazy });
        self.waiting_bytes += bytes;
        self.urgent += usize::from(!lazy);
        Ok(())
    }

    /// The next group, if something waits and no sync is under way. The driver owes one [`GroupCommit::done`] for it.
    #[must_use]
    pub fn start(&mut self) -> Option<Vec<T>> {
        if self.under_way || self.poison.is_some() || self.waiting.is_empty() {
            return None;
        }
        let mut group = Vec::with_capacity(self.waiting.len());
        let mut group_bytes = 0usize;
        while let Some(&Waiting { bytes, .. }) = self.waiting.front() {
            if !group.is_empty() && group_bytes.saturating_add(bytes) > self.group_bytes_max {
                break;
            }
            let Some(Waiting { item, lazy, .. }) = self.waiting.pop_front() else {
                break;
            };
            self.urgent -= usize::from(!lazy);
            group_bytes = group_bytes.saturating_add(bytes);
            self.waiting_bytes -= bytes;
            group.push(item);
        }
        self.under_way = true;
        self.groups += 1;
        self.items += group.len() as u64;
        self.last_len = group.len();
        Some(group)
    }

    /// The group under way is on disk, or it failed. After a failure all waiting commits are returned, so that their callers can be told.
    ///
    /// # Panics
    /// If no group is under way: a defect of the driver, which would acknowledge what was never synced.
    #[must_use = "after a failure these must be told"]
    pub fn done(&mut self, result: Result<(), StoreError>) -> Vec<T> {
        assert!(self.under_way, "a sync was reported that nobody started");
        self.under_way = false;
        match result {
            Ok(()) => Vec::new(),
            Err(error) => self.fail(error),
        }
    }

    /// Something else than a sync has failed for good. As [`GroupCommit::done`] with a failure, but a group that is under way still needs its own
    /// report.
    #[must_use = "these must be told"]
    pub fn fail(&mut self, error: StoreError) -> Vec<T> {
        self.poison.get_or_insert(match error {
            StoreError::Poisoned(_) => error,
            other => StoreError::Poisoned(other.to_string().into()),
        });
        self.waiting_bytes = 0;
        self.urgent = 0;
        self.waiting.drain(..).map(|waiting| waiting.item).collect()
    }

    /// The failure that stopped this queue, if one did.
    #[must_use]
    pub fn poison(&self) -> Option<&StoreError> {
        self.poison.as_ref()
    }

    /// Whether a group is under way.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// Whether fewer commits wait than were just acknowledged: more may come as soon as those callers have run.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        !self.under_way && !self.waiting.is_empty() && self.waiting.len() < self.last_len
    }

    /// Whether the next group has only lazy commits, and no caller waits for the room that they take up.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        !self.under_way
            && !self.waiting.is_empty()
            && self.urgent == 0
            && self.waiting_bytes < self.group_bytes_max
    }

    /// Commits that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits and nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.under_way && self.waiting.is_empty()
    }

    /// Bytes that wait.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Groups started and commits in them, since the beginning: their quotient is the gain over one sync a commit.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        (self.groups, self.items)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SYNC_MICROS: u64 = 5_000;

    /// When an appender sends its next batch.
    enum Pace {
        /// So many microseconds after the last was acknowledged.
        AfterReply(fn(u64) -> u64),
        /// Every so many microseconds, whatever was acknowledged.
        Every(u64),
    }

    /// Appenders on a disk whose sync takes [`SYNC_MICROS`], for ten seconds. Gives (commits, syncs, longest time from
    /// submission to acknowledgement). All that happens at one instant happens before the next group is taken.
    fn simulate(appenders: u64, pace: &Pace) -> (u64, u64, u64) {
        enum Event {
            Append(u64),
            Synced,
        }
        let mut queue = GroupCommit::new(GROUP_BYTES_MAX_DEFAULT);
        // Keyed by time and a counter, so that equal times keep their order.
        let mut events = BTreeMap::new();
        let mut counter = 0;
        let mut group = Vec::new();
        let mut longest = 0;
        for appender in 0..appenders {
            counter += 1;
            events.insert(
                (appender * SYNC_MICROS / appenders, counter),
                Event::Append(appender),
            );
        }
        while let Some(((now, _), event)) = events.pop_first() {
            if now > 10_000_000 {
                break;
            }
            match event {
                Event::Append(appender) => {
                    queue.submit((appender, now), 500).unwrap();
                    if let Pace::Every(micros) = pace {
                        counter += 1;
                        events.insert((now + micros, counter), Event::Append(appender));
                    }
                }
                Event::Synced => {
                    assert!(queue.done(Ok(())).is_empty());
                    for (appender, since) in std::mem::take(&mut group) {
                        longest = longest.max(now - since);
                        if let Pace::AfterReply(think) = pace {
                            counter += 1;
                            events
                                .insert((now + think(appender), counter), Event::Append(appender));
                        }
                    }
                }
            }
            if events
                .first_key_value()
                .is_some_and(|((next, _), _)| *next == now)
            {
                continue;
            }
            if let Some(started) = queue.start() {
                group = started;
                counter += 1;
                events.insert((now + SYNC_MICROS, counter), Event::Synced);
            }
        }
        let (groups, items) = queue.totals();
        (items, groups, longest)
    }

    #[test]
    fn twenty_appenders_share_a_sync() {
        let check = |pace, commits_a_sync_min: u64| {
            let (commits, syncs, longest) = simulate(20, &pace);
            assert!(
                commits >= commits_a_sync_min * syncs,
                "{commits} commits in {syncs} syncs"
            );
            // The sync under way, and its own.
            assert!(longest <= 2 * SYNC_MICROS, "one waited {longest} us");
            assert!(
                syncs >= 1_900,
                "the disk is never idle while something waits: {syncs} syncs"
            );
        };
        check(Pace::AfterReply(|_| 0), 15);
        check(Pace::Every(SYNC_MICROS), 15);
        check(Pace::Every(SYNC_MICROS * 11 / 10), 15);
        // Slow callers: two halves that alternate, since neither waits for the other.
        check(Pace::AfterReply(|appender| 50 + appender * 47), 9);
    }

    #[test]
    fn a_lone_appender_waits_for_its_own_sync_only() {
        let (commits, syncs, longest) = simulate(1, &Pace::AfterReply(|_| 300));
        assert_eq!(commits, syncs);
        assert_eq!(longest, SYNC_MICROS);
    }

    #[test]
    fn a_group_is_bounded_and_keeps_the_order() {
        let mut queue = GroupCommit::new(100);
        for (item, bytes) in [(1, 60), (2, 40), (3, 1), (4, 500), (5, 1)] {
            queue.submit(item, bytes).unwrap();
        }
        let mut groups = Vec::new();
        while let Some(group) = queue.start() {
            assert!(queue.start().is_none(), "one group at a time");
            groups.push(group);
            assert!(queue.done(Ok(())).is_empty());
        }
        assert_eq!(groups, [vec![1, 2], vec![3], vec![4], vec![5]]);
        assert!(queue.is_idle() && queue.waiting_bytes() == 0);
    }

    #[test]
    fn a_failed_sync_ends_everything() {
        let mut queue = GroupCommit::new(100);
        queue.submit("under way", 1).unwrap();
        assert_eq!(queue.start().unwrap(), ["under way"]);
        queue.submit("waiting", 1).unwrap();
        let failed = queue.done(Err(StoreError::Read("EIO".into())));
        assert_eq!(failed, ["waiting"]);
        let (item, error) = queue.submit("late", 1).unwrap_err();
        assert_eq!(item, "late");
        assert!(error.stops_node(), "{error}");
        assert!(queue.start().is_none());
        assert!(queue.poison().is_some());
    }

    #[test]
    fn only_a_group_that_nobody_waits_for_may_wait() {
        let mut queue = GroupCommit::new(100);
        assert!(!queue.may_wait());
        queue.submit_lazy("a", 30).unwrap();
        assert!(queue.may_wait());
        queue.submit("b", 30).unwrap();
        assert!(!queue.may_wait());
        // In their order.
        assert_eq!(queue.start().unwrap(), ["a", "b"]);
        queue.submit_lazy("c", 30).unwrap();
        assert!(!queue.may_wait());
        assert!(queue.done(Ok(())).is_empty());
        assert!(queue.may_wait());
        // Callers also wait for room.
        queue.submit_lazy("d", 70).unwrap();
        assert!(!queue.may_wait());
        assert_eq!(queue.start().unwrap(), ["c", "d"]);
        queue.submit_lazy("e", 1).unwrap();
        assert_eq!(queue.done(Err(StoreError::Closed)), ["e"]);
        assert!(!queue.may_wait());
    }
}
