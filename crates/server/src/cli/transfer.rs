//! `whimbrel import` and `whimbrel export`.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Subcommand, ValueEnum};
use whimbrel_transfer::mbox::Quoting;
use zeroize::Zeroizing;

use super::{
    ConfigFile, prompt,
    run::{fatal, load, print, runtime},
};
use crate::{
    config::{LogFormat, LogLevel, LogSection},
    log,
    transfer::{self, Form, Import, Origin, Remote, Report, Security, counted},
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Exit code when all was done that can be, and something was skipped.
pub const EXIT_SKIPPED: u8 = 4;

/// `whimbrel import`.
#[derive(Debug, Subcommand)]
pub enum ImportFrom {
    /// From a Maildir, with the folders, flags, keywords and subscriptions of Dovecot and Courier
    #[command(
        after_help = "Folders may be named .A.B (Maildir++), or be nested directories (Dovecot's LAYOUT=fs).\n\
                            What is not imported is shown with the reason; the exit code is then 4.\n\n\
                            Example:\n  whimbrel import maildir anne@example.org ~anne/Maildir"
    )]
    Maildir {
        /// The account's email address, such as anne@example.org
        address: String,
        /// The directory that holds cur and new
        path: PathBuf,
        /// The directory is not a Maildir itself, but contains Maildirs (LAYOUT=fs)
        #[arg(long)]
        nested: bool,
        /// What all imports have.
        #[command(flatten)]
        common: Common,
    },
    /// From an mbox file, or from a directory of them
    #[command(
        after_help = "A file INBOX or INBOX.mbox becomes INBOX, lists/rust.mbox the mailbox lists/rust;\n\
                            so do lists.sbd/rust of Thunderbird and lists/rust.mbox/mbox of Apple Mail.\n\
                            What is not imported is shown with the reason; the exit code is then 4.\n\n\
                            Example:\n  whimbrel import mbox anne@example.org ~anne/mail"
    )]
    Mbox {
        /// The account's email address, such as anne@example.org
        address: String,
        /// A file or a directory
        path: PathBuf,
        /// How the file quotes lines of a message that begin with From
        #[arg(long, value_enum, default_value = "mboxrd")]
        quoting: QuotingName,
        /// What all imports have.
        #[command(flatten)]
        common: Common,
    },
    /// From an account of another IMAP server
    #[command(
        after_help = "The command asks for the password, or reads it with --password-stdin.\n\n\
                      Examples:\n  whimbrel import imap anne@example.org imap.example.net anne\n  \
                      whimbrel import imap anne@example.org localhost 'anne*master' --starttls --password-stdin < secret"
    )]
    Imap {
        /// The account's email address, such as anne@example.org
        address: String,
        /// Name of the other server, as in its certificate
        host: String,
        /// Login name on the other server
        user: String,
        /// Port; default: 993, with --starttls or --clear 143
        #[arg(long)]
        port: Option<u16>,
        /// Use STARTTLS
        #[arg(long, conflicts_with = "clear")]
        starttls: bool,
        /// Use no TLS; only for a server on this machine
        #[arg(long)]
        clear: bool,
        /// Certificates to trust instead of the system's (PEM)
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// Read the password from standard input, up to the first line end
        #[arg(long)]
        password_stdin: bool,
        /// What all imports have.
        #[command(flatten)]
        common: Common,
    },
}

/// What all imports have.
#[derive(Args, Debug)]
pub struct Common {
    /// Import everything below this mailbox
    #[arg(long, value_name = "MAILBOX")]
    pub into: Option<String>,
    /// Only show which folder becomes which mailbox, and how much is in it
    #[arg(long)]
    pub dry_run: bool,
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigFile,
}

/// How `From ` is hidden.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum QuotingName {
    /// `>` before any number of `>` and From
    Mboxrd,
    /// `>` before From only
    Mboxo,
    /// Not at all: Content-Length gives the length of each body (mboxcl2)
    None,
}

/// Formats to export to.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FormName {
    /// Maildir++, as Dovecot reads it
    Maildir,
    /// One file for each folder (mboxrd)
    Mbox,
}

pub(super) fn import(from: ImportFrom) -> Result<ExitCode, Failure> {
    let (address, from, common) = match from {
        ImportFrom::Maildir {
            address,
            path,
            nested,
            common,
        } => (address, Origin::Maildir { path, nested }, common),
        ImportFrom::Mbox {
            address,
            path,
            quoting,
            common,
        } => {
            let quoting = match quoting {
                QuotingName::Mboxrd => Quoting::Rd,
                QuotingName::Mboxo => Quoting::O,
                QuotingName::None => Quoting::None,
            };
            (address, Origin::Mbox { path, quoting }, common)
        }
        ImportFrom::Imap {
            address,
            host,
            user,
            port,
            starttls,
            clear,
            ca,
            password_stdin,
            common,
        } => {
            let security = match (starttls, clear) {
                (true, _) => Security::StartTls,
                (_, true) => Security::Clear,
                _ => Security::Tls,
            };
            let usual = if security == Security::Tls { 993 } else { 143 };
            let remote = Remote {
                port: port.unwrap_or(usual),
                password: password(&user, &host, password_stdin)?,
                host,
                security,
                ca,
                user,
            };
            (address, Origin::Imap(remote), common)
        }
    };
    let config = load(&common.config)?;
    quiet();
    let import = Import {
        address,
        from,
        into: common.into,
        dry_run: common.dry_run,
    };
    let dry = import.dry_run;
    let report = runtime()?.block_on(transfer::import(&config, import, fatal()))?;
    if dry {
        return Ok(code(&report));
    }
    tell("imported", "already here", &report)
}

pub(super) fn export(
    address: &str,
    form: FormName,
    to: &std::path::Path,
    config: &ConfigFile,
) -> Result<ExitCode, Failure> {
    let config = load(config)?;
    quiet();
    let form = match form {
        FormName::Maildir => Form::Maildir,
        FormName::Mbox => Form::Mbox,
    };
    let report = runtime()?.block_on(transfer::export(&config, address, form, to, fatal()))?;
    tell("written", "already there", &report)
}

fn password(user: &str, host: &str, stdin: bool) -> Result<Zeroizing<Vec<u8>>, Failure> {
    if stdin {
        return Ok(prompt::password_from(&mut io::stdin().lock())?);
    }
    if !io::stdin().is_terminal() {
        return Err("there is no terminal to ask for the password: use --password-stdin".into());
    }
    Ok(prompt::hidden(&format!("Password for {user} at {host}: "))?)
}

/// What goes wrong is told by the command itself.
fn quiet() {
    log::start(&LogSection {
        level: LogLevel::Error,
        format: LogFormat::Text,
    });
}

fn tell(new: &str, known: &str, report: &Report) -> Result<ExitCode, Failure> {
    let mut sums = format!(
        "{} {new}, {} {known}, {} skipped",
        counted(report.new, "message"),
        report.known,
        report.skipped
    );
    if report.expunged > 0 {
        sums += &format!(", {} deleted there already", report.expunged);
    }
    let folders = counted(report.folders, "folder");
    print(&format!(
        "{sums}; {folders}; other files and folders: {} skipped, {} ignored\n",
        report.others_skipped, report.others_ignored
    ))?;
    Ok(code(report))
}

fn code(report: &Report) -> ExitCode {
    match report.is_whole() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_SKIPPED),
    }
}
