//! `whimbrel export`: an account into a Maildir or into mbox files.
//!
//! A message of a Maildir is written in `tmp` and then renamed. Its name follows from the message, so an existing file is not written again. An mbox
//! file is written beside its place and then renamed. So there is never half a message, and never half a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use whimbrel_imap::client::{FetchData, Response};
use whimbrel_transfer::{
    courier,
    maildir::{self, Keywords},
    mbox::{self, Writer},
};

use super::{
    Failure, Own, Report,
    body::MEMORY_BYTES_MAX,
    counted,
    remote::{MessageInfo, set},
    wire::{Wire, quoted},
};
use crate::{actor::Fatal, config::Config, log::shown};

/// Messages of which flags, dates and sizes are asked at once.
const WINDOW_MESSAGES: usize = 500;

/// Longest name of a file or directory, as file systems limit it.
const FILE_NAME_BYTES_MAX: usize = 255;

/// The part of a name that is kept when the name is too long for a directory.
const SHORT_NAME_BYTES: usize = 200;

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Maildir++, as Dovecot reads it.
    Maildir,
    /// One file for each folder, in directories.
    Mbox,
}

/// Writes all mail of an account below a directory.
///
/// When it cannot go on. Everything written until then is complete.
pub async fn export(
    config: &Config,
    address: &str,
    form: Form,
    to: &Path,
    fatal: Fatal,
) -> Result<Report, Failure> {
    let own = Own::open(config, address, fatal).await?;
    let mut report = Report::default();
    let mut exporter = Exporter {
        wire: own.wire,
        to: to.to_owned(),
        report: &mut report,
        inexact: 0,
    };
    let done = match form {
        Form::Maildir => exporter.maildirs().await,
        Form::Mbox => exporter.mboxes().await,
    };
    report.end();
    if let Some(server) = own.server {
        server.stop().await;
    }
    done.map(|()| report)
}

struct Exporter<'a> {
    wire: Wire,
    to: PathBuf,
    report: &'a mut Report,
    /// Messages that cannot be read back to the byte.
    inexact: u64,
}

/// Creates a new file: an existing one, or the target of a link, is not written to.
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

/// The temporary file of an mbox: each run writes all of it anew, so that no run repeats messages of another. Its name is always the same and is no
/// folder's name, so that files of killed runs do not pile up.
fn part(folder: &Path) -> Result<(File, tempfile::TempPath), Failure> {
    let path = folder.join(".whimbrel-part");
    let _ = fs::remove_file(&path);
    let file = create(&path).map_err(|error| at(&path, &error))?;
    Ok((file, tempfile::TempPath::try_from_path(path)?))
}

/// A user who may write in the target could lead the export elsewhere by a link below it.
fn is_no_link(root: &Path, path: &Path) -> Result<(), Failure> {
    let below = path.ancestors().take_while(|part| *part != root);
    for part in below {
        if fs::symlink_metadata(part).is_ok_and(|meta| meta.is_symlink()) {
            return Err(format!("{} is a symbolic link", part.display()).into());
        }
    }
    Ok(())
}

