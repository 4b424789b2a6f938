//! Named histories at one machine: peers do what no honest one does.

use bytes::Bytes;
use whimbrel_crdt::{Batch, Dot, Hash, Incarnation, Section, Stamp, VersionVector};
use whimbrel_replication::Now;
use whimbrel_replication::partition::{
    Alarm, Config, Entry, Input, LogEnd, Membership, Output, Partition, Resume, StateConfig, Ticket,
};
use whimbrel_replication::roster::Holding;
use whimbrel_replication::wire::{Ack, Batches, Frame, Head, Hello, Room};

use super::{EPOCH, PARTITION};

pub type Scenario = fn() -> Result<(), String>;

pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("a greedy peer", greedy_peer),
    ("a backlog is on disk", backlog_is_on_disk),
    ("a peer that promises boundless room", boundless_room),
    ("another batch under the same number", two_hashes),
    ("a batch of a later form", a_later_form),
    ("another past in the chain", another_past),
    ("another head in the hello", another_head),
    ("a peer remembers more of us", forgotten),
    ("a batch from the future", from_the_future),
    ("too many origins", too_many_origins),
    ("garbage", garbage),
    ("resumed between storing and applying", resumed),
    ("a closed log", closed_log),
    ("a log that is closed below what is here", closed_below),
    (
        "a log that is closed below what is on its way",
        closed_under_way,
    ),
    ("an older disk", older_disk),
    ("a wait for a blob", wait_for_blob),
    ("a peer that begins again and again", again_and_again),
    ("a log that begins with a state", behind_a_state),
    ("a log that is being sent", being_sent),
    ("what was stable before the start", stable_before),
    ("a new node", super::syncing::has_what_another_had),
    ("two new nodes", super::syncing::both_are_new),
    (
        "a new node that is left",
        super::syncing::the_others_are_gone,
    ),
];

pub(super) fn node(id: u64) -> Incarnation {
    Incarnation::new(id).expect("not zero")
}

/// The ends of logs, as a frame has them.
pub(super) fn heads_of(heads: &[(u64, Hash)]) -> Vec<Head> {
    let head = |(id, hash): &(u64, Hash)| Head {
        origin: node(*id),
        hash: hash.0,
    };
    heads.iter().map(head).collect()
}

/// Logs that a machine of these histories may hear of.
pub(super) const ORIGINS_MAX: usize = 8;

pub(super) const ME: u64 = 1;

pub(super) fn now() -> Now {
    Now {
        wall_micros: EPOCH,
        mono_micros: 0,
    }
}

/// Numbers that a log keeps for who is away.
const KEPT_FOR_ABSENT: u64 = 64;

fn config() -> Config {
    Config {
        window_bytes: 16 << 10,
        origins_max: ORIGINS_MAX,
        frame_bytes_max: 2 << 10,
        kept: 16,
        cut_step: 10,
        state: StateConfig {
            window_bytes: 8000,
            chunk_bytes: 1000,
            ..StateConfig::default()
        },
        ..Config::default()
    }
}

pub(super) fn sealed(
    origin: u64,
    first: u64,
    previous: Hash,
    deps: &[(u64, u64)],
    fill: u8,
) -> (Bytes, Hash) {
    let batch = Batch {
        partition: PARTITION,
        origin: node(origin),
        first,
        count: 1,
        previous,
        deps: deps.iter().map(|(id, seq)| (node(*id), *seq)).collect(),
        stamp: Stamp {
            hlc: EPOCH,
            origin: node(origin),
        },
        sections: vec![Section {
            subject: [1; 16],
            counter: 0,
            count: 1,
            ops: vec![fill; 1000],
        }],
        blobs: Vec::new(),
    };
    let sealed = batch.seal();
    (sealed.bytes.into(), sealed.hash)
}

/// A log of one origin, from its first batch on.
pub(super) fn chain(origin: u64, count: u64, deps: &[(u64, u64)]) -> Vec<(Bytes, Hash)> {
    let mut previous = Hash::default();
    let mut batches = Vec::new();
    for first in 1..=count {
        let batch = sealed(origin, first, previous, deps, 0);
        previous = batch.1;
        batches.push(batch);
    }
    batches
}

pub(super) struct Machine(pub(super) Partition);

impl Machine {
    pub(super) fn new() -> Self {
        Self::resume(Resume::default())
    }

