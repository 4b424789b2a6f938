//! Pauses between heavy questions of one account: the next one waits twice as long as the last one took, and until its commits are done, so that other
//! accounts are served in between. An account that asks alone has no pauses.
//!
//! Times are since the start of the process.
//!
//! Without rests an account with many sessions that copy whole mailboxes has the machine between any two steps of another account's APPEND.

use std::{collections::BTreeMap, time::Duration};

/// A question that takes the machine less than this is not heavy: even ten in a row are not felt.
const HEAVY: Duration = Duration::from_millis(10);

/// A rest takes so many times as long as the question before it: heavy questions have a third of the machine's time.
const REST: u32 = 2;

/// How long after its last question an account counts as one of those that want to be served.
const RECENT: Duration = Duration::from_secs(1);

/// Accounts that rest at once, at most: so many heavy questions cannot be asked while the first of them rests.
const RESTING_MAX: usize = 64;

/// See the module. `K` is an account.
#[derive(Debug)]
pub struct Rests<K> {
    resting: BTreeMap<K, Rest>,
    /// Who asked last, and when.
    last: Option<(K, Duration)>,
    /// Who asked last among all others, and when.
    other: Option<(K, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Duration,
    /// The number of its last commit.
    commit: u64,
}

impl<K> Default for Rests<K> {
    fn default() -> Self {
        Rests {
            resting: BTreeMap::new(),
            last: None,
            other: None,
        }
    }
}

impl<K: Copy + Ord> Rests<K> {
    /// An account asks.
    pub fn asks(&mut self, account: K, now: Duration) {
        if let Some((last, _)) = self.last
            && last != account
        {
            self.other = self.last;
        }
        self.last = Some((account, now));
    }

    /// The machine has worked on a question of an account. Commits are numbered: `commits` has the last that was begun, and the last that is done.
    pub fn worked(&mut self, account: K, began: Duration, now: Duration, commits: (u64, u64)) {
        let (commit, committed) = commits;
        let took = now.saturating_sub(began);
        if took < HEAVY || !self.others_want(account, now) {
            return;
        }
        self.resting
            .retain(|_, rest| rest.until > now || rest.commit > committed);
        if self.resting.len() < RESTING_MAX {
            let until = now + took * REST;
            self.resting.insert(account, Rest { until, commit });
        }
    }

    /// Whether an account rests, when the commits up to a number are done.
    #[must_use]
    pub fn rests(&self, account: K, now: Duration, committed: u64) -> bool {
        let rest = self.resting.get(&account);
        rest.is_some_and(|rest| rest.until > now || rest.commit > committed)
    }

    /// When to look again; the end of a commit is another reason.
    #[must_use]
    pub fn look_again(&self, now: Duration) -> Option<Duration> {
        let ends = self.resting.values().map(|rest| rest.until);
        ends.filter(|until| *until > now).min()
    }

    fn others_want(&self, account: K, now: Duration) -> bool {
        let asked = [self.last, self.other];
        let mut asked = asked.into_iter().flatten();
        asked.any(|(who, at)| who != account && now.saturating_sub(at) < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(50);

    #[test]
    fn who_has_heavy_questions_rests_while_others_want_to_be_served() {
        let (mut rests, t0) = (Rests::default(), Duration::ZERO);
        let t1 = t0 + TOOK;
        rests.asks('b', t0);
        rests.asks('a', t0);
        rests.worked('a', t0, t1, (3, 0));
        assert!(rests.rests('a', t1, 3) && !rests.rests('b', t1, 3));
        assert_eq!(rests.look_again(t1), Some(t1 + TOOK * REST));
        // Both the time and the commits have to be over.
        assert!(rests.rests('a', t1 + TOOK * REST, 2));
        assert!(!rests.rests('a', t1 + TOOK * REST, 3));
        assert_eq!(rests.look_again(t1 + TOOK * REST), None);
        // A light question brings no rest.
        rests.worked('b', t1, t1 + HEAVY / 2, (4, 0));
        assert!(!rests.rests('b', t1 + HEAVY / 2, 3));
    }

    #[test]
    fn who_is_alone_does_not_rest() {
        let (mut rests, t0) = (Rests::default(), Duration::ZERO);
        rests.asks('b', t0);
        // Its question is too long ago.
        let t1 = t0 + RECENT;
        rests.asks('a', t1);
        rests.worked('a', t1, t1 + TOOK, (1, 0));
        assert!(!rests.rests('a', t1 + TOOK, 0));
        // Many of its own are no others.
        for _ in 0..3 {
            rests.asks('a', t1);
        }
        rests.worked('a', t1, t1 + TOOK, (2, 0));
        assert!(!rests.rests('a', t1 + TOOK, 0));
        rests.asks('b', t1);
        for _ in 0..3 {
            rests.asks('a', t1);
        }
        rests.worked('a', t1, t1 + TOOK, (3, 0));
        assert!(rests.rests('a', t1 + TOOK, 0));
    }

    #[test]
    fn few_rests_are_remembered() {
        let (mut rests, t0) = (Rests::default(), Duration::ZERO);
        let numbers = 0..2 * RESTING_MAX;
        for number in numbers.clone() {
            rests.asks(number, t0);
            rests.worked(number, t0, t0 + TOOK, (0, 0));
        }
        assert_eq!(rests.resting.len(), RESTING_MAX);
        // They give way to those that come when they are over.
        let t1 = t0 + TOOK + TOOK * REST;
        for number in numbers {
            rests.asks(number, t1);
        }
        rests.worked(1_000, t1, t1 + TOOK, (0, 0));
        assert_eq!(rests.resting.len(), 1);
    }
}
