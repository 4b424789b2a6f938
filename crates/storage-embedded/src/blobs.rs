//! Blobs: cut into chunks, each a row of its own, written without a sync and read one at a time.
//!
//! The first write of an upload marks it as doubtful, so that a start finds and removes it if nothing ever names it. A small
//! blob is one write: mark, its only chunk, and what it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};
use fjall::Readable;
use whimbrel_storage::blob::{CHUNK_BYTES_MAX, read_ahead};
use whimbrel_storage::{
    BlobInfo, BlobName, BlobRange, BlobReader, BlobStore, BlobWriter, Hash, Refusal, StoreError,
    UploadId,
};

use crate::core::Core;
use crate::engine::Embedded;
use crate::failure::read_error;
use crate::queue::Work;
use crate::room::Lack;
use crate::sealer::Sealer;
use crate::trees::Tree;
use crate::uploads::Serial;
use crate::{blob_gc, keys};

fn lost(upload: UploadId) -> StoreError {
    StoreError::Full(format!("{upload} went when the store was opened again").into())
}

/// An upload under way.
pub struct EmbeddedWriter {
    left: Arc<Left>,
    hasher: blake3::Hasher,
    size: u64,
    /// Less than a chunk, not yet written.
    pending: Vec<u8>,
    chunk_bytes: usize,
    /// Chunks written.
    chunks: u32,
}

/// What is left of an upload when nobody goes on with it. Its writer holds this, and so does each call of the writer that is under way on a blocking
/// thread: what such a one writes when the writer is gone must not come behind its own removal, nor into another upload of its name. So the last one
/// removes it.
struct Left {
    core: Arc<Core>,
    upload: UploadId,
    serial: Serial,
    /// Whether anything of it is there.
    written: AtomicBool,
    /// Finished or aborted: nothing is to be removed.
    ended: AtomicBool,
}

impl Drop for Left {
    fn drop(&mut self) {
        if *self.ended.get_mut() {
            return;
        }
        // A client that went away in the middle leaves nothing for long, and a body of another node comes again.
        if *self.written.get_mut() {
            // Forgotten with its removal: another of its name that began before would go with it.
            let work = Work::Abandon(self.upload, self.serial);
            drop(self.core.submit(work));
        } else {
            self.core.uploads.forget_this(self.upload, self.serial);
        }
    }
}

