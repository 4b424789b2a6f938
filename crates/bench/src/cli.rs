//! The command line.
//!
//! Exit codes: 0 all was measured; 1 a server answered wrongly, exceeded a bound or could not be used; 2 the command line is wrong.

use std::{io::IsTerminal as _, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    compare::Comparison,
    disk,
    error::{Result, io_at},
    lag::{self, LagReport},
    process,
    progress::Progress,
    report::{Report, Run, text},
    scenario::{
        Bounds, Context, Scenario, Sizes, bounds,
        queue::{self, QueueReport},
    },
    servers::{certificate, whimbrel},
    target::{Address, Target},
};

const EXAMPLES: &str = "\
Examples:
  whimbrel-bench compare                             Dovecot and Whimbrel beside each other, about ten minutes
  whimbrel-bench compare --mode full --runs 5 --out report
  whimbrel-bench compare --only write,lmtp --runs 3
  whimbrel-bench bounds                              Whimbrel's memory under load, below 256 MiB
  whimbrel-bench lag --nodes 1,2,3,5,7 --out report --name lag    how far nodes are behind each other, beside Dovecot with dsync
  whimbrel-bench lag --quick --alone                 the same, only to see that it works
  whimbrel-bench queue --out report --name queue     the queue on three nodes beside etcd and NATS JetStream, minutes
  whimbrel-bench queue --full --out report --name queue    the grid of the queue's paper, half a day
  whimbrel-bench run write read --imaps 993 --host 192.0.2.1 --user 'test{}' --password 'x{}'
  whimbrel-bench tables report/bench.json
  whimbrel-bench run idle --imaps 10993 --pid 4711 --idle-sessions 10000

A report is NAME.md (tables), NAME.json (all runs) and NAME-*.svg. `run` needs 150 users, whose names and passwords
follow a pattern, and writes into their mailboxes. Without --pid nothing is known of the server's CPU, memory and disk.";

/// Measures mail servers: loads over real sockets, every answer checked.
#[derive(Debug, Parser)]
#[command(name = "whimbrel-bench", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run loads against a server that runs already
    Run {
        /// Which loads; all that the ports allow, if none is named
        scenarios: Vec<Scenario>,
        /// The server.
        #[command(flatten)]
        address: Address,
        /// How much.
        #[command(flatten)]
        amount: Amount,
        /// The report.
        #[command(flatten)]
        output: Output,
    },
    /// Start Debian's Dovecot and Whimbrel in turn and run the same loads on both (needs root, for Dovecot)
    Compare {
        /// Only these loads
        #[arg(long, value_delimiter = ',')]
        only: Vec<Scenario>,
        /// Whimbrel's binary; else the one beside this program
        #[arg(long, value_name = "FILE")]
        whimbrel: Option<PathBuf>,
        /// Where both keep their data; a temporary directory if not given. What is there is used again
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
        /// Count the syncs of both by strace, in a pass of its own
        #[arg(long)]
        strace: bool,
        /// Only Whimbrel: the same loads without Dovecot, which needs no root
        #[arg(long)]
        alone: bool,
        /// How much.
        #[command(flatten)]
        amount: Amount,
        /// The report.
        #[command(flatten)]
        output: Output,
    },
    /// Start Debian's Dovecot as a pair with dsync and Whimbrel as clusters, with delays between nodes, and see how far nodes are behind (needs root,
    /// for Dovecot)
    Lag {
        /// Whimbrel's binary; else the one beside this program
        #[arg(long, value_name = "FILE")]
        whimbrel: Option<PathBuf>,
        /// Where they keep their data; a temporary directory if not given
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
        /// What is measured.
        #[command(flatten)]
        options: lag::Options,
        /// The report.
        #[command(flatten)]
        output: Output,
    },
    /// Run the queue's crate as several nodes on real sockets and disks, with delays between cities or none, beside etcd and NATS JetStream
    Queue {
        /// Where the nodes keep their data; a temporary directory if not given
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
        /// What is measured.
        #[command(flatten)]
        options: queue::Options,
        /// The report.
        #[command(flatten)]
        output: Output,
    },
    /// Write the tables of reports again, to standard output
    Tables {
        /// Reports (NAME.json)
        #[arg(required = true)]
        reports: Vec<PathBuf>,
        /// They are reports of `lag`
        #[arg(long)]
        lag: bool,
        /// They are reports of `queue`
        #[arg(long, conflicts_with = "lag")]
        queue: bool,
    },
    /// Start Whimbrel (or take the server given by --imaps and --pid) and see that its memory stays within bounds
    #[command(name = "bounds")]
    WithinBounds {
        /// Whimbrel's binary; else the one beside this program
        #[arg(long, value_name = "FILE")]
        whimbrel: Option<PathBuf>,
        /// Where it keeps its data; a temporary directory if not given
        #[arg(long, value_name = "DIRECTORY")]
        directory: Option<PathBuf>,
        /// The server.
        #[command(flatten)]
        address: Address,
        /// How much of what.
        #[command(flatten)]
        bounds: Bounds,
        /// The report.
        #[command(flatten)]
        output: Output,
    },
}

