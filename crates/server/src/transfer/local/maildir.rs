//! Maildirs: folders as Maildir++ has them (`.A.B`), as directories in directories (Dovecot's LAYOUT=fs), or both.
//!
//! A directory is a folder if it has `cur` or `new`, or is marked as one. `cur`, `new` and `tmp` of a folder may be folders of that name themselves:
//! then they have a `cur` or `new` of their own.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use whimbrel_imap::core::DateTime;
use whimbrel_transfer::{
    courier, known,
    lines::ToCrlf,
    maildir::{self, Keywords},
};

use super::{
    super::{
        Failure, Folder, Place, READ_BYTES, Report,
        body::Body,
        source_id,
        target::{Offer, Target},
    },
    DEPTH_MAX, SourceTree, TOO_DEEP,
    entries::{
        Entries, Entry, Kind, is_directory, label, lines_of_text, long_list, modified, open_file,
        short_list,
    },
    failed,
};

/// Lists of subscriptions, beside the `cur` of INBOX, and whether they are Courier's.
pub(super) const SUBSCRIPTIONS: [(&str, bool); 2] =
    [("subscriptions", false), ("courierimapsubscribed", true)];

const KEYWORDS: &str = "dovecot-keywords";
pub(super) const MARK: &str = "maildirfolder";

/// Whether it is the directory of a folder.
pub(super) fn has_parts(path: &Path) -> bool {
    ["cur", "new"]
        .iter()
        .any(|part| is_directory(&path.join(part)))
}

/// Finds all folders, and reports entries that are neither a folder nor in one.
pub(super) fn walk(root: &Path, report: &mut Report) -> Result<Vec<Folder>, Failure> {
    let mut found = SourceTree::new(report);
    let entries = Entries::of(root).map_err(|error| failed(root, &error))?;
    let inbox = ["INBOX".to_owned()];
    let is_folder = has_parts(root);
    let folder = is_folder.then(|| {
        let place = Place::Directory(root.to_owned());
        found.add(&inbox, &inbox, 0, place)
    });
    let directory = Directory {
        path: root.to_owned(),
        levels: Vec::new(),
        role: Role::Folder,
        folder,
        depth: 0,
        index: None,
    };
    found.entries(entries, &directory);
    Ok(found.folders)
}

/// The role of a directory in the one above it.
#[derive(Clone, Copy)]
enum Role {
    /// A folder, or one with folders in it.
    Folder,
    /// `cur` or `new` of this folder: its files are messages.
    Messages(usize),
    /// `tmp` of a folder.
    Unfinished,
}

struct Directory {
    path: PathBuf,
    /// The levels before the names of folders in it.
    levels: Vec<String>,
    role: Role,
    /// The index of the folder that it is, if it is one.
    folder: Option<usize>,
    depth: usize,
    /// Its kind, or that of a directory above it, if it is known to hold no mail.
    index: Option<&'static str>,
}

impl SourceTree<'_> {
    /// Whether there is a folder among them.
    fn entries(&mut self, mut entries: Entries, directory: &Directory) -> bool {
        let mut any = false;
        loop {
            match entries.next() {
                Ok(None) => return any,
                Ok(Some(entry)) => any |= self.entry(&entry, directory),
                Err(error) => {
                    self.report
                        .failed(&label(&directory.path), &error.to_string());
                    return any;
                }
            }
        }
    }

    fn entry(&mut self, entry: &Entry, directory: &Directory) -> bool {
        let path = directory.path.join(&entry.name);
        match entry.kind {
            Kind::Directory => return self.directory(path, directory),
            Kind::File => self.file(&path, directory),
            // Reported when the messages are read.
            Kind::Other(_) if matches!(directory.role, Role::Messages(_)) => {}
            Kind::Other(why) => self.report.failed(&label(&path), why),
        }
        false
    }

    fn file(&mut self, path: &Path, directory: &Directory) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_list = |(list, _): &(&str, bool)| *list == name;
        match directory.role {
            Role::Messages(folder) if !is_of_a_folder(directory.folder.is_some(), &name) => {
                self.folders[folder].weight += 1;
            }
            Role::Folder if directory.depth == 0 && SUBSCRIPTIONS.iter().any(is_list) => {}
            _ if directory.folder.is_some() && name == KEYWORDS => {}
            role => match (directory.index.or_else(|| known::in_maildir(&name)), role) {
                (Some(what), _) => self.report.ignored(&label(path), what),
                (None, Role::Unfinished) => self
                    .report
                    .failed(&label(path), "it is in tmp: its delivery has not ended"),
                (None, _) => self
                    .report
                    .failed(&label(path), "it is neither in cur nor in new"),
            },
        }
    }

    fn directory(&mut self, path: PathBuf, above: &Directory) -> bool {
        let name = self.text(&path);
        let role = match (above.folder, &*name) {
            (Some(folder), "cur" | "new") => Role::Messages(folder),
            (Some(_), "tmp") => Role::Unfinished,
            // Read with the messages.
            (Some(_), courier::DIRECTORY) => return false,
            _ => Role::Folder,
        };
        // A folder that is not too deep has its messages one level below.
        let depth_max = DEPTH_MAX + usize::from(!matches!(role, Role::Folder));
        if above.depth >= depth_max {
            self.report.failed(&label(&path), TOO_DEEP);
            return false;
        }
        let has_parts = has_parts(&path);
        let has_mark = || Kind::at(&path.join(MARK)).is_ok_and(|kind| kind == Kind::File);
        let is_marked = matches!(role, Role::Folder) && has_mark();
        let is_folder = has_parts || is_marked;
        let index = above.index.or_else(|| known::directory(&name));
        let index = index.filter(|_| !is_folder);
        let entries = match Entries::of(&path) {
            Ok(entries) => entries,
            // Reported when the messages are to be read.
            Err(_) if matches!(role, Role::Messages(_)) => return false,
            Err(error) => {
                self.report.failed(&label(&path), &error.to_string());
                return false;
            }
        };
        let levels = match is_marked.then(|| mark(&path)).flatten() {
            Some(levels) => levels,
            None => [&above.levels[..], &levels(&name, is_folder)].concat(),
        };
        let folder = is_folder.then(|| {
            // INBOX was left off once, as Courier leaves it off in its lists, though not in its directories.
            let key = match levels.first() {
                Some(first) if first == "INBOX" && levels.len() > 1 && name.starts_with('.') => {
                    &levels[1..]
                }
                _ => &levels[..],
            };
            self.add(&levels, key, 0, Place::Directory(path.clone()))
        });
        let directory = Directory {
            path,
            levels,
            role,
            folder,
            depth: above.depth + 1,
            index,
        };
        let any = self.entries(entries, &directory) || is_folder;
        if !any && matches!(role, Role::Folder) {
            let label = label(&directory.path);
            match index {
                Some(what) => self.report.ignored(&label, what),
                None => self
                    .report
                    .failed(&label, "it holds neither cur nor new, nor a folder"),
            }
        }
        any
    }
}

