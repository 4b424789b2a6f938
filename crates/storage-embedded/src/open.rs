//! Opening, at a start and again after the tree took no more writes: judge the journals, open the tree, check that both agree, walk the logs, sweep.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{
    CompressionType, Database, KeyspaceCreateOptions, KvSeparationOptions, Readable, Snapshot,
};
use whimbrel_storage::{Origin, PartitionId, StoreError};

use crate::commit_record::Seal;
use crate::config::{Config, FILES_OPEN_MIN};
use crate::directory::{Directory, SyncedFile};
use crate::failure::OpenError;
use crate::keys::SEAL_KEY;
use crate::sealer::Sealer;
use crate::trees::{TREE_NAMES, Tree, Trees};
use crate::verify::Positions;
use crate::wal_tail::JournalFile;
use crate::{blob_gc, buffers, journal, manifest, verify};

/// What of an open store is the writer's.
pub(crate) struct Opened {
    pub(crate) positions: Positions,
    pub(crate) untrimmed: Vec<(PartitionId, Origin)>,
    pub(crate) journal: JournalFile,
    pub(crate) synced_file: SyncedFile,
}

/// Opens the tree of a store. `last` is the last write that was made, when this process had it open before: what is behind that was refused.
pub(crate) fn open(
    config: &Config,
    directory: &Directory,
    last: Option<u64>,
) -> Result<(Sealer, Opened), OpenError> {
    let tree_path = directory.tree();
    let judged = Judged::new(directory, last)?;
    let db = Database::builder(&tree_path)
        .cache_size(config.cache_bytes)
        .journal_compression(CompressionType::None)
        .max_journaling_size(config.journal_bytes_max.max(64 << 20))
        .worker_threads(config.background_threads.max(1))
        .max_cached_files(Some(config.files_open_max.max(FILES_OPEN_MIN)))
        .open()
        .map_err(|error| OpenError::tree(&tree_path, error))?;
    let trees = open_trees(config, &db).map_err(|error| OpenError::tree(&tree_path, error))?;

    let view = db.snapshot();
    let shown = judged.agrees(&view, &trees, directory)?;
    let logs = verify::logs(&tree_path, &view, &trees)?;
    drop(view);

    // Made last: when it is there, everything else must be there too.
    let synced_file = match judged.noted {
        Some((file, _)) => file,
        None => SyncedFile::open(directory)?.0,
    };
    let sealer = Sealer::new(db, trees, directory.id, shown, config.clone())
        .map_err(OpenError::io(&config.path, "no thread could be started"))?;
    synced_file
        .note(shown.number)
        .and_then(|()| synced_file.sync())
        .map_err(OpenError::io(&config.path, "SYNCED cannot be written"))?;
    sync_directory(&config.path)?;
    let newest = journal::newest(&tree_path)?
        .ok_or_else(|| OpenError::damaged(&tree_path, "there is no journal (*.jnl)"))?;
    let journal = JournalFile::open(tree_path, newest.0)
        .map_err(OpenError::io(&newest.1, "cannot be opened"))?;
    // Last: nothing that could fail comes behind a write.
    let swept = sweep(&sealer, config)?;
    tracing::info!(path = %config.path.display(), logs = logs.positions.len(), swept, "storage is open");
    *sealer.lengths() = logs.lengths;
    let opened = Opened {
        positions: logs.positions,
        untrimmed: logs.untrimmed,
        journal,
        synced_file,
    };
    Ok((sealer, opened))
}

/// What is known of a store before its tree is open.
struct Judged {
    tree_path: PathBuf,
    /// The file that remembers how far was synced, and the number in it, of a store that was made before.
    noted: Option<(SyncedFile, Option<u64>)>,
    found: journal::JournalScan,
}

impl Judged {
    fn new(directory: &Directory, last: Option<u64>) -> Result<Judged, OpenError> {
        let made = directory.is_made()?;
        let tree_path = directory.tree();
        if last.is_some() && !made {
            return Err(OpenError::damaged(&directory.path, "SYNCED is missing"));
        }
        if !made {
            remove_begun(&tree_path).map_err(OpenError::io(
                &tree_path,
                "what was begun cannot be removed",
            ))?;
        }
        let has_tree = tree_path
            .join("version")
            .try_exists()
            .map_err(OpenError::io(&tree_path, "cannot be looked at"))?;
        if made && !has_tree {
            return Err(OpenError::damaged(
                &tree_path,
                "the tree's version file is missing",
            ));
        }
        let noted = if made {
            Some(SyncedFile::open(directory)?)
        } else {
            None
        };
        let synced = noted.as_ref().and_then(|(_, synced)| *synced);
        let found = if has_tree {
            journal::check(&tree_path, &directory.id, synced, last)?
        } else {
            journal::JournalScan::default()
        };
        let judged = Judged {
            tree_path,
            noted,
            found,
        };
        if made {
            judged.check_files()?;
        }
        Ok(judged)
    }

    fn check_files(&self) -> Result<(), OpenError> {
        manifest::check(&self.tree_path)?;
        // With several journals the tree, once open, at once moves what they hold into its files, and then these no longer show what is missing before.
        if let (Some((first, _)), 2..) = (self.found.writes, self.found.journals) {
            verify::front(&first, verify::persisted(&self.tree_path)?)
                .map_err(|why| self.blamed(why))?;
        }
        Ok(())
    }

