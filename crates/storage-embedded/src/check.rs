//! Verifies every byte of a closed store, and changes none: for `whimbrel check`.
//!
//! Each file is held against what vouches for it: the format file and the note of what was synced by their own checksums, the journals by the seals
//! of their writes, the lists of tables by `current`, tables and value files by the checksums of whole files in those lists. Where a file is not as
//! it should be, the place is narrowed down by the checksums of its blocks. The layout of tables is the tree's: see its documents.
//!
//! What the rows say is for others to judge: they open a [`copy`], which shares the large files and lets the original be.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    directory::{SYNCED_BYTES, parse_format, parse_synced},
    failure::OpenError,
    journal,
    manifest::{self, TREE_VERSION},
};

/// Damage, or something to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub path: PathBuf,
    /// From which byte on, if that can be told.
    pub offset: Option<u64>,
    /// What.
    pub what: String,
    /// Whether something that was acknowledged may be lost or changed.
    pub is_damage: bool,
}

/// Told of each finding, and of each number of bytes that was read.
pub trait Watch {
    /// So many bytes will be read.
    fn total(&mut self, bytes: u64);
    /// So many bytes were read.
    fn read(&mut self, bytes: u64);
    /// Something was found.
    fn found(&mut self, finding: Finding);
}

const READ_BYTES: usize = 256 << 10;

/// Reads all files of the store in `path` that count.
///
/// # Errors
/// When a directory cannot be listed.
pub fn files(path: &Path, watch: &mut dyn Watch) -> io::Result<()> {
    let lsm = path.join("lsm");
    watch.total(bytes_below(path)?);
    let mut tell = |path: &Path, offset, what: String| {
        watch.found(Finding {
            path: path.to_owned(),
            offset,
            what,
            is_damage: true,
        });
    };
    let format = path.join("FORMAT");
    let id = match fs::read(&format) {
        Ok(bytes) => match parse_format(&format, &bytes) {
            Ok(id) => Some(id),
            Err(error) => {
                tell(&format, Some(0), told(&error));
                None
            }
        },
        Err(error) => {
            tell(&format, None, error.to_string());
            None
        }
    };
    let version = lsm.join("version");
    match fs::read(&version) {
        Ok(bytes) if bytes == TREE_VERSION => {}
        Ok(bytes) => {
            let at = bytes.iter().zip(TREE_VERSION).take_while(|(a, b)| a == b);
            tell(
                &version,
                Some(at.count() as u64),
                "this is not the tree's version".into(),
            );
        }
        Err(error) => tell(&version, None, error.to_string()),
    }
    if let Some(id) = id {
        let note = path.join("SYNCED");
        let synced = match fs::read(&note) {
            Ok(bytes) if bytes.len() == SYNCED_BYTES => {
                let synced = parse_synced(&id, &bytes);
                if synced.is_none() {
                    tell(&note, Some(0), "the checksum is wrong".into());
                }
                synced
            }
            Ok(bytes) => {
                let at = bytes.len().min(SYNCED_BYTES) as u64;
                tell(&note, Some(at), format!("it has not {SYNCED_BYTES} bytes"));
                None
            }
            Err(error) => {
                tell(&note, None, error.to_string());
                None
            }
        };
        match journal::judge(&lsm, &id, synced, None) {
            Ok((_, None)) => {}
            Ok((_, Some(torn))) => watch.found(Finding {
                path: torn.path,
                offset: Some(torn.at),
                what: format!(
                    "the torn end of a write that was never acknowledged ({}); the next start cuts it off",
                    torn.why
                ),
                is_damage: false,
            }),
            Err(error) => watch.found(refused(&lsm, &error)),
        }
    }
    for entry in fs::read_dir(&lsm)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|of| of == "jnl") {
            watch.read(entry.metadata()?.len());
        }
    }
    for folder in manifest::folders(&lsm)? {
        tree(&folder, watch);
    }
    Ok(())
}

/// What it says of a store in `path` that it does not open.
pub fn refused(path: &Path, error: &OpenError) -> Finding {
    let (place, offset) = place(error);
    Finding {
        path: place.unwrap_or_else(|| path.to_owned()),
        offset,
        what: told(error),
        is_damage: true,
    }
}

/// The cause alone: file and place are told beside it.
fn told(error: &OpenError) -> String {
    match error {
        OpenError::NotAStore { why, .. } | OpenError::Damaged { why, .. } => why.clone(),
        other => other.to_string(),
    }
}

