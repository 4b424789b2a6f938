//! The command line.
//!
//! Exit codes: 0 it is done; 1 it is refused or failed; 2 the command line is wrong; 3 the node had to stop itself; 4 an import or export is done, and
//! something was skipped; 5 the status of a cluster is shown, and not all is well.
//!
//! Reading order: this file (what there is), [`run`] (what it does), [`prompt`] (how passwords come in).

mod accounts;
mod check;
pub(crate) mod cluster;
mod node;
mod prompt;
mod run;
mod transfer;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::{
    admin::protocol::Limit,
    demo::regions::{FIRST_PORT, REGIONS_MAX},
};

pub(crate) use run::Stop;
pub use run::run;
pub use transfer::{Common, EXIT_SKIPPED, FormName, ImportFrom, QuotingName};

/// Exit code of a node that stopped itself because going on could have lost mail.
pub const EXIT_FATAL: i32 = 3;

/// Exit code of `whimbrel cluster status` when a member is not linked, an account is stalled, the clock is wrong, or no server runs.
pub const EXIT_NOT_WELL: u8 = 5;

const EXAMPLES: &str = "\
Examples:
  whimbrel demo                                     a server to play with, in a temporary directory
  whimbrel demo --regions 3                         three, as regions of one cluster
  whimbrel config > whimbrel.toml                   every key with its default
  whimbrel account add anne@example.org             asks for a password, or makes one
  whimbrel serve --config whimbrel.toml             serves until SIGTERM or Ctrl-C

Without --config, WHIMBREL_CONFIG and /etc/whimbrel/whimbrel.toml are tried. Without all of them everything is kept in ./whimbrel-data and served on 127.0.0.1:
IMAPS 10993, IMAP 10143, POP3S 10995, POP3 10110, SMTP 10025,
SUBMISSIONS 10465, SUBMISSION 10587, LMTP 10024, metrics 10900.";

