//! The loads, one file each. All check the answers they get.
//!
//! Reading order: this file (what there is, and how much of it), [`session`] and [`write`], then any.

pub mod aerogramme;
pub mod bounds;
pub mod deliver;
mod hostile;
pub mod idle;
pub mod large;
pub mod logins;
mod neighbour;
pub mod pop3;
pub mod queue;
pub mod read;
mod read_plan;
pub mod session;
pub mod write;

use clap::ValueEnum;

use crate::{
    error::Result,
    measure::{Meter, Row},
    progress::Progress,
    series::Series,
    target::Target,
};

/// Users 121 to 130 read.
pub(crate) const READERS: std::ops::Range<usize> = 121..131;
/// Users 131 to 146 are the sixteen accounts of Aerogramme's study, and of the idle sessions.
pub(crate) const SIXTEEN: std::ops::Range<usize> = 131..147;
/// Has what POP3 takes.
pub(crate) const POP3_USER: usize = 147;
/// Has the large mailboxes.
pub(crate) const LARGE_USER: usize = 148;
/// Has what the bounds are tried on.
pub(crate) const BOUNDS_USER: usize = 149;

/// One load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Scenario {
    /// Logins over new TLS connections, each account for the first time and again
    Logins,
    /// CREATE, DELETE, APPEND, SELECT, STORE, EXPUNGE as pluto's benchmark does them
    Write,
    /// Commands in the proportions real clients were seen to send
    Read,
    /// Deliveries by LMTP: 10 KB, 200 KB, 2 MB, both ranges of CassMail, sizes of a real inbox
    Lmtp,
    /// The same by SMTP
    Smtp,
    /// POP3: 1,000 messages of 10 KB, one by one and pipelined
    Pop3,
    /// Operations on large mailboxes
    Large,
    /// The scenarios of Aerogramme's memory study, drawn over time
    Aerogramme,
    /// Memory of idle sessions
    Idle,
}

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Connections at once of the write load.
    pub write_threads: usize,
    /// Sessions of each of them.
    pub write_sessions: usize,
    /// How many times the 4,619 commands; below 1: a part of them.
    pub read_decks: f64,
    /// Messages in each mailbox that is read.
    pub read_messages: usize,
    /// Messages delivered of 10 KB; of the larger ones fewer.
    pub deliveries: usize,
    /// Logins.
    pub logins: usize,
    /// Idle sessions.
    pub idle_sessions: usize,
    /// Sizes of the large mailboxes.
    pub large: Vec<usize>,
    /// Messages of the study's large accounts; its accounts are filled with a tenth of that.
    pub study_messages: usize,
    /// Messages that POP3 takes.
    pub pop3_messages: usize,
}

impl Sizes {
    /// A few minutes.
    #[must_use]
    pub fn quick() -> Sizes {
        Sizes {
            write_threads: 20,
            write_sessions: 12,
            read_decks: 1.0,
            read_messages: 200,
            deliveries: 1_000,
            logins: 300,
            idle_sessions: 200,
            large: vec![10_000],
            study_messages: 1_000,
            pop3_messages: 1_000,
        }
    }

    /// As long as it takes.
    #[must_use]
    pub fn full() -> Sizes {
        Sizes {
            write_sessions: 100,
            read_decks: 3.0,
            read_messages: 1_000,
            deliveries: 5_000,
            logins: 2_000,
            idle_sessions: 1_000,
            large: vec![10_000, 200_000],
            ..Sizes::quick()
        }
    }

    /// Enough to see that everything works.
    #[must_use]
    pub fn tiny() -> Sizes {
        Sizes {
            write_threads: 4,
            write_sessions: 2,
            read_decks: 0.05,
            read_messages: 30,
            deliveries: 20,
            logins: 8,
            idle_sessions: 32,
            large: vec![200],
            study_messages: 40,
            pop3_messages: 20,
        }
    }
}

/// How much of each load of [`bounds`], and what the server may use for it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The loads")]
pub struct Bounds {
    /// Resident memory of the server that no load may exceed, in MiB; 0: none
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    pub resident_mib_max: u64,
    /// What FETCH 1:* BODY[] reads, in MiB
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    pub bulk_mib: usize,
    /// A single message, in and out, in MiB
    #[arg(long, default_value_t = 100, value_name = "MIB")]
    pub message_mib: usize,
    /// Messages in the large mailbox
    #[arg(long, default_value_t = 200_000, value_name = "COUNT")]
    pub messages: usize,
    /// Sessions that select it, fetch large headers, or never read what they asked for
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    pub sessions: usize,
    /// Clients that work in it at once
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    pub clients: usize,
    /// Of a line, or a list of literals, that has no end, each session sends so much, in MiB
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    pub endless_mib: usize,
    /// Connections of one account that does the worst it can while another one works
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    pub attackers: usize,
    /// Its mailboxes
    #[arg(long, default_value_t = 9_000, value_name = "COUNT")]
    pub names: usize,
    /// The other one's NOOP, APPEND and deliveries take no longer (p99), in milliseconds; 0: no bound
    #[arg(long, default_value_t = 250, value_name = "MS")]
    pub neighbour_ms_max: u64,
    /// Idle sessions
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    pub idle: usize,
}

impl Bounds {
    /// Enough to see that everything works, within the bound of the whole loads.
    #[must_use]
    pub fn tiny() -> Bounds {
        Bounds {
            resident_mib_max: 256,
            bulk_mib: 64,
            message_mib: 24,
            messages: 3_000,
            sessions: 6,
            clients: 10,
            endless_mib: 8,
            attackers: 10,
            names: 100,
            neighbour_ms_max: 0,
            idle: 50,
        }
    }
}

/// What a load is run with, and what it gives.
pub struct Context {
    /// The server.
    pub target: Target,
    /// Takes the figures.
    pub meter: Meter,
    /// Shows what is going on.
    pub progress: Progress,
    /// How much.
    pub sizes: Sizes,
    /// All random choices follow from it.
    pub seed: u64,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What was drawn.
    pub series: Vec<Series>,
}

impl Context {
    /// For one run on a server.
    #[must_use]
    pub fn new(target: &Target, progress: &Progress, sizes: &Sizes, seed: u64) -> Context {
        Context {
            target: target.clone(),
            meter: Meter::new(target),
            progress: progress.clone(),
            sizes: sizes.clone(),
            seed,
            rows: Vec::new(),
            series: Vec::new(),
        }
    }

    /// Keeps a row, and shows it.
    pub fn add(&mut self, row: Row) {
        self.progress.line(&row.line());
        self.rows.push(row);
    }

    /// Runs a load.
    ///
    /// # Errors
    /// When the server answers wrongly, or not.
    pub fn run(&mut self, scenario: Scenario) -> Result<()> {
        match scenario {
            Scenario::Logins => logins::run(self),
            Scenario::Write => write::run(self),
            Scenario::Read => read::run(self),
            Scenario::Lmtp => deliver::run(self, crate::smtp::Kind::Lmtp),
            Scenario::Smtp => deliver::run(self, crate::smtp::Kind::Smtp),
            Scenario::Pop3 => pop3::run(self),
            Scenario::Large => large::run(self),
            Scenario::Aerogramme => aerogramme::run(self),
            Scenario::Idle => idle::run(self),
        }
    }
}
