//! Calls that need no machine: contents and blobs, answered from the store, and turns. Each connection has its own.
//!
//! Uploads belong to their connection: when it ends, unfinished uploads are dropped, which aborts them.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use whimbrel_mailbox::{AccountId, BlobName, MessageId, Order};
use whimbrel_service::{
    api::{
        BLOB_CHUNK_BYTES_MAX, BLOB_READS_BYTES_MAX, BLOB_READS_PER_CALL_MAX, BlobRange,
        CONTENTS_BYTES_MAX, CONTENTS_PER_CALL_MAX, Call, Failure, Reply,
    },
    log::store_partition,
    owner::{
        blob_name,
        keys::{content_key, content_of_row, partition_of},
    },
};
use whimbrel_storage::{
    BlobReader as _, BlobStore, BlobWriter as _, LogStore, Refusal, StoreError, UploadId,
};

use crate::{
    actor::Fatal,
    clock::wall_micros,
    metrics::{self, Fault},
    node::random,
};

/// What the server needs of an engine.
pub trait Store: LogStore + BlobStore + Clone {}

impl<S: LogStore + BlobStore + Clone> Store for S {}

/// An upload under way.
struct Open<W> {
    writer: W,
    /// The id that was asked for, if it was in use.
    called: Option<UploadId>,
}

/// The uploads of one connection.
pub(crate) struct StoreCalls<S: Store> {
    store: S,
    uploads: BTreeMap<UploadId, Open<S::Writer>>,
    /// Finished blobs that no reference is known to name.
    finished: BTreeMap<UploadId, whimbrel_storage::BlobName>,
    uploads_max: usize,
    turns: Arc<Semaphore>,
    /// This connection's turn.
    turn: Option<OwnedSemaphorePermit>,
    finished_max: usize,
    /// A blob that should be read and is not here.
    missed: Option<BlobName>,
    fatal: Fatal,
}

impl<S: Store> StoreCalls<S> {
    pub(crate) fn new(
        store: S,
        uploads_max: usize,
        finished_max: usize,
        turns: Arc<Semaphore>,
        fatal: Fatal,
    ) -> Self {
        StoreCalls {
            store,
            uploads: BTreeMap::new(),
            finished: BTreeMap::new(),
            uploads_max,
            turns,
            turn: None,
            finished_max,
            missed: None,
            fatal,
        }
    }

    /// The blob that the last call should read, if it is not here.
    pub(crate) fn take_missed(&mut self) -> Option<BlobName> {
        self.missed.take()
    }

    /// Answers a call of [`whimbrel_service::machine::Route::Store`]; others fail.
    pub(crate) async fn answer(&mut self, call: Call) -> Reply {
        let answer = match call {
            Call::Contents { account, origins } => self.contents(account, origins).await,
            Call::BlobCreate(upload) => self.create(upload.map(UploadId)).await,
            Call::BlobWrite { upload, bytes } => self.write(UploadId(upload), bytes).await,
            Call::BlobFinish { upload } => self.finish(UploadId(upload)).await,
            Call::BlobAbort { upload } => self.abort(UploadId(upload)).await,
            Call::BlobRead { blob, offset, len } => {
                let name = blob_name(&blob);
                let len = u64::from(len).min(BLOB_CHUNK_BYTES_MAX as u64);
                let read = self.store.read(name, offset, len).next().await;
                read.map(|bytes| Reply::Bytes(bytes.unwrap_or_default()))
            }
            Call::BlobReadMany(ranges) => self.read_many(ranges).await,
            Call::TurnBegin => {
                // Sessions wait in the order in which they came; none has two turns.
                self.turn = None;
                self.turn = Arc::clone(&self.turns).acquire_owned().await.ok();
                Ok(Reply::Done)
            }
            Call::TurnEnd => {
                self.turn = None;
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Failed(Failure::Temporary)),
        };
        answer.unwrap_or_else(|error| self.failed(&error))
    }

    fn failed(&mut self, error: &StoreError) -> Reply {
        if let StoreError::NoBlob(name) = error {
            self.missed = Some(BlobName {
                upload: name.upload.0,
                hash: name.hash.0,
            });
        }
        if error.stops_node() {
            (self.fatal)(&format!("the store: {error}"));
            return Reply::Failed(Failure::Temporary);
        }
        metrics::fault(Fault::Store);
        if crate::log::may_write("the store did not answer") {
            tracing::warn!(%error, "the store did not answer");
        }
        Reply::Failed(match error {
            StoreError::Full(_) => Failure::Storage,
            _ => Failure::Temporary,
        })
    }

    async fn contents(
        &mut self,
        account: AccountId,
        origins: Vec<MessageId>,
    ) -> Result<Reply, StoreError> {
        if origins.len() > CONTENTS_PER_CALL_MAX {
            return Ok(Reply::Failed(Failure::Limit(
                "too many contents in one call",
            )));
        }
        let keys = origins
            .into_iter()
            .map(|origin| content_key(account, origin))
            .collect();
        let rows = self
            .store
            .get_first(
                store_partition(partition_of(account)),
                keys,
                CONTENTS_BYTES_MAX,
            )
            .await?;
        let content = |row: Bytes| {
            content_of_row(&row)
                .inspect_err(|error| {
                    metrics::fault(Fault::Content);
                    tracing::error!(account = %account, %error, "cannot read a content row");
                })
                .unwrap_or_default()
        };
        Ok(Reply::Contents(
            rows.into_iter().map(|row| row.map(content)).collect(),
        ))
    }

