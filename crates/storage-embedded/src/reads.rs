//! Reads, each as the tree shows it at one moment: of a commit that is just being made that may be half, but
//! not of what was fixed by [`LogStore::snapshot`].

use std::future::Future;
use std::ops::Bound;

use bytes::Bytes;
use fjall::{Keyspace, Readable, Snapshot, UserKey};
use whimbrel_storage::{
    BlobName, Commit, KeyRange, LogLength, LogPage, LogPosition, LogStore, Origin, PartitionId,
    ScanLimit, ScanPage, SnapshotId, StoreError,
};

use crate::engine::Embedded;
use crate::failure::read_error;
use crate::sealer::Sealer;
use crate::{keys, multi_get};

impl Embedded {
    /// Whether a blob is held under this name: else nothing keeps it there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn is_held(
        &self,
        blob: BlobName,
        partition: PartitionId,
        holder: Bytes,
    ) -> Result<bool, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, move |sealer| {
            let key = keys::reference(blob.upload, partition, &holder);
            let found = sealer.trees.meta.get(key).map_err(read_error)?;
            Ok(found.is_some())
        })
        .await
    }
}

impl Sealer {
    fn get(
        &self,
        partition: PartitionId,
        keys: &[Bytes],
        bytes_max: usize,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let records = Records {
            view: self.db().snapshot(),
            tree: &self.trees.records,
        };
        let full = |key: &Bytes| keys::record(partition, key);
        let keys: Vec<_> = keys.iter().map(full).collect();
        multi_get::values(&records, &keys, bytes_max)
    }

    fn scan(
        &self,
        view: &Snapshot,
        partition: PartitionId,
        range: &KeyRange,
        limit: ScanLimit,
    ) -> Result<ScanPage, StoreError> {
        let mut page = ScanPage::default();
        if range.end.as_ref().is_some_and(|end| *end <= range.start) {
            return Ok(page);
        }
        let start = Bound::Included(keys::record(partition, &range.start));
        let end = match &range.end {
            Some(end) => Some(keys::record(partition, end)),
            None => keys::records_end(partition),
        };
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let mut bytes = 0usize;
        for row in view.range(&self.trees.records, (start, end)) {
            let (key, value) = row.into_inner().map_err(read_error)?;
            let key = Bytes::from(key).slice(keys::RECORD_PREFIX_BYTES..);
            if !page.rows.is_empty() && (page.rows.len() >= limit.rows || bytes >= limit.bytes) {
                page.next = Some(key);
                break;
            }
            bytes += key.len() + value.len();
            page.rows.push((key, value.into()));
        }
        Ok(page)
    }

    fn read_log(
        &self,
        partition: PartitionId,
        origin: Origin,
        from: u64,
        bytes_max: usize,
    ) -> Result<LogPage, StoreError> {
        let view = self.db().snapshot();
        let log = &self.trees.log;
        let unreadable = || {
            StoreError::Damaged(
                format!("an entry of {origin:?} in {partition:?} cannot be read").into(),
            )
        };
        let mut page = LogPage::default();
        let head = view
            .get(log, keys::head(partition, origin))
            .map_err(read_error)?;
        let Some(head) = head else { return Ok(page) };
        let position = keys::parse_position(&head).ok_or_else(unreadable)?;
        let parse = |key: &[u8], value: &Bytes| {
            let first = keys::parse_log_key(key)
                .and_then(|(_, _, first)| first)
                .ok_or_else(unreadable)?;
            keys::parse_entry(origin, first, value).ok_or_else(unreadable)
        };
        let from = from.max(position.low);
        // The entry that holds `from` may begin before it.
        let mut start = from;
        let before =
            keys::entry(partition, origin, position.low)..=keys::entry(partition, origin, from);
        if let Some(row) = view.range(log, before).next_back() {
            let (key, value) = row.into_inner().map_err(read_error)?;
            let entry = parse(&key, &value.into())?;
            if entry.end() > from {
                start = entry.first;
            }
        }
        let mut bytes = 0usize;
        let mut expected = None;
        for row in view.range(
            log,
            keys::entry(partition, origin, start)..=keys::entry(partition, origin, u64::MAX),
        ) {
            let (key, value) = row.into_inner().map_err(read_error)?;
            let entry = parse(&key, &value.into())?;
            if expected.is_some_and(|expected| expected != entry.first) {
                return Err(unreadable());
            }
            expected = Some(entry.end());
            if !page.entries.is_empty() && bytes >= bytes_max {
                page.next = Some(entry.first);
                break;
            }
            bytes += entry.bytes.len();
            page.entries.push(entry);
        }
        Ok(page)
    }

