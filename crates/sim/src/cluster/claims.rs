//! How often UIDs are claimed again when an account is read and written in several regions at once (docs/design.md#rule-4, docs/design.md#rule-5).
//!
//! Each region has a session that looks at INBOX all the time and a client that appends to it at a steady rate. Counted are the claims made again, and how
//! long APPEND waits for the other regions, in virtual time: so the figures are the same on every machine. UIDVALIDITY must stay
//! (docs/design.md#rule-7), and U1 to U3 are checked
//! as in the random clusters.

use std::collections::BTreeMap;

use whimbrel_service::{
    api::{AccountId, Call, MailboxCall, MailboxName, NewMail, Reply, SessionId},
    machine::RequestId,
    owner,
};

use super::{
    Disks, MS, Plan, SECOND, Uids, World,
    blobs::{content, date, text},
};
use crate::{client, world::Breach};

/// For so long is written.
const WRITING_MICROS: u64 = 30 * SECOND;

/// The network is broken from this time on, for so long.
const CUT: (u64, u64) = (10 * SECOND, 10 * SECOND);

/// So often each region is looked at.
const LOOK_MICROS: u64 = 100 * MS;

/// Nodes must be alike after so long.
const HEALING_MICROS_MAX: u64 = 120 * SECOND;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Regions, of one node each.
    pub regions: u64,
    /// Messages that are appended in each region in a second.
    pub per_second: u64,
    /// One way between two regions, at most; at least a quarter.
    pub latency_micros: u64,
    /// What is broken for a third of the time.
    pub broken: Shape,
}

/// What is broken in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Whole,
    /// One region is cut off.
    Region,
    /// The link between two regions.
    Link,
    /// The same, in one direction.
    OneWay,
    /// Two regions on each side.
    Halves,
    /// Of four regions each reaches two others.
    Ring,
    /// Of four regions those at the ends reach one other, those between them two.
    Chain,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Whole => "nothing",
            Self::Region => "one region, 10 s of 30",
            Self::Link => "one link, 10 s of 30",
            Self::OneWay => "one way of a link, 10 s of 30",
            Self::Halves => "two and two, 10 s of 30",
            Self::Ring => "links across a ring, 10 s of 30",
            Self::Chain => "all but a chain, 10 s of 30",
        }
    }

    /// Links that are down.
    fn links(self, regions: usize) -> Vec<(usize, usize)> {
        match self {
            Self::Whole => Vec::new(),
            Self::Region => (1..regions).map(|other| (0, other)).collect(),
            Self::Link | Self::OneWay => vec![(0, 1)],
            Self::Halves => vec![(0, 2), (0, 3), (1, 2), (1, 3)],
            Self::Ring => vec![(0, 2), (1, 3)],
            Self::Chain => vec![(0, 2), (0, 3), (1, 3)],
        }
    }
}