    /// Linked to the node 2.
    pub(super) fn resume(mut resume: Resume) -> Self {
        resume.members = Membership::of([node(ME), node(2)]);
        let machine = Partition::resume(config(), PARTITION, node(ME), resume);
        let mut machine = Self(machine.expect("a sound store"));
        machine.0.handle(now(), Input::Linked(node(2)));
        machine
    }

    pub(super) fn receive(&mut self, frame: Frame) -> Vec<Output> {
        self.input(Input::Received(node(2), frame))
    }

    pub(super) fn input(&mut self, input: Input) -> Vec<Output> {
        self.0.handle(now(), input);
        for (origin, holding) in self.0.holder_state().logs {
            let upto = holding.applied.saturating_sub(KEPT_FOR_ABSENT);
            self.0.handle(now(), Input::GiveUp(origin, upto));
        }
        std::iter::from_fn(|| self.0.poll()).collect()
    }

    pub(super) fn batches(&mut self, batches: &[(Bytes, Hash)]) -> Vec<Output> {
        self.receive(Frame::Batches(Batches {
            partition: PARTITION,
            round: 0,
            batches: batches.iter().map(|(bytes, _)| bytes.clone()).collect(),
        }))
    }

    pub(super) fn finish(&mut self, outputs: &[Output]) -> Vec<Output> {
        let tickets = outputs.iter().filter_map(|output| match output {
            Output::Store { ticket, .. } | Output::Apply { ticket, .. } => Some(*ticket),
            _ => None,
        });
        let tickets: Vec<Ticket> = tickets.collect();
        let inputs = tickets.into_iter().map(Input::Done);
        inputs.flat_map(|input| self.input(input)).collect()
    }

    pub(super) fn hello(
        &mut self,
        durable: &[(u64, u64)],
        heads: &[(u64, Hash)],
        room: u64,
    ) -> Vec<Output> {
        let hello = self.hello_of(durable, heads, room);
        self.receive(Frame::Hello(hello))
    }

    pub(super) fn hello_of(
        &self,
        durable: &[(u64, u64)],
        heads: &[(u64, Hash)],
        room: u64,
    ) -> Hello {
        let vector: VersionVector = durable.iter().map(|(id, seq)| (node(*id), *seq)).collect();
        Hello {
            partition: PARTITION,
            applied: vector.clone(),
            durable: vector,
            heads: heads_of(heads),
            room: Room {
                bytes: room,
                batches: u32::MAX,
            },
            yours: None,
            anew: None,
            syncing: None,
            lives: None,
        }
    }

    /// An input so many seconds later.
    pub(super) fn at(&mut self, seconds: u64, input: Input) -> Vec<Output> {
        let mut later = now();
        later.mono_micros += seconds * 1_000_000;
        self.0.handle(later, input);
        std::iter::from_fn(|| self.0.poll()).collect()
    }
}

pub(super) fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn stored(outputs: &[Output]) -> usize {
    let stores = outputs.iter().filter(|o| matches!(o, Output::Store { .. }));
    stores.count()
}

pub(super) fn alarm(outputs: &[Output]) -> Option<&Alarm> {
    outputs.iter().find_map(|output| match output {
        Output::Alarm(alarm) => Some(alarm),
        _ => None,
    })
}

pub(super) fn is_stopped(outputs: &[Output]) -> bool {
    outputs
        .iter()
        .any(|output| matches!(output, Output::Stop(_)))
}

fn greedy_peer() -> Result<(), String> {
    let mut machine = Machine::new();
    let batches = chain(2, 500, &[]);
    let outputs = machine.batches(&batches);
    ensure(machine.0.memory_bytes() <= 16 << 10, "memory is bounded")?;
    // Once there is room it goes on, from where it stopped.
    let taken = stored(&outputs);
    ensure(taken > 5 && taken < 20, "the window is used")?;
    machine.finish(&outputs);
    let ack = std::iter::from_fn(|| machine.0.transmit(now(), node(2))).last();
    ensure(
        matches!(ack, Some(Frame::Ack(Ack { again: Some(0), .. }))),
        "the rest is asked for again",
    )?;
    ensure(stored(&machine.batches(&batches)) == taken, "and taken")
}

