//! Maildir and mbox as sources.
//!
//! A message of a Maildir is named by its folder, the base of its file's name and its bytes; one of an mbox by the file, the place in it and its
//! bytes. So a file that was changed meanwhile costs at worst a message that is there twice, never one that is missing.
//!
//! The files may belong to somebody who may read less than we may: no symbolic link is followed, no pipe is waited for, and what is too large is
//! not read.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use rustix::{fs::OFlags, io::Errno};
use whimbrel_imap::core::DateTime;
use whimbrel_transfer::{
    lines::ToCrlf,
    maildir::{self, Keywords},
    mbox,
};

use super::{
    Failure, Folder, Origin, Place, Report,
    body::Body,
    source_id,
    target::{Offer, Target},
};

/// Read at once.
const READ_BYTES: usize = 64 * 1024;
/// Depth of directories.
const DEPTH_MAX: usize = 32;

pub(super) struct Local {
    origin: Origin,
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    format!("{}: {error}", path.display()).into()
}

/// Bytes of a file that lists folders or keywords.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Opens an ordinary file; a link to one is refused.
fn open_file(path: &Path) -> io::Result<(File, Metadata)> {
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
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    Ok((file, meta))
}

const LINK: &str = "it is a symbolic link";
const TOO_DEEP: &str = "it is too deep";

