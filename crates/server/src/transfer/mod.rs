//! `whimbrel import` and `whimbrel export`: copy the mail of an account from and to other programs.
//!
//! Both use a session of the administrator ([`crate::admin::session`]) with a running server; if none runs, they start one in this process, which no
//! client can reach. An import can be ended at any moment and begun again: the id of each message follows from its source, and the account adds it
//! once ([`target`]).
//!
//! Reading order: this file, [`target`], `local` and `remote` (sources), `export`.

mod body;
mod export;
mod local;
mod remote;
mod target;
mod wire;

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
};

use indicatif::{ProgressBar, ProgressStyle};
use whimbrel_mailbox::{AccountId, NAME_BYTES_MAX, NAME_DEPTH_MAX, Order};
use whimbrel_transfer::{mbox::Quoting, names::Mapper};

use self::{
    target::Target,
    wire::{Bounds, Wire},
};
use crate::{
    actor::Fatal,
    admin::client,
    config::Config,
    log::shown,
    node::DataDir,
    serve::{Server, Sockets},
};
pub use export::{Form, export};
pub use remote::{Remote, Security};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Read from a file at once.
const READ_BYTES: usize = 64 * 1024;

/// The source of an import.
pub enum Origin {
    /// A Maildir, with folders as Maildir++ has them, or as directories in directories.
    Maildir {
        /// Its root.
        path: PathBuf,
        /// A directory of Maildirs (Dovecot's `LAYOUT=fs`): the root need not be one.
        nested: bool,
    },
    /// A file, or a directory of them.
    Mbox {
        /// Which.
        path: PathBuf,
        /// How `From ` is quoted.
        quoting: Quoting,
    },
    /// Another server.
    Imap(Remote),
}

/// An import.
pub struct Import {
    /// The account's address.
    pub address: String,
    /// The source.
    pub from: Origin,
    /// The folder below which everything is imported.
    pub into: Option<String>,
    /// Only report what would be done.
    pub dry_run: bool,
}

/// A folder of a source.
pub(crate) struct Folder {
    levels: Vec<String>,
    /// The key for the ids of its messages; empty for another server's folder, and for one without messages.
    key: Vec<String>,
    special_use: Option<String>,
    subscribed: bool,
    /// Messages, or bytes of an mbox: for the bar.
    weight: u64,
    place: Place,
}

enum Place {
    Directory(PathBuf),
    File(PathBuf),
    Mailbox(String),
    /// A folder of all mail, of which only messages in no other folder are imported.
    Archive(String),
    /// Only subscribed.
    Nowhere,
}

/// The result of an import or export.
#[derive(Debug, Default)]
pub struct Report {
    /// Messages that are new here.
    pub new: u64,
    /// Messages that were here already.
    pub known: u64,
    /// Messages that could not be imported or exported.
    pub skipped: u64,
    /// Messages that their owner had deleted and that are still in the file.
    pub expunged: u64,
    /// Folders that were read.
    pub folders: u64,
    /// Folders and files that could not be read or belong to no mail program, and folders that could not be made here.
    pub others_skipped: u64,
    /// Files and directories that are known to hold no mail.
    pub others_ignored: u64,
    bar: Option<ProgressBar>,
}

impl Report {
    fn added(&mut self, messages: usize, new: usize) {
        self.new += new as u64;
        self.known += messages.saturating_sub(new) as u64;
    }

    fn skip(&mut self, label: &str, why: &str) {
        self.skipped += 1;
        self.note(&format!("skipped: {label}: {why}"));
    }

    fn failed(&mut self, label: &str, why: &str) {
        self.others_skipped += 1;
        self.note(&format!("skipped: {label}: {why}"));
    }

    fn ignored(&mut self, label: &str, what: &str) {
        self.others_ignored += 1;
        self.note(&format!("ignored: {label}: {what}"));
    }