impl Setting {
    /// Whether each is heard before it is waited for long enough.
    fn hears_in_time(&self) -> bool {
        self.broken == Shape::Whole && 2 * self.latency_micros < 2 * SECOND
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Messages.
    pub messages: u64,
    /// Claims made again, at all nodes.
    pub again: u64,
    /// How long the answer to APPEND took, in virtual microseconds: the median and the greatest.
    pub answered_micros: (u64, u64),
}

impl Outcome {
    /// Claims for each message, the first one among them, in hundredths.
    #[must_use]
    pub fn claims_percent(&self) -> u64 {
        (self.messages + self.again) * 100 / self.messages.max(1)
    }
}

/// The table in `docs/replication.md`: one row for each setting, in virtual time only, so that whoever runs it gets the same.
///
/// # Errors
/// The first breach.
pub fn table() -> Result<String, Breach> {
    let mut table = "| regions | messages/s in each | broken | messages | claims made again | claims a message | APPEND answered after, median | at most |\n|---|---|---|---|---|---|---|---|\n".to_owned();
    for setting in settings() {
        let outcome = run(&setting, 1)?;
        let claims = outcome.claims_percent();
        let (median, most) = outcome.answered_micros;
        table.push_str(&format!(
            "| {} | {} | {} | {} | {} | {}.{:02} | {} ms | {} ms |\n",
            setting.regions,
            setting.per_second,
            setting.broken.name(),
            outcome.messages,
            outcome.again,
            claims / 100,
            claims % 100,
            median / 1000,
            most / 1000,
        ));
    }
    Ok(table)
}

fn settings() -> Vec<Setting> {
    let mut all = Vec::new();
    for regions in [2, 3] {
        for broken in [Shape::Whole, Shape::Region] {
            for per_second in [1, 5, 10, 20] {
                all.push((regions, per_second, broken));
            }
        }
    }
    for (regions, broken) in [
        (3, Shape::Link),
        (3, Shape::OneWay),
        (4, Shape::Link),
        (4, Shape::Ring),
        (4, Shape::Chain),
        (4, Shape::Halves),
    ] {
        for per_second in [1, 5] {
            all.push((regions, per_second, broken));
        }
    }
    let setting = |(regions, per_second, broken)| Setting {
        regions,
        per_second,
        latency_micros: 120 * MS,
        broken,
    };
    all.into_iter().map(setting).collect()
}

/// Runs one setting.
///
/// # Errors
/// The first breach.
pub fn run(setting: &Setting, seed: u64) -> Result<Outcome, Breach> {
    let plan = Plan {
        seed,
        nodes: setting.regions,
        accounts: 1,
        partitions: None,
        clients: 0,
        calls: 0,
        latency_micros: Some(setting.latency_micros),
        skewed: false,
        tiny_memory: false,
        small_windows: false,
        kept: 0,
        // A batch that is applied in parts is late.
        foreign_bytes_max: owner::Config::default().foreign_bytes_max,
        loses: false,
        leaves: 0,
        protocol_clients: 0,
        disks: Disks::Own,
        ..Plan::new(seed)
    };
    let mut bench = Bench {
        world: World::new(plan, false),
        setting: *setting,
        asked: BTreeMap::new(),
        waited: Vec::new(),
        told: Vec::new(),
    };
    bench
        .play()
        .map_err(|cause| Breach(format!("{setting:?} at {} us: {cause}", bench.world.now)))
}

enum Asked {
    Append(usize, u64, u32),
    Look(usize, u64),
}

struct Bench {
    world: World,
    setting: Setting,
    asked: BTreeMap<RequestId, Asked>,
    waited: Vec<u64>,
    /// UIDs that APPEND was told, by which node and when.
    told: Vec<(usize, u32, u64)>,
}

/// What happens at a time of its own.
enum Due {
    Append(usize),
    Look(usize),
    Break,
}

impl Bench {
    fn play(&mut self) -> Result<Outcome, String> {
        self.world.begin()?;
        let nodes = self.world.members.len();
        let sessions: Vec<SessionId> = (0..nodes).map(|_| self.world.session()).collect();
        // The account is known everywhere, then all know who reads, before anything is written.
        let slow = 4 * self.setting.latency_micros;
        self.pass(self.world.now + slow.max(3 * SECOND))?;
        for (node, session) in sessions.iter().enumerate() {
            self.look(node, *session);
        }
        self.pass(self.world.now + slow.max(5 * SECOND))?;
        let begin = self.world.now;
        let mut due: BTreeMap<(u64, u64), Due> = BTreeMap::new();
        let mut put = |time: u64, what: Due| {
            let count = due.len() as u64;
            due.insert((time, count), what);
        };
        for node in 0..nodes {
            let pause = SECOND / self.setting.per_second;
            let mut time = begin + self.world.rng.below(pause);
            while time < begin + WRITING_MICROS {
                put(time, Due::Append(node));
                // Not in step with each other.
                time += self.world.rng.between(pause / 2, pause * 3 / 2);
            }
            let looks =
                (begin..begin + WRITING_MICROS).step_by(usize::try_from(LOOK_MICROS).unwrap_or(1));
            looks.for_each(|time| put(time, Due::Look(node)));
        }
        if self.setting.broken != Shape::Whole {
            put(begin + CUT.0, Due::Break);
        }
        let mut messages = 0;
        while let Some(((time, _), what)) = due.pop_first() {
            self.pass(time)?;
            match what {
                Due::Append(node) => {
                    messages += 1;
                    self.append(node, sessions[node])?;
                }
                Due::Look(node) => self.look(node, sessions[node]),
                Due::Break => {
                    for (one, other) in self.setting.broken.links(nodes) {
                        let silence = self.world.rng.below(3 * SECOND);
                        let (now, until) = (self.world.now, self.world.now + CUT.1);
                        let network = &mut self.world.network;
                        if self.setting.broken == Shape::OneWay {
                            network.lose(now, one, other, until, 3 * SECOND);
                        } else {
                            network.cut(now, one, other, until, silence);
                        }
                    }
                }
            }
        }
        let end = self.world.now + HEALING_MICROS_MAX;
        loop {
            self.pass(self.world.now + 5 * SECOND)?;
            let difference = self.world.differences()?;
            match difference {
                None if self.asked.is_empty() => break,
                other if self.world.now > end => {
                    return Err(format!("U3: nodes do not become alike: {other:?}"));
                }
                _ => {}
            }
        }
        self.world.nothing_lost()?;
        self.waited.sort_unstable();
        let again = self
            .world
            .members
            .iter()
            .map(|member| member.node.figures().uids_reassigned);
        Ok(Outcome {
            messages,
            again: again.sum(),
            answered_micros: (
                self.waited[self.waited.len() / 2],
                self.waited.last().copied().unwrap_or(0),
            ),
        })
    }

