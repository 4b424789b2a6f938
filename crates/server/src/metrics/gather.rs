//! Metrics that are gathered on request: of the machines, the store, the process.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use whimbrel_service::figures::Figures;
use whimbrel_storage_embedded::Totals;

use super::{
    ACCOUNTS, ACCOUNTS_BYTES, ACCOUNTS_EVICTED, ACCOUNTS_JOINED, ACCOUNTS_LOADED, ACCOUNTS_LOADS,
    ACCOUNTS_STALLED, CLUSTER_BEHIND, CLUSTER_CLOCK_OFF, CLUSTER_CLOCK_WRONG, CLUSTER_LAG,
    CLUSTER_LAG_BYTES, CLUSTER_LAG_SECONDS, CLUSTER_LINKS, CLUSTER_MEMBERS, CLUSTER_MISSED,
    CLUSTER_MISSING, CLUSTER_QUEUED, CLUSTER_STABLE, CLUSTER_UNSHOWN, CONFIRMED, CONFIRMING,
    DELIVERIES_FORWARDED, DESCRIPTORS, DOMAINS, LOG_OPERATIONS, LOG_PARTITIONS, LOGINS_CACHED,
    PARTITIONS_HELD, PARTITIONS_SYNCING, QUEUE_ADOPTED, QUEUE_BOTH_ACTED, QUEUE_BYTES,
    QUEUE_ENTRIES, QUEUE_FORGETTING_WAITS, QUEUE_OLDEST, QUEUE_REPAIRED, QUEUE_REPLACED,
    QUEUE_TOMBSTONES, RESIDENT, SNAPSHOTS_RECEIVED, SNAPSHOTS_SENT, SNAPSHOTS_WAITING, STALE,
    STORE_BYTES, STORE_CACHE, STORE_COMMITS, STORE_FREE, STORE_SYNCS, STORE_WAITING, STORE_WAITS,
    TAKEOVER_UIDS, TAKEOVERS, TAKEOVERS_REFUSED, UIDS_REASSIGNED, UNCONFIRMED, WATCHERS,
};
use crate::{
    cluster::{NodeLine, Status, Told},
    router::Router,
};

/// Machines that do not answer in this time are busy: their metrics keep the last values, and a metric says so.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(1);

/// The sources of metrics.
#[derive(Clone)]
pub struct Sources {
    /// The machines.
    pub board: Arc<Router>,
    /// The counts of the store.
    pub store: Arc<dyn Fn() -> Totals + Send + Sync>,
    /// The directory of its files.
    pub store_path: PathBuf,
    /// The configured size of its cache.
    pub cache_bytes: u64,
    /// The cluster, if the node belongs to one.
    pub(crate) cluster: Option<Told>,
}

impl Sources {
    /// Updates the metrics.
    pub fn refresh(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let figures = tokio::time::timeout(ANSWER_WAIT_MAX, self.board.figures());
            let figures = figures.await.ok().flatten();
            STALE.set(["machines"], u64::from(figures.is_none()));
            if let Some(figures) = &figures {
                machines(figures);
            }
            if let Some(told) = &self.cluster {
                let status = tokio::time::timeout(ANSWER_WAIT_MAX, told.status());
                let status = status.await.ok().flatten();
                STALE.set(["cluster"], u64::from(status.is_none()));
                if let Some(status) = &status {
                    members(status);
                }
            }
            let totals = (self.store)();
            STORE_SYNCS.set([], totals.groups);
            STORE_COMMITS.set([], totals.commits);
            STORE_WAITING.set([], totals.waiting_bytes as u64);
            STORE_WAITS.set([], totals.waits);
            STORE_CACHE.set([], self.cache_bytes);
            let path = self.store_path.clone();
            // Reading a directory may wait for the disk.
            let _ = tokio::task::spawn_blocking(move || {
                STORE_BYTES.set([], tree_bytes(&path));
                if let Ok(stat) = rustix::fs::statvfs(&path) {
                    STORE_FREE.set([], stat.f_bavail.saturating_mul(stat.f_frsize));
                }
                RESIDENT.set([], resident_bytes().unwrap_or(0));
                DESCRIPTORS.set([], descriptors().unwrap_or(0));
            })
            .await;
        })
    }
}