/// Whimbrel, a mail server with no primary.
#[derive(Debug, Parser)]
#[command(name = "whimbrel", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the configuration is.
#[derive(Args, Debug)]
pub struct ConfigFile {
    /// The configuration (TOML); without it, that of the environment's WHIMBREL_CONFIG, then /etc/whimbrel/whimbrel.toml if it is there, then the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Where the configuration is if nobody says it.
const SYSTEM_CONFIG: &str = "/etc/whimbrel/whimbrel.toml";

impl ConfigFile {
    /// The file that was given or found.
    fn found(&self) -> Option<PathBuf> {
        let given = std::env::var_os("WHIMBREL_CONFIG").map(PathBuf::from);
        found(self.config.clone(), given, SYSTEM_CONFIG.as_ref())
    }
}

fn found(option: Option<PathBuf>, given: Option<PathBuf>, system: &Path) -> Option<PathBuf> {
    let given = given.filter(|path| !path.as_os_str().is_empty());
    let system = || system.exists().then(|| system.to_owned());
    option.or(given).or_else(system)
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve mail until SIGTERM or Ctrl-C; SIGHUP reads the certificates again
    #[command(
        after_help = "Examples:\n  whimbrel serve\n  whimbrel serve --config /etc/whimbrel/whimbrel.toml"
    )]
    Serve {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Add, list and remove accounts, and set passwords
    #[command(
        after_help = "These work while a server runs (through DATA/admin.sock) and while none does.\n\nExamples:\n  \
                      whimbrel account add anne@example.org\n  \
                      echo 'correct horse' | whimbrel account add bob@example.org --password-stdin\n  \
                      whimbrel account list --config whimbrel.toml\n  \
                      whimbrel account remove bob@example.org --yes"
    )]
    Account {
        /// What to do.
        #[command(subcommand)]
        command: Account,
    },
    /// Add, list and remove aliases
    #[command(
        after_help = "An address that is an account keeps its mail unless --instead is given. Examples:\n  whimbrel alias add info@example.org anne@example.org\n  \
                      whimbrel alias add @example.org anne@example.org     whatever has no other receiver\n  \
                      whimbrel alias remove info@example.org               all of its targets"
    )]
    Alias {
        /// What to do.
        #[command(subcommand)]
        command: Alias,
    },
    /// Verify everything in the data directory; changes nothing, and the server must not run
    #[command(
        after_help = "Ends with 0 if all is as it was written, else with 1; each damage is told with its file and byte, or its key in the store.\n\n\
                      Examples:\n  whimbrel check\n  whimbrel check --json --config /etc/whimbrel/whimbrel.toml"
    )]
    Check {
        /// The report as JSON, on standard output
        #[arg(long)]
        json: bool,
        /// Where copies of the store's small files go (as much as its journals); without it, the system's directory for such things
        #[arg(long, value_name = "DIRECTORY")]
        scratch: Option<PathBuf>,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Bring mail of an account from a Maildir, from mbox files or from another IMAP server
    #[command(
        after_help = "It works while a server runs (through DATA/admin.sock) and while none does. It may be ended at any moment and begun again: what is\n\
                      here already is not imported twice. How to move a whole server: docs/moving.md.\n\n\
                      Ends with 0, with 4 if something was skipped (each is told), with 1 if it could not go on.\n\nExamples:\n  \
                      whimbrel import maildir anne@example.org ~anne/Maildir --dry-run\n  \
                      whimbrel import mbox anne@example.org ~anne/mail\n  \
                      whimbrel import imap anne@example.org imap.example.net anne"
    )]
    Import {
        /// From what.
        #[command(subcommand)]
        from: ImportFrom,
    },
    /// Write all mail of an account into a Maildir or mbox files
    #[command(
        after_help = "A message, or a file of mbox, is there whole or not at all. A Maildir can be written again into the same directory: only what is new\n\
                      is written, and flags are brought up to date; what was removed here stays there.\n\n\
                      Ends with 0, with 4 if something was skipped (each is told), with 1 if it could not go on.\n\nExample:\n  \
                      whimbrel export anne@example.org maildir /backup/anne"
    )]
    Export {
        /// Whose mail, such as anne@example.org
        address: String,
        /// In which format
        #[arg(value_enum)]
        form: FormName,
        /// The directory; it is made
        to: PathBuf,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Show who this node is, and make it another after an older copy of its disk was put back
    #[command(
        after_help = "Examples:\n  whimbrel node show\n  whimbrel node renew     after a snapshot of the volume or machine was put back"
    )]
    Node {
        /// What to do.
        #[command(subcommand)]
        command: Node,
    },
    /// Found a cluster, join one, let a node in, show how it is
    #[command(
        after_help = "Nodes of a cluster hold the same accounts, and each takes every write. The guide: docs/cluster.md\n\n\
                      In the configuration of each node, with its own name and address:\n  \
                      [cluster]\n  name = \"eu-1\"\n  listen = [\"[::]:10700\"]\n  address = \"eu-1.example.org:10700\"\n\n\
                      Then on the first node:\n  whimbrel cluster init\n  whimbrel serve\n  whimbrel cluster token      prints a token for one node\n\n\
                      and on each other one, with an empty data directory:\n  whimbrel cluster join TOKEN\n  whimbrel serve"
    )]
    Cluster {
        /// What to do.
        #[command(subcommand)]
        command: Cluster,
    },
    /// Print a configuration with every key at its default
    #[command(after_help = "Example:\n  whimbrel config > whimbrel.toml")]
    Config {
        /// The reference for readers (docs/config.md) instead
        #[arg(long)]
        markdown: bool,
    },
    /// Show a server with accounts and mail in a temporary directory
    #[command(
        after_help = "Examples:\n  whimbrel demo                until Ctrl-C\n  whimbrel demo --exit         ends when all is shown\n  \
                      whimbrel demo --regions 3    nodes that hold the same accounts; one is cut off, both sides write, all agree\n\n\
                      Each region's ports are 1,000 above those of the one before."
    )]
    Demo {
        /// So many nodes of one cluster, each a region, 2 to 5
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(2..=i64::from(REGIONS_MAX)))]
        regions: Option<u16>,
        /// The ports of the regions begin here
        #[arg(long, value_name = "PORT", requires = "regions", default_value_t = FIRST_PORT, value_parser = clap::value_parser!(u16).range(10_000..=60_000))]
        first_port: u16,
        /// End when everything has been shown
        #[arg(long)]
        exit: bool,
    },
}