/// Whether a file in `cur` or `new` is no message: that directory is a folder of this name as well, and the file is kept beside its messages.
fn is_of_a_folder(is_folder: bool, name: &str) -> bool {
    is_folder && known::in_maildir(name).is_some()
}

/// The levels that a directory adds to those above it.
fn levels(name: &str, is_folder: bool) -> Vec<String> {
    // Folders below `X`, as Thunderbird and KMail keep them: in `X.sbd`, and in `.X.directory`.
    let hidden = name
        .strip_prefix('.')
        .and_then(|of| of.strip_suffix(".directory"));
    let below = name.strip_suffix(".sbd").or(hidden);
    if let Some(below) = below.filter(|below| !below.is_empty() && !is_folder) {
        return vec![maildir::level(below)];
    }
    maildir::levels(name).unwrap_or_else(|| vec![maildir::level(name)])
}

/// The levels of a folder whose name was too long for a directory: an export writes it into the file that marks the folder.
fn mark(path: &Path) -> Option<Vec<String>> {
    let (file, _) = open_file(&path.join(MARK)).ok()?;
    let mut text = String::new();
    file.take(READ_BYTES as u64)
        .read_to_string(&mut text)
        .ok()?;
    maildir::levels(text.trim_ascii())
}

/// `cur` or `new` of a folder that is read.
struct Part {
    path: PathBuf,
    is_folder: bool,
    entries: Entries,
    next: Option<Entry>,
}

impl Part {
    fn open(path: PathBuf, report: &mut Report) -> Option<Part> {
        let mut part = match Entries::of(&path) {
            Ok(entries) => Part {
                is_folder: has_parts(&path),
                path,
                entries,
                next: None,
            },
            // One of the two may be missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                report.failed(&label(&path), &error.to_string());
                return None;
            }
        };
        part.step(report);
        Some(part)
    }

    /// Goes on to the next entry.
    fn step(&mut self, report: &mut Report) -> Option<Entry> {
        let next = self.entries.next().unwrap_or_else(|error| {
            report.failed(&label(&self.path), &error.to_string());
            None
        });
        std::mem::replace(&mut self.next, next)
    }
}

