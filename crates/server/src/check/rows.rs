//! Compares the rows and logs of a store with each other.
//!
//! One partition after the other, one account after the other, so that memory is that of the largest account. The rules are in
//! [`whimbrel_service::verify`]; this module reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
};

use bytes::Bytes;
use whimbrel_crdt::{Batch, PartitionId, VersionVector};
use whimbrel_directory::Directory;
use whimbrel_service::{
    api::AccountId,
    log::{
        AWAY_KEY, JOINING_KEY, OWN_ROWS_END, POSITION_KEY, missing_blob_of_key, store_partition,
    },
    owner::{blob_name, keys::is_coming},
    verify::{self, Fault, Needed, Replay},
};
use whimbrel_storage::{
    BlobReader as _, BlobStore as _, Hash, KeyRange, LogPosition, LogStore as _, Origin, ScanLimit,
    StoreError,
};
use whimbrel_storage_embedded::Embedded;

use super::{Problem, Progress, Report};

type Failure = Box<dyn Error + Send + Sync>;
type Rows = Vec<(Vec<u8>, Bytes)>;
type Logs = Vec<(Origin, LogPosition)>;

/// Bytes of one read of a log.
const LOG_PAGE_BYTES: usize = 4 << 20;
/// Blobs listed at once.
const BLOBS_PER_PAGE: usize = 1024;

struct Checker<'a> {
    store: &'a Embedded,
    report: &'a mut Report,
    progress: &'a Progress,
}

pub(super) async fn check(
    store: &Embedded,
    report: &mut Report,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut checker = Checker {
        store,
        report,
        progress,
    };
    let directory = checker.directory().await?;
    checker.progress.stage("accounts", 256);
    for bucket in 0..=u8::MAX {
        checker
            .accounts(PartitionId::accounts(bucket), &directory)
            .await?;
        checker.progress.step(1);
    }
    checker.queue().await?;
    checker.blobs().await
}