/// How much.
#[derive(Args, Debug)]
#[command(next_help_heading = "How much")]
pub struct Amount {
    /// quick: minutes; full: an hour or more; tiny: only to see that it works
    #[arg(long, value_enum, default_value_t = Mode::Quick)]
    pub mode: Mode,
    /// Times that everything is run, each time with another seed; medians and spread are over these
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    pub runs: usize,
    /// All random choices follow from it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Connections of the write load (else 20)
    #[arg(long, value_name = "COUNT")]
    pub write_threads: Option<usize>,
    /// Sessions of each connection of the write load
    #[arg(long, value_name = "COUNT")]
    pub write_sessions: Option<usize>,
    /// Messages of 10 KB delivered; of the larger ones there are fewer
    #[arg(long, value_name = "COUNT")]
    pub deliveries: Option<usize>,
    /// Idle sessions
    #[arg(long, value_name = "COUNT")]
    pub idle_sessions: Option<usize>,
    /// Messages of a large mailbox; several by commas
    #[arg(long, value_delimiter = ',', value_name = "COUNT")]
    pub large: Vec<usize>,
}

/// Presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Only to see that it works.
    Tiny,
    /// Minutes.
    Quick,
    /// An hour or more.
    Full,
}

/// Where the report goes.
#[derive(Args, Debug)]
#[command(next_help_heading = "The report")]
pub struct Output {
    /// A directory for the report; without it only lines are shown
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// The beginning of the names of its files
    #[arg(long, default_value = "bench")]
    pub name: String,
}

impl Amount {
    fn sizes(&self) -> Sizes {
        let mut sizes = match self.mode {
            Mode::Tiny => Sizes::tiny(),
            Mode::Quick => Sizes::quick(),
            Mode::Full => Sizes::full(),
        };
        let set = |to: &mut usize, given: Option<usize>| {
            if let Some(given) = given {
                *to = given;
            }
        };
        set(&mut sizes.write_threads, self.write_threads);
        set(&mut sizes.write_sessions, self.write_sessions);
        set(&mut sizes.deliveries, self.deliveries);
        set(&mut sizes.idle_sessions, self.idle_sessions);
        if !self.large.is_empty() {
            sizes.large.clone_from(&self.large);
        }
        sizes
    }
}

/// Does what is asked.
///
/// # Errors
/// When a server answers wrongly, exceeds a bound, or cannot be used.
pub fn run(cli: Cli) -> Result<()> {
    // Thousands of connections, here and in the servers started from here.
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    let progress = if std::io::stderr().is_terminal() {
        Progress::shown()
    } else {
        Progress::hidden()
    };
    let done = match cli.command {
        Command::Run {
            scenarios,
            address,
            amount,
            output,
        } => on_one(scenarios, address, &amount, &output, &progress),
        Command::Compare {
            only,
            whimbrel,
            directory,
            strace,
            alone,
            amount,
            output,
        } => {
            let scenarios = if only.is_empty() { all() } else { only };
            let place = Place::new(directory)?;
            let comparison = Comparison {
                whimbrel: whimbrel::binary(whimbrel.as_deref())?,
                directory: place.path(),
                scenarios: &scenarios,
                sizes: amount.sizes(),
                runs: amount.runs,
                seed: amount.seed,
                strace,
                alone,
                progress: progress.clone(),
                keep: &|report| finish(report, &output),
            };
            comparison.run().and_then(|report| finish(&report, &output))
        }
        Command::Lag {
            whimbrel,
            directory,
            options,
            output,
        } => {
            let place = Place::new(directory)?;
            let binary = whimbrel::binary(whimbrel.as_deref())?;
            let keep = |report: &LagReport| match &output.out {
                Some(directory) => lag::show::write(report, directory, &output.name),
                None => Ok(()),
            };
            lag::run(options, &binary, place.path(), &progress, &keep).map(drop)
        }
        Command::Queue {
            directory,
            options,
            output,
        } => {
            let place = Place::new(directory)?;
            let keep = |report: &QueueReport| match &output.out {
                Some(directory) => queue::show::write(report, directory, &output.name),
                None => Ok(()),
            };
            queue::run(options, place.path(), &progress, &keep).map(|report| {
                progress.end();
                println!("{}", queue::show::markdown(&report));
            })
        }
        Command::Tables {
            reports,
            lag,
            queue,
        } => {
            let tables = match (lag, queue) {
                (true, _) => lag::show::markdown(&LagReport::read(&reports)?),
                (_, true) => queue::show::markdown(&QueueReport::read(&reports)?),
                _ => text::markdown(&Report::read(&reports)?),
            };
            println!("{tables}");
            Ok(())
        }
        Command::WithinBounds {
            whimbrel,
            directory,
            address,
            bounds,
            output,
        } => within_bounds(whimbrel, directory, address, &bounds, &output, &progress),
    };
    progress.end();
    done
}