    async fn read_many(&mut self, ranges: Vec<BlobRange>) -> Result<Reply, StoreError> {
        let bytes: usize = ranges.iter().map(|range| range.len as usize).sum();
        if ranges.len() > BLOB_READS_PER_CALL_MAX || bytes > BLOB_READS_BYTES_MAX {
            return Ok(Reply::Failed(Failure::Limit("too much in one call")));
        }
        let of_store = |range: BlobRange| whimbrel_storage::BlobRange {
            name: blob_name(&range.blob),
            offset: range.offset,
            len: u64::from(range.len),
        };
        let ranges = ranges.into_iter().map(of_store).collect();
        self.store.read_many(ranges).await.map(Reply::Blobs)
    }

    async fn create(&mut self, called: Option<UploadId>) -> Result<Reply, StoreError> {
        if self.uploads.len() >= self.uploads_max || self.finished.len() >= self.finished_max {
            return Ok(Reply::Failed(Failure::Limit("too many uploads")));
        }
        // Blobs lie in the order in which their uploads began.
        let own = UploadId(Order::at(wall_micros()).before(random()));
        let mut upload = called.unwrap_or(own);
        let writer = match self.store.create(upload).await {
            Err(error) if called.is_some() && error == Refusal::UploadExists(upload).into() => {
                upload = own;
                self.store.create(upload).await?
            }
            writer => writer?,
        };
        let called = called.filter(|called| *called != upload);
        self.uploads.insert(upload, Open { writer, called });
        Ok(Reply::Upload(upload.0))
    }

    async fn write(&mut self, upload: UploadId, bytes: Bytes) -> Result<Reply, StoreError> {
        let Some(open) = self.uploads.get_mut(&upload) else {
            return Ok(Reply::Failed(Failure::Temporary));
        };
        let written = open.writer.write(bytes).await;
        if written.is_err() {
            self.uploads.remove(&upload);
        }
        written.map(|()| Reply::Done)
    }

    async fn finish(&mut self, upload: UploadId) -> Result<Reply, StoreError> {
        let Some(Open { writer, called }) = self.uploads.remove(&upload) else {
            return Ok(Reply::Failed(Failure::Temporary));
        };
        let own = writer.finish().await?.name;
        self.finished.insert(upload, own);
        let mut name = own;
        if let Some(called) = called {
            // The upload that had the id may have brought the same bytes: then this is that blob. If that blob is removed before it is named here,
            // the store refuses to name it.
            name.upload = called;
            if self.store.stat(name).await?.is_some() {
                self.finished.remove(&upload);
                self.store.delete(own).await?;
            } else {
                name = own;
            }
        }
        Ok(Reply::Blob(BlobName {
            upload: name.upload.0,
            hash: name.hash.0,
        }))
    }

    async fn abort(&mut self, upload: UploadId) -> Result<Reply, StoreError> {
        if let Some(open) = self.uploads.remove(&upload) {
            open.writer.abort().await?;
        }
        if let Some(name) = self.finished.remove(&upload) {
            self.store.delete(name).await?;
        }
        Ok(Reply::Done)
    }

    /// A durable commit names the finished blobs now.
    pub(crate) fn named(&mut self) {
        self.finished.clear();
    }

    /// Removes open uploads and unnamed blobs when the connection ends. `naming`: a call that names blobs may be under way still, so finished ones
    /// stay (if the call fails, until the next start of the store).
    pub(crate) async fn end(&mut self, naming: bool) {
        if !naming {
            while let Some((_, name)) = self.finished.pop_first() {
                let _ = self.store.delete(name).await;
            }
        }
        while let Some((_, open)) = self.uploads.pop_first() {
            // Uploads that cannot be removed now are removed at the next start.
            let _ = open.writer.abort().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_storage::memory::MemoryStore;

    use super::*;

    /// The same import twice at once: each has an upload of its own, and equal bytes give one blob.
    #[tokio::test]
    async fn an_upload_whose_name_is_in_use_gets_another() {
        let fatal: Fatal = Arc::new(|cause| panic!("{cause}"));
        let turns = Arc::new(Semaphore::new(1));
        let store = MemoryStore::new();
        let mut calls = StoreCalls::new(store.clone(), 8, 8, turns, fatal);
        let named = [7; 16];
        let mut uploads = Vec::new();
        for _ in 0..3 {
            let Reply::Upload(upload) = calls.answer(Call::BlobCreate(Some(named))).await else {
                panic!("no upload");
            };
            uploads.push(upload);
        }
        assert_eq!(uploads[0], named);
        assert!(!uploads[1..].contains(&named));
        let mut bodies = Vec::new();
        for (upload, text) in uploads.iter().copied().zip(["body", "body", "another"]) {
            let bytes = Bytes::from_static(text.as_bytes());
            let written = calls.answer(Call::BlobWrite { upload, bytes }).await;
            assert!(matches!(written, Reply::Done), "{written:?}");
            let Reply::Blob(body) = calls.answer(Call::BlobFinish { upload }).await else {
                panic!("not finished");
            };
            bodies.push(body);
        }
        assert_eq!(bodies[1], bodies[0]);
        assert_eq!(bodies[2].upload, uploads[2], "of other bytes");
        assert_eq!(store.list(None, 10).await.unwrap().len(), 2);
        // It belongs to the first import, which may drop it; the second one must not.
        let upload = uploads[1];
        calls.answer(Call::BlobAbort { upload }).await;
        assert_eq!(store.list(None, 10).await.unwrap().len(), 2);
    }
}
