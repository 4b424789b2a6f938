//! What one account costs the others: it does the worst that it can on many connections, while another account works.
//!
//! What is measured are the other account's commands: NOOP, APPEND and a delivery to it, one after the other.

use std::{
    io::ErrorKind,
    net::{Shutdown, TcpStream},
    sync::{
        Barrier, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{BOUNDS_USER, Bounds, Context, READERS};
use crate::{
    error::{Result, io_at, wrong},
    imap::Imap,
    mail,
    measure::Samples,
    random::Random,
    smtp::Kind,
    target::threads,
};

/// How long each load goes on.
const LOAD_FOR: Duration = Duration::from_secs(10);

/// Messages in the mailbox that is copied, sorted and flagged.
const MESSAGES: usize = 10_000;

/// Keywords of one message, each of its own.
const KEYWORDS: usize = 100;

/// One step of a load, on one of its connections. What is answered by NO is no trouble.
type Step = fn(&mut Imap, &mut Random, usize) -> Result<()>;

/// A load of one account.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) name: &'static str,
    step: Step,
}

/// All of them.
pub(super) const LOADS: &[Load] = &[
    Load {
        name: "lists of many patterns",
        step: lists,
    },
    Load {
        name: "lists that nobody reads",
        step: unread,
    },
    Load {
        name: "keywords",
        step: keywords,
    },
    Load {
        name: "copies",
        step: copies,
    },
    Load {
        name: "flags, sorts and searches",
        step: sorts,
    },
    Load {
        name: "all of these",
        step: all,
    },
];

/// What the loads work on: mailboxes with long names, and one with messages.
pub(super) fn prepare(context: &Context, bounds: &Bounds) -> Result<Samples> {
    let mut imap = context.target.login(BOUNDS_USER)?;
    let mut numbers = (0..bounds.names).peekable();
    while numbers.peek().is_some() {
        let some = numbers.by_ref().take(100);
        let tags: Result<Vec<u32>> = some
            .map(|number| {
                let name = format!("{number:05}{}", "y".repeat(900));
                imap.send_command(&format!("CREATE \"{name}\""))
            })
            .collect();
        for tag in tags? {
            // It may be there from the last time.
            imap.finish(tag, |_| Ok(()))?;
        }
    }
    imap.logout()?;
    let make = |number| mail::sized(&mut Random::part(14, number as u64), number, 500);
    let count = MESSAGES.min(bounds.messages);
    context
        .target
        .fill(BOUNDS_USER, "Many", count, &make, &|_| ())?;
    Ok(Samples::default())
}

/// Runs a load, and gives what the other account saw meanwhile.
pub(super) fn run(context: &Context, bounds: &Bounds, load: Load) -> Result<Samples> {
    let attack = Attack::new(bounds.attackers);
    let all = threads(bounds.attackers + 1, |thread, _| {
        if thread == 0 {
            attack.all_there.wait();
            let seen = neighbour(context);
            attack.end()?;
            return seen;
        }
        let there = attack.enter(context);
        attack.all_there.wait();
        let Some(mut imap) = there? else {
            return Ok(Samples::default());
        };
        let mut random = Random::part(context.seed, 900 + thread as u64);
        let mut steps = 0;
        while !attack.has_ended() {
            match (load.step)(&mut imap, &mut random, steps) {
                // The connection was closed under it.
                Err(_) if attack.has_ended() => break,
                done => done?,
            }
            steps += 1;
        }
        Ok(Samples::default())
    })?;
    Ok(Samples::joined(all))
}

/// The connections of a load. They are closed when it ends: a command under way may take minutes, as two hundred of them share the server.
struct Attack {
    /// The load begins when each connection is there or refused.
    all_there: Barrier,
    connections: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

impl Attack {
    fn new(connections: usize) -> Attack {
        Attack {
            all_there: Barrier::new(connections + 1),
            connections: Mutex::new(Vec::new()),
            ended: AtomicBool::new(false),
        }
    }

    /// A session in the mailbox with messages. A server may refuse so many connections of one account.
    fn enter(&self, context: &Context) -> Result<Option<Imap>> {
        let Ok(mut imap) = context.target.login(BOUNDS_USER) else {
            return Ok(None);
        };
        imap.select("Many")?;
        self.lock().push(imap.handle()?);
        Ok(Some(imap))
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn end(&self) -> Result<()> {
        self.ended.store(true, Ordering::SeqCst);
        for connection in self.lock().drain(..) {
            // The server may have closed it before.
            match connection.shutdown(Shutdown::Both) {
                Err(cause) if cause.kind() != ErrorKind::NotConnected => {
                    return Err(io_at("close")(cause));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another account, which wants nothing special.
fn neighbour(context: &Context) -> Result<Samples> {
    let target = &context.target;
    let message = mail::sized(&mut Random::new(context.seed), 1, 5_000);
    let mut imap = target.login(READERS.start)?;
    imap.select("INBOX")?;
    let mut lmtp = target.smtp(Kind::Lmtp)?;
    let recipient = target.user(READERS.start);
    let mut samples = Samples::default();
    let began = Instant::now();
    while began.elapsed() < LOAD_FOR {
        samples.time(|| imap.run("NOOP"))?;
        samples.time(|| imap.append("INBOX", &message))?;
        samples.time(|| lmtp.deliver(&recipient, &message))?;
    }
    lmtp.quit()?;
    imap.logout()?;
    Ok(samples)
}

fn lists(imap: &mut Imap, _: &mut Random, _: usize) -> Result<()> {
    let pattern = format!("\"*{}%z\" ", "y*".repeat(61));
    let patterns = pattern.repeat(31);
    imap.ask(&format!("LIST \"\" ({})", patterns.trim_end()))?;
    Ok(())
}

/// The first steps fill what lies between; then it rests.
fn unread(imap: &mut Imap, _: &mut Random, step: usize) -> Result<()> {
    if step < 3 {
        imap.send_command("LIST \"\" *")?;
    } else {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn keywords(imap: &mut Imap, random: &mut Random, _: usize) -> Result<()> {
    let number = random.bits();
    let words: Vec<String> = (0..KEYWORDS)
        .map(|n| format!("k{number:016x}-{n}"))
        .collect();
    imap.ask(&format!("APPEND Archive ({}) {{1+}}\r\nx", words.join(" ")))?;
    let first = random.between(1, MESSAGES);
    imap.ask(&format!(
        "STORE {first} +FLAGS.SILENT ({})",
        words.join(" ")
    ))?;
    Ok(())
}

fn copies(imap: &mut Imap, _: &mut Random, _: usize) -> Result<()> {
    imap.ask("COPY 1:* Trash")?;
    Ok(())
}

fn sorts(imap: &mut Imap, random: &mut Random, _: usize) -> Result<()> {
    let command = *random.pick(&[
        "STORE 1:* +FLAGS.SILENT (a b c)",
        "STORE 1:* -FLAGS.SILENT (a b c)",
        "SORT (SUBJECT FROM DATE) UTF-8 ALL",
        "THREAD REFERENCES UTF-8 ALL",
        "SEARCH TEXT nowhere",
        "FETCH 1:* (FLAGS ENVELOPE BODYSTRUCTURE)",
    ]);
    imap.ask(command)?;
    Ok(())
}

fn all(imap: &mut Imap, random: &mut Random, step: usize) -> Result<()> {
    let steps: [Step; 4] = [lists, keywords, copies, sorts];
    random.pick(&steps)(imap, random, step)
}

/// Whether the other account was served in time.
pub(super) fn judge(seen: &[(String, f64)], max: f64) -> Result<()> {
    let late = seen.iter().filter(|(_, p99)| max > 0.0 && *p99 > max);
    let late: Vec<String> = late
        .map(|(name, p99)| format!("{name}: {p99:.0} ms"))
        .collect();
    match late.is_empty() {
        true => Ok(()),
        false => wrong(format!(
            "another account waited longer than {max} ms (p99): {}",
            late.join("; ")
        )),
    }
}
