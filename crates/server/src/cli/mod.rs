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
mod queue;
mod run;
mod transfer;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::{
    admin::protocol::Limit,
    demo::regions::{FIRST_PORT, REGIONS_MAX},
};

pub use queue::{Queue, StateName};
pub(crate) use run::Stop;
pub use run::run;
pub use transfer::{Common, EXIT_SKIPPED, FormName, ImportFrom, QuotingName};

/// Exit code of a node that stopped itself because going on could have lost mail.
pub const EXIT_FATAL: i32 = 3;

/// Exit code of `whimbrel cluster status` when a member is not linked, an account is stalled, the clock is wrong, or no server runs.
pub const EXIT_NOT_WELL: u8 = 5;

const EXAMPLES: &str = "\
Examples:
  whimbrel demo                                     a server to try, in a temporary directory
  whimbrel demo --regions 3                         three regions of one cluster
  whimbrel config > whimbrel.toml                   every key with its default
  whimbrel account add anne@example.org             asks for a password, or makes one
  whimbrel serve --config whimbrel.toml             serves until SIGTERM or Ctrl-C

Without --config, the file in WHIMBREL_CONFIG is used, or /etc/whimbrel/whimbrel.toml if it exists. Without any file, the server keeps its data in
./whimbrel-data and listens on 127.0.0.1:
IMAPS 10993, IMAP 10143, POP3S 10995, POP3 10110, SMTP 10025,
SUBMISSIONS 10465, SUBMISSION 10587, LMTP 10024, metrics 10900.";

/// Whimbrel, a mail server with no primary.
#[derive(Debug, Parser)]
#[command(name = "whimbrel", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the configuration is.
#[derive(Args, Debug)]
pub struct ConfigFile {
    /// The configuration file (TOML); default: WHIMBREL_CONFIG, then /etc/whimbrel/whimbrel.toml if it exists, then the built-in defaults
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
    /// Serve mail until SIGTERM or Ctrl-C; SIGHUP reloads the certificates
    #[command(
        after_help = "Examples:\n  whimbrel serve\n  whimbrel serve --config /etc/whimbrel/whimbrel.toml"
    )]
    Serve {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Add, list and remove accounts, set passwords and quotas
    #[command(
        after_help = "They work with and without a running server (with one through DATA/admin.sock). Run them as the server's user:\n\
                      sudo -u USER whimbrel ...\n\nExamples:\n  \
                      whimbrel account add anne@example.org\n  \
                      echo 'correct horse' | whimbrel account add bob@example.org --password-stdin\n  \
                      whimbrel account list --config whimbrel.toml\n  \
                      whimbrel account remove bob@example.org --yes"
    )]
    Account {
        /// The command.
        #[command(subcommand)]
        command: Account,
    },
    /// Add, list and remove aliases
    #[command(
        after_help = "Aliases lead to accounts and aliases of this server only. An alias on the address of an account needs --instead.\n\nExamples:\n  \
                      whimbrel alias add info@example.org anne@example.org\n  \
                      whimbrel alias add @example.org anne@example.org     all mail without another recipient\n  \
                      whimbrel alias remove info@example.org               all of its targets"
    )]
    Alias {
        /// The command.
        #[command(subcommand)]
        command: Alias,
    },
    /// List and show messages that are accepted and not delivered yet; the server must run
    #[command(
        after_help = "The queue holds accepted messages until all recipients have them. A look changes nothing. Each node shows what it holds: entries that it \
                      delivers, and copies of what other nodes deliver.\n\n\
                      Examples:\n  \
                      whimbrel queue list\n  \
                      whimbrel queue list --older-than 1h --recipient anne@example.org\n  \
                      whimbrel queue show 5f0c3a9de1b24c7788a1d2f3e4b5c697"
    )]
    Queue {
        /// The command.
        #[command(subcommand)]
        command: Queue,
    },
    /// Verify everything in the data directory without changing it; stop the server first
    #[command(
        after_help = "Exits with 0 if there is no damage, else with 1. Each damage is shown with its file and byte, or its key in the store.\n\n\
                      Examples:\n  whimbrel check\n  whimbrel check --json --config /etc/whimbrel/whimbrel.toml"
    )]
    Check {
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
        /// Directory for copies of the store's small files, as large as its journals; default: the system's temporary directory
        #[arg(long, value_name = "DIRECTORY")]
        scratch: Option<PathBuf>,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Import mail into an account from a Maildir, mbox files or another IMAP server
    #[command(
        after_help = "It works with and without a running server (with one through DATA/admin.sock). You can interrupt it and run it again: no message is\n\
                      imported twice. How to move a whole server: docs/moving.md.\n\n\
                      Exits with 0, with 4 if something was skipped (each is shown), with 1 if it failed.\n\nExamples:\n  \
                      whimbrel import maildir anne@example.org ~anne/Maildir --dry-run\n  \
                      whimbrel import mbox anne@example.org ~anne/mail\n  \
                      whimbrel import imap anne@example.org imap.example.net anne"
    )]
    Import {
        /// The source.
        #[command(subcommand)]
        from: ImportFrom,
    },
    /// Export all mail of an account to a Maildir or mbox files
    #[command(
        after_help = "No message and no mbox file is ever left half written. A second export to the same Maildir writes new messages only and updates\n\
                      flags; messages that were removed on the server stay in the Maildir.\n\n\
                      Exits with 0, with 4 if something was skipped (each is shown), with 1 if it failed.\n\nExample:\n  \
                      whimbrel export anne@example.org maildir /backup/anne"
    )]
    Export {
        /// The account's email address, such as anne@example.org
        address: String,
        /// The format
        #[arg(value_enum)]
        form: FormName,
        /// The directory; the command creates it
        to: PathBuf,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Show the identity of this node, or renew it after an older snapshot of its disk was restored
    #[command(
        after_help = "Examples:\n  whimbrel node show\n  whimbrel node renew     after a snapshot of the volume or machine was restored"
    )]
    Node {
        /// The command.
        #[command(subcommand)]
        command: Node,
    },
    /// Create a cluster, join one, add or remove nodes, show status
    #[command(
        after_help = "Nodes of a cluster hold the same accounts, and every node accepts writes. The guide: docs/cluster.md\n\n\
                      In the configuration of each node, with its own name and address:\n  \
                      [cluster]\n  name = \"eu-1\"\n  listen = [\"[::]:10700\"]\n  address = \"eu-1.example.org:10700\"\n\n\
                      Then on the first node:\n  whimbrel cluster init\n  whimbrel serve\n  whimbrel cluster token      prints a token for one node\n\n\
                      and on each other node, with an empty data directory:\n  whimbrel cluster join TOKEN\n  whimbrel serve"
    )]
    Cluster {
        /// The command.
        #[command(subcommand)]
        command: Cluster,
    },
    /// Print a configuration with every key at its default
    #[command(after_help = "Example:\n  whimbrel config > whimbrel.toml")]
    Config {
        /// Print the reference docs/config.md instead
        #[arg(long)]
        markdown: bool,
    },
    /// Run a server with accounts and mail in a temporary directory
    #[command(
        after_help = "Examples:\n  whimbrel demo                until Ctrl-C\n  whimbrel demo --exit         ends when everything has been shown\n  \
                      whimbrel demo --regions 3    nodes with the same accounts; one is cut off, both sides write, all agree afterwards\n\n\
                      Each region's ports are 1,000 above those of the one before."
    )]
    Demo {
        /// Run a cluster of 2 to 5 nodes, each a region
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(2..=i64::from(REGIONS_MAX)))]
        regions: Option<u16>,
        /// First port of the regions
        #[arg(long, value_name = "PORT", requires = "regions", default_value_t = FIRST_PORT, value_parser = clap::value_parser!(u16).range(10_000..=60_000))]
        first_port: u16,
        /// Exit when everything has been shown
        #[arg(long)]
        exit: bool,
    },
}

