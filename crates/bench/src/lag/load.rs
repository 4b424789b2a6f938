//! What is injected: pluto's sessions at a set rate, and what each account must hold after each answer.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::nodes::Nodes;
use crate::{
    error::Result,
    random::Random,
    scenario::{
        session::{FLAGS, KINDS, Session, Step},
        write::take,
    },
    target::{Target, WRITERS, threads},
};

/// Connections at once, divided among the regions that inject.
const CONNECTIONS: usize = 20;

/// A change of an account's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The command was sent.
    pub began: Instant,
    /// Its OK was read.
    pub acknowledged: Instant,
    /// What the account holds with this and all that were acknowledged before.
    pub bytes: i64,
}

/// What all accounts hold, by what clients were told.
pub struct Ledger(Vec<Mutex<Vec<Change>>>);

impl Default for Ledger {
    fn default() -> Self {
        Ledger((0..=WRITERS).map(|_| Mutex::default()).collect())
    }
}

impl Ledger {
    fn note(&self, user: usize, began: Instant, bytes: i64) {
        let mut changes = self.0[user].lock().unwrap_or_else(PoisonError::into_inner);
        let before = changes.last().map_or(0, |change| change.bytes);
        changes.push(Change {
            began,
            acknowledged: Instant::now(),
            bytes: before + bytes,
        });
    }

    /// All changes of a user's bytes.
    #[must_use]
    pub fn changes(&self, user: usize) -> Vec<Change> {
        let changes = self.0[user].lock().unwrap_or_else(PoisonError::into_inner);
        changes.clone()
    }

    /// What a user's account holds.
    #[must_use]
    pub fn bytes(&self, user: usize) -> i64 {
        let changes = self.0[user].lock().unwrap_or_else(PoisonError::into_inner);
        changes.last().map_or(0, |change| change.bytes)
    }
}

/// How far what a node shows is from what was acknowledged: 0 if it was right at some moment between asking and answer. What was under way then may
/// be shown or not.
#[must_use]
pub fn lag_bytes(changes: &[Change], asked: Instant, answered: Instant, shown: i64) -> u64 {
    let before = changes.partition_point(|change| change.acknowledged < asked);
    let held = |at: usize| match at {
        0 => 0,
        at => changes[at - 1].bytes,
    };
    let mut least = held(before).abs_diff(shown);
    for (at, change) in changes.iter().enumerate().skip(before) {
        if change.began > answered {
            break;
        }
        least = least.min(held(at + 1).abs_diff(shown));
    }
    least
}

/// How much, where, how fast.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The nodes that clients write to.
    pub regions: Vec<usize>,
    /// Commands a second, all together; `None`: as many as go.
    pub rate: Option<f64>,
    /// How long.
    pub time: Duration,
    /// All choices follow from it.
    pub seed: u64,
}

/// What clients saw.
#[derive(Default)]
pub struct Injected {
    /// Microseconds of each kind of command, in the order of [`KINDS`].
    pub kinds: [Vec<u32>; KINDS.len()],
    /// From the beginning to the last answer.
    pub seconds: f64,
}

impl Injected {
    /// Commands.
    #[must_use]
    pub fn count(&self) -> usize {
        self.kinds.iter().map(Vec::len).sum()
    }

    /// Commands a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.count() as f64 / self.seconds.max(1e-9)
    }
}

/// Runs the load.
pub fn inject(nodes: &Nodes, ledger: &Ledger, plan: &Plan) -> Result<Injected> {
    let started = Instant::now();
    let every = plan
        .rate
        .map(|rate| Duration::from_secs_f64(CONNECTIONS as f64 / rate.max(0.001)));
    let done = threads(CONNECTIONS, |thread, _| {
        let target = &nodes.targets[plan.regions[thread % plan.regions.len()]];
        let mut pace = Pace {
            // Connections do not speak all at once.
            next: started
                + every
                    .unwrap_or_default()
                    .mul_f64(thread as f64 / CONNECTIONS as f64),
            every,
        };
        let mut kinds: [Vec<u32>; KINDS.len()] = Default::default();
        let mut number = 0;
        while started.elapsed() < plan.time {
            let mut random = Random::part(plan.seed, (thread as u64) << 32 | number);
            let user = random.between(1, WRITERS);
            let session = Session::new(thread, random);
            let until = started + plan.time;
            converse(target, user, session, ledger, &mut pace, until, &mut kinds)?;
            number += 1;
        }
        Ok(kinds)
    })?;
    let mut injected = Injected {
        seconds: started.elapsed().as_secs_f64(),
        ..Injected::default()
    };
    for kinds in done {
        for (all, mut of_thread) in injected.kinds.iter_mut().zip(kinds) {
            all.append(&mut of_thread);
        }
    }
    injected
        .kinds
        .iter_mut()
        .for_each(|kind| kind.sort_unstable());
    Ok(injected)
}

