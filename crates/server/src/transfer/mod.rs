//! `whimbrel import` and `whimbrel export`: mail of an account, from and to other programs.
//!
//! Both work on a session of the administrator's ([`crate::admin::session`]) with a running server; if none runs, one runs here as long as
//! they do, which no client can reach. An import can be ended at any moment and begun again: each message has an id that follows from what it is
//! at its source, and the account adds it once ([`target`]).
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
use whimbrel_mailbox::{AccountId, Order};
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

/// Skipped messages that are named; the rest are counted.
const TOLD_MAX: usize = 100;

/// Of one level of a name that a folder gets here: people read it in a column.
const NAME_LEVEL_BYTES_MAX: usize = 200;
/// Levels of it. A client may add one or two below.
const NAME_DEPTH_MAX: usize = whimbrel_mailbox::NAME_DEPTH_MAX - 2;
/// Of all of it. Behind it there is room for a number.
const NAME_BYTES_MAX: usize = whimbrel_mailbox::NAME_BYTES_MAX - 50;

/// Where mail comes from.
pub enum Origin {
    /// A Maildir. `nested`: folders are directories in directories (Dovecot's `LAYOUT=fs`).
    Maildir {
        /// Its root.
        path: PathBuf,
        /// How folders are laid out.
        nested: bool,
    },
    /// A file, or a directory of them.
    Mbox {
        /// Which.
        path: PathBuf,
        /// How `From ` is hidden.
        quoting: Quoting,
    },
    /// Another server.
    Imap(Remote),
}

/// What to import.
pub struct Import {
    /// Whose account.
    pub address: String,
    /// From where.
    pub from: Origin,
    /// A folder below which everything goes.
    pub into: Option<String>,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// A folder of a source.
pub(crate) struct Folder {
    levels: Vec<String>,
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
    /// Of a folder that shows all mail, what lies in no other.
    Archive(String),
    /// Only subscribed.
    Nowhere,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Report {
    /// Messages that are new here.
    pub new: u64,
    /// Messages that were here already.
    pub known: u64,
    /// Messages that could not be taken.
    pub skipped: u64,
    /// Folders that could not be read, or not made here.
    pub folders_failed: u64,
    bar: Option<ProgressBar>,
}

impl Report {
    fn added(&mut self, messages: usize, new: usize) {
        self.new += new as u64;
        self.known += messages.saturating_sub(new) as u64;
    }

    fn skip(&mut self, label: &str, why: &str) {
        self.skipped += 1;
        match self.skipped as usize {
            ..=TOLD_MAX => self.note(&format!("skipped: {label}: {why}")),
            more if more == TOLD_MAX + 1 => {
                self.note("further messages that are skipped are only counted")
            }
            _ => {}
        }
    }

    fn failed(&mut self, folder: &str, why: &str) {
        self.folders_failed += 1;
        self.note(&format!("skipped: {folder}: {why}"));
    }

    fn note(&self, text: &str) {
        // Others wrote much of it.
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

/// A session of the administrator's, and the server that was started for it.
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

/// Imports; what was done is told on the way.
///
/// # Errors
/// When it cannot go on. What was imported until then stays, and is not imported again.
pub async fn import(config: &Config, import: Import, fatal: Fatal) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut source = Source::open(import.from).await?;
    let mut folders = source.folders(&mut report).await?;
    // What is archived meanwhile was in another folder, and is in that of all mail when it is read last.
    let is_archive = |folder: &Folder| matches!(folder.place, Place::Archive(_));
    folders.sort_by(|a, b| (is_archive(a), &a.levels).cmp(&(is_archive(b), &b.levels)));
    if import.dry_run {
        let named = names(&folders, import.into.as_deref(), None, &report);
        for (folder, name) in folders.iter().zip(named) {
            let count = match folder.place {
                Place::Nowhere => "subscription only".to_owned(),
                Place::File(_) => format!("{} bytes", folder.weight),
                _ => format!("{} messages", folder.weight),
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
            let theirs = || folder.levels.join("/");
            if let Some(why) = source.refuses(folder) {
                report.failed(&theirs(), &why);
                continue;
            }
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

/// What each folder is called here.
fn names(
    folders: &[Folder],
    into: Option<&str>,
    target: Option<&Target>,
    report: &Report,
) -> Vec<String> {
    let mut mapper = Mapper::new(NAME_LEVEL_BYTES_MAX, NAME_DEPTH_MAX, NAME_BYTES_MAX);
    let root: Vec<String> = into
        .map(|into| into.split('/').map(str::to_owned).collect())
        .unwrap_or_default();
    let mut names = Vec::new();
    let all: BTreeSet<String> = folders.iter().map(|of| of.levels.join("/")).collect();
    for folder in folders {
        let levels = [&root[..], &folder.levels[..]].concat();
        let mut mapped = mapper.map(&levels);
        let theirs = folder.levels.join("/");
        if let Some(why) = mapped.changed {
            report.note(&format!("{theirs} becomes {}: {why}", mapped.name));
        }
        // The folder for what was sent has another name here: it goes where clients look for it.
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

    /// Why a folder is none, before anything is made for it.
    fn refuses(&self, folder: &Folder) -> Option<String> {
        match self {
            Source::Local(local) => local.refuses(folder),
            Source::Imap(_) => None,
        }
    }

    /// Offers all messages of a folder. The inner error: the folder cannot be read, others perhaps can.
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

/// Names what a message is at its source: in which folder, and which of it. `number` is the message's place there, roughly: the messages of a
/// folder then lie in that order here, too.
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
