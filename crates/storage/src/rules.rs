//! The rules by which every engine refuses a commit, in one place so that no two engines differ.

use std::collections::BTreeSet;

use crate::types::{COMMIT_BYTES_MAX, HOLDER_BYTES_MAX, RECORD_KEY_BYTES_MAX};
use crate::{
    BlobName, Commit, Cut, Jump, LogEntry, LogPosition, Mutation, Origin, PartitionId, Refusal,
    StoreError,
};

/// Refuses a commit with a part beyond its limit.
///
/// # Errors
/// [`Refusal::Size`].
pub fn check_sizes(commit: &Commit) -> Result<(), Refusal> {
    let check = |what, bytes: usize, least: usize, bytes_max| {
        if bytes < least || bytes > bytes_max {
            Err(Refusal::Size {
                what,
                bytes,
                bytes_max,
            })
        } else {
            Ok(())
        }
    };
    check("commit", commit.bytes(), 0, COMMIT_BYTES_MAX)?;
    for mutation in &commit.mutations {
        match mutation {
            Mutation::Put { key, .. } | Mutation::Delete { key } => {
                check("record key", key.len(), 1, RECORD_KEY_BYTES_MAX)?
            }
            Mutation::Reference { holder, .. } | Mutation::Release { holder, .. } => {
                check("holder", holder.len(), 1, HOLDER_BYTES_MAX)?;
            }
        }
    }
    Ok(())
}

/// Refuses a commit that names a blob that does not exist and will not come. `is_here`: whether the blob is finished, or a reference names it after
/// the commits before this one.
///
/// [`StoreError::Full`]: the blob may have been removed a moment ago, and the caller tries again. Also errors of `is_here`.
pub fn check_bodies(
    commit: &Commit,
    mut is_here: impl FnMut(BlobName) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    if commit.bodies_come {
        return Ok(());
    }
    for mutation in &commit.mutations {
        if let Mutation::Reference { blob, .. } = mutation
            && !is_here(*blob)?
        {
            return Err(StoreError::Full(
                format!("{blob} is not there any more, and nobody else is known to have it").into(),
            ));
        }
    }
    Ok(())
}

/// Partitions in which a commit was refused and no commit has begun anew since: see [`Commit::follows`].
#[derive(Clone, Debug, Default)]
pub struct Broken(BTreeSet<PartitionId>);

impl Broken {
    /// Refuses a commit that depends on one that was refused.
    ///
    /// # Errors
    /// [`Refusal::Broken`].
    pub fn check(&self, commit: &Commit) -> Result<(), Refusal> {
        let partition = commit.partition;
        if commit.follows && self.0.contains(&partition) {
            return Err(Refusal::Broken { partition });
        }
        Ok(())
    }

    /// Notes whether a commit to `partition` was accepted.
    pub fn note(&mut self, partition: PartitionId, taken: bool) {
        if taken {
            // Either this commit begins anew, or none was refused before.
            self.0.remove(&partition);
        } else {
            self.0.insert(partition);
        }
    }
}

/// Refuses an entry that does not follow the log's position.
///
/// # Errors
/// [`Refusal::Count`], [`Refusal::NotNext`], [`Refusal::Fork`].
pub fn check_follows(
    partition: PartitionId,
    entry: &LogEntry,
    position: LogPosition,
) -> Result<(), Refusal> {
    let LogEntry {
        origin,
        first,
        count,
        previous,
        ..
    } = *entry;
    if count == 0 || first.checked_add(u64::from(count)).is_none() {
        return Err(Refusal::Count { first, count });
    }
    if first != position.next {
        return Err(Refusal::NotNext {
            partition,
            origin,
            next: position.next,
            first,
        });
    }
    if previous != position.hash {
        return Err(Refusal::Fork {
            partition,
            origin,
            first,
            named: previous,
            there: position.hash,
        });
    }
    Ok(())
}

/// Refuses a jump that does not lead ahead. `next`: the number the log goes on with, the commit's entry and jumps before this one included, so that a
/// log jumps once and never behind what is appended with it.
///
/// # Errors
/// [`Refusal::JumpBack`].
pub fn check_jump(partition: PartitionId, jump: &Jump, next: u64) -> Result<(), Refusal> {
    if jump.next <= next {
        return Err(Refusal::JumpBack {
            partition,
            origin: jump.origin,
            next,
            to: jump.next,
        });
    }
    Ok(())
}

/// Refuses to forget a log that had entries before the commit, or to which the commit appends. `position`: before the commit.
///
/// # Errors
/// [`Refusal::NotCut`].
pub fn check_forget(commit: &Commit, origin: Origin, position: LogPosition) -> Result<(), Refusal> {
    let LogPosition { low, next, .. } = position;
    let appends = |entry: &LogEntry| entry.origin == origin;
    if low != next || commit.entry.as_ref().is_some_and(appends) {
        return Err(Refusal::NotCut {
            partition: commit.partition,
            origin,
            low,
            next,
        });
    }
    Ok(())
}

/// Refuses a cut beyond the end of a log.
///
/// # Errors
/// [`Refusal::CutBeyondEnd`].
pub fn check_cut(partition: PartitionId, cut: &Cut, next: u64) -> Result<(), Refusal> {
    if cut.below > next {
        return Err(Refusal::CutBeyondEnd {
            partition,
            origin: cut.origin,
            next,
            below: cut.below,
        });
    }
    Ok(())
}
