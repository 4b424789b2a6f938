//! Reads the tree's journals before the tree does, and judges them.
//!
//! The tree takes whatever it cannot read in a journal for the torn end of the last write: it cuts the file there and goes on
//! (and on some other torn ends it refuses to open at all). Both are wrong here: damage in the middle would silently take
//! acknowledged writes along, and a power loss would keep a good store shut. So each start reads all journals first, by the
//! tree's own format and checksums, and finds one of:
//!
//! - every write in order, then nothing or zeros: good;
//! - a break in the last journal that holds anything, behind which no seal proves that more had been synced: the torn end of a write nobody was
//!   told about. It is cut off here;
//! - anything else, a gap in the numbers of writes or of files, a break in an older journal (those are synced before the next
//!   is begun), a break before something synced: damage. Nothing is changed, the store stays shut.
//!
//! Format of a journal (version 3 of the tree): writes, each `1, items u32, sequence u64`, then items `2, kind u8,
//! compression u8, tree u64, key length u16, value length u32, stored length u32, key, value`, then `3, XXH3 of all items u64,
//! "FJL\x03"`; all little-endian. A clear of a tree (`4`) and compressed values do not occur: this engine makes none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::commit_record::{SEAL_BYTES, SEAL_MAGIC, Seal, StoreId};
use crate::failure::OpenError;
use crate::keys::SEAL_KEY;
use crate::verify;

const TRAILER: &[u8; 4] = b"FJL\x03";
/// How far a write's sequence number may be above its seal's bound: the tree takes some for itself when it flushes and merges.
const SEQUENCE_AHEAD_MAX: u64 = 1 << 20;
const READ_BYTES: usize = 256 << 10;

/// What the journals hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct JournalScan {
    /// How many there are.
    pub(crate) journals: usize,
    /// Seals of the first and the last write that are there.
    pub(crate) writes: Option<(Seal, Seal)>,
    /// The tree's sequence number of the last write.
    sequence: Option<u64>,
    /// Journals that hold no write: the newest before the first write, and the newest behind one. One that is just begun is so; but where writes are
    /// missing, they were there.
    pub(crate) empty_before: Option<PathBuf>,
    empty_behind: Option<PathBuf>,
    /// Bytes cut off as the torn end of what nobody was told about.
    pub(crate) torn_bytes: u64,
}

/// Checks all journals in `directory` and cuts a torn end off. `synced` is what is known from elsewhere to have been synced; `last` is the last write
/// that was made, if that is known: one behind it was refused, and is cut off, too.
pub(crate) fn check(
    directory: &Path,
    id: &StoreId,
    synced: Option<u64>,
    last: Option<u64>,
) -> Result<JournalScan, OpenError> {
    let (mut found, torn) = judge(directory, id, synced, last)?;
    if let Some(torn) = torn {
        found.torn_bytes = cut(&torn.path, torn.at)?;
        tracing::warn!(path = %torn.path.display(), torn.at, bytes = found.torn_bytes, torn.why, "cut off the torn end of a write that was never acknowledged");
    }
    Ok(found)
}

/// The torn end of a write that was never acknowledged.
pub(crate) struct Torn {
    pub(crate) path: PathBuf,
    pub(crate) at: u64,
    pub(crate) why: &'static str,
}

/// As [`check`], but cuts nothing off.
pub(crate) fn judge(
    directory: &Path,
    id: &StoreId,
    synced: Option<u64>,
    made: Option<u64>,
) -> Result<(JournalScan, Option<Torn>), OpenError> {
    let journals = list(directory)?;
    let Some((_, last_path)) = journals.last() else {
        return Err(OpenError::damaged(directory, "there is no journal (*.jnl)"));
    };
    for pair in journals.windows(2) {
        if pair[1].0 != pair[0].0 + 1 {
            let missing = directory.join(format!("{}.jnl", pair[0].0 + 1));
            return Err(OpenError::damaged(&missing, "the journal is missing"));
        }
    }
    let mut found = JournalScan {
        journals: journals.len(),
        ..JournalScan::default()
    };
    let mut torn = None;
    for (index, (_, path)) in journals.iter().enumerate() {
        let before = found.writes;
        let end = read(path, id, made, &mut found)?;
        if found.writes == before {
            let place = match before {
                None => &mut found.empty_before,
                Some(_) => &mut found.empty_behind,
            };
            *place = Some(path.clone());
        }
        let last = found.writes.map_or(0, |(_, last)| last.number);
        match end {
            End::Clean => {}
            // A tree that has given up may still begin a journal behind a write that failed; nothing comes into that one.
            End::Broken { at, why } if !are_blank(&journals[index + 1..])? => {
                let why = format!(
                    "the journal is damaged at byte {at} ({why}), and a newer one follows it"
                );
                return Err(OpenError::damaged(path, why));
            }
            End::Broken { at, why } => {
                let proven = greatest_synced(path, at, id)?.max(synced).unwrap_or(0);
                // Where no write is left, all that were synced are in the tree's files, or they are missing.
                let last = match found.writes {
                    None if proven > 0 => verify::last_in_files(directory, id)?,
                    _ => last,
                };
                if proven > last {
                    let why = format!(
                        "the journal is damaged at byte {at} ({why}): write {last} is the last that can be read, but all up to {proven} had been synced"
                    );
                    return Err(OpenError::damaged(path, why));
                }
                torn = Some(Torn {
                    path: path.clone(),
                    at,
                    why,
                });
            }
        }
    }
    if let (Some((_, last)), Some(synced)) = (found.writes, synced)
        && last.number < synced
    {
        let why = format!(
            "the journal ends with write {}, but all up to {synced} had been synced",
            last.number
        );
        return Err(OpenError::damaged(last_path, why));
    }
    Ok((found, torn))
}