/// The text of a file that lists folders or keywords, without lines that are no text; nothing if it cannot be read.
fn list(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read =
        open_file(path).and_then(|(file, _)| file.take(LIST_BYTES_MAX).read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect()
}

/// A directory, and no link to one.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

/// Whether it is a link; then that is told.
fn is_link(path: &Path, report: &mut Report) -> bool {
    let link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    if link {
        report.failed(&path.display().to_string(), LINK);
    }
    link
}

fn entries(path: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let mut listed = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    listed.sort_by_key(fs::DirEntry::file_name);
    Ok(listed)
}

/// As [`entries`], of a directory below `root`: one that cannot be read is left out, and the others come.
fn entries_below(
    root: &Path,
    path: &Path,
    report: &mut Report,
) -> Result<Vec<fs::DirEntry>, Failure> {
    match entries(path) {
        Err(error) if path != root => {
            report.failed(&path.display().to_string(), &error.to_string());
            Ok(Vec::new())
        }
        listed => listed.map_err(|error| failed(path, &error)),
    }
}

impl Local {
    pub(super) fn new(origin: Origin) -> Self {
        Local { origin }
    }

    pub(super) fn folders(&mut self, report: &mut Report) -> Result<Vec<Folder>, Failure> {
        let mut found: BTreeMap<Vec<String>, Folder> = BTreeMap::new();
        let (root, subscribed) = match &self.origin {
            Origin::Maildir { path, nested } => {
                if !is_directory(&path.join("cur")) && !*nested {
                    return Err(format!("{} is no Maildir: it has no cur", path.display()).into());
                }
                maildirs(path, *nested, report, &mut found)?;
                let separator = if *nested { '/' } else { '.' };
                let mut subscribed = Vec::new();
                for name in ["subscriptions", "courierimapsubscribed"] {
                    let text = list(&path.join(name));
                    subscribed.extend(maildir::subscriptions(&text, separator));
                }
                (path, subscribed)
            }
            Origin::Mbox { path, .. } => {
                if path.is_file() {
                    let name = path
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned();
                    file(path.clone(), vec![level_of(&name)], report, &mut found);
                } else {
                    let mut open = vec![(path.clone(), Vec::new())];
                    while let Some((directory, levels)) = open.pop() {
                        for entry in entries_below(path, &directory, report)? {
                            let name = entry.file_name().to_string_lossy().into_owned();
                            if name.starts_with('.') || is_link(&entry.path(), report) {
                                continue;
                            }
                            if levels.len() >= DEPTH_MAX {
                                report.failed(&entry.path().display().to_string(), TOO_DEEP);
                                continue;
                            }
                            let mut levels: Vec<String> = levels.clone();
                            if is_directory(&entry.path()) {
                                levels.push(name);
                                open.push((entry.path(), levels));
                            } else {
                                levels.push(level_of(&name));
                                file(entry.path(), levels, report, &mut found);
                            }
                        }
                    }
                }
                let text = list(&path.join(".subscriptions"));
                (path, maildir::subscriptions(&text, '/'))
            }
            Origin::Imap(_) => return Err("not here".into()),
        };
        if found.is_empty() {
            return Err(format!("{} holds no mail", root.display()).into());
        }
        for levels in subscribed {
            let folder = found.entry(levels.clone()).or_insert(Folder {
                levels,
                special_use: None,
                subscribed: true,
                weight: 0,
                place: Place::Nowhere,
            });
            folder.subscribed = true;
        }
        Ok(found.into_values().collect())
    }

    /// Whether the begin of a file is no mbox.
    pub(super) fn refuses(&self, folder: &Folder) -> Option<String> {
        let Place::File(path) = &folder.place else {
            return None;
        };
        let mut begin = Vec::new();
        let read = open_file(path)
            .and_then(|(file, _)| file.take(READ_BYTES as u64).read_to_end(&mut begin));
        match read {
            Ok(read) => {
                let mut reader = mbox::Reader::new(mbox::Quoting::None);
                let mut is_mbox = reader.push(&begin, &mut |_| {}).is_ok();
                if read < READ_BYTES {
                    // A last line may have no end.
                    is_mbox &= reader.finish(&mut |_| {}).is_ok();
                }
                (!is_mbox).then(|| "it is no mbox".to_owned())
            }
            Err(error) => Some(error.to_string()),
        }
    }

    pub(super) async fn read(
        &mut self,
        folder: &Folder,
        target: &mut Target,
        report: &mut Report,
    ) -> Result<Result<(), String>, Failure> {
        match (&folder.place, &self.origin) {
            (Place::Directory(path), _) => read_maildir(path, folder, target, report).await,
            (Place::File(path), Origin::Mbox { quoting, .. }) => {
                read_mbox(path, *quoting, folder, target, report).await
            }
            _ => Ok(Ok(())),
        }
    }
}

fn level_of(name: &str) -> String {
    name.strip_suffix(".mbox").unwrap_or(name).to_owned()
}

fn file(
    path: PathBuf,
    levels: Vec<String>,
    report: &mut Report,
    found: &mut BTreeMap<Vec<String>, Folder>,
) {
    let meta = match fs::symlink_metadata(&path) {
        Ok(meta) => meta,
        Err(error) => return report.failed(&path.display().to_string(), &error.to_string()),
    };
    let folder = Folder {
        levels,
        special_use: None,
        subscribed: false,
        weight: meta.len(),
        place: Place::File(path),
    };
    add(folder, found);
}

/// Puts a folder to the others. Two with the same levels (`a` beside `a.mbox`, the `cur` of a Maildir beside its `.INBOX`) stay two: the mapper
/// gives them two names.
fn add(mut folder: Folder, found: &mut BTreeMap<Vec<String>, Folder>) {
    while found.contains_key(&folder.levels) {
        folder.levels.push(String::new());
    }
    found.insert(folder.levels.clone(), folder);
}

fn maildirs(
    root: &Path,
    nested: bool,
    report: &mut Report,
    found: &mut BTreeMap<Vec<String>, Folder>,
) -> Result<(), Failure> {
    let mut maildir = |path: &Path, levels: Vec<String>| {
        // What cannot be read is told when it is to be read.
        let parts = ["cur", "new"].map(|part| path.join(part));
        let parts = parts.iter().filter(|part| is_directory(part));
        let weight = parts.map(|part| entries(part).map_or(0, |of| of.len() as u64));
        let weight = weight.sum();
        let folder = Folder {
            levels,
            special_use: None,
            subscribed: false,
            weight,
            place: Place::Directory(path.to_owned()),
        };
        add(folder, found);
    };
    if is_directory(&root.join("cur")) {
        maildir(root, vec!["INBOX".to_owned()]);
    }
    let mut open = vec![(root.to_owned(), Vec::<String>::new())];
    while let Some((directory, levels)) = open.pop() {
        for entry in entries_below(root, &directory, report)? {
            let path = entry.path();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                report.failed(&path.display().to_string(), "its name is not UTF-8");
                continue;
            };
            if is_link(&path, report) {
                continue;
            }
            if nested {
                if !is_directory(&path)
                    || matches!(&*name, "cur" | "new" | "tmp")
                    || name.starts_with('.')
                {
                    continue;
                }
                let mut levels = levels.clone();
                levels.push(maildir::level(&name));
                if levels.len() >= DEPTH_MAX {
                    report.failed(&path.display().to_string(), TOO_DEEP);
                    continue;
                }
                if is_directory(&path.join("cur")) {
                    maildir(&path, levels.clone());
                }
                open.push((path, levels));
            } else if is_directory(&path.join("cur"))
                && let Some(mut levels) = maildir::levels(&name)
            {
                // Courier names all folders below INBOX, in directories too.
                if levels.len() > 1 && levels[0] == "INBOX" {
                    levels.remove(0);
                }
                maildir(&path, levels);
            }
        }
    }
    Ok(())
}