    fn account(&self) -> AccountId {
        self.world.accounts[0]
    }

    fn ask(&mut self, node: usize, call: MailboxCall, asked: Asked) {
        let request = self.world.request();
        let account = self.account();
        self.world.bring(node);
        let call = Call::mailbox(account, call);
        self.world.members[node].node.call(request, call);
        self.asked.insert(request, asked);
    }

    fn look(&mut self, node: usize, session: SessionId) {
        let call = MailboxCall::Select {
            session,
            name: MailboxName::inbox(),
            read_only: false,
        };
        let now = self.world.now;
        self.ask(node, call, Asked::Look(node, now));
    }

    fn append(&mut self, node: usize, session: SessionId) -> Result<(), String> {
        self.world.next_body += 1;
        let body = self.world.next_body;
        self.world.bring(node);
        let blob = self.world.members[node].node.upload(text(body));
        let account = self.account();
        self.world.kept.made(account, body);
        let call = MailboxCall::Append {
            session,
            name: MailboxName::inbox(),
            messages: vec![NewMail {
                flags: client::flags(&[].into()),
                date: date(body),
                size: body,
                open_end: false,
                blob: blob.ok_or("an upload was refused")?,
                content: content(body),
            }],
            replaces: None,
        };
        let now = self.world.now;
        self.ask(node, call, Asked::Append(node, now, body));
        Ok(())
    }

    /// Lets time pass, and looks at each answer when it comes.
    fn pass(&mut self, until: u64) -> Result<(), String> {
        while self.world.next_time().is_some_and(|next| next <= until) {
            self.world.step()?;
            for (request, reply) in std::mem::take(&mut self.world.answers) {
                let Some(asked) = self.asked.remove(&request) else {
                    self.world.answers.insert(request, reply);
                    continue;
                };
                self.answered(asked, reply)?;
            }
        }
        self.world.now = self.world.now.max(until);
        Ok(())
    }

    fn answered(&mut self, asked: Asked, reply: Reply) -> Result<(), String> {
        let account = self.account();
        match (asked, reply) {
            (Asked::Append(node, since, body), Reply::Appended { uids, .. }) => {
                let now = self.world.now;
                self.told
                    .extend(uids.into_iter().map(|uid| (node, uid, now)));
                self.world.kept.acknowledged(account, body);
                self.waited.push(self.world.now - since);
                Ok(())
            }
            (Asked::Look(node, asked), Reply::Selected(selected)) => {
                let uids: Uids = selected.uids.iter().collect();
                let mut told = self
                    .told
                    .iter()
                    .filter(|(of, _, at)| *of == node && *at < asked);
                // What was told too soon may be another by now.
                let in_time = self.setting.hears_in_time();
                if let Some((_, uid, _)) = told.find(|(_, uid, _)| in_time && !uids.contains(uid)) {
                    return Err(format!("node {node} told UID {uid}, and does not show it"));
                }
                let (validity, next) = (selected.status.uid_validity, selected.status.uid_next);
                let looks = &mut self.world.looks;
                looks.validity(account, validity)?;
                looks.looked(node, account, "INBOX", &uids, next)
            }
            (_, reply) => Err(format!("answered by {reply:?}")),
        }
    }
}
