//! Snapshots that outlive one read.
//!
//! The tree keeps what a snapshot shows and has been overwritten since, and in memory what was written since, so they are few, none is taken while
//! another one holds much ([`Config::snapshot_bytes_max`](crate::Config::snapshot_bytes_max)), and one that nobody reads goes when its place is
//! wanted: whoever took it may have forgotten it. All go when the tree is opened anew.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use whimbrel_storage::{PartitionId, SNAPSHOTS_MAX, SnapshotId, StoreError};

/// One that was not read for so long gives way to another: twice as long as who gives a state to a peer waits for it to ask.
const IDLE_MAX: Duration = Duration::from_secs(120);

/// Names are not given again when the tree is opened anew.
static NAMES: AtomicU64 = AtomicU64::new(1);

/// The snapshots of an open tree.
#[derive(Default)]
pub(crate) struct Snapshots(BTreeMap<SnapshotId, Taken>);

struct Taken {
    partition: PartitionId,
    view: fjall::Snapshot,
    read_at: Instant,
    /// Bytes that were written before.
    written: u64,
}

/// Bytes written so far, and how many may be since one was taken for another to be.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) since_max: u64,
}

impl Snapshots {
    pub(crate) fn take(
        &mut self,
        now: Instant,
        written: Written,
        partition: PartitionId,
        view: fjall::Snapshot,
    ) -> Result<SnapshotId, StoreError> {
        if !self.have_room(written) {
            self.0
                .retain(|_, taken| now.saturating_duration_since(taken.read_at) < IDLE_MAX);
        }
        if !self.have_room(written) {
            return Err(StoreError::Snapshots);
        }
        let id = SnapshotId(NAMES.fetch_add(1, Ordering::Relaxed));
        let read_at = now;
        self.0.insert(
            id,
            Taken {
                partition,
                view,
                read_at,
                written: written.bytes,
            },
        );
        Ok(id)
    }

    fn have_room(&self, written: Written) -> bool {
        let since = |taken: &Taken| written.bytes.saturating_sub(taken.written);
        self.0.len() < SNAPSHOTS_MAX && self.0.values().all(|of| since(of) <= written.since_max)
    }

    pub(crate) fn find(
        &mut self,
        now: Instant,
        id: SnapshotId,
    ) -> Result<(PartitionId, fjall::Snapshot), StoreError> {
        let taken = self.0.get_mut(&id).ok_or(StoreError::NoSnapshot(id))?;
        taken.read_at = now;
        Ok((taken.partition, taken.view.clone()))
    }

    pub(crate) fn release(&mut self, id: SnapshotId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_storage::{Commit, KeyRange, LogStore as _, Mutation, ScanLimit};

    use super::*;
    use crate::{Config, Embedded};

    #[test]
    fn one_that_nobody_reads_gives_way_to_another() {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let mut snapshots = Snapshots::default();
        let then = Instant::now();
        let written = Written {
            bytes: 0,
            since_max: 0,
        };
        let mut take = |now| snapshots.take(now, written, PartitionId(1), db.snapshot());
        let taken: Vec<SnapshotId> = (0..SNAPSHOTS_MAX).map(|_| take(then).unwrap()).collect();
        assert_eq!(take(then), Err(StoreError::Snapshots));
        let later = then + IDLE_MAX;
        assert!(snapshots.find(later, taken[3]).is_ok());
        let another = snapshots.take(later, written, PartitionId(1), db.snapshot());
        assert!(another.is_ok());
        assert!(snapshots.find(later, taken[3]).is_ok(), "it was read");
        assert!(snapshots.find(later, taken[4]).is_err(), "it was not");
    }

    #[test]
    fn none_is_taken_while_one_holds_much() {
        let directory = crate::tests::tempdir();
        let config = Config {
            snapshot_bytes_max: 100_000,
            ..crate::tests::config(directory.path()).0
        };
        crate::tests::runtime().block_on(async {
            let engine = Embedded::open(config).unwrap();
            let p = PartitionId(3);
            let mut log = crate::tests::Log::new(3);
            let first = engine.snapshot(p).await.unwrap();
            engine.commit(log.commit(60_000)).await.unwrap();
            let second = engine.snapshot(p).await.unwrap();
            engine.commit(log.commit(60_000)).await.unwrap();
            assert_eq!(engine.snapshot(p).await, Err(StoreError::Snapshots));
            engine.release(first);
            let third = engine.snapshot(p).await.unwrap();
            engine.commit(log.commit(60_000)).await.unwrap();
            assert_eq!(engine.snapshot(p).await, Err(StoreError::Snapshots));
            engine.release(second);
            engine.release(third);
            assert!(engine.snapshot(p).await.is_ok());
            engine.close().await;
        });
    }

    /// The tree's own threads number what they change, too, and let all below that be seen: half of a commit that is just being made would be.
    #[test]
    fn what_a_snapshot_shows_of_a_commit_is_all_of_it() {
        const ROWS: u16 = 4000;
        const COMMITS: u32 = 200;
        const P: PartitionId = PartitionId(1);
        let directory = crate::tests::tempdir();
        let config = Config {
            // So that each commit fills one.
            write_buffer_bytes: 64 << 10,
            background_threads: 3,
            ..crate::tests::config(directory.path()).0
        };
        crate::tests::runtime().block_on(async {
            let engine = Embedded::open(config).unwrap();
            let writer = engine.clone();
            let writing = tokio::spawn(async move {
                for number in 0..COMMITS {
                    let mut commit = Commit::new(P);
                    commit.mutations.extend((0..ROWS).map(|row| Mutation::Put {
                        key: row.to_be_bytes().to_vec().into(),
                        value: number.to_be_bytes().to_vec().into(),
                    }));
                    writer.commit(commit).await.unwrap();
                }
            });
            // Rows of a commit are not written in the order of their keys.
            let some = ScanLimit {
                rows: 64,
                ..ScanLimit::default()
            };
            while !writing.is_finished() {
                let mut taken = Vec::new();
                while taken.len() < SNAPSHOTS_MAX {
                    taken.push(engine.snapshot(P).await.unwrap());
                }
                for snapshot in taken {
                    let page = engine.scan_at(snapshot, KeyRange::all(), some).await;
                    let rows = page.unwrap().rows;
                    engine.release(snapshot);
                    let whole = rows.is_empty() || rows.len() == some.rows;
                    assert!(whole && rows.iter().all(|(_, value)| *value == rows[0].1));
                }
            }
            writing.await.unwrap();
            engine.close().await;
        });
    }
}