async fn read_maildir(
    path: &Path,
    folder: &Folder,
    target: &mut Target,
    report: &mut Report,
) -> Result<Result<(), String>, Failure> {
    let keywords = Keywords::parse(&list(&path.join("dovecot-keywords")));
    let folder_name = folder.levels.join("\0");
    let mut unknown = 0;
    // In the order in which they came: their names begin with the time.
    let mut listed = Vec::new();
    for part in ["cur", "new"] {
        if is_directory(&path.join(part)) {
            match entries(&path.join(part)) {
                Ok(found) => listed.extend(found.into_iter().map(|entry| entry.path())),
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
    }
    listed.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    for path in listed {
        report.step(1);
        let label = path.display().to_string();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            report.skip(&label, "its name is not UTF-8");
            continue;
        };
        let Some(name) = maildir::parse_name(name, &keywords) else {
            continue;
        };
        unknown += usize::from(!name.unknown.is_empty());
        match read_file(&path, name.as_it_is, target.bytes_max()) {
            Ok((body, hash, seconds)) => {
                let id = source_id(
                    &[b"maildir", folder_name.as_bytes()],
                    name.seconds(),
                    &[name.base.as_bytes(), &hash],
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
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
            Err(error) => report.skip(&label, &error.to_string()),
        }
    }
    if unknown > 0 {
        report.note(&format!(
            "{}: {unknown} messages have keywords that dovecot-keywords does not name; they are left out",
            path.display()
        ));
    }
    Ok(Ok(()))
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
    let seconds = match meta.modified()?.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(0),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(0),
    };
    let mut lines = if as_it_is {
        ToCrlf::as_it_is()
    } else {
        ToCrlf::new()
    };
    let (mut body, mut hasher) = (Body::default(), blake3::Hasher::new());
    let (mut buffer, mut out) = (vec![0; READ_BYTES], Vec::new());
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((body, *hasher.finalize().as_bytes(), seconds)),
            read => {
                hasher.update(&buffer[..read]);
                lines.push(&buffer[..read], &mut out);
                body.push(&mut out)?;
            }
        }
    }
}

/// A message of an mbox that is being read.
struct Open {
    seconds: i64,
    at: u64,
    lines: ToCrlf,
    body: Body,
    hasher: blake3::Hasher,
}