    /// What is missing before the first write that is there was in the journal that holds nothing, if there is one.
    fn blamed(&self, why: String) -> OpenError {
        match &self.found.empty_before {
            Some(journal) => {
                OpenError::damaged(journal, format!("no write is found at byte 0: {why}"))
            }
            None => OpenError::damaged(&self.tree_path, why),
        }
    }

    /// Whether the open tree shows all that the journals hold. Gives the seal of its last write.
    fn agrees(
        &self,
        view: &Snapshot,
        trees: &Trees,
        directory: &Directory,
    ) -> Result<Seal, OpenError> {
        let seal = view
            .get(&trees.meta, SEAL_KEY)
            .map_err(|error| OpenError::tree(&self.tree_path, error))?;
        let shown = match seal {
            Some(bytes) => Seal::decode(&directory.id, &bytes).ok_or_else(|| {
                OpenError::damaged(
                    &self.tree_path,
                    "the newest seal in the tree cannot be read",
                )
            })?,
            None => Seal::default(),
        };
        let writes = self.found.writes;
        let synced = self.noted.as_ref().and_then(|(_, synced)| *synced);
        let least = writes.map_or(synced.unwrap_or(0), |(_, last)| last.number);
        if shown.number < least || writes.is_some_and(|(_, last)| shown.number != last.number) {
            let why = format!(
                "the tree shows write {} as its last, but there were writes up to {least}",
                shown.number
            );
            return Err(match writes {
                None => self.blamed(why),
                Some(_) => OpenError::damaged(&self.tree_path, why),
            });
        }
        let first = writes.map_or(shown, |(first, _)| first);
        verify::front(&first, verify::persisted_of(trees)).map_err(|why| self.blamed(why))?;
        Ok(shown)
    }
}

/// Removes uploads that nothing names. Gives how many went.
fn sweep(sealer: &Sealer, config: &Config) -> Result<usize, OpenError> {
    match blob_gc::doubtful(sealer) {
        Ok(swept) => Ok(swept),
        // They are marked, and go when it is opened next. Whoever writes finds that nothing can be written.
        Err(error @ (StoreError::Full(_) | StoreError::Read(_))) => {
            tracing::warn!(%error, "what nothing names could not be removed yet");
            Ok(0)
        }
        Err(error) => Err(OpenError::damaged(&config.path, error.to_string())),
    }
}

/// Removes what a first start left that was killed before the tree wrote its version: the tree takes up neither a journal without a version nor a
/// version that is not whole. There is no folder of a tree yet and the journal is empty, so nothing was ever written.
fn remove_begun(directory: &Path) -> io::Result<()> {
    if fs::read(directory.join("version")).is_ok_and(|bytes| bytes == manifest::TREE_VERSION) {
        return Ok(());
    }
    let mut begun = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_empty = if path.is_dir() {
            fs::read_dir(&path)?.next().is_none()
        } else if path.extension().is_some_and(|of| of == "jnl") {
            journal::only_zeros(&mut File::open(&path)?, 0)?
        } else {
            path.file_name()
                .is_some_and(|name| name == "version" || name == "lock")
        };
        if !is_empty {
            return Ok(());
        }
        begun.push(path);
    }
    for path in begun {
        match path.is_dir() {
            true => fs::remove_dir(path)?,
            false => fs::remove_file(path)?,
        }
    }
    Ok(())
}

fn sync_directory(path: &Path) -> Result<(), OpenError> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(OpenError::io(path, "cannot be synced"))
}

/// Full write buffers that are merged at once, as files, and with all that lies in the first level, which is about so many times [`FILE_BYTES`]. With
/// the tree's own figures (4, 64 MiB) each 16 MiB that were written were merged with up to 256 MiB: of two nodes' CPU after ten minutes' cut that was
/// 64 s of 166 s, and is 31 s of 150 s with these. Larger buffers would do the same and take memory; whoever looks for rows looks into more files. A
/// store keeps the figures with which it was made.
const RUNS_MERGED: u8 = 12;
const FILE_BYTES: u64 = 16 << 20;

fn open_trees(config: &Config, db: &Database) -> fjall::Result<Trees> {
    let [log, records, blobs, meta] = buffers::bytes_max(config);
    let small = |buffer_bytes| {
        KeyspaceCreateOptions::default()
            .compaction_strategy(Arc::new(
                Leveled::default()
                    .with_l0_threshold(RUNS_MERGED)
                    .with_table_target_size(FILE_BYTES),
            ))
            .max_memtable_size(buffer_bytes)
            .data_block_size_policy(BlockSizePolicy::all(8 << 10))
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::Lz4,
            ]))
    };
    // Chunks are large and written once: their values lie in files of their own, so that compaction moves only keys. A file is
    // written again when a third of it is dead.
    let separated = || {
        KvSeparationOptions::default()
            .separation_threshold(1 << 10)
            .file_target_size(64 << 20)
            .staleness_threshold(0.33)
            .compression(if config.blobs_compressed {
                CompressionType::Lz4
            } else {
                CompressionType::None
            })
    };
    Ok(Trees {
        log: db.keyspace(TREE_NAMES[Tree::Log as usize], || small(log))?,
        records: db.keyspace(TREE_NAMES[Tree::Records as usize], || small(records))?,
        blobs: db.keyspace(TREE_NAMES[Tree::Blobs as usize], || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(blobs)
                .with_kv_separation(Some(separated()))
        })?,
        meta: db.keyspace(TREE_NAMES[Tree::Meta as usize], || small(meta))?,
    })
}
