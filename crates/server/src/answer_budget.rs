//! The memory for rows and blobs that are read for clients and not sent yet: one bound for all sessions together.
//!
//! A session takes a share before it reads, and keeps it until it waits for its client's next command. If no share is free, sessions wait in the
//! order of coming. While no session waits, none gives a share back early.
//!
//! No session waits for ever: one that has a share waits for the store, for an owner or for its client, and never for another share. When others
//! wait, a share that is older than [`TURN`] is given back before the next read, and while the client does not read. Before that the session drops
//! what it has read and not used ([`Session::shed`]), and reads it again when it has a share again. So bytes that a client leaves in its socket are
//! not counted, and hold nobody up.
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

/// The most bytes that a session holds of what it has read: rows, content rows, and blobs.
const SHARE_BYTES: usize =
    ROWS_PER_CALL_MAX * size_of::<Row>() + CONTENTS_BYTES_MAX + BLOB_READS_BYTES_MAX;
/// How long a share is kept while others wait: much longer than it takes to read the dropped data again.
pub(crate) const TURN: Duration = Duration::from_millis(250);
/// So many rows are read without a share: to wait for one would take longer than to read them.
const ROWS_FREE: usize = 64;

/// The shares.
pub(crate) struct Answers {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A share, given back when this is dropped.
pub(crate) struct Share {
    _permit: OwnedSemaphorePermit,
    since: Instant,
}

/// A session that waits, until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Answers {
    /// As many shares as fit into `bytes_max`, at least one.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let shares = (bytes_max / SHARE_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Answers {
            free: Arc::new(Semaphore::new(shares)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// A share, if one is free. It passes over no session that waits: shares that are given back go to those.
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

    /// Whether this share has to be given back.
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

/// Whether the answer to this call can be long, so that it stays with the session until its client has read it.
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
        // A new session is not served before those that wait.
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
        // A session that stops waiting holds up nobody.
        waiting.abort();
        assert!(waiting.await.is_err());
        assert!(!answers.wants(&share));
    }
}