impl Left {
    fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl EmbeddedWriter {
    /// Writes one chunk and, with `info`, ends the upload. Gives whether it was let go of and nothing names it.
    async fn put(&mut self, chunk: Bytes, info: Option<BlobInfo>) -> Result<bool, StoreError> {
        let (index, chunk_bytes) = (self.chunks, self.chunk_bytes as u32);
        let next = index.checked_add(1).ok_or(Refusal::Size {
            what: "blob",
            bytes: usize::MAX,
            bytes_max: usize::MAX,
        })?;
        let left = Arc::clone(&self.left);
        let core = &self.left.core;
        let let_go = core
            .blocking(&core.uploaders, move |sealer| {
                let (core, upload, serial) = (&left.core, left.upload, left.serial);
                if core.uploads.was_lost(serial) {
                    return Err(lost(upload));
                }
                if let Some(full) = Lack::now(&core.config).ordinary {
                    return Err(full);
                }
                let mut write = sealer.begin();
                if index == 0 {
                    write.put(Tree::Meta, keys::doubtful(upload), Bytes::new());
                }
                if !chunk.is_empty() {
                    write.put(Tree::Blobs, keys::chunk(upload, index), chunk);
                }
                if let Some(info) = info {
                    write.put(
                        Tree::Meta,
                        keys::info(upload),
                        keys::info_value(&info, chunk_bytes),
                    );
                }
                core.told(sealer.write(write, false))?;
                left.written.store(true, Ordering::Release);
                if info.is_none() {
                    return Ok(false);
                }
                // A body that was got from elsewhere is mostly named before it comes.
                if sealer.is_kept(upload)? {
                    core.uploads.whole(upload, serial);
                    return Ok(false);
                }
                // Behind the write: who lets go of it says so before it is seen, and looks then whether it is whole.
                Ok(core.uploads.is_let_go(upload))
            })
            .await?;
        self.chunks = next;
        Ok(let_go)
    }

    /// Removes what was let go of while it was being written, unless it is named again: the writer's thread knows. Gives whether it went.
    async fn remove(&self, name: BlobName) -> Result<bool, StoreError> {
        let core = &self.left.core;
        core.submit(Work::Delete(name)).await?;
        let look = move |sealer: &Sealer| sealer.is_whole(name.upload);
        core.blocking(&core.readers, look).await.map(|whole| !whole)
    }
}

impl Sealer {
    fn blob_info(&self, name: BlobName) -> Result<Option<(BlobInfo, u32)>, StoreError> {
        let Some(value) = self
            .trees
            .meta
            .get(keys::info(name.upload))
            .map_err(read_error)?
        else {
            return Ok(None);
        };
        let info = keys::parse_info(name.upload, &value);
        let info = info
            .ok_or_else(|| StoreError::Damaged(format!("what {name} is cannot be read").into()))?;
        Ok(Some(info).filter(|(info, _)| info.name == name))
    }
}

impl BlobWriter for EmbeddedWriter {
    async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        self.hasher.update(&bytes);
        self.size += bytes.len() as u64;
        while self.pending.len() + bytes.len() >= self.chunk_bytes {
            // Copied, each into an allocation of its own: the tree holds it for long, and must not hold a larger buffer of
            // the caller's with it.
            let missing = self.chunk_bytes - self.pending.len();
            let chunk = if self.pending.is_empty() {
                Bytes::copy_from_slice(&bytes[..missing])
            } else {
                self.pending.extend_from_slice(&bytes[..missing]);
                Bytes::from(std::mem::take(&mut self.pending))
            };
            bytes.advance(missing);
            let _ = self.put(chunk, None).await?;
        }
        if self.pending.is_empty() && !bytes.is_empty() && self.chunks > 0 {
            // A large blob: what follows will fill a chunk as well.
            self.pending.reserve_exact(self.chunk_bytes);
        }
        self.pending.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(mut self) -> Result<BlobInfo, StoreError> {
        let hash = Hash(*self.hasher.finalize().as_bytes());
        let info = BlobInfo {
            name: BlobName {
                upload: self.left.upload,
                hash,
            },
            size: self.size,
        };
        let last = Bytes::copy_from_slice(&self.pending);
        let let_go = match self.put(last, Some(info)).await {
            Ok(let_go) => let_go,
            Err(error) => {
                // Something may name it already: then it comes again, which what is left of this one would prevent.
                let _ = self.abort().await;
                return Err(error);
            }
        };
        // If it cannot be removed it is there, and goes when the store is opened next.
        let gone = let_go && self.remove(info.name).await.unwrap_or(false);
        self.left.end();
        if gone {
            let what = format!(
                "all that named {} let go of it before it was whole",
                info.name
            );
            return Err(StoreError::Full(what.into()));
        }
        Ok(info)
    }

    async fn abort(self) -> Result<(), StoreError> {
        let (left, core) = (Arc::clone(&self.left), &self.left.core);
        if left.is_written() {
            let removed = core.blocking(&core.uploaders, move |sealer| {
                let (core, upload) = (&left.core, left.upload);
                // Nothing of it is there; what is may be another's.
                if core.uploads.was_lost(left.serial) {
                    return Ok(());
                }
                if let Some(lack) = Lack::now(&core.config).any {
                    return Err(lack);
                }
                // Another one of this name may have been finished meanwhile.
                if sealer.is_kept(upload)? {
                    return Ok(());
                }
                core.told(blob_gc::remove(sealer, upload))
            });
            // If it cannot be removed now, it is abandoned.
            removed.await?;
        }
        self.left.end();
        core.uploads.forget_this(self.left.upload, self.left.serial);
        Ok(())
    }
}

/// A range of a blob being read.
pub struct EmbeddedReader {
    core: Arc<Core>,
    name: BlobName,
    offset: u64,
    left: u64,
    info: Option<(BlobInfo, u32)>,
    /// Of a chunk larger than may be given at once.
    rest: Bytes,
}

impl BlobReader for EmbeddedReader {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if !self.rest.is_empty() {
            return Ok(Some(
                self.rest.split_to(self.rest.len().min(CHUNK_BYTES_MAX)),
            ));
        }
        let (name, offset, left, info) = (self.name, self.offset, self.left, self.info);
        let permits = &self.core.readers;
        let read = self
            .core
            .blocking(permits, move |sealer| {
                read_chunk(sealer, name, offset, left, info)
            })
            .await?;
        let (info, mut bytes) = read;
        self.info = Some(info);
        self.offset += bytes.len() as u64;
        self.left -= bytes.len() as u64;
        if bytes.is_empty() {
            return Ok(None);
        }
        let given = bytes.split_to(bytes.len().min(CHUNK_BYTES_MAX));
        self.rest = bytes;
        Ok(Some(given))
    }
}