/// `whimbrel account`.
#[derive(Debug, Subcommand)]
pub enum Account {
    /// Add an account; its domain becomes one of ours
    #[command(
        after_help = "On a terminal the password is asked for; an empty one, or no terminal, makes one, which is printed."
    )]
    Add {
        /// Such as anne@example.org
        address: String,
        /// How the password comes.
        #[command(flatten)]
        password: Password,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// List all accounts: address, id, when it was made
    List {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Set a new password; sessions of the account that are logged in end
    Passwd {
        /// Such as anne@example.org
        address: String,
        /// Let sessions that are logged in stay
        #[arg(long)]
        keep_sessions: bool,
        /// How the password comes.
        #[command(flatten)]
        password: Password,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Set what an account may hold; without options, show it
    #[command(
        after_help = "A limit is a number (--storage: a size such as 5GiB), unlimited, or default: what the section [quota] of the configuration gives \
                      every account.\n\nNodes that cannot reach each other may together let an account have more. Nothing is removed then, and nothing \
                      more is taken until it has less."
    )]
    Quota {
        /// Such as anne@example.org
        address: String,
        /// Bytes of its messages; each copy counts
        #[arg(long, value_name = "SIZE", value_parser = accounts::size)]
        storage: Option<Limit>,
        /// Its messages
        #[arg(long, value_name = "COUNT", value_parser = accounts::count)]
        messages: Option<Limit>,
        /// Its mailboxes, 10,000 at most
        #[arg(long, value_name = "COUNT", value_parser = accounts::count)]
        mailboxes: Option<Limit>,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Remove an account and all of its mail
    Remove {
        /// Such as anne@example.org
        address: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
}

/// How a password comes.
#[derive(Args, Debug)]
pub struct Password {
    /// Read the password from standard input, up to the first line end
    #[arg(long)]
    pub password_stdin: bool,
}

/// `whimbrel node`.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Show incarnation and slot
    Show {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Take a new incarnation and slot, so that no UID is given twice; the server must not run
    #[command(
        after_help = "A data directory that was copied file by file (cp, rsync, tar, a backup) is noticed at the next start, without this.\n\
                      A snapshot below the file system (of a volume, of a virtual machine) is not: run this before the next start.\n\
                      There are 64 slots; beyond, every account gets a new UIDVALIDITY, and clients load everything again."
    )]
    Renew {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
}

/// `whimbrel cluster`.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Make this node the first of a new cluster; the server must not run
    #[command(
        after_help = "The accounts and mail of this node stay, and go to the nodes that join. cluster.name must be set."
    )]
    Init {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Join the cluster that a token was made for; the server must not run, and the data directory must be empty
    #[command(
        after_help = "The node that made the token must run and be reachable at the address in it. It is known by the fingerprint in the token, so nobody \
                      else can answer; the token is shown to nobody else. If no answer came, run the same command again.\n\n\
                      The token is a secret: on a machine that others use, give it on standard input."
    )]
    Join {
        /// As `whimbrel cluster token` printed it; without it, from standard input
        token: Option<String>,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Print a token that lets one node in; also while the server runs
    #[command(
        after_help = "It holds this node's address (cluster.address), the fingerprint of the cluster's authority, and a secret. Whoever has it \
                      becomes a member, and members have all mail: carry it as you would a password."
    )]
    Token {
        /// How long it may be used, in minutes
        #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_080))]
        valid: u64,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Hand over what this node has, and say when it is safe to stop; the server must run
    #[command(
        after_help = "Sessions that are served here end; those that come are served by another node behind this one, and mail is taken there; \
                      what is in the queue is delivered; the other members get all that is here. When \
                      all of them hold all of it, bodies too, the command says so and ends: the server goes on without clients of its own until you stop it. Ctrl-C \
                      takes it back, and so does --cancel, and a start.\n\nExamples:\n  whimbrel cluster drain\n  whimbrel cluster drain --of 1   when one other member holds all\n  whimbrel cluster drain eu-2     another node"
    )]
    Drain {
        /// Which node; without it, the one whose server runs here
        node: Option<String>,
        /// When so many other members hold all; without it, when all of them do
        #[arg(long, value_name = "MEMBERS", value_parser = clap::value_parser!(u64).range(1..=63))]
        of: Option<u64>,
        /// Take it back: sessions are taken again
        #[arg(long, conflicts_with = "of")]
        cancel: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Remove a node for good: one that is dead, or no longer wanted; the server must run
    #[command(
        after_help = "From then on nobody takes anything from the node itself. What it wrote and another node has stays; what no other node has is lost, unless \
                      its disk can still be read. Drain a node that lives before you remove it. The node is told when it is met; it stops, and does not \
                      start again as it is. Its name and slot can be used again.\n\n\
                      A removal cannot be taken back. Never remove, at two sides of a cut, the nodes of the other side: they are two clusters from then on.\n\n\
                      Examples:\n  whimbrel cluster remove eu-2\n  whimbrel cluster remove eu-2 --earlier   what it was before it was renewed"
    )]
    Remove {
        /// Its name, or one of its incarnations as `whimbrel cluster status` shows it
        node: String,
        /// Only its earlier incarnations: the node itself stays
        #[arg(long)]
        earlier: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Show the members and the links to them
    #[command(
        after_help = "While the server runs: its links, what it has, and what each peer lacks of that. A node that was renewed is there twice: its earlier \
                      incarnation belongs to the cluster until it is removed (`whimbrel cluster remove NODE --earlier`). Stable is what all members have \
                      applied: while one is away it stands still.\n\n\
                      With --partitions each partition of this node, too: what is in it, what each peer lacks, and how far the log of each writer goes here; \
                      `us-1 80 (75 applied)` has what us-1 wrote up to its operation 80 on disk, of which those above 75 wait for what others wrote. With --json: \
                      `lacks` (operations, bytes, seconds) and `logs` (stored, applied), by incarnation."
    )]
    Status {
        /// Each partition of this node, too, and where its logs stand
        #[arg(long)]
        partitions: bool,
        /// As JSON, on standard output
        #[arg(long)]
        json: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
}