fn members(status: &Status) {
    let nodes = &status.nodes;
    let count = |of: &dyn Fn(bool, bool) -> bool| {
        let counted = nodes.iter().filter(|node| of(node.removed, node.closed));
        counted.count() as u64
    };
    CLUSTER_MEMBERS.set(["open"], count(&|removed, closed| !removed && !closed));
    CLUSTER_MEMBERS.set(["removed"], count(&|removed, closed| removed && !closed));
    CLUSTER_MEMBERS.set(["closed"], count(&|_, closed| closed));
    CLUSTER_LINKS.set([], nodes.iter().filter(|node| node.linked).count() as u64);
    let peers = || nodes.iter().filter(|node| !node.removed && !node.this);
    CLUSTER_LAG.set(
        [],
        peers()
            .filter_map(|node| node.lag_operations)
            .max()
            .unwrap_or(0),
    );
    let most = |of: fn(&NodeLine) -> u64| peers().map(of).max().unwrap_or(0);
    CLUSTER_LAG_BYTES.set([], most(|node| node.lag_bytes));
    CLUSTER_LAG_SECONDS.set([], most(|node| node.lag_seconds));
    CLUSTER_BEHIND.set(
        [],
        peers().filter_map(|node| node.has_more).max().unwrap_or(0),
    );
    CLUSTER_CLOCK_WRONG.set([], u64::from(status.clock.is_some()));
    let off = peers().filter_map(|node| node.clock_ahead_micros);
    let off = off.map(|micros| micros.unsigned_abs() / 1_000_000);
    CLUSTER_CLOCK_OFF.set([], off.max().unwrap_or(0));
    CLUSTER_QUEUED.set([], peers().map(|node| node.queued_bytes).sum());
    let this = nodes.iter().find(|node| node.this);
    PARTITIONS_HELD.set([], this.map_or(0, |node| node.holds));
    if let Some(here) = &status.here {
        CLUSTER_STABLE.set([], here.stable);
        CLUSTER_MISSING.set([], here.blobs_missing);
    }
}

fn machines(figures: &Figures) {
    ACCOUNTS_LOADED.set([], figures.accounts_loaded);
    DELIVERIES_FORWARDED.set([], figures.deliveries_forwarded);
    ACCOUNTS_BYTES.set([], figures.accounts_bytes);
    ACCOUNTS_LOADS.set([], figures.accounts_loads);
    ACCOUNTS_STALLED.set([], figures.accounts_stalled);
    ACCOUNTS_EVICTED.set([], figures.accounts_evicted);
    WATCHERS.set([], figures.watchers);
    LOG_PARTITIONS.set([], figures.log_partitions);
    PARTITIONS_SYNCING.set([], figures.partitions_syncing);
    LOG_OPERATIONS.set([], figures.log_operations);
    UIDS_REASSIGNED.set([], figures.uids_reassigned);
    CLUSTER_MISSED.set([], figures.blobs_missed);
    CLUSTER_UNSHOWN.set([], figures.hidden_ops);
    TAKEOVERS.set([], figures.takeovers);
    TAKEOVER_UIDS.set([], figures.takeover_uids);
    TAKEOVERS_REFUSED.set([], figures.takeovers_refused);
    CONFIRMING.set([], figures.answers_confirming);
    CONFIRMED.set([], figures.answers_confirmed);
    UNCONFIRMED.set(["too_few"], figures.answers_too_few);
    UNCONFIRMED.set(["late"], figures.answers_unconfirmed);
    SNAPSHOTS_SENT.set([], figures.snapshots_sent);
    SNAPSHOTS_RECEIVED.set([], figures.snapshots_received);
    SNAPSHOTS_WAITING.set([], figures.snapshots_waiting);
    ACCOUNTS_JOINED.set([], figures.accounts_joined);
    QUEUE_ENTRIES.set([], figures.queue_entries);
    QUEUE_BYTES.set([], figures.queue_bytes);
    QUEUE_OLDEST.set([], figures.queue_oldest_seconds);
    QUEUE_TOMBSTONES.set([], figures.queue_tombstones);
    QUEUE_FORGETTING_WAITS.set([], figures.queue_forgetting_waits_seconds);
    QUEUE_ADOPTED.set([], figures.queue_adopted);
    QUEUE_REPAIRED.set([], figures.queue_repaired);
    QUEUE_REPLACED.set([], figures.queue_replaced);
    QUEUE_BOTH_ACTED.set([], figures.queue_both_acted);
    ACCOUNTS.set([], figures.directory_accounts);
    DOMAINS.set([], figures.directory_domains);
    LOGINS_CACHED.set([], figures.logins_cached);
}

/// The size of the files below a directory. Files that vanish in the meantime are not counted.
fn tree_bytes(root: &Path) -> u64 {
    let mut bytes = 0;
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push(entry.path()),
                Ok(metadata) => bytes += metadata.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// Resident memory in bytes, from /proc; `None` elsewhere.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Open descriptors, from /proc; `None` elsewhere.
fn descriptors() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(descriptors().is_some_and(|count| count > 2));
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), [0; 1000]).unwrap();
        std::fs::create_dir_all(directory.path().join("b/c")).unwrap();
        std::fs::write(directory.path().join("b/c/d"), [0; 234]).unwrap();
        assert_eq!(tree_bytes(directory.path()), 1234);
        assert_eq!(tree_bytes(&directory.path().join("not there")), 0);
    }
}
