//! What each command does.

use std::{
    env,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    pin::pin,
    process::{self, ExitCode},
    sync::Arc,
};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
};

use super::{
    Cli, Command, ConfigFile, EXIT_FATAL, accounts, check, cluster, node, queue, transfer,
};
use crate::{
    actor::Fatal,
    config::{self, Config},
    demo,
    log::{self, shown},
    node::DataDir,
    notify::Notifier,
    serve::{Server, Sockets, StartError},
    waiting::Waits,
};

/// The message when a command fails: one line.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the command line.
pub fn run(cli: Cli) -> ExitCode {
    // Every file that is made may contain mail: no other user may read it.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let command = match cli.command {
        Command::Import { from } => return ended(transfer::import(from)),
        Command::Cluster { command } => return ended(cluster::cluster(command)),
        Command::Export {
            address,
            form,
            to,
            config,
        } => return ended(transfer::export(&address, form, &to, &config)),
        other => other,
    };
    let done = match command {
        Command::Import { .. } | Command::Export { .. } | Command::Cluster { .. } => Ok(()),
        Command::Serve { config } => {
            return_memory_soon();
            serve(&config)
        }
        Command::Account { command } => accounts::account(command),
        Command::Alias { command } => accounts::alias(command),
        Command::Queue { command } => queue::queue(command),
        Command::Check {
            json,
            scratch,
            config,
        } => check::check(&config, scratch.as_deref(), json),
        Command::Node { command } => node::node(command),
        Command::Config { markdown } => print(&if markdown {
            config::documentation()
        } else {
            config::example()
        }),
        Command::Demo {
            regions,
            first_port,
            exit,
        } => runtime()
            .map_err(Failure::from)
            .and_then(|runtime| match regions {
                None => runtime.block_on(demo::run(exit, fatal())),
                Some(count) => {
                    runtime.block_on(demo::regions::run(count, first_port, exit, fatal()))
                }
            }),
    };
    ended(done.map(|()| ExitCode::SUCCESS))
}

fn ended(done: Result<ExitCode, Failure>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(failure) => {
            // The text may contain a server's text, or names of files.
            let failure = shown(&failure.to_string());
            let _ = writeln!(io::stderr(), "whimbrel: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Ends the process at once: code that ran on could acknowledge what is lost.
pub(super) fn fatal() -> Fatal {
    Arc::new(|reason| {
        tracing::error!(reason, "the node stops itself");
        let _ = writeln!(io::stderr(), "whimbrel: stopped: {reason}");
        std::process::exit(EXIT_FATAL);
    })
}

pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .thread_name("whimbrel")
        .enable_all()
        .build()
}

pub(super) fn load(file: &ConfigFile) -> Result<Config, Failure> {
    Ok(Config::load(file.found().as_deref())?)
}

pub(super) fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        // `whimbrel config | head` is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn serve(file: &ConfigFile) -> Result<(), Failure> {
    let config = load(file)?;
    log::start(&config.log);
    raise_descriptor_limit();
    if !config.server.huge_pages {
        refuse_huge_pages();
    }
    runtime()?.block_on(async {
        // Before anything else, so that a signal during the start is not lost.
        let mut hangup = signal(SignalKind::hangup())?;
        let mut signals = Stop::new()?;
        let notifier = Notifier::from_environment();
        let data = DataDir::open(&config.server.data_dir)?;
        let sockets = Sockets::open(&config, false)?;
        let started = {
            let waits = Waits {
                notifier: &notifier,
                stopped: pin!(signals.asked()),
            };
            Server::start(&config, data, sockets, fatal(), Some(waits)).await
        };
        let server = match started {
            Err(StartError::Stopped) => {
                notifier.stopping();
                return Ok(());
            }
            started => started?,
        };
        notifier.ready();
        let board = Arc::clone(&server.service().board);
        let alive = tokio::spawn(Arc::clone(&notifier).keep_alive(board));
        loop {
            tokio::select! {
                () = signals.asked() => break,
                _ = hangup.recv() => {
                    notifier.reloading();
                    server.reload().await;
                    notifier.ready();
                }
            }
        }
        notifier.stopping();
        // It has the router, which ends with the machines.
        alive.abort();
        // Asked again: at once.
        tokio::select! {
            _ = server.stop() => {}
            () = signals.asked() => tracing::warn!("stopping at once"),
        }
        Ok(())
    })
}

/// As many descriptors as the system lets us have: the usual soft limit of 1024 is for programs that use select(2).
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    ) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// The allocator asks for pages of 2 MiB. They are faster to go through, but one small buffer in use keeps all of such a page, and what a server
/// of many small buffers holds is then decided by where they happen to lie: with 200,000 messages and 50 clients it was a fifth more.
fn refuse_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "cannot do without huge pages");
    }
}

/// How long the allocator keeps what nobody uses before the system gets it back, in milliseconds. Its own default is a second: by then
/// another load takes pages of its own, and when nothing happens it keeps them for good. After 50 clients had been at a mailbox of 200,000 messages
/// the process had 240 MiB with that, and 166 with this.
const RETURN_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "10");

/// The allocator is told by the environment alone, which it reads before anything of ours runs: so the program begins anew, as the same
/// process, and before it has read or opened anything. What somebody has set stays; where it cannot begin anew, it goes on.
fn return_memory_soon() {
    let mut arguments = env::args_os();
    if let (None, Some(name), Ok(program)) = (
        env::var_os(RETURN_DELAY.0),
        arguments.next(),
        env::current_exe(),
    ) {
        let mut again = process::Command::new(program);
        again.arg0(name).args(arguments);
        let error = again.env(RETURN_DELAY.0, RETURN_DELAY.1).exec();
        let _ = writeln!(io::stderr(), "whimbrel: more memory is used: {error}");
    }
}

/// SIGTERM and SIGINT.
pub(crate) struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