/// Offers the messages of a folder, in the order in which they came: their names begin with the time.
pub(super) async fn read(
    path: &Path,
    folder: &Folder,
    target: &mut Target,
    report: &mut Report,
) -> Result<(), Failure> {
    let keywords = Keywords::parse(&lines_of_text(&short_list(&path.join(KEYWORDS), report)));
    let couriers = couriers(&path.join(courier::DIRECTORY), report);
    let key = folder.key.join("\0");
    let mut unknown = 0;
    let parts = ["cur", "new"].map(|part| path.join(part));
    let parts = parts.into_iter().filter(|path| is_directory(path));
    let mut parts: Vec<Part> = parts.filter_map(|path| Part::open(path, report)).collect();
    loop {
        let waiting = parts.iter_mut().filter(|part| part.next.is_some());
        let Some(part) = waiting.min_by(|a, b| a.next.cmp(&b.next)) else {
            break;
        };
        let Some(entry) = part.step(report) else {
            break;
        };
        let path = part.path.join(&entry.name);
        let label = label(&path);
        match entry.kind {
            // The walk has reported it.
            Kind::Directory => continue,
            _ if is_of_a_folder(part.is_folder, &entry.name.to_string_lossy()) => continue,
            Kind::File => report.step(1),
            Kind::Other(why) => {
                report.skip(&label, why);
                continue;
            }
        }
        let name = entry.name.as_encoded_bytes();
        let Some(mut name) = maildir::parse_name(name, &keywords) else {
            match known::in_maildir(&entry.name.to_string_lossy()) {
                Some(what) => report.ignored(&label, what),
                None => report.skip(
                    &label,
                    "its name begins with a dot, as that of no message does",
                ),
            }
            continue;
        };
        name.flags.extend(couriers.of(name.base).map(str::to_owned));
        name.flags.sort();
        name.flags.dedup();
        unknown += usize::from(!name.unknown.is_empty());
        match read_file(&path, name.as_it_is, target.bytes_max()) {
            Ok((body, hash, seconds)) => {
                let seconds = name.came().unwrap_or(seconds);
                let id = source_id(
                    &[b"maildir", key.as_bytes()],
                    name.seconds(),
                    &[name.base, &hash],
                );
                let offer = Offer {
                    id,
                    label,
                    flags: name.flags,
                    date: Some(DateTime::utc(seconds)),
                    body,
                };
                target.offer(offer, report).await?;
            }
            Err(error) => report.skip(&label, &error.to_string()),
        }
    }
    if unknown > 0 {
        report.note(&format!(
            "{}: {unknown} messages have keywords that {KEYWORDS} does not name; they are left out",
            label(path)
        ));
    }
    Ok(())
}

/// Courier's keywords of a folder.
pub(super) fn couriers(path: &Path, report: &mut Report) -> courier::Keywords {
    if !is_directory(path) {
        return courier::Keywords::default();
    }
    let mut keywords = courier::Keywords::parse(&long_list(&path.join(courier::LIST), report));
    let mut entries = match Entries::of(path) {
        Ok(entries) => entries,
        Err(error) => {
            report.failed(&label(path), &error.to_string());
            return keywords;
        }
    };
    // The newest change of a message counts. Their names are of its file's, and there are few of them: Courier gathers them in the list.
    let mut ages = std::collections::BTreeMap::new();
    loop {
        let entry = match entries.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                if keywords.is_cut() {
                    report.failed(
                        &label(path),
                        "it names more keywords or messages than are read",
                    );
                }
                return keywords;
            }
            Err(error) => {
                report.failed(&label(path), &error.to_string());
                return keywords;
            }
        };
        let path = path.join(&entry.name);
        let name = entry.name.as_encoded_bytes();
        match (entry.kind, courier::Keywords::change(name)) {
            (Kind::File, Some(change)) => {
                let newest = ages.entry(change.base.to_vec()).or_insert(0);
                if change.age >= *newest {
                    *newest = change.age;
                    let text = lines_of_text(&short_list(&path, report));
                    keywords.replace(change.base, &text);
                }
            }
            (Kind::File, None) if name == courier::LIST.as_bytes() => {}
            (Kind::File, None) => report.ignored(&label(&path), "it is about keywords"),
            (Kind::Directory, _) => report.failed(&label(&path), "it is a directory"),
            (Kind::Other(why), _) => report.failed(&label(&path), why),
        }
    }
}

fn read_file(path: &Path, as_it_is: bool, bytes_max: u64) -> io::Result<(Body, [u8; 32], i64)> {
    let (file, meta) = open_file(path)?;
    if meta.len() > bytes_max {
        return Err(io::Error::other(format!(
            "it has {} bytes (imap.append_bytes_max: {bytes_max})",
            meta.len()
        )));
    }
    // No more than that if it grows meanwhile.
    let mut file = file.take(meta.len());
    let seconds = modified(&meta)?;
    let mut lines = if as_it_is {
        ToCrlf::as_it_is()
    } else {
        ToCrlf::new()
    };
    let (mut body, mut hasher) = (Body::default(), blake3::Hasher::new());
    let (mut buffer, mut out) = (vec![0; READ_BYTES], Vec::new());
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((body, *hasher.finalize().as_bytes(), seconds));
        }
        if body.len() == 0 && is_compressed(&buffer[..read]) {
            return Err(io::Error::other(
                "it is compressed, as Dovecot's zlib plugin does it: decompress it first",
            ));
        }
        hasher.update(&buffer[..read]);
        lines.push(&buffer[..read], &mut out);
        body.push(&mut out)?;
    }
}

/// What Dovecot compresses messages with begins so.
fn is_compressed(begin: &[u8]) -> bool {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
    const LZ4: &[u8] = b"Dovecot-LZ4\x0d\x2a\x9b\xc5";
    let is_bzip2 = begin.starts_with(b"BZh") && begin.get(4..10) == Some(b"1AY&SY");
    is_bzip2
        || [GZIP, ZSTD, XZ, LZ4]
            .iter()
            .any(|magic| begin.starts_with(magic))
}