fn place(error: &OpenError) -> (Option<PathBuf>, Option<u64>) {
    match error {
        OpenError::Damaged { path, why } => {
            let at = why.split_once("at byte ").and_then(|(_, rest)| {
                let digits = rest.find(|c: char| !c.is_ascii_digit());
                rest[..digits.unwrap_or(rest.len())].parse().ok()
            });
            // A journal that ends too early: from its end on something is missing.
            let end = fs::metadata(path).ok().filter(fs::Metadata::is_file);
            (Some(path.clone()), at.or(end.map(|file| file.len())))
        }
        OpenError::Io { path, .. } => (Some(path.clone()), None),
        _ => (None, None),
    }
}

fn bytes_below(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    let mut open = vec![path.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else {
                bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(bytes)
}

/// A file that a list names, with the checksum of all of it.
struct Listed {
    path: PathBuf,
    sum: u128,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Values,
}

/// One tree: `current`, the list that it names, the files that the list names.
fn tree(folder: &Path, watch: &mut dyn Watch) {
    let current = folder.join("current");
    let mut tell = |path: &Path, offset, what: String| {
        watch.found(Finding {
            path: path.to_owned(),
            offset,
            what,
            is_damage: true,
        });
    };
    let bytes = match fs::read(&current) {
        Ok(bytes) => bytes,
        Err(error) => return tell(&current, None, error.to_string()),
    };
    let Ok(bytes) = <[u8; 25]>::try_from(bytes.as_slice()) else {
        let at = bytes.len().min(25) as u64;
        return tell(&current, Some(at), "it has not 25 bytes".into());
    };
    let (number, rest) = bytes.split_at(8);
    let (sum, kind) = rest.split_at(16);
    let number = u64::from_le_bytes(number.try_into().unwrap_or_default());
    let sum = u128::from_le_bytes(sum.try_into().unwrap_or_default());
    if kind != [0] {
        return tell(&current, Some(24), "an unknown kind of checksum".into());
    }
    let list = folder.join(format!("v{number}"));
    let found = match fs::read(&list) {
        Ok(bytes) => xxh3_128(&bytes),
        Err(error) => {
            return tell(
                &current,
                Some(0),
                format!("it names {}: {error}", list.display()),
            );
        }
    };
    let listed = read_list(folder, &list);
    if found != sum {
        // Nothing else vouches for either. What the list names is there if the list is right.
        let whole = listed.as_ref().is_ok_and(|files| {
            files
                .iter()
                .all(|file| sum_of(&file.path, &mut |_| {}).is_ok_and(|sum| sum == file.sum))
        });
        let both = format!(
            "{} and {} do not fit together",
            current.display(),
            list.display()
        );
        return if whole {
            tell(
                &current,
                Some(8),
                format!(
                    "{both}: the checksum or the list's own marks are wrong, what the list names is there"
                ),
            );
        } else {
            tell(
                &list,
                Some(0),
                format!("{both}: the list's checksum is wrong"),
            );
        };
    }
    let files = match listed {
        Ok(files) => files,
        Err(error) => return tell(&list, Some(0), error.to_string()),
    };
    for file in files {
        let sum = sum_of(&file.path, &mut |bytes| watch.read(bytes));
        let what = match sum {
            Ok(sum) if sum == file.sum => continue,
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        let (offset, what) = match what {
            Some(what) => (None, what),
            None => narrow(&file),
        };
        watch.found(Finding {
            path: file.path,
            offset,
            what,
            is_damage: true,
        });
    }
}

fn read_list(folder: &Path, list: &Path) -> io::Result<Vec<Listed>> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let reader = sfa::Reader::new(list).map_err(|error| wrong(&format!("{error:?}")))?;
    let section = |name: &[u8]| -> io::Result<Vec<u8>> {
        let of = reader.toc().section(name);
        let of = of.ok_or_else(|| wrong("a section is missing"))?;
        let mut bytes =
            vec![0; usize::try_from(of.len()).map_err(|_| wrong("a section is too long"))?];
        File::open(list).and_then(|file| {
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, of.pos())
        })?;
        Ok(bytes)
    };
    let mut files = Vec::new();
    let tables = section(b"tables")?;
    let mut input = Input(&tables);
    for _ in 0..input.number::<1>()? {
        for _ in 0..input.number::<1>()? {
            for _ in 0..input.number::<4>()? {
                let name = input.number::<8>()?;
                input.number::<1>()?;
                let sum = input.number::<16>()?;
                input.number::<8>()?;
                files.push(Listed {
                    path: folder.join("tables").join(name.to_string()),
                    sum,
                    kind: Kind::Table,
                });
            }
        }
    }
    let values = section(b"blob_files")?;
    let mut input = Input(&values);
    for _ in 0..input.number::<4>()? {
        let name = input.number::<8>()?;
        input.number::<1>()?;
        let sum = input.number::<16>()?;
        files.push(Listed {
            path: folder.join("blobs").join(name.to_string()),
            sum,
            kind: Kind::Values,
        });
    }
    Ok(files)
}

/// Little-endian numbers, one after the other.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn number<const BYTES: usize>(&mut self) -> io::Result<u128> {
        let (bytes, rest) = self
            .0
            .split_first_chunk::<BYTES>()
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        self.0 = rest;
        let shifted = bytes.iter().rev();
        Ok(shifted.fold(0, |number, byte| number << 8 | u128::from(*byte)))
    }
}