/// Commands of one connection: each at its time, or at once if that is over.
struct Pace {
    next: Instant,
    every: Option<Duration>,
}

impl Pace {
    fn wait(&mut self) {
        if let Some(every) = self.every {
            std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
            self.next += every;
        }
    }
}

/// The messages of a session's folders: bytes, and whether they are to be expunged.
type Folders = BTreeMap<String, Vec<(i64, bool)>>;

fn converse(
    target: &Target,
    user: usize,
    session: Session,
    ledger: &Ledger,
    pace: &mut Pace,
    until: Instant,
    kinds: &mut [Vec<u32>; KINDS.len()],
) -> Result<()> {
    let mut imap = target.login(user)?;
    let mut folders = Folders::new();
    let mut selected = String::new();
    for step in session {
        pace.wait();
        if Instant::now() >= until {
            break;
        }
        let kind = step.kind();
        let change = change(&mut folders, &mut selected, &step);
        let began = Instant::now();
        take(&mut imap, step)?;
        kinds[kind].push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
        if change != 0 {
            ledger.note(user, began, change);
        }
    }
    imap.logout()
}

/// What a step changes of the account's bytes.
fn change(folders: &mut Folders, selected: &mut String, step: &Step) -> i64 {
    let deleted = FLAGS.iter().position(|flag| *flag == "\\Deleted");
    let bit = deleted.map_or(0, |bit| 1u8 << bit);
    let sum = |messages: &[(i64, bool)]| messages.iter().map(|message| message.0).sum::<i64>();
    match step {
        Step::Create(name) => {
            folders.insert(name.clone(), Vec::new());
            0
        }
        Step::Delete(name) => -sum(&folders.remove(name).unwrap_or_default()),
        Step::Append {
            mailbox, message, ..
        } => {
            let bytes = message.len() as i64;
            folders
                .entry(mailbox.clone())
                .or_default()
                .push((bytes, false));
            bytes
        }
        Step::Select { mailbox, .. } => {
            selected.clone_from(mailbox);
            0
        }
        Step::Store { number, flags, .. } => {
            let message = folders
                .get_mut(selected)
                .and_then(|folder| folder.get_mut(number - 1));
            if let Some(message) = message {
                message.1 = flags & bit != 0;
            }
            0
        }
        Step::Expunge(_) => {
            let folder = folders.entry(selected.clone()).or_default();
            let before = sum(folder);
            folder.retain(|message| !message.1);
            sum(folder) - before
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_counts_from_what_was_acknowledged() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let changes: Vec<Change> = [(10, 20, 100), (30, 40, 300), (50, 60, 250)]
            .map(|(began, acknowledged, bytes)| Change {
                began: at(began),
                acknowledged: at(acknowledged),
                bytes,
            })
            .into();
        let check = |asked, answered, shown, expected| {
            let lag = lag_bytes(&changes, at(asked), at(answered), shown);
            assert_eq!(lag, expected, "{asked} {answered} {shown}");
        };
        check(0, 5, 0, 0);
        check(25, 26, 100, 0);
        check(25, 26, 0, 100);
        // Under way: shown or not.
        check(35, 36, 100, 0);
        check(35, 36, 300, 0);
        check(45, 46, 100, 200);
        // Two changes behind.
        check(70, 71, 100, 150);
        check(70, 71, 250, 0);
    }

    #[test]
    fn bytes_follow_the_steps() {
        let (mut folders, mut selected) = (Folders::new(), String::new());
        let mut take = |step: Step| change(&mut folders, &mut selected, &step);
        let append = |bytes: usize| Step::Append {
            mailbox: "a".into(),
            message: vec![0; bytes],
            exists: None,
        };
        assert_eq!(take(Step::Create("a".into())), 0);
        assert_eq!(take(append(10)), 10);
        assert_eq!(take(append(7)), 7);
        let select = Step::Select {
            mailbox: "a".into(),
            exists: 2,
        };
        assert_eq!(take(select), 0);
        let store = Step::Store {
            number: 1,
            flags: 0b1000,
            changed: true,
        };
        assert_eq!(take(store), 0);
        assert_eq!(take(Step::Expunge(1)), -10);
        assert_eq!(take(Step::Delete("a".into())), -7);
    }
}