fn backlog_is_on_disk() -> Result<(), String> {
    let mut machine = Machine::new();
    for batch in chain(2, 500, &[(3, 1)]) {
        let outputs = machine.batches(&[batch]);
        ensure(stored(&outputs) == 1, "what cannot be applied is stored")?;
        machine.finish(&outputs);
    }
    ensure(machine.0.memory_bytes() == 0, "and not kept in memory")?;
    ensure(machine.0.durable().get(node(2)) == 500, "it is durable")?;
    ensure(machine.0.applied().is_empty(), "and not applied")?;
    let batch = chain(3, 1, &[]);
    let outputs = machine.batches(&batch);
    let read = outputs
        .iter()
        .find(|o| matches!(o, Output::Read { from: 1, .. }));
    ensure(read.is_some(), "until what it depends on is here")
}

fn boundless_room() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.hello(&[], &[], u64::MAX);
    for (number, (bytes, hash)) in (1..).zip(chain(ME, 300, &[])) {
        let entry = Entry {
            first: number,
            last: number,
            bytes,
        };
        machine.input(Input::Own(entry, hash));
    }
    ensure(machine.0.memory_bytes() <= 16 << 10, "its queue is bounded")
}

/// However far behind a peer is, batches that are being sent to it are not cut.
fn being_sent() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.hello(&[], &[], 1 << 20);
    let mut cuts = |inputs: Vec<Input>| {
        let outputs = inputs.into_iter().flat_map(|input| machine.input(input));
        let cut = |output: &Output| matches!(output, Output::Cut { .. });
        outputs
            .collect::<Vec<_>>()
            .iter()
            .filter(|output| cut(output))
            .count()
    };
    let own = (1..)
        .zip(chain(ME, 300, &[]))
        .map(|(number, (bytes, hash))| {
            let entry = Entry {
                first: number,
                last: number,
                bytes,
            };
            Input::Own(entry, hash)
        });
    let mut own: Vec<Input> = own.collect();
    let last = own.split_off(200);
    ensure(cuts(own) == 0, "nothing is cut while it is sent")?;
    let absent = cuts(vec![Input::Unlinked(node(2))]) + cuts(last);
    ensure(absent > 0, "who is absent is not waited for")
}

/// What was stable may have been collected: a snapshot that lacks it is of no use, and it need not be reported again.
fn stable_before() -> Result<(), String> {
    let log = chain(2, 3, &[]);
    let end = LogEnd {
        last: 3,
        hash: log[2].1,
        low: 1,
    };
    let stable: VersionVector = [(node(2), 2)].into_iter().collect();
    let machine = Machine::resume(Resume {
        logs: [(node(2), end)].into(),
        applied: [(node(2), 3)].into_iter().collect(),
        stable: stable.clone(),
        ..Resume::default()
    });
    ensure(*machine.0.stable() == stable, "it is stable")
}

fn two_hashes() -> Result<(), String> {
    let mut machine = Machine::new();
    let batches = chain(2, 3, &[]);
    machine.batches(&batches);
    let again = machine.batches(&batches);
    ensure(alarm(&again).is_none(), "the same again is ignored")?;
    let other = sealed(2, 3, batches[1].1, &[], 9);
    let outputs = machine.batches(&[other]);
    let expected = Alarm::TwoHashes {
        peer: node(2),
        origin: node(2),
        number: 3,
    };
    ensure(alarm(&outputs) == Some(&expected), "an alarm")?;
    ensure(is_stopped(&outputs), "the link stops")?;
    let deaf = machine.batches(&chain(3, 1, &[]));
    ensure(deaf.is_empty(), "nothing more is taken from it")
}

/// Its chain cannot be checked here: nothing of it is accepted, and the reason is reported (docs/decisions/0043).
fn a_later_form() -> Result<(), String> {
    let mut machine = Machine::new();
    let batches = chain(2, 2, &[]);
    machine.batches(&batches[..1]);
    let (bytes, hash) = &batches[1];
    let mut later = bytes.to_vec();
    // Behind the head of an array.
    ensure(later[1] == 1, "the version")?;
    later[1] += 1;
    let outputs = machine.batches(&[(later.into(), *hash)]);
    ensure(stored(&outputs) == 0, "it is not taken")?;
    let says = |alarm: &Alarm| matches!(alarm, Alarm::Malformed { what, .. } if what.contains("version 2"));
    ensure(alarm(&outputs).is_some_and(says), "it is said why")?;
    ensure(is_stopped(&outputs), "the link stops")
}

