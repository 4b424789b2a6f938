//! Removes blobs: row by row in bounded writes, the row that says it must go last, so that a crash in between repeats it.

use fjall::Readable;
use whimbrel_storage::{StoreError, UploadId};

use crate::failure::read_error;
use crate::keys;
use crate::seal::{Sealer, Tree};

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

/// At a start: uploads that were never finished, never named, or let go of just before the end. Gives how many went.
pub(crate) fn doubtful(sealer: &Sealer) -> Result<usize, StoreError> {
    let mut removed = 0;
    let view = sealer.db().snapshot();
    for row in view.range(&sealer.trees.meta, keys::prefix_range(keys::ALL_DOUBTFUL)) {
        let key = row.key().map_err(read_error)?;
        let upload = keys::parse_upload(&key)
            .ok_or_else(|| StoreError::Damaged("the name of an upload cannot be read".into()))?;
        if is_referenced(&view, sealer, upload)? {
            let mut write = sealer.begin();
            write.remove(Tree::Meta, keys::doubtful(upload));
            sealer.write(write, false)?;
        } else {
            remove(sealer, upload)?;
            removed += 1;
        }
    }
    Ok(removed)
}
