//! Reads directories and files of a source safely: entries in the order of their names, in bounded memory however many there are; links are not
//! followed, pipes are not waited for, and files that are too large are not read.

use std::{
    collections::BinaryHeap,
    ffi::{OsStr, OsString},
    fs::{self, File, FileType, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
    vec,
};

use rustix::{fs::OFlags, io::Errno};

use super::super::Report;

/// Names in memory of one directory, and of each above it: some 3 MiB. A directory is read once for each so many entries: a file system gives names
/// in no order.
const SLICE_ENTRIES: usize = 1 << 15;

/// Bytes of a file that lists folders or keywords.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a file with a line for each message.
const LONG_LIST_BYTES_MAX: u64 = 64 << 20;

const LINK: &str = "it is a symbolic link";

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// An entry that is not read, and why.
    Other(&'static str),
}

impl Kind {
    fn of(kind: FileType) -> Kind {
        match kind {
            _ if kind.is_file() => Kind::File,
            _ if kind.is_dir() => Kind::Directory,
            _ if kind.is_symlink() => Kind::Other(LINK),
            _ if kind.is_fifo() => Kind::Other("it is a pipe"),
            _ if kind.is_socket() => Kind::Other("it is a socket"),
            _ => Kind::Other("it is a device"),
        }
    }

    /// The kind of the entry at a path.
    pub(super) fn at(path: &Path) -> io::Result<Kind> {
        Ok(Kind::of(fs::symlink_metadata(path)?.file_type()))
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: Kind,
}

/// The order of their names.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.name.cmp(&other.name)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Entry {}

/// The entries of a directory.
pub(super) struct Entries {
    path: PathBuf,
    slice_max: usize,
    slice: vec::IntoIter<Entry>,
    /// After the slice there are further entries, with greater names than this.
    more_behind: Option<OsString>,
}

impl Entries {
    pub(super) fn of(path: &Path) -> io::Result<Entries> {
        Self::in_slices(path, SLICE_ENTRIES)
    }

    fn in_slices(path: &Path, slice_max: usize) -> io::Result<Entries> {
        let mut entries = Entries {
            path: path.to_owned(),
            slice_max,
            slice: Vec::new().into_iter(),
            more_behind: None,
        };
        entries.fill(None)?;
        Ok(entries)
    }

    fn fill(&mut self, behind: Option<&OsStr>) -> io::Result<()> {
        let mut least: BinaryHeap<Entry> = BinaryHeap::new();
        let mut is_cut = false;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_greater =
                |least: &BinaryHeap<Entry>| least.peek().is_some_and(|last| name > last.name);
            if behind.is_some_and(|behind| *name <= *behind) {
                continue;
            }
            if least.len() >= self.slice_max {
                is_cut = true;
                if is_greater(&least) {
                    continue;
                }
                least.pop();
            }
            let kind = entry.file_type().map(Kind::of);
            least.push(Entry {
                name,
                kind: kind.unwrap_or(Kind::Other("it cannot be looked at")),
            });
        }
        let slice = least.into_sorted_vec();
        let last = slice.last().map(|entry| entry.name.clone());
        self.more_behind = last.filter(|_| is_cut);
        self.slice = slice.into_iter();
        Ok(())
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        if self.slice.len() == 0
            && let Some(behind) = self.more_behind.take()
        {
            self.fill(Some(&behind))?;
        }
        Ok(self.slice.next())
    }
}

/// A path for messages, on one line.
pub(in super::super) fn label(path: &Path) -> String {
    path.display().to_string().replace('\n', "\u{fffd}")
}

/// A directory, and no link to one.
pub(super) fn is_directory(path: &Path) -> bool {
    Kind::at(path).is_ok_and(|kind| kind == Kind::Directory)
}

/// Opens an ordinary file; a link to one is refused.
pub(super) fn open_file(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|error| {
        if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            io::Error::other(LINK)
        } else {
            error
        }
    })?;
    let meta = file.metadata()?;
    match Kind::of(meta.file_type()) {
        Kind::File => Ok((file, meta)),
        Kind::Directory => Err(io::ErrorKind::IsADirectory.into()),
        Kind::Other(why) => Err(io::Error::other(why)),
    }
}

/// When a file was written, in seconds since 1970.
pub(super) fn modified(meta: &Metadata) -> io::Result<i64> {
    Ok(match meta.modified()?.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(0),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(0),
    })
}

/// A file that lists folders or keywords; empty if there is none. A file that cannot be read is reported.
pub(super) fn short_list(path: &Path, report: &mut Report) -> Vec<u8> {
    list(path, LIST_BYTES_MAX, report)
}

/// As [`short_list`], of a file with a line for each message.
pub(super) fn long_list(path: &Path, report: &mut Report) -> Vec<u8> {
    list(path, LONG_LIST_BYTES_MAX, report)
}

fn list(path: &Path, bytes_max: u64, report: &mut Report) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The walk reports entries that are no files.
    if !Kind::at(path).is_ok_and(|kind| kind == Kind::File) {
        return bytes;
    }
    let read = open_file(path).and_then(|(file, meta)| {
        if meta.len() > bytes_max {
            return Err(io::Error::other(format!(
                "it has more than {bytes_max} bytes"
            )));
        }
        file.take(bytes_max).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => bytes,
        Err(error) => {
            report.failed(&label(path), &error.to_string());
            Vec::new()
        }
    }
}

/// The lines of a list that are text.
pub(super) fn lines_of_text(bytes: &[u8]) -> String {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_text_costs_no_other() {
        assert_eq!(lines_of_text(b"one\nF\xfcr\ntwo"), "one\ntwo");
    }

    /// In slices of any size the same entries come, in the same order.
    #[test]
    fn entries_in_slices() {
        let root = tempfile::tempdir().unwrap();
        let mut expected: Vec<String> = (0..20).map(|n| format!("{}", n * 7919 % 101)).collect();
        for name in &expected {
            fs::write(root.path().join(name), "x").unwrap();
        }
        expected.sort();
        for slice_max in [1, 3, 19, 20, 21, SLICE_ENTRIES] {
            let mut entries = Entries::in_slices(root.path(), slice_max).unwrap();
            let mut found = Vec::new();
            while let Some(entry) = entries.next().unwrap() {
                assert!(entries.slice.len() < slice_max);
                found.push(entry.name.into_string().unwrap());
            }
            assert_eq!(found, expected, "{slice_max}");
        }
    }

    #[test]
    fn what_is_no_file() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let socket = root.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for (path, why) in [(&pipe, "pipe"), (&socket, "socket"), (&link, "link")] {
            let Kind::Other(found) = Kind::at(path).unwrap() else {
                panic!("{why}");
            };
            assert!(found.contains(why), "{found}");
            // It is not waited for.
            assert!(open_file(path).is_err(), "{why}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_is_told() {
        let root = tempfile::tempdir().unwrap();
        let mut report = Report::default();
        assert!(short_list(&root.path().join("none"), &mut report).is_empty());
        assert_eq!(report.others_skipped, 0);
        assert!(short_list(root.path(), &mut report).is_empty());
        assert_eq!(report.others_skipped, 0);
        let large = root.path().join("large");
        fs::write(&large, vec![b'\n'; 1 + LIST_BYTES_MAX as usize]).unwrap();
        assert!(short_list(&large, &mut report).is_empty());
        assert_eq!(report.others_skipped, 1);
        assert!(!long_list(&large, &mut report).is_empty());
        assert_eq!(report.others_skipped, 1);
    }
}