    fn expunged(&mut self, label: &str, messages: u64) {
        self.expunged += messages;
        if messages > 0 {
            self.note(&format!(
                "ignored: {label}: {messages} of its messages were deleted there; Thunderbird keeps them until it compacts the folder"
            ));
        }
    }

    /// Whether all messages are here, as far as the source could be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.skipped == 0 && self.others_skipped == 0
    }

    fn note(&self, text: &str) {
        // Others wrote much of the text.
        let text = shown(text);
        let line = || {
            let _ = writeln!(io::stderr(), "{text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(line),
            None => line(),
        }
    }

    fn step(&self, weight: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(weight);
        }
    }

    fn begin(&mut self, total: u64) {
        if !io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{percent:>3}% {wide_bar} {eta} {msg}") {
            bar.set_style(style);
        }
        self.bar = Some(bar);
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// `1 message`, `2 messages`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// A session of the administrator, and the server that was started for it.
struct Own {
    wire: Wire,
    account: AccountId,
    server: Option<Server>,
}

impl Own {
    async fn open(config: &Config, address: &str, fatal: Fatal) -> Result<Own, Failure> {
        let directory = &config.server.data_dir;
        let mut server = None;
        let mut session = client::session(directory, address).await?;
        if session.is_none() {
            let data = DataDir::open_existing(directory)?;
            server = Some(Server::start(config, data, Sockets::none(), fatal, None).await?);
            session = match client::session(directory, address).await {
                Ok(session) => session,
                Err(error) => {
                    if let Some(server) = server {
                        server.stop().await;
                    }
                    return Err(error);
                }
            };
        }
        let (stream, account) = session.ok_or("the server's admin socket does not answer")?;
        let account = target::id_of(&account).ok_or("the server gave no account")?;
        let (wire, _) = Wire::open(Box::new(stream), Bounds::own()).await?;
        Ok(Own {
            wire,
            account: AccountId(account),
            server,
        })
    }
}

/// Imports, and reports progress. A dry run reports what would be done, as far as the names of folders and files show it.
///
/// # Errors
/// When it cannot go on. What was imported until then stays, and is not imported again.
pub async fn import(config: &Config, import: Import, fatal: Fatal) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut source = Source::open(import.from).await?;
    let mut folders = source.folders(&mut report).await?;
    // Messages that are archived meanwhile were in another folder before; the folder of all mail is read last, and has them.
    let is_archive = |folder: &Folder| matches!(folder.place, Place::Archive(_));
    folders.sort_by(|a, b| (is_archive(a), &a.levels).cmp(&(is_archive(b), &b.levels)));
    if import.dry_run {
        let named = names(&folders, import.into.as_deref(), None, &report);
        for (folder, name) in folders.iter().zip(named) {
            let count = match folder.place {
                Place::Nowhere => "subscription only".to_owned(),
                Place::File(_) => format!("{} bytes", folder.weight),
                _ => counted(folder.weight, "message"),
            };
            report.note(&format!("{} -> {name}: {count}", folder.levels.join("/")));
        }
        return Ok(report);
    }
    let own = Own::open(config, &import.address, fatal).await?;
    let server = own.server;
    let bytes_max = config.imap.append_bytes_max.0;
    let done = async {
        let mut target = Target::open(own.wire, own.account, bytes_max).await?;
        let named = names(&folders, import.into.as_deref(), Some(&target), &report);
        report.begin(folders.iter().map(|folder| folder.weight).sum());
        for (folder, name) in folders.iter().zip(named) {
            let before = (report.new, report.known, report.skipped);
            let theirs = || match &folder.place {
                Place::Directory(path) | Place::File(path) => local::label(path),
                _ => folder.levels.join("/"),
            };
            if !matches!(folder.place, Place::Nowhere) {
                if let Some(bar) = &report.bar {
                    bar.set_message(shown(&name));
                }
                let special_use = folder.special_use.as_deref();
                if let Err(why) = target.folder(&name, special_use).await? {
                    report.failed(&theirs(), &format!("no folder {name} here: {why}"));
                    continue;
                }
                if let Err(why) = source.read(folder, &mut target, &mut report).await? {
                    report.failed(&theirs(), &why);
                }
                target.flush(&mut report).await?;
                target.tell_left_out(&name, &report);
                report.folders += 1;
            }
            if folder.subscribed
                && let Err(why) = target.subscribe(&name).await?
            {
                report.failed(&theirs(), &format!("no subscription: {why}"));
            }
            if report.bar.is_none() {
                report.note(&format!(
                    "{name}: {} new, {} already here, {} skipped",
                    report.new - before.0,
                    report.known - before.1,
                    report.skipped - before.2,
                ));
            }
        }
        target.close().await;
        Ok(())
    };
    let done: Result<(), Failure> = done.await;
    report.end();
    if let Some(server) = server {
        server.stop().await;
    }
    done.map(|()| report)
}

