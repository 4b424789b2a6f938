//! Removes blobs: row by row in bounded writes, the row that says it must go last, so that a crash in between repeats it.

use fjall::Readable;
use whimbrel_storage::{StoreError, UploadId};

use crate::failure::read_error;
use crate::keys;
use crate::sealer::Sealer;
use crate::trees::Tree;

/// Rows removed by one write.
const ROWS_MAX: usize = 512;

/// Removes everything of an upload. Nothing may name it.
pub(crate) fn remove(sealer: &Sealer, upload: UploadId) -> Result<(), StoreError> {
    let trees = &sealer.trees;
    let mut write = sealer.begin();
    let mut rows = 1;
    // First of all the blob is no longer there; then its chunks go.
    write.remove(Tree::Meta, keys::info(upload));
    let view = sealer.db().snapshot();
    for row in view.range(&trees.blobs, keys::prefix_range(&upload.0)) {
        if rows == ROWS_MAX {
            sealer.write(std::mem::replace(&mut write, sealer.begin()), false)?;
            rows = 0;
        }
        write.remove(Tree::Blobs, row.key().map_err(read_error)?);
        rows += 1;
    }
    write.remove(Tree::Meta, keys::doubtful(upload));
    sealer.write(write, false)?;
    Ok(())
}

/// Whether anything that is written names the upload.
pub(crate) fn is_referenced(
    view: &impl Readable,
    sealer: &Sealer,
    upload: UploadId,
) -> Result<bool, StoreError> {
    match view
        .range(
            &sealer.trees.meta,
            keys::prefix_range(&keys::references(upload)),
        )
        .next()
    {
        Some(row) => row.key().map(|_| true).map_err(read_error),
        None => Ok(false),
    }
}

impl Sealer {
    /// Whether it is whole, and something that is written names it.
    pub(crate) fn is_kept(&self, upload: UploadId) -> Result<bool, StoreError> {
        Ok(self.is_whole(upload)? && is_referenced(&self.db().snapshot(), self, upload)?)
    }

    /// Whether it was finished.
    pub(crate) fn is_whole(&self, upload: UploadId) -> Result<bool, StoreError> {
        let whole = self.trees.meta.contains_key(keys::info(upload));
        whole.map_err(read_error)
    }

    /// Whether anything of an upload of this name is there.
    pub(crate) fn is_used(&self, upload: UploadId) -> Result<bool, StoreError> {
        let meta = &self.trees.meta;
        let used = meta
            .contains_key(keys::info(upload))
            .and_then(|used| Ok(used || meta.contains_key(keys::doubtful(upload))?));
        used.map_err(read_error)
    }
}

/// At a start: uploads that were never finished, never named, or let go of just before the end. Gives how many went.
pub(crate) fn doubtful(sealer: &Sealer) -> Result<usize, StoreError> {
    let mut removed = 0;
    let view = sealer.db().snapshot();
    // Marks of what is named.
    let (mut write, mut rows) = (sealer.begin(), 0);
    for row in view.range(&sealer.trees.meta, keys::prefix_range(keys::ALL_DOUBTFUL)) {
        let key = row.key().map_err(read_error)?;
        let upload = keys::parse_upload(&key)
            .ok_or_else(|| StoreError::Damaged("the name of an upload cannot be read".into()))?;
        if is_referenced(&view, sealer, upload)? {
            if rows == ROWS_MAX {
                sealer.write(std::mem::replace(&mut write, sealer.begin()), false)?;
                rows = 0;
            }
            write.remove(Tree::Meta, key);
            rows += 1;
        } else {
            remove(sealer, upload)?;
            removed += 1;
        }
    }
    if rows > 0 {
        sealer.write(write, false)?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use whimbrel_storage::{
        BlobName, BlobStore as _, BlobWriter as _, Commit, Hash, LogStore as _, Mutation,
        PartitionId,
    };

    use super::*;
    use crate::Embedded;
    use crate::tests::{config, runtime, tempdir, tree};

    const P: PartitionId = PartitionId(3);

    fn blob(n: usize) -> BlobName {
        let mut upload = UploadId([6; 16]);
        upload.0[..8].copy_from_slice(&n.to_be_bytes());
        let hash = Hash::of(b"text");
        BlobName { upload, hash }
    }

    fn naming(blobs: usize) -> Commit {
        let named = |n| Mutation::Reference {
            blob: blob(n),
            holder: "message".into(),
        };
        Commit {
            mutations: (0..blobs).map(named).collect(),
            bodies_come: true,
            ..Commit::new(P)
        }
    }

    fn marks(engine: &Embedded) -> (usize, u64) {
        tree(engine, |sealer| {
            let marks = sealer.trees.meta.prefix(keys::ALL_DOUBTFUL);
            (marks.count(), sealer.last())
        })
    }

    #[test]
    fn marks_of_what_is_named_go_together() {
        let directory = tempdir();
        let blobs = 2 * ROWS_MAX + 1;
        runtime().block_on(async {
            let engine = Embedded::open(config(directory.path()).0).unwrap();
            engine.commit(naming(blobs)).await.unwrap();
            let marked = tree(&engine, |sealer| {
                let mut write = sealer.begin();
                for n in 0..blobs {
                    let mark = keys::doubtful(blob(n).upload);
                    write.put(Tree::Meta, mark, Bytes::new());
                }
                sealer.write(write, true)
            });
            marked.unwrap();
            let (before, last) = marks(&engine);
            assert_eq!(before, blobs);
            engine.close().await;
            let engine = Embedded::open(config(directory.path()).0).unwrap();
            let (after, now) = marks(&engine);
            assert_eq!(after, 0);
            assert!(now <= last + 4, "{} writes", now - last);
            engine.close().await;
        });
    }

    #[test]
    fn one_that_was_named_before_it_came_keeps_no_mark() {
        let directory = tempdir();
        runtime().block_on(async {
            let engine = Embedded::open(config(directory.path()).0).unwrap();
            engine.commit(naming(1)).await.unwrap();
            for n in 0..2 {
                let mut upload = engine.create(blob(n).upload).await.unwrap();
                upload.write(Bytes::from_static(b"text")).await.unwrap();
                upload.finish().await.unwrap();
            }
            engine.commit(Commit::new(P)).await.unwrap();
            assert_eq!(marks(&engine).0, 1, "that of what nothing names");
            engine.close().await;
            let engine = Embedded::open(config(directory.path()).0).unwrap();
            let left = engine.list(None, 10).await.unwrap();
            assert_eq!(left.len(), 1);
            engine.close().await;
        });
    }
}
