//! mbox files: one, or a tree of them, as Dovecot, mutt, Thunderbird (`Work` beside `Work.sbd/2020`) and Apple Mail (`Sent.mbox/mbox`) keep and
//! export them.

use std::{
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use whimbrel_imap::core::DateTime;
use whimbrel_transfer::{known, lines::ToCrlf, mbox};

use super::{
    super::{
        Failure, Folder, Place, READ_BYTES, Report,
        body::Body,
        counted, source_id,
        target::{Offer, Target},
    },
    DEPTH_MAX, SourceTree, TOO_DEEP,
    entries::{Entries, Entry, Kind, label, modified, open_file},
    failed, joined,
};

/// The list of subscriptions, in the root of a tree.
pub(super) const SUBSCRIPTIONS: &str = ".subscriptions";

/// The mbox in a directory of Apple Mail's.
const APPLES: &str = "mbox";

const NOT_MBOX: &str = "it is not an mbox file";

/// The only folder of a source that is a file.
pub(super) fn one_file(path: &Path, report: &mut Report) -> Vec<Folder> {
    let mut found = SourceTree::new(report);
    let name = found.text(path);
    let level = name.strip_suffix(".mbox").unwrap_or(&name);
    let above = path.parent().and_then(Path::file_name).unwrap_or_default();
    let above = above.to_string_lossy();
    let apples = above.strip_suffix(".mbox").filter(|_| name == APPLES);
    let levels = [mbox::level(apples.unwrap_or(level))];
    found.mbox(path, &levels, &[level.to_owned()], None);
    found.folders
}

/// Finds all folders, and reports other entries.
pub(super) fn walk(root: &Path, report: &mut Report) -> Result<Vec<Folder>, Failure> {
    let mut found = SourceTree::new(report);
    let entries = Entries::of(root).map_err(|error| failed(root, &error))?;
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let directory = Directory {
        path: root.to_owned(),
        levels: Vec::new(),
        key: Vec::new(),
        apples: name
            .strip_suffix(".mbox")
            .map(|name| vec![mbox::level(name)]),
        depth: 0,
        index: None,
    };
    found.tree(entries, &directory);
    Ok(found.folders)
}

struct Directory {
    path: PathBuf,
    /// The levels before the names of folders in it.
    levels: Vec<String>,
    /// The names of directories, as they are.
    key: Vec<String>,
    /// The levels of a folder of Apple Mail, if the directory has such a name.
    apples: Option<Vec<String>>,
    depth: usize,
    /// Its kind, or that of a directory above it, if it is known to hold no mail.
    index: Option<&'static str>,
}

impl SourceTree<'_> {
    /// Whether there is an mbox among the entries.
    fn tree(&mut self, mut entries: Entries, directory: &Directory) -> bool {
        let mut any = false;
        loop {
            match entries.next() {
                Ok(None) => return any,
                Ok(Some(entry)) => any |= self.branch(&entry, directory),
                Err(error) => {
                    self.report
                        .failed(&label(&directory.path), &error.to_string());
                    return any;
                }
            }
        }
    }

    fn branch(&mut self, entry: &Entry, directory: &Directory) -> bool {
        let path = directory.path.join(&entry.name);
        if let Kind::Other(why) = entry.kind {
            self.report.failed(&label(&path), why);
            return false;
        }
        let is_list = entry.kind == Kind::File && entry.name == SUBSCRIPTIONS;
        if directory.depth == 0 && is_list {
            return false;
        }
        if directory.depth >= DEPTH_MAX {
            self.report.failed(&label(&path), TOO_DEEP);
            return false;
        }
        let name = self.text(&path);
        let key = joined(&directory.key, entry.name.to_string_lossy().into_owned());
        if entry.kind == Kind::Directory {
            return self.subtree(path, &name, key, directory);
        }
        let level = name.strip_suffix(".mbox").unwrap_or(&name);
        let levels = match &directory.apples {
            Some(levels) if name == APPLES => levels.clone(),
            _ => joined(&directory.levels, mbox::level(level)),
        };
        let mut file_key = directory.key.clone();
        file_key.extend(key.last().map(|name| {
            let name = name.strip_suffix(".mbox").unwrap_or(name);
            name.to_owned()
        }));
        self.mbox(&path, &levels, &file_key, directory.index)
    }

    fn subtree(&mut self, path: PathBuf, name: &str, key: Vec<String>, above: &Directory) -> bool {
        let entries = match Entries::of(&path) {
            Ok(entries) => entries,
            Err(error) => {
                self.report.failed(&label(&path), &error.to_string());
                return false;
            }
        };
        let apples = name.strip_suffix(".mbox");
        let level = name.strip_suffix(".sbd").or(apples).unwrap_or(name);
        let levels = joined(&above.levels, mbox::level(level));
        let directory = Directory {
            path,
            apples: apples.map(|_| levels.clone()),
            levels,
            key,
            depth: above.depth + 1,
            index: above.index.or_else(|| known::directory(name)),
        };
        let any = self.tree(entries, &directory);
        if !any {
            let label = label(&directory.path);
            match directory.index {
                Some(what) => self.report.ignored(&label, what),
                None => self.report.failed(&label, "it holds no mbox file"),
            }
        }
        any
    }

    /// Adds a file if it is an mbox; whether it is. `index`: what the directory is, if it is known to hold no mail.
    fn mbox(
        &mut self,
        path: &Path,
        levels: &[String],
        key: &[String],
        index: Option<&'static str>,
    ) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let what = index.or_else(|| known::in_mbox_tree(&name));
        match look(path) {
            // A file without mail is an mbox, too, unless its name says what it is.
            Ok((look, bytes)) if look == Look::Mail || (look == Look::Empty && what.is_none()) => {
                self.add(levels, key, bytes, Place::File(path.to_owned()));
                return true;
            }
            Ok(_) => match what {
                Some(what) => self.report.ignored(&label(path), what),
                None => self.report.failed(&label(path), NOT_MBOX),
            },
            Err(error) => self.report.failed(&label(path), &error.to_string()),
        }
        false
    }
}