fn another_past() -> Result<(), String> {
    let mut machine = Machine::new();
    let batches = chain(2, 2, &[]);
    machine.batches(&batches);
    let other = sealed(2, 3, Hash([7; 32]), &[], 0);
    let outputs = machine.batches(&[other]);
    ensure(stored(&outputs) == 0, "it is not taken")?;
    ensure(is_stopped(&outputs), "the link stops")
}

fn another_head() -> Result<(), String> {
    let mut machine = Machine::new();
    let outputs = machine.batches(&chain(3, 2, &[]));
    machine.finish(&outputs);
    let outputs = machine.hello(&[(3, 2)], &[(3, Hash([7; 32]))], 1 << 20);
    ensure(is_stopped(&outputs), "the link stops")
}

fn forgotten() -> Result<(), String> {
    let mut machine = Machine::new();
    let outputs = machine.hello(&[(ME, 5)], &[], 1 << 20);
    let expected = Alarm::Forgotten {
        peer: node(2),
        number: 5,
    };
    ensure(alarm(&outputs) == Some(&expected), "an alarm")
}

fn from_the_future() -> Result<(), String> {
    let mut machine = Machine::new();
    let early = Now {
        wall_micros: EPOCH - 301_000_000,
        mono_micros: 0,
    };
    let (bytes, _) = sealed(2, 1, Hash::default(), &[], 0);
    let frame = Frame::Batches(Batches {
        partition: PARTITION,
        round: 0,
        batches: vec![bytes],
    });
    machine
        .0
        .handle(early, Input::Received(node(2), frame.clone()));
    let outputs: Vec<Output> = std::iter::from_fn(|| machine.0.poll()).collect();
    let held = outputs
        .iter()
        .any(|o| matches!(o, Output::Store { apply: false, .. }));
    ensure(held, "it is stored and not applied")?;
    ensure(
        matches!(
            alarm(&outputs),
            Some(Alarm::Ahead {
                micros: 301_000_000,
                ..
            })
        ),
        "told",
    )?;
    ensure(machine.0.deadline(early).is_some(), "it is looked at again")?;
    // Durable when its time has come.
    let outputs = machine.finish(&outputs);
    let read = outputs
        .iter()
        .any(|o| matches!(o, Output::Read { from: 1, .. }));
    ensure(read, "in its time it is applied")?;
    // All that is made here is stamped later, as after a state of that log.
    for (hlc, apply) in [(EPOCH - 2_000_000, false), (EPOCH - 1_000_000, true)] {
        let mut machine = Machine::new();
        machine.0.observe(hlc);
        machine
            .0
            .handle(early, Input::Received(node(2), frame.clone()));
        let outputs: Vec<Output> = std::iter::from_fn(|| machine.0.poll()).collect();
        let applied = |o: &Output| matches!(o, Output::Store { apply, .. } if *apply);
        let applied = outputs.iter().any(applied);
        ensure(applied == apply, &format!("applied above {hlc}: {applied}"))?;
    }
    Ok(())
}

fn too_many_origins() -> Result<(), String> {
    let mut machine = Machine::new();
    let mut stopped = None;
    for id in 10..30 {
        if is_stopped(&machine.batches(&chain(id, 1, &[]))) {
            stopped = Some(id);
            break;
        }
    }
    ensure(stopped == Some(17), "the eighth besides our own is refused")
}

fn garbage() -> Result<(), String> {
    let mut machine = Machine::new();
    let outputs = machine.batches(&[(Bytes::from_static(b"garbage"), Hash::default())]);
    ensure(is_stopped(&outputs), "the link stops")
}

fn resumed() -> Result<(), String> {
    use whimbrel_replication::partition::LogEnd;
    let batches = chain(2, 3, &[]);
    let mut resume = Resume::default();
    let end = LogEnd {
        last: 3,
        hash: batches[2].1,
        low: 1,
    };
    resume.logs.insert(node(2), end);
    resume.applied.advance(node(2), 1);
    let mut machine = Machine::resume(resume);
    let outputs: Vec<Output> = std::iter::from_fn(|| machine.0.poll()).collect();
    let ticket = outputs.iter().find_map(|output| match output {
        Output::Read {
            ticket, from: 2, ..
        } => Some(*ticket),
        _ => None,
    });
    let Some(ticket) = ticket else {
        return Err("what was stored and not applied is read".into());
    };
    let entries = (2..=3u64).map(|number| Entry {
        first: number,
        last: number,
        bytes: batches[number as usize - 1].0.clone(),
    });
    let outputs = machine.input(Input::Log(ticket, entries.collect()));
    let applied = outputs.iter().filter(|o| matches!(o, Output::Apply { .. }));
    ensure(applied.count() == 2, "and applied")
}