/// `whimbrel alias`.
#[derive(Debug, Subcommand)]
pub enum Alias {
    /// Let mail for one address go to another, too
    Add {
        /// An address, or @domain for whatever has no other receiver
        from: String,
        /// An account or an alias here
        to: String,
        /// If FROM is an account, its mail goes to TO instead
        #[arg(long)]
        instead: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// List all aliases
    List {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Remove an alias
    Remove {
        /// As it was added
        from: String,
        /// As it was added; without it, all targets
        to: Option<String>,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn where_the_configuration_is() {
        let directory = tempfile::tempdir().unwrap();
        let system = directory.path().join("whimbrel.toml");
        let check = |option: Option<&str>, given: Option<&str>, expected: Option<&Path>| {
            let found = found(option.map(PathBuf::from), given.map(PathBuf::from), &system);
            assert_eq!(found.as_deref(), expected, "{option:?} {given:?}");
        };
        check(None, None, None);
        check(None, Some(""), None);
        std::fs::write(&system, "").unwrap();
        check(None, None, Some(&system));
        check(None, Some(""), Some(&system));
        // What was given is not passed over because it is not there.
        check(None, Some("none"), Some("none".as_ref()));
        check(Some("a"), Some("b"), Some("a".as_ref()));
    }

    #[test]
    fn the_command_line_is_consistent_and_helpful() {
        let command = Cli::command();
        command.clone().debug_assert();
        fn check(command: &clap::Command) {
            assert!(
                command.get_about().is_some(),
                "{} says nothing",
                command.get_name()
            );
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&command);
    }

    #[test]
    fn command_lines() {
        let check = |line: &str, ok: bool| {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert_eq!(parsed.is_ok(), ok, "{line}: {parsed:?}");
        };
        check("whimbrel serve", true);
        check("whimbrel serve --config a.toml", true);
        check(
            "whimbrel account add anne@example.org --password-stdin --config a.toml",
            true,
        );
        check("whimbrel account remove anne@example.org --yes", true);
        check("whimbrel alias remove info@example.org", true);
        check(
            "whimbrel alias remove info@example.org anne@example.org",
            true,
        );
        check("whimbrel check --json --scratch /tmp", true);
        check(
            "whimbrel import maildir anne@example.org Maildir --nested --dry-run",
            true,
        );
        check(
            "whimbrel import mbox anne@example.org mail --into old --quoting mboxo",
            true,
        );
        check(
            "whimbrel import imap anne@example.org host anne --starttls --password-stdin",
            true,
        );
        check(
            "whimbrel import imap anne@example.org host anne --starttls --clear",
            false,
        );
        check("whimbrel import anne@example.org", false);
        check(
            "whimbrel export anne@example.org maildir /tmp/x --config a.toml",
            true,
        );
        check("whimbrel export anne@example.org zip /tmp/x", false);
        check("whimbrel node renew --config a.toml", true);
        check("whimbrel cluster init --config a.toml", true);
        check("whimbrel cluster join whimbrel-join-abc", true);
        check("whimbrel cluster join", true);
        check("whimbrel cluster token --valid 5", true);
        check("whimbrel cluster token --valid 0", false);
        check("whimbrel cluster status --json", true);
        check("whimbrel demo --exit", true);
        check("whimbrel demo --regions 3 --first-port 20000 --exit", true);
        check("whimbrel demo --regions 1", false);
        check("whimbrel demo --regions 6", false);
        check("whimbrel config --markdown", true);
        check("whimbrel", false);
        check("whimbrel account add", false);
        check("whimbrel alias add info@example.org", false);
        check("whimbrel serve --confg a.toml", false);
    }
}