/// The kind of a file, by its begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Mail,
    /// An mbox without mail.
    Empty,
    Other,
}

/// Looks at the begin of a file; also returns its size.
fn look(path: &Path) -> io::Result<(Look, u64)> {
    let (file, meta) = open_file(path)?;
    let mut begin = Vec::new();
    let read = file.take(READ_BYTES as u64).read_to_end(&mut begin)?;
    let mut has_mail = false;
    let mut tell = |_: mbox::Event<'_>| has_mail = true;
    let mut reader = mbox::Reader::new(mbox::Quoting::None);
    let mut is_mbox = reader.push(&begin, &|_| Vec::new(), &mut tell).is_ok();
    if read < READ_BYTES {
        // A last line may have no end.
        is_mbox &= reader.finish(&mut tell).is_ok();
    }
    let look = match (is_mbox, has_mail) {
        (true, true) => Look::Mail,
        (true, false) => Look::Empty,
        (false, _) => Look::Other,
    };
    Ok((look, meta.len()))
}

/// A message of an mbox that is being read.
struct Open {
    at: u64,
    lines: ToCrlf,
    body: Body,
    hasher: blake3::Hasher,
}

/// Offers the messages of a file. The inner error: the file is no mbox any more, or cannot be read to its end.
pub(super) async fn read(
    path: &Path,
    quoting: mbox::Quoting,
    folder: &Folder,
    target: &mut Target,
    report: &mut Report,
) -> Result<Result<(), String>, Failure> {
    let (mut file, meta) = match open_file(path) {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let modified = match modified(&meta) {
        Ok(seconds) => seconds,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let again = match file.try_clone() {
        Ok(again) => again,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let ahead = |at: u64| {
        let mut bytes = vec![0; mbox::AHEAD_BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            match again.read_at(&mut bytes[filled..], at.saturating_add(filled as u64)) {
                Ok(0) | Err(_) => break,
                Ok(read) => filled += read,
            }
        }
        bytes.truncate(filled);
        bytes
    };
    let key = folder.key.join("\0");
    let bytes_max = target.bytes_max();
    let mut reader = mbox::Reader::new(quoting);
    let mut buffer = vec![0; READ_BYTES];
    let mut open: Option<Open> = None;
    let (mut number, mut expunged, mut doubtful, mut broken) = (0_u64, 0, 0, None);
    loop {
        let read = match file.read(&mut buffer) {
            Ok(read) => read,
            Err(error) => return Ok(Err(error.to_string())),
        };
        report.step(read as u64);
        let mut offers = Vec::new();
        let mut out = Vec::new();
        let mut tell = |event: mbox::Event<'_>| match event {
            mbox::Event::Begin => {
                number += 1;
                open = Some(Open {
                    at: number,
                    lines: ToCrlf::new(),
                    body: Body::default(),
                    hasher: blake3::Hasher::new(),
                });
            }
            mbox::Event::Bytes(bytes) => {
                if let Some(open) = &mut open {
                    // The message is refused: only the size of its rest is needed.
                    if open.body.len() > bytes_max {
                        open.body.pass(bytes.len() as u64);
                        return;
                    }
                    open.hasher.update(bytes);
                    open.lines.push(bytes, &mut out);
                    if let Err(error) = open.body.push(&mut out) {
                        broken = Some(error);
                    }
                }
            }
            mbox::Event::End(kept) if kept.is_expunged => {
                open = None;
                expunged += 1;
            }
            mbox::Event::End(kept) => {
                doubtful += kept.doubtful;
                if let Some(open) = open.take() {
                    let hash = open.hasher.finalize();
                    let at = open.at.to_le_bytes();
                    offers.push(Offer {
                        id: source_id(
                            &[b"mbox", key.as_bytes()],
                            u32::try_from(open.at).unwrap_or(u32::MAX),
                            &[&at, hash.as_bytes()],
                        ),
                        label: format!("{}: message {}", label(path), open.at),
                        flags: kept.flags,
                        date: Some(DateTime::utc(kept.seconds.unwrap_or(modified))),
                        body: open.body,
                    });
                }
            }
        };
        let pushed = match read {
            0 => std::mem::replace(&mut reader, mbox::Reader::new(quoting)).finish(&mut tell),
            _ => reader.push(&buffer[..read], &ahead, &mut tell),
        };
        if let Some(error) = broken {
            return Err(error.into());
        }
        for offer in offers {
            target.offer(offer, report).await?;
        }
        if pushed.is_err() {
            return Ok(Err(NOT_MBOX.to_owned()));
        }
        if read == 0 {
            report.expunged(&label(path), expunged);
            if doubtful > 0 {
                report.note(&format!(
                    "{}: {} like the begin of a message, with no header behind; they were taken as text",
                    label(path),
                    counted(doubtful, "line")
                ));
            }
            return Ok(Ok(()));
        }
    }
}