fn closed_log() -> Result<(), String> {
    let mut machine = Machine::new();
    let batches = chain(3, 5, &[]);
    ensure(
        stored(&machine.batches(&batches[..2])) == 2,
        "what comes before is taken",
    )?;
    machine.input(Input::Closed([(node(3), 4)].into()));
    let outputs = machine.batches(&batches);
    ensure(
        stored(&outputs) == 2,
        "what is lacking of it is taken, and nothing above its end",
    )
}

/// Batches beyond the end of a log that were on their way when it was closed are never acknowledged: later ones have room all the same.
fn closed_under_way() -> Result<(), String> {
    let mut machine = Machine::new();
    let batches = chain(3, 1, &[]);
    let outputs = machine.batches(&batches);
    machine.finish(&outputs);
    // One batch at a time, to a peer that has nothing.
    machine.hello(&[], &[], 1);
    let read = |outputs: Vec<Output>| {
        outputs.into_iter().find_map(|output| match output {
            Output::Read { ticket, origin, .. } => Some((ticket, origin)),
            _ => None,
        })
    };
    let Some((ticket, origin)) = read(machine.at(2, Input::Time)) else {
        return Err("nothing is handed on".into());
    };
    ensure(origin == node(3), "what its writer does not give")?;
    let entry = |bytes: &Bytes| Entry {
        first: 1,
        last: 1,
        bytes: bytes.clone(),
    };
    machine.at(2, Input::Log(ticket, vec![entry(&batches[0].0)]));
    while machine.0.transmit(now(), node(2)).is_some() {}
    let (bytes, hash) = sealed(ME, 1, Hash::default(), &[], 0);
    let outputs = machine.at(2, Input::Own(entry(&bytes), hash));
    ensure(read(outputs).is_none(), "there is room for one")?;
    let outputs = machine.at(2, Input::Closed([(node(3), 0)].into()));
    let next = read(outputs).map(|(_, origin)| origin);
    ensure(next == Some(node(ME)), "there is room again")
}

/// The third op of node 3 depends on what node 4 took with it.
fn closed_below() -> Result<(), String> {
    let mut batches = chain(3, 2, &[]);
    for first in 3..=4 {
        let previous = batches.last().map(|batch| batch.1).unwrap_or_default();
        batches.push(sealed(3, first, previous, &[(4, 7)], 0));
    }
    let mut machine = Machine::new();
    let outputs = machine.batches(&batches);
    machine.finish(&outputs);
    let held = |machine: &Machine| machine.0.holder_state().logs[&node(3)];
    let mut holding = Holding {
        taken: 4,
        stored: 4,
        applied: 2,
        lacks: Some(Dot::new(node(4), 7)),
        syncing: false,
    };
    ensure(held(&machine) == holding, "it is told what is lacking")?;
    let mut syncing = Machine::resume(Resume {
        syncing: true,
        ..Resume::default()
    });
    let outputs = syncing.batches(&batches);
    syncing.finish(&outputs);
    let of_syncing = Holding {
        syncing: true,
        ..holding
    };
    ensure(
        held(&syncing) == of_syncing,
        "a state may bring it to who is syncing",
    )?;
    // The peer had all of it, too, and says no less on this link.
    machine.hello(&[(3, 4)], &[(3, batches[3].1)], 1 << 20);
    machine.input(Input::Closed([(node(3), 2)].into()));
    let of_peer = machine.0.holder_state().peers[&node(2)];
    ensure(
        (of_peer.lacks, of_peer.has_more) == (0, 0),
        "nobody has more than the end of a closed log",
    )?;
    (holding.taken, holding.stored, holding.lacks) = (2, 2, None);
    ensure(held(&machine) == holding, "the rest is nothing any more")?;
    ensure(stored(&machine.batches(&batches)) == 0, "and is not taken")?;
    // A peer that has nothing of it is given what lies below the end.
    machine.hello(&[], &[], 1 << 20);
    let mut later = now();
    later.mono_micros += 10_000_000;
    machine.0.handle(later, Input::Time);
    let reads = std::iter::from_fn(|| machine.0.poll()).find_map(|output| match output {
        Output::Read { ticket, origin, .. } => (origin == node(3)).then_some(ticket),
        _ => None,
    });
    let ticket = reads.ok_or("the log is read for who lacks it")?;
    let entries = (1u64..).zip(&batches).map(|(number, (bytes, _))| Entry {
        first: number,
        last: number,
        bytes: bytes.clone(),
    });
    machine
        .0
        .handle(later, Input::Log(ticket, entries.collect()));
    let frames = std::iter::from_fn(|| machine.0.transmit(later, node(2)));
    let given = frames.map(|frame| match frame {
        Frame::Batches(frame) => frame.batches.len(),
        _ => 0,
    });
    ensure(given.sum::<usize>() == 2, "up to its end")
}