    fn log_positions(
        &self,
        prefix: &[u8],
    ) -> Result<Vec<(PartitionId, Origin, LogPosition)>, StoreError> {
        let rows = self
            .db()
            .snapshot()
            .range(&self.trees.log, keys::prefix_range(prefix));
        let positions = rows.map(|row| {
            let (key, value) = row.into_inner().map_err(read_error)?;
            let parsed = keys::parse_log_key(&key).zip(keys::parse_position(&value));
            let ((partition, origin, _), position) = parsed
                .ok_or_else(|| StoreError::Damaged("a log's position cannot be read".into()))?;
            Ok((partition, origin, position))
        });
        // A log that was forgotten is as if it had never been.
        let is_known = |row: &Result<(_, _, LogPosition), _>| {
            row.as_ref()
                .map_or(true, |(_, _, position)| *position != LogPosition::EMPTY)
        };
        positions.filter(is_known).collect()
    }
}

/// The records as one moment shows them.
struct Records<'a> {
    view: Snapshot,
    tree: &'a Keyspace,
}

impl multi_get::Rows for Records<'_> {
    type Key = UserKey;

    fn find(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let value = self.view.get(self.tree, key).map_err(read_error)?;
        Ok(value.map(Bytes::from))
    }

    fn walk(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = Result<(UserKey, Bytes), StoreError>> {
        self.view.range(self.tree, from..=to).map(|row| {
            let (key, value) = row.into_inner().map_err(read_error)?;
            Ok((key, value.into()))
        })
    }
}

impl LogStore for Embedded {
    fn commit(
        &self,
        commit: Commit,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        self.core().commit(commit)
    }

    async fn get_first(
        &self,
        partition: PartitionId,
        keys: Vec<Bytes>,
        bytes_max: usize,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, move |sealer| {
            sealer.get(partition, &keys, bytes_max)
        })
        .await
    }

    async fn scan(
        &self,
        partition: PartitionId,
        range: KeyRange,
        limit: ScanLimit,
    ) -> Result<ScanPage, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, move |sealer| {
            sealer.scan(&sealer.db().snapshot(), partition, &range, limit)
        })
        .await
    }

    async fn snapshot(&self, partition: PartitionId) -> Result<SnapshotId, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, move |sealer| sealer.take_snapshot(partition))
            .await
    }

    async fn scan_at(
        &self,
        snapshot: SnapshotId,
        range: KeyRange,
        limit: ScanLimit,
    ) -> Result<ScanPage, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, move |sealer| {
            let (partition, view) = sealer.find_snapshot(snapshot)?;
            sealer.scan(&view, partition, &range, limit)
        })
        .await
    }

    fn release(&self, snapshot: SnapshotId) {
        // A tree that is being opened anew has none.
        if let Ok(tree) = self.core().tree.try_read()
            && let Some(sealer) = &*tree
        {
            sealer.release_snapshot(snapshot);
        }
    }

    async fn read_log(
        &self,
        partition: PartitionId,
        origin: Origin,
        from: u64,
        bytes_max: usize,
    ) -> Result<LogPage, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, move |sealer| {
            sealer.read_log(partition, origin, from, bytes_max)
        })
        .await
    }

    async fn log_lengths(&self) -> Result<Vec<LogLength>, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, |sealer| {
            let rows = sealer.log_positions(keys::ALL_HEADS)?.into_iter();
            let lengths = sealer.lengths();
            let length = |(partition, origin, position)| LogLength {
                partition,
                origin,
                position,
                bytes: lengths.get(&(partition, origin)).copied().unwrap_or(0),
            };
            Ok(rows.map(length).collect())
        })
        .await
    }

    async fn log_positions(
        &self,
        partition: PartitionId,
    ) -> Result<Vec<(Origin, LogPosition)>, StoreError> {
        let core = self.core();
        let rows = core
            .blocking(&core.readers, move |sealer| {
                sealer.log_positions(&keys::heads(partition))
            })
            .await?;
        Ok(rows
            .into_iter()
            .map(|(_, origin, position)| (origin, position))
            .collect())
    }

    async fn partitions(&self) -> Result<Vec<PartitionId>, StoreError> {
        let core = self.core();
        let rows = core
            .blocking(&core.readers, |sealer| {
                sealer.log_positions(keys::ALL_HEADS)
            })
            .await?;
        let mut partitions: Vec<_> = rows
            .into_iter()
            .map(|(partition, _, _)| partition)
            .collect();
        partitions.dedup();
        Ok(partitions)
    }
}