/// The newest journal in `directory`, if there is one.
pub(crate) fn newest(directory: &Path) -> Result<Option<(u64, PathBuf)>, OpenError> {
    Ok(list(directory)?.pop())
}

/// The journal of a number.
pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number}.jnl"))
}

fn list(directory: &Path) -> Result<Vec<(u64, PathBuf)>, OpenError> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(directory).map_err(OpenError::io(directory, "cannot be listed"))? {
        let path = entry
            .map_err(OpenError::io(directory, "cannot be listed"))?
            .path();
        if path.extension().is_none_or(|extension| extension != "jnl") {
            continue;
        }
        let number = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| stem.parse().ok());
        let number =
            number.ok_or_else(|| OpenError::damaged(&path, "not the name of a journal"))?;
        journals.push((number, path));
    }
    journals.sort();
    Ok(journals)
}

/// Whether nothing was written to any of these.
fn are_blank(journals: &[(u64, PathBuf)]) -> Result<bool, OpenError> {
    for (_, path) in journals {
        let unreadable = || OpenError::io(path, "cannot be read");
        let mut file = File::open(path).map_err(unreadable())?;
        if !only_zeros(&mut file, 0).map_err(unreadable())? {
            return Ok(false);
        }
    }
    Ok(true)
}

enum End {
    /// The file ends after a write, or only zeros follow (journals are laid out beforehand).
    Clean,
    /// From this byte on it cannot be read.
    Broken { at: u64, why: &'static str },
}

/// Why a write cannot be read.
enum Stop {
    Break(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Stop::Break("it ends within a write"),
            _ => Stop::Io(error),
        }
    }
}

/// Reads the writes of one journal; their numbers must follow those that were found before.
fn read(
    path: &Path,
    id: &StoreId,
    made: Option<u64>,
    found: &mut JournalScan,
) -> Result<End, OpenError> {
    let unreadable = || OpenError::io(path, "cannot be read");
    let file = File::open(path).map_err(unreadable())?;
    let length = file.metadata().map_err(unreadable())?.len();
    let input = BufReader::with_capacity(READ_BYTES, file);
    let mut reader = Reader {
        input,
        at: 0,
        length,
        value: Vec::new(),
        sequence: found.sequence,
    };
    loop {
        let start = reader.at;
        if start == length {
            return Ok(End::Clean);
        }
        match reader.write(id) {
            Ok(Some(seal)) if made.is_some_and(|made| seal.number > made) => {
                return Ok(End::Broken {
                    at: start,
                    why: "it was refused",
                });
            }
            Ok(Some(seal)) => {
                if let Some((_, last)) = found.writes
                    && seal.number != last.number + 1
                {
                    let (path, at) = match &found.empty_behind {
                        Some(empty) => (&**empty, 0),
                        None => (path, start),
                    };
                    let why = format!(
                        "at byte {at}: write {} is followed by write {}",
                        last.number, seal.number
                    );
                    return Err(OpenError::damaged(path, why));
                }
                found.sequence = reader.sequence;
                found.writes = Some((found.writes.map_or(seal, |(first, _)| first), seal));
            }
            Ok(None) => {
                return Err(OpenError::damaged(
                    path,
                    format!("the write at byte {start} has no seal of this store"),
                ));
            }
            Err(Stop::Io(error)) => return Err(unreadable()(error)),
            Err(Stop::Break(why)) => {
                let mut file = reader.input.into_inner();
                return Ok(if only_zeros(&mut file, start).map_err(unreadable())? {
                    End::Clean
                } else {
                    End::Broken { at: start, why }
                });
            }
        }
    }
}

/// A write as a journal has it.
#[cfg(test)]
pub(crate) struct Written {
    pub(crate) seal: Seal,
    pub(crate) sequence: u64,
    /// Where it ends.
    pub(crate) end: u64,
}

/// Numbers of the writes of a journal and where each ends.
#[cfg(test)]
pub(crate) fn ends(path: &Path, id: &StoreId) -> Vec<(u64, u64)> {
    let writes = writes(path, id).into_iter();
    writes.map(|write| (write.seal.number, write.end)).collect()
}