fn older_disk() -> Result<(), String> {
    use whimbrel_replication::identity::{Because, Identity, IdentityAnswer, Own};
    let own = Own {
        durable: VersionVector::new(),
        hash: Hash::default(),
    };
    let mut identity = Identity::new(node(ME), [node(2)].into(), now(), 1_000_000);
    let mut peer = Machine::new();
    let batches = chain(3, 2, &[]);
    let outputs = peer.batches(&batches);
    peer.finish(&outputs);
    let Some(Frame::Hello(mut hello)) = peer.0.transmit(now(), node(2)) else {
        return Err("the first frame is a hello".into());
    };
    hello.durable.advance(node(ME), 1);
    let (peer, number) = (node(2), 1);
    let because = Because::TheyHaveMore { peer, number };
    let asked = identity.hello(peer, &hello, &own);
    ensure(
        asked == Some(IdentityAnswer::Renew(because)),
        "a new incarnation",
    )
}

fn wait_for_blob() -> Result<(), String> {
    use whimbrel_replication::{waits, wire::BlobName};
    let blob = BlobName([1; 48]);
    let mut waits = waits::Waits::new(waits::Config::default());
    waits.begin(now(), 1, 1, [blob].into());
    ensure(
        waits.applied(node(2), 1, 1).is_empty(),
        "the batch alone is not enough",
    )?;
    let outcome = waits.has_blob(node(2), blob);
    ensure(
        outcome == [waits::Outcome::Enough(1)],
        "with the blob it is",
    )?;
    waits.begin(now(), 2, 1, [].into());
    ensure(
        waits.applied(node(2), 3, 2).is_empty(),
        "nor is a peer that remembers more of us than we have",
    )
}

fn reads(outputs: &[Output]) -> Vec<Ticket> {
    let reads = outputs.iter().filter_map(|output| match output {
        Output::Read { ticket, .. } => Some(*ticket),
        _ => None,
    });
    reads.collect()
}

fn again_and_again() -> Result<(), String> {
    let mut machine = Machine::new();
    let batches = chain(ME, 3, &[]);
    for (number, (bytes, hash)) in (1..).zip(batches.clone()) {
        let (first, last) = (number, number);
        machine.input(Input::Own(Entry { first, last, bytes }, hash));
    }
    let mut tickets = Vec::new();
    for _ in 0..5 {
        tickets.extend(reads(&machine.hello(&[], &[], 1 << 20)));
    }
    let [ticket] = tickets[..] else {
        return Err(format!(
            "{} reads are under way for one peer",
            tickets.len()
        ));
    };
    let (bytes, _) = batches[0].clone();
    let (first, last) = (1, 1);
    let log = Input::Log(ticket, vec![Entry { first, last, bytes }]);
    let outputs = machine.input(log);
    ensure(reads(&outputs).len() == 1, "it is read for the newest")
}

fn behind_a_state() -> Result<(), String> {
    use whimbrel_replication::partition::LogEnd;
    let mut resume = Resume::default();
    let end = LogEnd {
        last: 5,
        hash: Hash([5; 32]),
        low: 6,
    };
    resume.logs.insert(node(3), end);
    resume.applied.advance(node(3), 5);
    let mut machine = Machine::resume(resume);
    machine.hello(&[], &[], 1 << 20);
    let outputs = machine.at(60, Input::Time);
    let [ticket] = reads(&outputs)[..] else {
        return Err("what the peer lacks is looked for".into());
    };
    let outputs = machine.at(60, Input::Log(ticket, Vec::new()));
    let behind = outputs
        .iter()
        .any(|output| matches!(output, Output::Behind { origin, .. } if *origin == node(3)));
    ensure(behind, "nothing is left of the log: a state has it")
}