/// The blobs that rows of the partition mark as missing.
fn missing_blobs(rows: &Rows) -> BTreeSet<whimbrel_storage::BlobName> {
    let missing_blobs = rows.iter().filter_map(|(key, _)| missing_blob_of_key(key));
    missing_blobs.map(|blob| blob_name(&blob)).collect()
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Checker<'_> {
    fn tell(&mut self, partition: PartitionId, key: String, what: String, damage: bool) {
        self.report.found.push(Problem {
            file: None,
            offset: None,
            partition: Some(store_partition(partition).0),
            key: Some(key),
            what,
            damage,
        });
    }

    fn faults(&mut self, partition: PartitionId, faults: Vec<Fault>) {
        for fault in faults {
            self.tell(partition, hex(&fault.key), fault.what, fault.is_damage);
        }
    }

    /// If a page cannot be read, its place is reported and the scan ends there.
    async fn rows(&mut self, partition: PartitionId, mut range: KeyRange) -> Result<Rows, Failure> {
        let mut rows = Vec::new();
        loop {
            let page = self.store.scan(
                store_partition(partition),
                range.clone(),
                ScanLimit::default(),
            );
            let page = match page.await {
                Ok(page) => page,
                Err(error) => {
                    self.broken(partition, &range.start, &error)?;
                    return Ok(rows);
                }
            };
            self.report.summary.rows += page.rows.len() as u64;
            rows.extend(
                page.rows
                    .into_iter()
                    .map(|(key, value)| (key.to_vec(), value)),
            );
            match page.next {
                Some(next) => range.start = next,
                None => return Ok(rows),
            }
        }
    }

    fn broken(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        error: &StoreError,
    ) -> Result<(), Failure> {
        if let StoreError::Damaged(_) = error {
            self.tell(
                partition,
                hex(key),
                format!("cannot be read: {error}"),
                true,
            );
            return Ok(());
        }
        Err(error.to_string().into())
    }

    /// Reads the logs of a partition and passes each batch to `take`.
    async fn logs(
        &mut self,
        partition: PartitionId,
        mut take: impl FnMut(Batch),
    ) -> Result<Logs, Failure> {
        let logs = self.store.log_positions(store_partition(partition)).await?;
        for (origin, log) in &logs {
            let mut next = Some(log.low);
            while let Some(from) = next.filter(|from| *from < log.next) {
                let page = self
                    .store
                    .read_log(store_partition(partition), *origin, from, LOG_PAGE_BYTES)
                    .await?;
                for entry in &page.entries {
                    self.report.summary.entries += 1;
                    match verify::batch(partition, entry) {
                        Ok(batch) => take(batch),
                        Err(what) => {
                            let key = format!("log {:016x} {}", origin.0, entry.first);
                            self.tell(partition, key, what, true);
                        }
                    }
                }
                next = page.next;
            }
        }
        Ok(logs)
    }

    async fn directory(&mut self) -> Result<Directory, Failure> {
        let partition = PartitionId::DIRECTORY;
        let mut batches = Vec::new();
        let logs = self.logs(partition, |batch| batches.push(batch)).await?;
        let rows = self.rows(partition, KeyRange::all()).await?;
        let position = rows.iter().find(|(key, _)| key == POSITION_KEY);
        if let Err(fault) = verify::position(position.map(|(_, value)| value), &logs) {
            self.faults(partition, vec![fault]);
        }
        let whole = logs.iter().all(|(_, log)| log.low <= 1);
        let batches = whole.then(|| verify::ordered(batches));
        // A snapshot that is not joined yet has more than the logs.
        let joining = rows.iter().any(|(key, _)| key == JOINING_KEY);
        let batches = batches.filter(|_| !joining);
        let (directory, faults) = verify::directory(&rows, batches.as_deref());
        self.faults(partition, faults);
        Ok(directory)
    }

    async fn accounts(
        &mut self,
        partition: PartitionId,
        directory: &Directory,
    ) -> Result<(), Failure> {
        // The batches that concern each account, and whether its begin is among them.
        let mut told: BTreeMap<AccountId, (bool, Vec<(Origin, u64)>)> = BTreeMap::new();
        let mut begun: BTreeMap<AccountId, Origin> = BTreeMap::new();
        let logs = self
            .logs(partition, |batch| {
                let origin = Origin(batch.origin.get());
                for section in &batch.sections {
                    let account = AccountId(section.subject);
                    if Replay::is_begin(&batch, account) {
                        begun.insert(account, origin);
                    }
                    let (_, places) = told.entry(account).or_default();
                    if places.last() != Some(&(origin, batch.first)) {
                        places.push((origin, batch.first));
                    }
                }
            })
            .await?;
        let own = KeyRange {
            end: Some(OWN_ROWS_END.into()),
            ..KeyRange::all()
        };
        let own = self.rows(partition, own).await?;
        if own.iter().any(|(key, _)| key == AWAY_KEY) {
            // This node has left the partition: its remaining rows are being deleted.
            return Ok(());
        }
        let position = own.iter().find(|(key, _)| key == POSITION_KEY);
        let missing_blobs = missing_blobs(&own);
        let applied = match verify::position(position.map(|(_, value)| value), &logs) {
            Ok(applied) => applied,
            Err(fault) => {
                self.faults(partition, vec![fault]);
                return Ok(());
            }
        };
        let mut start = Bytes::new();
        while let Some(key) = self.first_from(partition, start).await? {
            // The partition's own rows, and rows of a snapshot that belong to no account yet.
            if &key[..] < OWN_ROWS_END || is_coming(&key) {
                start = [&key[..], &[0]].concat().into();
                continue;
            }
            let Some(account) = verify::account_of(&key) else {
                self.tell(
                    partition,
                    hex(&key),
                    "a row of nothing that is known".into(),
                    true,
                );
                start = [&key[..], &[0]].concat().into();
                continue;
            };
            let prefix = key.slice(..17);
            start = whimbrel_storage::types::prefix_end(&prefix).unwrap_or_default();
            if !verify::is_at_home(account, partition) {
                self.tell(
                    partition,
                    hex(&prefix),
                    "an account of another partition".into(),
                    true,
                );
                continue;
            }
            if directory.account(&account.0).is_none() {
                let removed = directory.removed().any(|removed| removed == account.0);
                let what = if removed {
                    "an account that was removed: the next start removes its rows"
                } else {
                    "an account that the directory does not have"
                };
                self.tell(partition, hex(&prefix), what.into(), !removed);
                continue;
            }
            let places = told.remove(&account).map(|(_, places)| places);
            // Its begin is there, and no other log has lost its begin.
            let whole = begun.get(&account).is_some_and(|begin| {
                logs.iter()
                    .all(|(origin, log)| origin == begin || log.low <= 1)
            });
            let replay = match places.filter(|_| whole) {
                Some(places) => {
                    let places = (account, places);
                    self.replay(partition, places, &applied).await?
                }
                None => None,
            };
            let rows = self.rows(partition, KeyRange::prefix(prefix)).await?;
            self.report.summary.accounts += 1;
            self.report.summary.replayed += u64::from(replay.is_some());
            let (faults, needed) = verify::account(account, rows, &applied, replay);
            self.faults(partition, faults);
            for needed in needed {
                self.needed(partition, needed, &missing_blobs).await?;
            }
        }
        Ok(())
    }

    async fn first_from(
        &mut self,
        partition: PartitionId,
        start: Bytes,
    ) -> Result<Option<Bytes>, Failure> {
        let one = ScanLimit { rows: 1, bytes: 1 };
        let range = KeyRange {
            start,
            ..KeyRange::all()
        };
        let page = self
            .store
            .scan(store_partition(partition), range.clone(), one)
            .await;
        match page {
            Ok(page) => Ok(page.rows.into_iter().next().map(|(key, _)| key)),
            Err(error) => self.broken(partition, &range.start, &error).map(|()| None),
        }
    }

    async fn replay(
        &mut self,
        partition: PartitionId,
        (account, places): (AccountId, Vec<(Origin, u64)>),
        applied: &VersionVector,
    ) -> Result<Option<Replay>, Failure> {
        let mut stamps = Vec::with_capacity(places.len());
        for (origin, first) in places {
            let Some(batch) = self.batch(partition, origin, first).await? else {
                return Ok(None);
            };
            // A batch that is stored and not applied yet is in no row.
            if applied.get(batch.origin) >= batch.last() {
                stamps.push((batch.stamp, origin, first));
            }
        }
        // As `verify::ordered`, without holding all batches.
        stamps.sort_unstable();
        let mut replay = Replay::new(account);
        for (_, origin, first) in stamps {
            let Some(batch) = self.batch(partition, origin, first).await? else {
                return Ok(None);
            };
            if let Err(what) = replay.take(&batch) {
                let key = format!("log {:016x} {first}", origin.0);
                self.tell(partition, key, format!("account {account}: {what}"), true);
                return Ok(None);
            }
        }
        Ok(Some(replay))
    }

    async fn batch(
        &mut self,
        partition: PartitionId,
        origin: Origin,
        first: u64,
    ) -> Result<Option<Batch>, Failure> {
        let page = self
            .store
            .read_log(store_partition(partition), origin, first, 1)
            .await?;
        let entry = page.entries.first();
        // A wrong entry was reported before.
        Ok(entry.and_then(|entry| verify::batch(partition, entry).ok()))
    }

    /// `missing_blobs`: blobs that are on their way from other nodes.
    async fn needed(
        &mut self,
        partition: PartitionId,
        needed: Needed,
        missing_blobs: &BTreeSet<whimbrel_storage::BlobName>,
    ) -> Result<(), Failure> {
        let Needed { key, blob, holder } = needed;
        if missing_blobs.contains(&blob) {
            return Ok(());
        }
        if self.store.stat(blob).await?.is_none() {
            self.tell(
                partition,
                hex(&key),
                format!("it names blob {blob}, which is not there"),
                true,
            );
        } else if !self
            .store
            .is_held(blob, store_partition(partition), holder)
            .await?
        {
            let what = format!("it names blob {blob}, which is not held for it");
            self.tell(partition, hex(&key), what, true);
        }
        Ok(())
    }

    async fn queue(&mut self) -> Result<(), Failure> {
        let partition = PartitionId::QUEUE;
        let rows = self.rows(partition, KeyRange::all()).await?;
        let (entries, needed, faults) = verify::queue(&rows);
        self.report.summary.queued += entries as u64;
        self.faults(partition, faults);
        for needed in needed {
            self.needed(partition, needed, &BTreeSet::new()).await?;
        }
        Ok(())
    }

    /// Reads and hashes every blob.
    async fn blobs(&mut self) -> Result<(), Failure> {
        let mut after = None;
        let mut total = 0;
        loop {
            let page = self.store.list(after, BLOBS_PER_PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.name);
            total += page.iter().map(|info| info.size).sum::<u64>();
            self.progress.stage("blobs", total);
            for info in page {
                self.report.summary.blobs += 1;
                let mut reader = self.store.read(info.name, 0, u64::MAX);
                let mut hasher = blake3::Hasher::new();
                let mut bytes = 0;
                let what = loop {
                    match reader.next().await {
                        Ok(Some(chunk)) => {
                            hasher.update(&chunk);
                            bytes += chunk.len() as u64;
                            self.progress.step(chunk.len() as u64);
                        }
                        Ok(None) if bytes != info.size => {
                            break Some(format!("it has {bytes} bytes of {}", info.size));
                        }
                        Ok(None) if Hash(*hasher.finalize().as_bytes()) != info.name.hash => {
                            break Some("its bytes do not have its hash".to_owned());
                        }
                        Ok(None) => break None,
                        Err(error) => break Some(format!("at byte {bytes}: {error}")),
                    }
                };
                if let Some(what) = what {
                    self.report.found.push(Problem {
                        file: None,
                        offset: Some(bytes),
                        partition: None,
                        key: Some(format!("blob {}", info.name)),
                        what,
                        damage: true,
                    });
                }
            }
        }
    }
}
