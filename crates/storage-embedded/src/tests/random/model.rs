//! What a store must hold: commits done one after the other on plain maps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_storage::{
    BlobInfo, BlobName, BlobReader, BlobStore, Commit, Hash, KeyRange, LogEntry, LogPosition,
    LogStore, Mutation, Origin, PartitionId, ScanLimit, UploadId,
};

use super::super::tree;
use crate::Embedded;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) records: BTreeMap<(PartitionId, Bytes), Bytes>,
    pub(super) logs: BTreeMap<(PartitionId, Origin), Log>,
    /// Finished, and neither removed nor let go of.
    pub(super) blobs: BTreeMap<BlobName, Blob>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) position: LogPosition,
    /// From the low mark on.
    entries: VecDeque<LogEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) size: u64,
    pub(super) holders: BTreeSet<(PartitionId, Bytes)>,
}

impl Log {
    fn cut(&mut self, below: u64) {
        let holds = |entry: &&LogEntry| entry.first <= below && below < entry.end();
        let low = self.entries.iter().find(holds);
        let low = low.map_or(below, |entry| entry.first);
        self.position.low = self.position.low.max(low);
        self.entries
            .retain(|entry| entry.first >= self.position.low);
    }
}

impl Model {
    pub(super) fn commit(&mut self, commit: &Commit) {
        let partition = commit.partition;
        if let Some(entry) = &commit.entry {
            let log = self.logs.entry((partition, entry.origin));
            let log = log.or_insert(Log {
                position: LogPosition::EMPTY,
                entries: VecDeque::new(),
            });
            log.position.next = entry.end();
            log.position.hash = entry.hash();
            log.entries.push_back(entry.clone());
        }
        for cut in &commit.cuts {
            if let Some(log) = self.logs.get_mut(&(partition, cut.origin)) {
                log.cut(cut.below);
            }
        }
        for mutation in &commit.mutations {
            match mutation.clone() {
                Mutation::Put { key, value } => {
                    self.records.insert((partition, key), value);
                }
                Mutation::Delete { key } => {
                    self.records.remove(&(partition, key));
                }
                Mutation::Reference { blob, holder } => {
                    let blob = self.blobs.get_mut(&blob);
                    blob.expect("the plan names what is there")
                        .holders
                        .insert((partition, holder));
                }
                Mutation::Release { blob, holder } => {
                    if let Some(blob) = self.blobs.get_mut(&blob) {
                        blob.holders.remove(&(partition, holder));
                    }
                }
            }
        }
        for mutation in &commit.mutations {
            if let Mutation::Release { blob, .. } = mutation
                && self.is_free(*blob)
            {
                self.blobs.remove(blob);
            }
        }
    }

    pub(super) fn finished(&mut self, info: BlobInfo) {
        let blob = Blob {
            size: info.size,
            holders: BTreeSet::new(),
        };
        self.blobs.insert(info.name, blob);
    }

    pub(super) fn is_free(&self, blob: BlobName) -> bool {
        let blob = self.blobs.get(&blob);
        blob.is_some_and(|blob| blob.holders.is_empty())
    }

    /// As a start leaves it: what nothing names is gone.
    pub(super) fn swept(&mut self) {
        self.blobs.retain(|_, blob| !blob.holders.is_empty());
    }
}

/// The bytes of a blob: told by its upload and its size.
pub(super) fn content(upload: UploadId, bytes: usize) -> Bytes {
    // The large ones are there to fill journals; making them must not take longer than writing them.
    const NOISE_BYTES: usize = 300 << 10;
    let mut noise = vec![0; bytes.min(NOISE_BYTES)];
    blake3::Hasher::new()
        .update(&upload.0)
        .finalize_xof()
        .fill(&mut noise);
    while noise.len() < bytes {
        let more = (bytes - noise.len()).min(NOISE_BYTES);
        noise.extend_from_within(..more);
    }
    noise.into()
}

/// Everything that a store gives back, and that its trees hold nothing beyond it.
pub(super) async fn found(engine: &Embedded) -> Model {
    let mut found = Model::default();
    let mut partitions: BTreeSet<PartitionId> =
        engine.partitions().await.unwrap().into_iter().collect();
    for row in tree(engine, |sealer| sealer.trees.records.iter()) {
        let key = row.key().unwrap();
        if key.len() > crate::keys::RECORD_PREFIX_BYTES {
            let partition = u64::from_be_bytes(key[..8].try_into().unwrap());
            partitions.insert(PartitionId(partition));
        }
    }
    for partition in partitions {
        for (origin, position) in engine.log_positions(partition).await.unwrap() {
            let mut log = Log {
                position,
                entries: VecDeque::new(),
            };
            let mut from = Some(position.low);
            while let Some(first) = from {
                let page = engine.read_log(partition, origin, first, 10_000).await;
                let page = page.unwrap();
                log.entries.extend(page.entries);
                from = page.next;
            }
            found.logs.insert((partition, origin), log);
        }
        let mut range = KeyRange::all();
        loop {
            let limit = ScanLimit {
                rows: 50,
                bytes: 10_000,
            };
            let page = engine.scan(partition, range.clone(), limit).await.unwrap();
            let rows = page.rows.into_iter();
            found
                .records
                .extend(rows.map(|(key, value)| ((partition, key), value)));
            match page.next {
                Some(next) => range.start = next,
                None => break,
            }
        }
    }
    let mut after = None;
    loop {
        let page = engine.list(after, 100).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.name);
        for info in page {
            found.finished(info);
        }
    }
    for (name, blob) in &mut found.blobs {
        let prefix = crate::keys::references(name.upload);
        for row in tree(engine, |sealer| sealer.trees.meta.prefix(&prefix)) {
            let key = row.key().unwrap();
            let (partition, holder) = key[prefix.len()..].split_at(8);
            let partition = u64::from_be_bytes(partition.try_into().unwrap());
            let holder = Bytes::copy_from_slice(holder);
            blob.holders.insert((PartitionId(partition), holder));
        }
    }
    found
}

/// Reads every blob to its end, and looks for chunks of others. Only after a start: while blobs come and go, chunks lag behind.
pub(super) async fn compare_blobs(engine: &Embedded, model: &Model) {
    for (name, blob) in &model.blobs {
        let expected = content(name.upload, blob.size as usize);
        assert_eq!(name.hash, Hash::of(&expected), "the test's own mistake");
        let mut reader = engine.read(*name, 0, u64::MAX);
        let mut at = 0;
        while let Some(bytes) = reader.next().await.unwrap() {
            assert!(
                expected.get(at..at + bytes.len()) == Some(&bytes[..]),
                "bytes of {name} behind {at}"
            );
            at += bytes.len();
        }
        assert_eq!(at as u64, blob.size, "bytes of {name}");
    }
    for row in tree(engine, |sealer| sealer.trees.blobs.iter()) {
        let key = row.key().unwrap();
        let Some(upload) = key.first_chunk::<16>() else {
            continue;
        };
        let upload = UploadId(*upload);
        assert!(
            model.blobs.keys().any(|name| name.upload == upload),
            "a chunk of {upload}, which is no blob"
        );
    }
}