fn sum_of(path: &Path, read: &mut dyn FnMut(u64)) -> io::Result<u128> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.digest128()),
            bytes => {
                hasher.update(&buffer[..bytes]);
                read(bytes as u64);
            }
        }
    }
}

/// Where in a damaged file the damage begins, by the checksums of its parts.
fn narrow(file: &Listed) -> (Option<u64>, String) {
    let walked = match file.kind {
        Kind::Table => walk(&file.path, table_block),
        Kind::Values => walk(&file.path, value),
    };
    match walked {
        Ok((at, what)) => (
            Some(at),
            format!("the checksum of the file is wrong: {what}"),
        ),
        Err(error) => (None, error.to_string()),
    }
}

type Source = BufReader<File>;

/// Reads parts until one is not right; gives its place and what is wrong.
fn walk(
    path: &Path,
    part: fn(&mut Source, u64) -> io::Result<Result<u64, &'static str>>,
) -> io::Result<(u64, String)> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut source = BufReader::with_capacity(READ_BYTES, file);
    let mut at = 0;
    loop {
        match part(&mut source, length - at) {
            Ok(Ok(bytes)) => at += bytes,
            Ok(Err(what)) => return Ok((at, format!("{what} at byte {at}"))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok((at, format!("it ends within the part at byte {at}")));
            }
            Err(error) => return Err(error),
        }
    }
}

fn exact<const BYTES: usize>(source: &mut Source) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    source.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads so many bytes, if there are as many left: whether they have this checksum.
fn is_whole(source: &mut Source, bytes: u64, left: u64, sum: u128) -> io::Result<bool> {
    if bytes > left {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut data = vec![0; bytes as usize];
    source.read_exact(&mut data)?;
    Ok(xxh3_128(&data) == sum)
}

/// `LSM\x03`, kind, checksum of the data, bytes stored, bytes unpacked, checksum of the head; then the data.
fn table_block(source: &mut Source, left: u64) -> io::Result<Result<u64, &'static str>> {
    const HEAD_BYTES: usize = 29;
    let head: [u8; HEAD_BYTES] = exact(source)?;
    if head[..4] != *b"LSM\x03" {
        return Ok(Err(
            "no block begins where one should, or the rest of the file is changed,",
        ));
    }
    let sum = u32::from_le_bytes(exact(source)?);
    if xxh3_128(&head) as u32 != sum {
        return Ok(Err("the head of a block is changed"));
    }
    let mut input = Input(&head[5..]);
    let (sum, bytes) = (input.number::<16>()?, input.number::<4>()? as u64);
    if !is_whole(source, bytes, left, sum)? {
        return Ok(Err("a block is changed"));
    }
    Ok(Ok(HEAD_BYTES as u64 + 4 + bytes))
}

/// `BLOB`, checksum of key and value, sequence number, bytes of the key, of the value unpacked and as stored; then key and value.
fn value(source: &mut Source, left: u64) -> io::Result<Result<u64, &'static str>> {
    const HEAD_BYTES: usize = 38;
    let head: [u8; HEAD_BYTES] = exact(source)?;
    if head[..4] != *b"BLOB" {
        return Ok(Err(
            "no value begins where one should, or the rest of the file is changed,",
        ));
    }
    let mut input = Input(&head[4..]);
    let sum = input.number::<16>()?;
    input.number::<8>()?;
    let key = input.number::<2>()? as u64;
    input.number::<4>()?;
    let bytes = key + input.number::<4>()? as u64;
    if !is_whole(source, bytes, left, sum)? {
        return Ok(Err("a value is changed"));
    }
    Ok(Ok(HEAD_BYTES as u64 + bytes))
}

/// Makes a store in `to` that can be opened and changed in place of the one in `from`: what is written once (tables, values) is shared by
/// symbolic links, all else is copied.
///
/// # Errors
/// When something cannot be copied.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let from = from.canonicalize()?;
    let mut open = vec![(from, to.to_owned())];
    while let Some((from, to)) = open.pop() {
        fs::create_dir_all(&to)?;
        let shared = from
            .file_name()
            .is_some_and(|name| name == "tables" || name == "blobs");
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let to = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push((entry.path(), to));
            } else if shared {
                std::os::unix::fs::symlink(entry.path(), to)?;
            } else {
                fs::copy(entry.path(), to)?;
            }
        }
    }
    Ok(())
}
