//! How much each account sends: an account whose password was stolen must not flood the world before somebody notices.
//!
//! Counted in memory, by this node alone, from the first message of a window on.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_mailbox::AccountId;

use crate::machine::Now;

/// Bounds. Keys in `[submission]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Messages that one account may begin within the window. `submission.messages_max`.
    pub messages_max: u32,
    /// Recipients that one account may name within it, of all its messages together. `submission.recipients_max`.
    pub recipients_max: u32,
    /// How long a message counts, in seconds. `submission.messages_window`.
    pub window_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            messages_max: 1000,
            recipients_max: 5000,
            window_seconds: 3600,
        }
    }
}

/// Who has sent how much. Bounded by the accounts there are: only who has logged in is counted.
pub struct Senders {
    limits: Limits,
    counts: BTreeMap<AccountId, Sent>,
    /// When the window of each began, in order.
    windows: VecDeque<(u64, AccountId)>,
}

#[derive(Default)]
struct Sent {
    messages: u32,
    recipients: u32,
}

impl Senders {
    /// Nobody has sent anything.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Senders {
            limits,
            counts: BTreeMap::new(),
            windows: VecDeque::new(),
        }
    }

    /// Counts a message; false: the account has sent as many as it may.
    pub fn begin(&mut self, now: Now, account: AccountId) -> bool {
        let most = self.limits.messages_max;
        is_within(&mut self.sent(now, account).messages, most)
    }

    /// Counts a recipient; false: the account has named as many as it may.
    pub fn recipient(&mut self, now: Now, account: AccountId) -> bool {
        let most = self.limits.recipients_max;
        is_within(&mut self.sent(now, account).recipients, most)
    }

    fn sent(&mut self, now: Now, account: AccountId) -> &mut Sent {
        let seconds = now.mono_micros / 1_000_000;
        while let Some((since, of)) = self.windows.front()
            && since + self.limits.window_seconds <= seconds
        {
            self.counts.remove(of);
            self.windows.pop_front();
        }
        self.counts.entry(account).or_insert_with(|| {
            self.windows.push_back((seconds, account));
            Sent::default()
        })
    }
}

/// Counts one more, if there may be.
fn is_within(count: &mut u32, most: u32) -> bool {
    let is = *count < most;
    *count += u32::from(is);
    is
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_so_long() {
        let (anne, bob) = (AccountId([1; 16]), AccountId([2; 16]));
        let mut senders = Senders::new(Limits {
            messages_max: 2,
            recipients_max: 3,
            window_seconds: 60,
        });
        let mut check = |seconds: u64, account, expected| {
            let now = Now {
                wall_micros: 0,
                mono_micros: seconds * 1_000_000,
            };
            assert_eq!(senders.begin(now, account), expected, "{seconds}");
        };
        check(10, anne, true);
        check(50, anne, true);
        check(51, anne, false);
        check(51, bob, true);
        check(69, anne, false);
        // The window begins with the first message, and what was refused makes it no longer.
        check(70, anne, true);
        check(71, bob, true);
        check(72, bob, false);
        check(111, bob, true);
        check(112, anne, true);
        check(113, anne, false);
        assert_eq!((senders.counts.len(), senders.windows.len()), (2, 2));
        // Recipients by themselves, in the same window.
        let now = |seconds: u64| Now {
            wall_micros: 0,
            mono_micros: seconds * 1_000_000,
        };
        let named = [113, 120, 121, 122, 172].map(|at| senders.recipient(now(at), anne));
        assert_eq!(named, [true, true, true, false, true]);
    }
}