async fn read_mbox(
    path: &Path,
    quoting: mbox::Quoting,
    folder: &Folder,
    target: &mut Target,
    report: &mut Report,
) -> Result<Result<(), String>, Failure> {
    let mut file = match open_file(path) {
        Ok((file, _)) => file,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let folder_name = folder.levels.join("\0");
    let mut reader = mbox::Reader::new(quoting);
    let mut buffer = vec![0; READ_BYTES];
    let mut open: Option<Open> = None;
    let (mut number, mut broken) = (0_u64, None);
    loop {
        let read = match file.read(&mut buffer) {
            Ok(read) => read,
            Err(error) => return Ok(Err(error.to_string())),
        };
        report.step(read as u64);
        let mut offers = Vec::new();
        let mut out = Vec::new();
        let mut tell = |event: mbox::Event<'_>| match event {
            mbox::Event::Begin { seconds } => {
                number += 1;
                open = Some(Open {
                    seconds,
                    at: number,
                    lines: ToCrlf::new(),
                    body: Body::default(),
                    hasher: blake3::Hasher::new(),
                });
            }
            mbox::Event::Bytes(bytes) => {
                if let Some(open) = &mut open {
                    open.hasher.update(bytes);
                    open.lines.push(bytes, &mut out);
                    if let Err(error) = open.body.push(&mut out) {
                        broken = Some(error);
                    }
                }
            }
            mbox::Event::End(flags) => {
                if let Some(open) = open.take() {
                    let hash = open.hasher.finalize();
                    let at = open.at.to_le_bytes();
                    offers.push(Offer {
                        id: source_id(
                            &[b"mbox", folder_name.as_bytes()],
                            u32::try_from(open.at).unwrap_or(u32::MAX),
                            &[&at, hash.as_bytes()],
                        ),
                        label: format!("{}: message {}", path.display(), open.at),
                        flags,
                        date: Some(DateTime::utc(open.seconds)),
                        body: open.body,
                    });
                }
            }
        };
        let pushed = match read {
            0 => std::mem::replace(&mut reader, mbox::Reader::new(quoting)).finish(&mut tell),
            _ => reader.push(&buffer[..read], &mut tell),
        };
        if let Some(error) = broken {
            return Err(error.into());
        }
        for offer in offers {
            target.offer(offer, report).await?;
        }
        if pushed.is_err() {
            return Ok(Err("it is no mbox".to_owned()));
        }
        if read == 0 {
            return Ok(Ok(()));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::names, *};

    /// Whoever may not read a directory, or finds it gone, is told, and goes on with the others.
    #[test]
    fn what_cannot_be_read_costs_no_other() {
        let root = tempfile::tempdir().unwrap();
        let mut report = Report::default();
        let below = root.path().join("gone");
        let listed = entries_below(root.path(), &below, &mut report).unwrap();
        assert!(listed.is_empty());
        assert_eq!(report.folders_failed, 1);
        let mut found = BTreeMap::new();
        file(below.clone(), vec!["gone".into()], &mut report, &mut found);
        assert!(found.is_empty());
        assert_eq!(report.folders_failed, 2);
        // Without the root there is nothing to go on with.
        let error = entries_below(&below, &below, &mut report).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert_eq!(report.folders_failed, 2);
    }

    #[test]
    fn what_lies_too_deep_is_told() {
        let root = tempfile::tempdir().unwrap();
        let mut deep = root.path().to_owned();
        fs::write(root.path().join("top.mbox"), "").unwrap();
        (0..=DEPTH_MAX).for_each(|level| deep.push(level.to_string()));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("last.mbox"), "").unwrap();
        let mut report = Report::default();
        let mut local = Local::new(Origin::Mbox {
            path: root.path().to_owned(),
            quoting: mbox::Quoting::Rd,
        });
        let folders = local.folders(&mut report).unwrap();
        assert_eq!(folders.len(), 1);
        assert_eq!(report.folders_failed, 1);
    }

    #[test]
    fn a_line_that_is_no_text_costs_no_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), b"one\nF\xfcr\ntwo").unwrap();
        assert_eq!(list(file.path()), "one\ntwo");
    }

    /// The folders of a directory in which these files are: what they hold, and what they are called here.
    fn check(files: &[&str], origin: impl Fn(PathBuf) -> Origin, expected: &[(&str, &str)]) {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let mut report = Report::default();
        let mut local = Local::new(origin(root.path().to_owned()));
        let folders = local.folders(&mut report).unwrap();
        let named = names(&folders, None, None, &report);
        let found: Vec<(String, &str)> = folders
            .iter()
            .zip(&named)
            .map(|(folder, name)| {
                let (Place::Directory(path) | Place::File(path)) = &folder.place else {
                    panic!("{name} is nowhere")
                };
                let inner = path.strip_prefix(root.path()).unwrap();
                (inner.display().to_string(), name.as_str())
            })
            .collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), *b)).collect();
        assert_eq!(found, expected);
    }

    /// What is two folders there is two here: none takes the other's place.
    #[test]
    fn two_folders_with_one_name() {
        let flat = |path| Origin::Maildir {
            path,
            nested: false,
        };
        check(
            &[
                "cur/1",
                ".INBOX/cur/2",
                ".A/cur/3",
                ".INBOX.A/cur/4",
                ".&APw-/cur/5",
                ".\u{fc}/cur/6",
            ],
            flat,
            &[
                (".A", "A"),
                (".INBOX.A", "A (2)"),
                ("", "INBOX"),
                (".INBOX", "INBOX (2)"),
                (".&APw-", "\u{fc}"),
                (".\u{fc}", "\u{fc} (2)"),
            ],
        );
        let nested = |path| Origin::Maildir { path, nested: true };
        check(
            &["cur/1", "INBOX/cur/2", "a.b/cur/3", "a\\2eb/cur/4"],
            nested,
            &[
                ("", "INBOX"),
                ("INBOX", "INBOX (2)"),
                ("a.b", "a.b"),
                ("a\\2eb", "a.b (2)"),
            ],
        );
        let mbox = |path| Origin::Mbox {
            path,
            quoting: mbox::Quoting::Rd,
        };
        check(
            &["a", "a.mbox", "b/c.mbox"],
            mbox,
            &[("a", "a"), ("a.mbox", "a (2)"), ("b/c.mbox", "b/c")],
        );
    }
}