fn all() -> Vec<Scenario> {
    Scenario::value_variants().to_vec()
}

/// A directory that was given, or a temporary one.
enum Place {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Place {
    fn new(given: Option<PathBuf>) -> Result<Place> {
        Ok(match given {
            Some(path) => {
                std::fs::create_dir_all(&path).map_err(io_at(path.display()))?;
                Place::Given(std::path::absolute(&path).map_err(io_at(path.display()))?)
            }
            None => Place::Temporary(
                tempfile::Builder::new()
                    .prefix("whimbrel-bench-")
                    .tempdir()
                    .map_err(io_at("a temporary directory"))?,
            ),
        })
    }

    fn path(&self) -> &std::path::Path {
        match self {
            Place::Given(path) => path,
            Place::Temporary(directory) => directory.path(),
        }
    }
}

fn finish(report: &Report, output: &Output) -> Result<()> {
    match &output.out {
        Some(directory) => report.write(directory, &output.name),
        None => Ok(()),
    }
}

fn on_one(
    scenarios: Vec<Scenario>,
    address: Address,
    amount: &Amount,
    output: &Output,
    progress: &Progress,
) -> Result<()> {
    let possible = |scenario: &Scenario| match scenario {
        Scenario::Lmtp => address.lmtp.is_some(),
        Scenario::Smtp => address.smtp.is_some(),
        Scenario::Pop3 => address.pop3s.is_some(),
        _ => address.imap.is_some() || address.imaps.is_some(),
    };
    let scenarios = if scenarios.is_empty() {
        all().into_iter().filter(possible).collect()
    } else {
        scenarios
    };
    let target = Target::new(address);
    let mut report = Report::new();
    let place = std::env::temp_dir();
    for run in 0..amount.runs {
        let seed = amount.seed + run as u64;
        let mut made = Run {
            server: target.address.label.clone(),
            seed,
            disk_before: disk::syncs_per_second(&place)?,
            machine_load: process::load(),
            ..Run::default()
        };
        let mut context = Context::new(&target, progress, &amount.sizes(), seed);
        for scenario in &scenarios {
            context.run(*scenario)?;
        }
        made.disk_after = disk::syncs_per_second(&place)?;
        made.rows = context.rows;
        made.series = context.series;
        report.runs.push(made);
    }
    finish(&report, output)
}

fn within_bounds(
    binary: Option<PathBuf>,
    directory: Option<PathBuf>,
    address: Address,
    bounds: &Bounds,
    output: &Output,
    progress: &Progress,
) -> Result<()> {
    let place = Place::new(directory)?;
    let own = if address.pid.is_none() {
        if !place.path().join("key.pem").exists() {
            certificate(place.path())?;
        }
        let more = [("imap", "append_bytes_max = \"1GiB\"")];
        let binary = whimbrel::binary(binary.as_deref())?;
        Some(whimbrel::start(&binary, place.path(), &more)?)
    } else {
        None
    };
    let target = Target::new(own.as_ref().map_or(address, |own| own.address.clone()));
    let mut context = Context::new(&target, progress, &Sizes::quick(), 1);
    let done = bounds::run(&mut context, bounds);
    let report = Report {
        runs: vec![Run {
            server: target.address.label.clone(),
            seed: context.seed,
            machine_load: process::load(),
            rows: context.rows,
            ..Run::default()
        }],
        ..Report::new()
    };
    finish(&report, output)?;
    if let Some(own) = own {
        own.stop()?;
    }
    done
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_helpful() {
        let command = Cli::command();
        command.clone().debug_assert();
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{}", argument.get_id());
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
        check("whimbrel-bench compare --only write,lmtp --runs 3", true);
        check("whimbrel-bench run write --imaps 993 --pid 3", true);
        check("whimbrel-bench bounds --bulk-mib 10", true);
        check("whimbrel-bench tables a.json b.json", true);
        check("whimbrel-bench tables --lag a.json", true);
        check("whimbrel-bench tables --queue a.json", true);
        check("whimbrel-bench queue --nodes 2,7 --producers 1,1000", true);
        check("whimbrel-bench queue --nodes 21", false);
        check("whimbrel-bench lag --quick --alone --out x", true);
        check(
            "whimbrel-bench lag --nodes 1,2,7 --delays 0,20 --partition 600",
            true,
        );
        check("whimbrel-bench lag --nodes 0", false);
        check("whimbrel-bench tables", false);
        check("whimbrel-bench run nothing", false);
        check("whimbrel-bench", false);
    }
}