/// The name of each folder here.
fn names(
    folders: &[Folder],
    into: Option<&str>,
    target: Option<&Target>,
    report: &Report,
) -> Vec<String> {
    let mut mapper = Mapper::new(NAME_BYTES_MAX, NAME_DEPTH_MAX, NAME_BYTES_MAX);
    let root = into.into_iter().flat_map(|into| into.split('/'));
    let root: Vec<String> = root
        .filter(|level| !level.is_empty())
        .map(str::to_owned)
        .collect();
    let mut names = Vec::new();
    let all: BTreeSet<String> = folders.iter().map(|of| of.levels.join("/")).collect();
    for folder in folders {
        let levels = [&root[..], &folder.levels[..]].concat();
        let mut mapped = mapper.map(&levels);
        let theirs = folder.levels.join("/");
        if let Some(why) = mapped.changed {
            report.note(&format!("{theirs} becomes {}: {why}", mapped.name));
        }
        // The folder for sent mail has another name here, where clients look for it.
        if let (Some(special_use), Some(target), None) = (&folder.special_use, target, into)
            && let Some(ours) = target.with_use(special_use)
            && ours != mapped.name
            && !all.contains(ours)
        {
            report.note(&format!(
                "{theirs} goes into {ours}, which is {special_use} here"
            ));
            ours.clone_into(&mut mapped.name);
        }
        names.push(mapped.name);
    }
    names
}

enum Source {
    Local(Box<local::Local>),
    Imap(Box<remote::Connection>),
}

impl Source {
    async fn open(origin: Origin) -> Result<Source, Failure> {
        Ok(match origin {
            Origin::Imap(remote) => Source::Imap(Box::new(remote::Connection::open(remote).await?)),
            other => Source::Local(Box::new(local::Local::new(other))),
        })
    }

    async fn folders(&mut self, report: &mut Report) -> Result<Vec<Folder>, Failure> {
        match self {
            Source::Local(local) => local.folders(report),
            Source::Imap(connection) => connection.folders(report).await,
        }
    }

    /// Offers all messages of a folder. The inner error: this folder cannot be read, others perhaps can.
    async fn read(
        &mut self,
        folder: &Folder,
        target: &mut Target,
        report: &mut Report,
    ) -> Result<Result<(), String>, Failure> {
        match self {
            Source::Local(local) => local.read(folder, target, report).await,
            Source::Imap(connection) => connection.read(folder, target, report).await,
        }
    }
}

/// The id of a message by its source: the folder, and the message in it. `number` is the message's place there, roughly: so messages keep their order
/// here.
fn source_id(folder: &[&[u8]], number: u32, message: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("whimbrel import source v1");
    let mut take = |parts: &[&[u8]]| {
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    };
    let [first, second, ..] = take(folder);
    let mut id = [0; 16];
    id.copy_from_slice(&take(message)[..16]);
    Order::within(u16::from_be_bytes([first, second]), number).before(id)
}