/// `whimbrel account`.
#[derive(Debug, Subcommand)]
pub enum Account {
    /// Add an account; the server then accepts mail for its domain
    #[command(
        after_help = "On a terminal the command asks for the password. If it is empty, or without a terminal, the command makes a password and prints it."
    )]
    Add {
        /// The account's email address, such as anne@example.org
        address: String,
        /// Where the password comes from.
        #[command(flatten)]
        password: Password,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// List all accounts: address, id, date of creation
    List {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Set a new password and end the account's sessions
    Passwd {
        /// The account's email address, such as anne@example.org
        address: String,
        /// Do not end sessions that are logged in
        #[arg(long)]
        keep_sessions: bool,
        /// Where the password comes from.
        #[command(flatten)]
        password: Password,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Set the limits of an account; without options, show them
    #[command(
        after_help = "A limit is a number (--storage: a size such as 5GiB), unlimited, or default: the value of the section [quota] of the \
                      configuration.\n\nNodes that cannot reach each other may together let an account exceed a limit. Then nothing is removed, and \
                      nothing more is accepted until the account is below the limit."
    )]
    Quota {
        /// The account's email address, such as anne@example.org
        address: String,
        /// Total size of its messages; each copy counts
        #[arg(long, value_name = "SIZE", value_parser = accounts::size)]
        storage: Option<Limit>,
        /// Number of its messages
        #[arg(long, value_name = "COUNT", value_parser = accounts::count)]
        messages: Option<Limit>,
        /// Number of its mailboxes, at most 10,000
        #[arg(long, value_name = "COUNT", value_parser = accounts::count)]
        mailboxes: Option<Limit>,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Remove an account and all of its mail
    Remove {
        /// The account's email address, such as anne@example.org
        address: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
}

/// Where a password comes from.
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
    /// Take a new incarnation and slot, so that no UID is given twice; stop the server first
    #[command(
        after_help = "The server detects a data directory that was copied file by file (cp, rsync, tar, a backup) at its next start.\n\
                      It cannot detect a restored snapshot of a volume or of a virtual machine: run this command before the next start.\n\
                      There are 64 slots. When all are used, every account gets a new UIDVALIDITY, and clients download everything again."
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
    /// Create a cluster with this node as the first; stop the server first
    #[command(
        after_help = "The accounts and mail of this node stay, and are copied to the nodes that join. cluster.name must be set."
    )]
    Init {
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Join a cluster with a token; stop the server first, and use an empty data directory
    #[command(
        after_help = "The node that made the token must run and be reachable at the address in the token. The token has its fingerprint, so no other \
                      machine can take its place. If there is no answer, run the same command again.\n\n\
                      The token is a secret: on a machine that others use, pass it on standard input."
    )]
    Join {
        /// The token that `whimbrel cluster token` printed; default: read from standard input
        token: Option<String>,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Print a token with which one node can join; works while the server runs
    #[command(
        after_help = "The token contains this node's address (cluster.address), the fingerprint of the cluster's authority, and a secret. Anyone who \
                      has it can become a member, and members have all mail: protect it like a password."
    )]
    Token {
        /// How long the token is valid, in minutes
        #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_080))]
        valid: u64,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Move sessions, queue and data to other nodes until it is safe to stop a node; the server must run
    #[command(
        after_help = "Sessions on the node end. It relays new sessions and mail to other nodes, delivers its queue, and sends all its data to the other \
                      members. When all of them have everything, blobs included, the command says so and ends. The server then runs on without clients of \
                      its own until you stop it. Ctrl-C, --cancel and a start of the node undo the drain.\n\nExamples:\n  whimbrel cluster drain\n  \
                      whimbrel cluster drain --of 1   finish when one other member has everything\n  whimbrel cluster drain eu-2     another node"
    )]
    Drain {
        /// The name of the node; default: the node on this machine
        node: Option<String>,
        /// Finish when N other members hold everything; default: all of them
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=63))]
        of: Option<u64>,
        /// Undo a drain: the node accepts sessions again
        #[arg(long, conflicts_with = "of")]
        cancel: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Remove a node for good, dead or alive; the server must run
    #[command(
        after_help = "From then on no member accepts anything from the removed node. What it wrote stays if another node has it. \
                      The rest is lost, unless its disk can still be read: drain a running node before you remove it. When the node meets a member, it \
                      stops, and does not start again. Its name and slot can be used again.\n\n\
                      A removal cannot be undone. During a network partition, never remove the nodes of the other side on both sides: that makes two clusters.\n\n\
                      Examples:\n  whimbrel cluster remove eu-2\n  whimbrel cluster remove eu-2 --earlier   only its incarnations from before a renewal"
    )]
    Remove {
        /// The name of the node, or an incarnation as `whimbrel cluster status` shows it
        node: String,
        /// Remove only its earlier incarnations; the node itself stays
        #[arg(long)]
        earlier: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        /// The configuration.
        #[command(flatten)]
        config: ConfigFile,
    },
    /// Show members, links, and how far each member is behind
    #[command(
        after_help = "The first line is `in sync`, or says who is behind or unreachable. --verbose has a line for each incarnation: a renewed node has two, and \
                      its earlier incarnation stays a member until it is removed (`whimbrel cluster remove NODE --earlier`). `stable` there means applied by \
                      all members; it stands still while one is away.\n\n\
                      --partitions adds a line for each partition of this node: its content, what each peer lacks, and how far the log of each writer goes. \
                      `us-1 80 (75 applied)` means that operations 76 to 80 of us-1 are on disk and wait for operations of other nodes. --json has \
                      `lag` (operations, bytes, seconds) and `logs` (stored, applied) by incarnation.\n\n\
                      Exits with 5 if a member is not linked, an account is stalled, the clock is wrong, or no server runs. docs/cluster.md explains each word."
    )]
    Status {
        /// Show each partition of this node and its logs, too
        #[arg(long)]
        partitions: bool,
        /// Show each incarnation with its slot, address, link and clock
        #[arg(long, conflicts_with = "json")]
        verbose: bool,
        /// Print JSON
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
    /// Add an alias: mail for FROM goes to TO
    Add {
        /// The alias address, or @domain for all mail of the domain without another recipient
        from: String,
        /// The target: an account or alias on this server
        to: String,
        /// Allow FROM to be an account: its mail then goes to TO instead
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
        /// The alias address
        from: String,
        /// The target address; default: all targets
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
        check("whimbrel queue list", true);
        check(
            "whimbrel queue list --sender <> --recipient @b.c --older-than 2h --state copy --limit 5 --json --config a.toml",
            true,
        );
        check("whimbrel queue list --sender anne", false);
        check("whimbrel queue list --recipient <>", false);
        check("whimbrel queue list --older-than 2", false);
        check("whimbrel queue list --state late", false);
        check("whimbrel queue list --limit 0", false);
        check(
            "whimbrel queue show 0123456789abcdef0123456789ABCDEF --json",
            true,
        );
        check("whimbrel queue show", false);
        check(
            "whimbrel queue show +123456789abcdef0123456789abcdef",
            false,
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
