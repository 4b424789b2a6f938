//! What can be configured, with defaults that keep a whole server within 256 MiB.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Configuration of an engine.
#[derive(Clone)]
pub struct Config {
    /// The directory; made if it is not there. One process at a time.
    pub path: PathBuf,
    /// Cache of blocks read from disk, for all of the store. Config key `storage.cache_bytes`.
    pub cache_bytes: u64,
    /// Size at which what was last written moves from memory into files: of blobs; of records and logs half as much each, of
    /// the rest a quarter. A store that was made with less keeps to that.
    pub write_buffer_bytes: u64,
    /// Of each of these kinds, full buffers that are not in files yet; with so many, whoever comes to write waits once the next one is full, too. Beside
    /// them there are those that were just emptied, until the tree lets go of them.
    pub full_buffers_max: usize,
    /// Size of all journals together above which the oldest is made superfluous. Bounds disk space and the time of a start.
    pub journal_bytes_max: u64,
    /// Bytes of commits that share one sync; at least one commit always goes.
    pub group_bytes_max: usize,
    /// Blobs are cut into chunks of so many bytes. Kept with each blob, so it may change.
    pub chunk_bytes: usize,
    /// Whether blobs are compressed (LZ4) in the store's files; the journal never is. On letters half text, half base64 it
    /// saved 30 % of the disk at no more CPU time, since less is written. Fixed when the store is made.
    pub blobs_compressed: bool,
    /// When the file system has less room than this, whatever adds something is refused as temporarily full. The tree itself
    /// needs room to work: it must never meet the end of the disk.
    pub free_bytes_min: u64,
    /// What only leads to more room ([`Room::Frees`](whimbrel_storage::Room::Frees)) is refused when the file system has less than this, and
    /// less than `free_bytes_min`: the tree needs this much to put itself in order, which is how room is won.
    pub removal_free_bytes_min: u64,
    /// Reads that may occupy a blocking thread at once; further ones wait.
    pub readers_max: usize,
    /// While a snapshot is there the tree keeps in memory what was written since it was taken, also what is in files already. Where that is more for
    /// one of them no other is taken, so that memory is given back when those that are there have gone. It is no bound for one that stays: who gives
    /// a state to a peer holds what is written meanwhile.
    pub snapshot_bytes_max: u64,
    /// Threads that flush and compact. One of them only flushes, and where there are two it asks again and again, without a pause, whether the other
    /// one has done what it compacts (fjall 3.1, `worker_tick`): a tenth of all CPU while bodies came after a cut. With a third one nothing is left
    /// to be asked for.
    pub background_threads: usize,
    /// Files of the tree that stay open, at least [`FILES_OPEN_MIN`]: each takes a descriptor. One that is not among them is opened for each
    /// read.
    pub files_open_max: usize,
    /// The operations on the disk that tests replace.
    pub disk: Arc<dyn Disk>,
}

/// The tree takes no fewer than this for [`Config::files_open_max`].
pub const FILES_OPEN_MIN: usize = 10;

/// Half of the descriptors that the server keeps back from its connections; the files of 8 GiB.
const FILES_OPEN_MAX_DEFAULT: usize = 128;

impl Config {
    /// The defaults, in `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Config {
            path: path.into(),
            cache_bytes: 32 << 20,
            write_buffer_bytes: 8 << 20,
            full_buffers_max: 1,
            journal_bytes_max: 128 << 20,
            group_bytes_max: whimbrel_storage::group::GROUP_BYTES_MAX_DEFAULT,
            chunk_bytes: 64 << 10,
            blobs_compressed: true,
            free_bytes_min: 512 << 20,
            removal_free_bytes_min: 128 << 20,
            readers_max: 8,
            // A minute at 4 MB/s: a state of a partition has mostly been given by then.
            snapshot_bytes_max: 256 << 20,
            background_threads: 3,
            files_open_max: FILES_OPEN_MAX_DEFAULT,
            disk: Arc::new(RealDisk),
        }
    }
}

/// The operations whose failure decides whether data is safe.
pub trait Disk: Send + Sync + 'static {
    /// Makes what was written to `file` durable.
    ///
    /// # Errors
    /// Whatever the system reports; then the engine stops for good.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Bytes that the file system of `path` still has for us.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem` if it takes none. Whatever else the system reports is taken for "enough", since writing will tell.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Writes a file in `directory`, and removes it: whether the disk takes writes.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn probe(&self, directory: &Path) -> io::Result<()>;
}

/// The file that [`Disk::probe`] writes.
pub(crate) const PROBE: &str = "PROBE";
/// Its size: more than what a file costs beside its bytes.
const PROBE_BYTES: usize = 1 << 20;

/// The disk as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn sync(&self, file: &File) -> io::Result<()> {
        // The journal is laid out beforehand and only grows into its file; `fdatasync` also writes the metadata that is needed
        // to read the data back (size, extents), so nothing more is needed.
        file.sync_data()
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn probe(&self, directory: &Path) -> io::Result<()> {
        let path = directory.join(PROBE);
        let mut file = File::create(&path)?;
        // Before it is written, so that hardly a crash leaves it there; one that does is removed at the start.
        std::fs::remove_file(&path)?;
        file.write_all(&vec![0x5a; PROBE_BYTES])?;
        file.sync_all()
    }
}
