//! Questions that were taken out of the inbox: accounts take turns, and accounts with heavy questions rest in between.

use std::time::{Duration, Instant};

use whimbrel_mailbox::AccountId;
use whimbrel_service::{rests::Rests, turns::Turns};

use crate::router::{QUESTIONS_MAX, Question};

/// See the module. Commits are numbered: `committed` is the last one that is done.
pub(super) struct Questions {
    turns: Turns<Option<AccountId>, Question>,
    rests: Rests<AccountId>,
    start: Instant,
}

impl Default for Questions {
    fn default() -> Self {
        Questions {
            turns: Turns::default(),
            rests: Rests::default(),
            start: Instant::now(),
        }
    }
}

impl Questions {
    pub(super) fn has_room(&self) -> bool {
        self.turns.len() < QUESTIONS_MAX
    }

    pub(super) fn push(&mut self, question: Question) {
        let account = question.account();
        if let Some(account) = account {
            let now = self.start.elapsed();
            self.rests.asks(account, now);
        }
        self.turns.push(account, question);
    }

    /// Whether a question waits whose account does not rest.
    pub(super) fn has(&self, now: Instant, committed: u64) -> bool {
        self.turns
            .waits_for(awake(&self.rests, now - self.start, committed))
    }

    pub(super) fn next(&mut self, now: Instant, committed: u64) -> Option<Question> {
        let next = self
            .turns
            .pop_of(awake(&self.rests, now - self.start, committed));
        next.map(|(_, question)| question)
    }

    /// The machine has worked on an account's question since `began`; `commits`: as in [`Rests::worked`].
    pub(super) fn worked(&mut self, account: AccountId, began: Instant, commits: (u64, u64)) {
        let (began, now) = (began - self.start, self.start.elapsed());
        self.rests.worked(account, began, now, commits);
    }

    /// Waits until an account with questions rests no more. The caller also looks again at the end of a commit.
    pub(super) async fn rest(&self, now: Instant) {
        let until = match self.turns.is_empty() {
            true => None,
            false => self.rests.look_again(now - self.start),
        };
        match until {
            Some(until) => tokio::time::sleep_until((self.start + until).into()).await,
            None => std::future::pending().await,
        }
    }
}

/// The accounts that do not rest. Questions about no account are few, and always count.
fn awake(
    rests: &Rests<AccountId>,
    now: Duration,
    committed: u64,
) -> impl Fn(Option<AccountId>) -> bool {
    move |account| account.is_none_or(|account| !rests.rests(account, now, committed))
}