type Info = (BlobInfo, u32);

/// What lies at `offset`, as far as its chunk and `left` go.
fn read_chunk(
    sealer: &Sealer,
    name: BlobName,
    offset: u64,
    left: u64,
    info: Option<Info>,
) -> Result<(Info, Bytes), StoreError> {
    let (info, chunk_bytes) = match info {
        Some(info) => info,
        None => sealer.blob_info(name)?.ok_or(StoreError::NoBlob(name))?,
    };
    if offset >= info.size || left == 0 {
        return Ok(((info, chunk_bytes), Bytes::new()));
    }
    let wrong = || StoreError::Damaged(format!("a chunk of {name} has the wrong size").into());
    let index = u32::try_from(offset / u64::from(chunk_bytes)).map_err(|_| wrong())?;
    let chunk = sealer
        .trees
        .blobs
        .get(keys::chunk(name.upload, index))
        .map_err(read_error)?;
    // Removed while it was being read, or lost: in both cases it must not look like a shorter blob.
    let mut chunk = Bytes::from(chunk.ok_or(StoreError::NoBlob(name))?);
    let start = u64::from(index) * u64::from(chunk_bytes);
    if chunk.len() as u64 != u64::from(chunk_bytes).min(info.size - start) {
        return Err(wrong());
    }
    chunk.advance((offset - start) as usize);
    chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
    Ok(((info, chunk_bytes), chunk))
}

impl BlobStore for Embedded {
    type Writer = EmbeddedWriter;
    type Reader = EmbeddedReader;

    async fn create(&self, upload: UploadId) -> Result<EmbeddedWriter, StoreError> {
        let core = self.core().clone();
        let serial = core.uploads.begin(upload);
        let serial = serial.ok_or(Refusal::UploadExists(upload))?;
        let chunk_bytes = core.config.chunk_bytes.clamp(4 << 10, 4 << 20);
        let writer = EmbeddedWriter {
            left: Arc::new(Left {
                core: core.clone(),
                upload,
                serial,
                written: AtomicBool::new(false),
                ended: AtomicBool::new(false),
            }),
            hasher: blake3::Hasher::new(),
            size: 0,
            pending: Vec::new(),
            chunk_bytes,
            chunks: 0,
        };
        // Behind its beginning: who lets go of it has left a mark that is found here, or finds it begun.
        let used = core
            .blocking(&core.readers, move |sealer| sealer.is_used(upload))
            .await?;
        // Forgotten meanwhile: it began before another of its name went, and was taken for that.
        if used || !core.uploads.is_known(upload, serial) {
            return Err(Refusal::UploadExists(upload).into());
        }
        Ok(writer)
    }

    async fn stat(&self, name: BlobName) -> Result<Option<BlobInfo>, StoreError> {
        let core = self.core();
        let info = core
            .blocking(&core.readers, move |sealer| sealer.blob_info(name))
            .await?;
        Ok(info.map(|(info, _)| info))
    }