impl Exporter<'_> {
    /// Names of mailboxes, and of subscriptions.
    async fn list(&mut self) -> Result<(Vec<String>, Vec<String>), Failure> {
        self.wire.command("ENABLE UTF8=ACCEPT").await?;
        self.wire.set_utf8();
        let (mut names, mut subscribed) = (Vec::new(), Vec::new());
        self.wire
            .each("LIST \"\" \"*\" RETURN (SUBSCRIBED)", |response| {
                if let Response::List(item) = response
                    && !item.has("\\NonExistent")
                    && !item.has("\\Noselect")
                {
                    names.push(item.name);
                }
            })
            .await?;
        self.wire
            .each("LIST (SUBSCRIBED) \"\" \"*\"", |response| {
                if let Response::List(item) = response {
                    subscribed.push(item.name);
                }
            })
            .await?;
        let mut total = 0;
        for name in &names {
            let line = format!("STATUS {} (MESSAGES)", quoted(name));
            self.wire
                .each(&line, |response| {
                    if let Response::MailboxStatus { items, .. } = response {
                        total += items.first().map_or(0, |(_, count)| *count);
                    }
                })
                .await?;
        }
        self.report.begin(total);
        Ok((names, subscribed))
    }

    async fn uids(&mut self, name: &str) -> Result<Vec<u32>, Failure> {
        if let Some(bar) = &self.report.bar {
            bar.set_message(shown(name));
        }
        let mut uids = Vec::new();
        self.wire
            .command(&format!("EXAMINE {}", quoted(name)))
            .await?;
        self.wire
            .each("UID SEARCH ALL", |response| {
                if let Response::Search { numbers, .. } = response {
                    uids.extend(numbers);
                }
            })
            .await?;
        Ok(uids)
    }

    async fn window(&mut self, uids: &[u32]) -> Result<Vec<MessageInfo>, Failure> {
        let line = format!(
            "UID FETCH {} (UID FLAGS INTERNALDATE RFC822.SIZE EMAILID)",
            set(uids.iter().copied())
        );
        let mut found = Vec::new();
        self.wire
            .each(&line, |response| {
                if let Response::Fetch { items, .. } = response {
                    found.extend(MessageInfo::read(items));
                }
            })
            .await?;
        for found in &mut found {
            found
                .flags
                .retain(|flag| !flag.eq_ignore_ascii_case("\\Recent"));
        }
        found.sort_by_key(|found| found.uid);
        found.dedup_by_key(|found| found.uid);
        Ok(found)
    }

    /// Passes the bytes of a message to `take`, in parts. Whether the message still exists.
    async fn bytes(
        &mut self,
        found: &MessageInfo,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<bool, Failure> {
        let mut at = 0;
        while at < found.bytes {
            let line = format!(
                "UID FETCH {} (BODY.PEEK[]<{at}.{MEMORY_BYTES_MAX}>)",
                found.uid
            );
            let mut part = Vec::new();
            self.wire
                .each(&line, |response| {
                    if let Response::Fetch { items, .. } = response {
                        for item in items {
                            if let FetchData::Section { data, .. } = item {
                                part = data.unwrap_or_default();
                            }
                        }
                    }
                })
                .await?;
            if part.is_empty() {
                return Ok(false);
            }
            at += part.len() as u64;
            take(&part)?;
        }
        Ok(true)
    }

    fn told(&self, name: &str, before: (u64, u64)) {
        if self.report.bar.is_none() {
            let (new, known) = (self.report.new - before.0, self.report.known - before.1);
            self.report
                .note(&format!("{name}: {new} written, {known} there already"));
        }
    }

    async fn maildirs(&mut self) -> Result<(), Failure> {
        let (names, subscribed) = self.list().await?;
        let levels = |name: &str| -> Vec<String> { name.split('/').map(str::to_owned).collect() };
        for name in &names {
            let own = if name == "INBOX" {
                Vec::new()
            } else {
                levels(name)
            };
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            let directory = maildir::directory(&own);
            let short = short(&directory);
            let folder = self.to.join(&short);
            for part in ["tmp", "new", "cur"] {
                let part = folder.join(part);
                is_no_link(&self.to, &part)?;
                fs::create_dir_all(&part).map_err(|error| at(&part, &error))?;
            }
            if !own.is_empty() {
                // By this file Dovecot and Courier recognise a folder. An import reads the folder's name there, if the directory's name does not have
                // it.
                match create(&folder.join("maildirfolder")) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(at(&folder, &error)),
                    Ok(mut file) if short != directory => file.write_all(directory.as_bytes())?,
                    Ok(_) => {}
                }
            }
            let before = (self.report.new, self.report.known);
            self.maildir(name, &folder).await?;
            self.report.folders += 1;
            self.told(name, before);
        }
        let lines = subscribed.iter().map(|name| {
            let levels = levels(name);
            let levels: Vec<&str> = levels.iter().map(String::as_str).collect();
            maildir::subscription(&levels, '.') + "\n"
        });
        replace(
            &self.to.join("subscriptions"),
            lines.collect::<String>().as_bytes(),
        )
    }

    async fn maildir(&mut self, name: &str, folder: &Path) -> Result<(), Failure> {
        let keywords_file = folder.join("dovecot-keywords");
        let text = fs::read_to_string(&keywords_file).unwrap_or_default();
        let mut keywords = Keywords::parse(&text);
        let mut written = keywords.clone();
        // The existing files, by the part of the name that stays.
        let mut there: BTreeMap<String, PathBuf> = BTreeMap::new();
        for entry in fs::read_dir(folder.join("cur")).map_err(|error| at(folder, &error))? {
            let path = entry?.path();
            let file = path.file_name().and_then(|name| name.to_str());
            if let Some((base, _)) = file.and_then(|file| file.split_once(":2,")) {
                there.insert(base.to_owned(), path);
            }
        }
        let mut couriers = courier::Keywords::default();
        let mut without = BTreeSet::new();
        let uids = self.uids(name).await?;
        for window in uids.chunks(WINDOW_MESSAGES) {
            for found in self.window(window).await? {
                self.report.step(1);
                let seconds = found.date.map_or(0, |date| date.unix_seconds());
                // Copies have one EMAILID.
                let id = format!("{}U{}", found.email.as_deref().unwrap_or("M"), found.uid);
                let (file, left) =
                    maildir::file_name(seconds, &id, found.bytes, &found.flags, &mut keywords);
                let base = file.split_once(":2,").map_or("", |(base, _)| base);
                for keyword in left {
                    couriers.add(base.as_bytes(), &keyword);
                    without.insert(keyword);
                }
                if keywords != written {
                    // Before any file whose name uses one of its letters.
                    replace(&keywords_file, keywords.to_text().as_bytes())?;
                    written = keywords.clone();
                }
                let place = folder.join("cur").join(&file);
                if let Some(old) = there.get(base) {
                    if *old != place {
                        fs::rename(old, &place).map_err(|error| at(old, &error))?;
                    }
                    self.report.known += 1;
                    continue;
                }
                let temporary = folder.join("tmp").join(base);
                // A killed run may have left a part of it.
                let _ = fs::remove_file(&temporary);
                let mut out = create(&temporary).map_err(|error| at(&temporary, &error))?;
                if !self.bytes(&found, |bytes| out.write_all(bytes)).await? {
                    fs::remove_file(&temporary)?;
                    self.report.skip(
                        &format!("{name}: UID {}", found.uid),
                        "it is gone, or cannot be read",
                    );
                    continue;
                }
                out.set_modified(time(seconds))?;
                out.sync_all()?;
                fs::rename(&temporary, &place).map_err(|error| at(&place, &error))?;
                self.report.new += 1;
            }
        }
        let courier_file = folder.join(courier::DIRECTORY).join(courier::LIST);
        is_no_link(&self.to, &courier_file)?;
        if !without.is_empty() {
            replace(&courier_file, &couriers.to_text())?;
            if couriers.is_cut() {
                self.report.failed(
                    name,
                    "it has more keywords, or messages with so many, than are written: some are left out",
                );
            }
            let words: Vec<&str> = without.iter().map(String::as_str).collect();
            self.report.note(&format!(
                "{name}: Dovecot reads {} keywords of a folder at the most; these are kept as Courier keeps them: {}",
                maildir::KEYWORDS_MAX,
                words.join(" ")
            ));
        } else if courier_file.exists() {
            // From an earlier export.
            fs::remove_file(&courier_file).map_err(|error| at(&courier_file, &error))?;
        }
        Ok(File::open(folder.join("cur"))?.sync_all()?)
    }

    async fn mboxes(&mut self) -> Result<(), Failure> {
        let (names, subscribed) = self.list().await?;
        for name in &names {
            let mut levels = name.split('/').map(mbox::file_name);
            let last = levels.next_back().unwrap_or_default() + ".mbox";
            let mut path = self.to.clone();
            path.extend(levels);
            path.push(last);
            let below = path.strip_prefix(&self.to).unwrap_or(&path);
            if below.iter().any(|part| part.len() > FILE_NAME_BYTES_MAX) {
                self.report
                    .failed(name, "a file cannot be called so: a level is too long");
                continue;
            }
            let before = (self.report.new, self.report.known);
            let folder = path.parent().unwrap_or(&self.to).to_owned();
            is_no_link(&self.to, &folder)?;
            fs::create_dir_all(&folder).map_err(|error| at(&folder, &error))?;
            let (part, temporary) = part(&folder)?;
            let mut out = BufWriter::new(part);
            let uids = self.uids(name).await?;
            for window in uids.chunks(WINDOW_MESSAGES) {
                for found in self.window(window).await? {
                    self.report.step(1);
                    self.message(name, &found, &mut out).await?;
                }
            }
            let part = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            part.sync_all()?;
            temporary.persist(&path)?;
            self.report.folders += 1;
            self.told(name, before);
        }
        if self.inexact > 0 {
            self.report.note(&format!(
                "{} of line ends or fields that mbox cannot keep; a Maildir can",
                counted(self.inexact, "message")
            ));
        }
        let lines = subscribed.iter().map(|name| {
            let levels: Vec<&str> = name.split('/').collect();
            maildir::subscription(&levels, '/') + "\n"
        });
        replace(
            &self.to.join(".subscriptions"),
            lines.collect::<String>().as_bytes(),
        )
    }

    async fn message(
        &mut self,
        name: &str,
        found: &MessageInfo,
        out: &mut BufWriter<File>,
    ) -> Result<(), Failure> {
        let seconds = found.date.map_or(0, |date| date.unix_seconds());
        let mut text = Vec::new();
        let mut writer = Writer::new(seconds, &found.flags, &mut text);
        let mut begun = false;
        let whole = self
            .bytes(found, |bytes| {
                begun = true;
                writer.push(bytes, &mut text);
                out.write_all(&text)?;
                text.clear();
                Ok(())
            })
            .await?;
        if !whole && !begun {
            // Nothing of it was written.
            self.report.skip(
                &format!("{name}: UID {}", found.uid),
                "it is gone, or cannot be read",
            );
            return Ok(());
        }
        if !whole {
            return Err(format!("{name}: UID {} is gone, or cannot be read", found.uid).into());
        }
        self.inexact += u64::from(!writer.finish(&mut text));
        out.write_all(&text)?;
        self.report.new += 1;
        Ok(())
    }
}

/// The name of a directory. If the folder's name is too long, it is cut, with a part that tells it from others.
fn short(directory: &str) -> String {
    if directory.len() <= FILE_NAME_BYTES_MAX {
        return directory.to_owned();
    }
    // It is ASCII.
    let begin = &directory[..SHORT_NAME_BYTES];
    let hash = blake3::hash(directory.as_bytes()).to_hex();
    format!("{begin}~{}", &hash[..32])
}

fn at(path: &Path, error: &io::Error) -> Failure {
    format!("{}: {error}", path.display()).into()
}

fn time(seconds: i64) -> SystemTime {
    let by = Duration::from_secs(seconds.unsigned_abs());
    match seconds {
        0.. => UNIX_EPOCH + by,
        _ => UNIX_EPOCH - by,
    }
}

/// Replaces a file so that it is either the old or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| at(folder, &error))?;
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    temporary
        .persist(path)
        .map_err(|error| at(path, &error.error))?;
    Ok(())
}