#[cfg(test)]
pub(crate) fn writes(path: &Path, id: &StoreId) -> Vec<Written> {
    let file = File::open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let mut reader = Reader {
        input: BufReader::new(file),
        at: 0,
        length,
        value: Vec::new(),
        sequence: None,
    };
    let mut writes = Vec::new();
    while let Ok(Some(seal)) = reader.write(id) {
        writes.push(Written {
            seal,
            sequence: reader.sequence.unwrap(),
            end: reader.at,
        });
    }
    writes
}

struct Reader {
    input: BufReader<File>,
    at: u64,
    length: u64,
    value: Vec<u8>,
    /// Of the write before.
    sequence: Option<u64>,
}

impl Reader {
    fn fill<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// One write that is whole by its own checksum. `None`: it has no seal.
    fn write(&mut self, id: &StoreId) -> Result<Option<Seal>, Stop> {
        let [tag] = self.fill()?;
        if tag != 1 {
            return Err(Stop::Break("no write begins here"));
        }
        let items = u32::from_le_bytes(self.fill()?);
        let sequence = u64::from_le_bytes(self.fill()?);
        let mut hasher = Xxh3::new();
        let mut seal = None;
        for _ in 0..items {
            let head: [u8; 21] = self.fill()?;
            let [tag, kind, compression, ..] = head;
            if tag != 2 || kind > 2 || compression != 0 {
                return Err(Stop::Break("an item is damaged"));
            }
            let key_bytes = usize::from(u16::from_le_bytes([head[11], head[12]]));
            let value_bytes = u32::from_le_bytes([head[13], head[14], head[15], head[16]]);
            let stored_bytes = u32::from_le_bytes([head[17], head[18], head[19], head[20]]);
            let item_bytes = key_bytes as u64 + u64::from(value_bytes);
            if value_bytes != stored_bytes || item_bytes > self.length - self.at {
                return Err(Stop::Break("an item's length is damaged"));
            }
            self.value.clear();
            self.input
                .by_ref()
                .take(item_bytes)
                .read_to_end(&mut self.value)?;
            if self.value.len() as u64 != item_bytes {
                return Err(Stop::Break("it ends within a write"));
            }
            self.at += item_bytes;
            hasher.update(&head);
            hasher.update(&self.value);
            let (key, value) = self.value.split_at(key_bytes);
            if key == SEAL_KEY {
                seal = Seal::decode(id, value);
            }
        }
        let [tag] = self.fill()?;
        let checksum = u64::from_le_bytes(self.fill()?);
        let trailer: [u8; 4] = self.fill()?;
        if tag != 3 || trailer != *TRAILER {
            return Err(Stop::Break("a write does not end where it should"));
        }
        if checksum != hasher.digest() {
            return Err(Stop::Break("the checksum of a write is wrong"));
        }
        // The tree orders versions by this number, and its checksum does not cover it.
        if self.sequence.is_some_and(|before| sequence <= before)
            || seal.is_some_and(|seal| {
                sequence
                    .checked_sub(seal.sequence)
                    .is_none_or(|ahead| ahead > SEQUENCE_AHEAD_MAX)
            })
        {
            return Err(Stop::Break("the sequence number of a write is damaged"));
        }
        self.sequence = Some(sequence);
        Ok(seal)
    }
}

pub(crate) fn only_zeros(file: &mut File, from: u64) -> io::Result<bool> {
    file.seek(SeekFrom::Start(from))?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(true);
        }
        if buffer[..read].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
}

/// The greatest number that a seal behind `from`, wherever it lies, shows to have been synced.
fn greatest_synced(path: &Path, from: u64, id: &StoreId) -> Result<Option<u64>, OpenError> {
    let unreadable = || OpenError::io(path, "cannot be read");
    let mut file = File::open(path).map_err(unreadable())?;
    file.seek(SeekFrom::Start(from)).map_err(unreadable())?;
    let finder = memchr::memmem::Finder::new(SEAL_MAGIC);
    let mut window = Vec::with_capacity(READ_BYTES + SEAL_BYTES);
    let mut greatest = None;
    loop {
        let read = file
            .by_ref()
            .take(READ_BYTES as u64)
            .read_to_end(&mut window)
            .map_err(unreadable())?;
        for at in finder.find_iter(&window) {
            let seal = window
                .get(at..at + SEAL_BYTES)
                .and_then(|bytes| Seal::decode(id, bytes));
            greatest = greatest.max(seal.map(|seal| seal.synced));
        }
        if read == 0 {
            return Ok(greatest);
        }
        // A seal may lie across two windows.
        let kept = window.len().min(SEAL_BYTES - 1);
        window.drain(..window.len() - kept);
    }
}

fn cut(path: &Path, at: u64) -> Result<u64, OpenError> {
    let cut = || {
        let file = OpenOptions::new().write(true).open(path)?;
        let bytes = file.metadata()?.len() - at;
        file.set_len(at)?;
        file.sync_all()?;
        Ok(bytes)
    };
    cut().map_err(OpenError::io(path, "its torn end cannot be cut off"))
}