    fn read(&self, name: BlobName, offset: u64, len: u64) -> EmbeddedReader {
        EmbeddedReader {
            core: self.core().clone(),
            name,
            offset,
            left: len,
            info: None,
            rest: Bytes::new(),
        }
    }

    async fn read_many(&self, ranges: Vec<BlobRange>) -> Result<Vec<Bytes>, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, move |sealer| {
            let read = |(at, range): (usize, BlobRange)| {
                let read = read_chunk(sealer, range.name, range.offset, range.len, None);
                let begin = |((info, _), bytes): (Info, Bytes)| {
                    let begin = bytes.slice(..bytes.len().min(CHUNK_BYTES_MAX));
                    // A piece would keep its whole chunk in memory.
                    match (bytes.len() as u64) < info.size {
                        true => Bytes::copy_from_slice(&begin),
                        false => begin,
                    }
                };
                read_ahead(at, read.map(begin))
            };
            ranges.into_iter().enumerate().map(read).collect()
        })
        .await
    }

    async fn delete(&self, name: BlobName) -> Result<(), StoreError> {
        self.core().submit(Work::Delete(name)).await
    }

    async fn list(
        &self,
        after: Option<BlobName>,
        limit: usize,
    ) -> Result<Vec<BlobInfo>, StoreError> {
        let core = self.core();
        core.blocking(&core.readers, move |sealer| {
            let start = match after {
                Some(name) => keys::info(name.upload),
                None => keys::ALL_INFOS.to_vec(),
            };
            let (_, end) = keys::prefix_range(keys::ALL_INFOS);
            let mut found = Vec::new();
            let view = sealer.db().snapshot();
            for row in view.range(&sealer.trees.meta, (std::ops::Bound::Included(start), end)) {
                if found.len() >= limit {
                    break;
                }
                let (key, value) = row.into_inner().map_err(read_error)?;
                let info =
                    keys::parse_upload(&key).and_then(|upload| keys::parse_info(upload, &value));
                let (info, _) = info
                    .ok_or_else(|| StoreError::Damaged("what a blob is cannot be read".into()))?;
                if after.is_none_or(|after| info.name > after) {
                    found.push(info);
                }
            }
            Ok(found)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_storage::{Commit, LogStore as _, Mutation, PartitionId};

    use super::*;
    use crate::tests::{config, runtime, tempdir};

    /// Else a reopening would not know that it lost its first chunks.
    #[test]
    fn one_that_begins_while_another_of_its_name_goes_is_remembered() {
        let directory = tempdir();
        let engine = Embedded::open(config(directory.path()).0).unwrap();
        let core = engine.core();
        let text = Bytes::from_static(b"text");
        let change = |mutation| Commit {
            mutations: vec![mutation],
            bodies_come: true,
            ..Commit::new(PartitionId(3))
        };
        let runtime = runtime();
        for n in 0..2000_u32 {
            let mut upload = UploadId([6; 16]);
            upload.0[..4].copy_from_slice(&n.to_be_bytes());
            let hash = Hash::of(&text);
            let (blob, holder) = (BlobName { upload, hash }, Bytes::from_static(b"message"));
            let named = Mutation::Reference {
                blob,
                holder: holder.clone(),
            };
            let let_go = Mutation::Release { blob, holder };
            runtime.block_on(async {
                engine.commit(change(named)).await.unwrap();
                let mut writer = engine.create(upload).await.unwrap();
                writer.write(text.clone()).await.unwrap();
                writer.finish().await.unwrap();
            });
            let going = engine.commit(change(let_go));
            // As `create` does it.
            loop {
                if let Some(serial) = core.uploads.begin(upload) {
                    let used = core.with(|sealer| sealer.is_used(upload)).unwrap();
                    if !used && core.uploads.is_known(upload, serial) {
                        break;
                    }
                    core.uploads.forget_this(upload, serial);
                }
            }
            runtime.block_on(going).unwrap();
            // Behind all that is done after that group.
            runtime
                .block_on(engine.commit(Commit::new(PartitionId(3))))
                .unwrap();
            assert!(
                core.uploads.begin(upload).is_none(),
                "it was forgotten ({n})"
            );
        }
    }
}
