//! The memory for what is read from the store for clients and not yet sent: a bound for all sessions together.
//!
//! A session takes a share before it reads, and keeps it until it waits for its client's next command; who finds none waits in the order of
//! coming. While nobody waits, nobody gives a share back early.
//!
//! Nobody waits for ever: who has a share waits for the store, for an owner or for its client, and never for another share. When others wait, a
//! share that is older than [`TURN`] is given back before the next read, and while the client does not take what it is sent. Before that the
//! session drops what it has read and not used ([`Session::shed`]); it reads that again when it has a share again. So what a client leaves in its
//! socket is not counted, and holds nobody up.
//!
//! [`Session::shed`]: whimbrel_frontend::session::Session::shed

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use whimbrel_service::api::{
    BLOB_READS_BYTES_MAX, CONTENTS_BYTES_MAX, Call, MailboxCall, ROWS_PER_CALL_MAX, Row,
};

use crate::metrics;

/// What a session holds at the most of what it has read: rows, content rows, and bodies.
const SHARE_BYTES: usize =
    ROWS_PER_CALL_MAX * size_of::<Row>() + CONTENTS_BYTES_MAX + BLOB_READS_BYTES_MAX;
/// How long a share is kept while others wait: much longer than it takes to read again what is dropped then.
pub(crate) const TURN: Duration = Duration::from_millis(250);
/// So many rows are read without a share: it would take longer to wait for one than to be done.
const ROWS_FREE: usize = 64;

/// The shares.
pub(crate) struct Answers {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// One of them, until it is dropped.
pub(crate) struct Share {
    _permit: OwnedSemaphorePermit,
    since: Instant,
}

/// Somebody waits, until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Answers {
    /// As many as fit into so many bytes, and one.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let shares = (bytes_max / SHARE_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Answers {
            free: Arc::new(Semaphore::new(shares)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// A share, if one is free. Nobody who waits is passed over: what is given back is theirs.
    pub(crate) fn try_share(&self) -> Option<Share> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(Share::new(permit))
    }

    /// A share when it is this caller's turn.
    pub(crate) async fn share(&self) -> Share {
        metrics::answer_waits();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let permit = Arc::clone(&self.free).acquire_owned().await;
        Share::new(permit.expect("it is never closed"))
    }

    /// Whether this one is to be given back.
    pub(crate) fn wants(&self, share: &Share) -> bool {
        share.since.elapsed() >= TURN && self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Share {
    fn new(permit: OwnedSemaphorePermit) -> Share {
        Share {
            _permit: permit,
            since: Instant::now(),
        }
    }
}

/// Whether the answer to this can be long, and stays with the session until its client has taken it.
pub(crate) fn is_long(call: &Call) -> bool {
    match call {
        Call::Contents { .. } | Call::BlobRead { .. } | Call::BlobReadMany(_) => true,
        Call::Mailbox { call, .. } => match call {
            MailboxCall::Rows { uids, .. } | MailboxCall::Store { uids, .. } => {
                uids.len() > ROWS_FREE
            }
            MailboxCall::List { .. } => true,
            MailboxCall::Flagged { from, to, .. } => to.saturating_sub(*from) as usize >= ROWS_FREE,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    #[test]
    fn there_are_as_many_as_fit_and_one_at_least() {
        for (bytes, shares) in [
            (0, 1),
            (SHARE_BYTES - 1, 1),
            (SHARE_BYTES, 1),
            (3 * SHARE_BYTES - 1, 2),
            (3 * SHARE_BYTES, 3),
        ] {
            let answers = Answers::new(bytes);
            let held: Vec<Share> = std::iter::from_fn(|| answers.try_share()).collect();
            assert_eq!(held.len(), shares, "{bytes} bytes");
        }
    }

    #[tokio::test]
    async fn they_are_given_in_the_order_of_coming() {
        let answers = Arc::new(Answers::new(0));
        let first = answers.try_share().unwrap();
        let got = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut waiting = JoinSet::new();
        for number in 0..10 {
            let (waits, got) = (Arc::clone(&answers), Arc::clone(&got));
            waiting.spawn(async move {
                let _share = waits.share().await;
                got.lock().unwrap().push(number);
                tokio::task::yield_now().await;
            });
            while answers.waiting.load(Ordering::Relaxed) <= number {
                tokio::task::yield_now().await;
            }
        }
        drop(first);
        // Nobody who has just come is served before those who wait.
        assert!(answers.try_share().is_none());
        waiting.join_all().await;
        assert_eq!(*got.lock().unwrap(), (0..10).collect::<Vec<usize>>());
        assert!(answers.try_share().is_some());
    }

    #[tokio::test]
    async fn one_is_wanted_back_when_others_wait_and_its_turn_is_over() {
        let answers = Arc::new(Answers::new(0));
        let mut share = answers.try_share().unwrap();
        share.since -= TURN;
        assert!(!answers.wants(&share), "nobody waits");
        let wait = || {
            let answers = Arc::clone(&answers);
            tokio::spawn(async move { answers.share().await })
        };
        let waits = async || {
            while answers.waiting.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        };
        let waiting = wait();
        waits().await;
        assert!(answers.wants(&share));
        drop(share);
        let mut share = waiting.await.unwrap();
        let waiting = wait();
        waits().await;
        share.since += TURN;
        assert!(!answers.wants(&share), "its turn has just begun");
        share.since -= 2 * TURN;
        assert!(answers.wants(&share));
        // Who gives up waiting is not waited for.
        waiting.abort();
        assert!(waiting.await.is_err());
        assert!(!answers.wants(&share));
    }
}
