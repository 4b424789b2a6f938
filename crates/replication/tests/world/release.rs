//! Nodes that leave the partition and come back, by named histories: what is stable meanwhile.

use std::collections::BTreeMap;

use whimbrel_crdt::VersionVector;
use whimbrel_replication::{
    partition::{Alarm, Entry, Input, LogEnd, Membership, Output, Resume, StateOutput, Ticket},
    wire::{Ack, Batches, Frame, Generations, Hello, Room},
};

use super::PARTITION;
use super::scenarios::{ME, Machine, ORIGINS_MAX, Scenario, chain, ensure, node};

pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("the word of an earlier life", earlier_life),
    ("a word that was on its way", on_its_way),
    ("one has left before all is here", left_too_early),
    ("one that is back without its own", back_without_its_own),
    ("back without our own", without_our_own),
    ("the state that our own are in", state_of_our_own),
    ("all who had our own are lost", our_own_are_lost),
    ("our own are with one of two", our_own_are_somewhere),
    (
        "who said that it lacks our own is away",
        our_own_may_have_come,
    ),
    ("a peer tells of too many logs", too_many_logs),
    (
        "one is removed before all is applied that it wrote",
        removed_too_early,
    ),
];

const ROOM: Room = Room {
    bytes: u64::MAX,
    batches: u32::MAX,
};

fn vector(of: &[(u64, u64)]) -> VersionVector {
    of.iter().map(|(id, seq)| (node(*id), *seq)).collect()
}

/// Of each node its life, and where it left.
fn members(of: &[(u64, u32, Option<u64>)]) -> Input {
    let of = of.iter();
    let members: BTreeMap<_, _> = of
        .map(|(id, generation, left)| {
            let (generation, left) = (*generation, *left);
            (node(*id), Membership { generation, left })
        })
        .collect();
    Input::Members(members)
}

fn ack(durable: &[(u64, u64)], applied: &[(u64, u64)], lives: Option<Generations>) -> Frame {
    Frame::Ack(Ack {
        partition: PARTITION,
        durable: vector(durable),
        applied: vector(applied),
        room: ROOM,
        again: None,
        lives,
    })
}

fn hello(
    machine: &Machine,
    durable: &[(u64, u64)],
    applied: &[(u64, u64)],
    lives: Generations,
) -> Frame {
    Frame::Hello(Hello {
        applied: vector(applied),
        lives: Some(lives),
        ..machine.hello_of(durable, &[], u64::MAX)
    })
}

fn stable(outputs: &[Output]) -> Option<VersionVector> {
    let stable = outputs.iter().filter_map(|output| match output {
        Output::Stable(vector) => Some(vector.clone()),
        _ => None,
    });
    stable.last()
}

/// The machine's own first batches are durable.
fn own(machine: &mut Machine, count: u64) -> Vec<Output> {
    let batches = chain(ME, count, &[]).into_iter().enumerate();
    let inputs = batches.map(|(at, (bytes, hash))| {
        let (first, last) = (at as u64 + 1, at as u64 + 1);
        Input::Own(Entry { first, last, bytes }, hash)
    });
    inputs
        .collect::<Vec<_>>()
        .into_iter()
        .flat_map(|input| machine.input(input))
        .collect()
}

const BACK: Generations = Generations { mine: 1, yours: 0 };

fn earlier_life() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.input(members(&[(ME, 0, None), (2, 0, None), (3, 0, None)]));
    machine.input(Input::Linked(node(3)));
    own(&mut machine, 1);
    let one = [(ME, 1)];
    let outputs = machine.receive(ack(&one, &one, None));
    ensure(stable(&outputs).is_none(), "the node 3 has not said so")?;
    machine.input(members(&[(ME, 0, None), (2, 0, Some(0)), (3, 0, None)]));
    machine.input(members(&[(ME, 0, None), (2, 1, None), (3, 0, None)]));
    let outputs = machine.input(Input::Received(node(3), ack(&one, &one, None)));
    ensure(stable(&outputs).is_none(), "the node 2 has nothing now")?;
    let frame = hello(&machine, &one, &one, BACK);
    let outputs = machine.receive(frame);
    ensure(stable(&outputs) == Some(vector(&one)), "it has it again")
}

fn on_its_way() -> Result<(), String> {
    let mut machine = Machine::new();
    own(&mut machine, 1);
    machine.input(members(&[(ME, 0, None), (2, 1, None)]));
    let one = [(ME, 1)];
    let outputs = machine.receive(ack(&one, &one, None));
    ensure(stable(&outputs).is_none(), "that was said before it left")?;
    let outputs = machine.receive(ack(&one, &one, Some(BACK)));
    ensure(stable(&outputs) == Some(vector(&one)), "this is said now")
}

fn left_too_early() -> Result<(), String> {
    let mut machine = Machine::new();
    own(&mut machine, 1);
    let outputs = machine.input(members(&[(ME, 0, None), (2, 0, None), (3, 0, Some(2))]));
    ensure(stable(&outputs).is_none(), "the node 2 has not got it")?;
    let (mine, both) = ([(ME, 1)], [(ME, 1), (3, 2)]);
    let outputs = machine.receive(ack(&both, &mine, None));
    let early = "the node 3 may have made something without it";
    ensure(stable(&outputs).is_none(), early)?;
    let outputs = machine.batches(&chain(3, 2, &[]));
    let outputs = machine.finish(&outputs);
    let all = "all that it made is here";
    ensure(stable(&outputs) == Some(vector(&mine)), all)
}

fn back_without_its_own() -> Result<(), String> {
    let mut machine = Machine::new();
    own(&mut machine, 1);
    machine.input(members(&[(ME, 0, None), (2, 1, None)]));
    let one = [(ME, 1)];
    let frame = hello(&machine, &[(ME, 1), (2, 2)], &one, BACK);
    let outputs = machine.receive(frame);
    let lacks = "what it made before it left is not known here, nor there";
    ensure(stable(&outputs).is_none(), lacks)?;
    let outputs = machine.batches(&chain(2, 2, &[]));
    machine.finish(&outputs);
    let both = [(ME, 1), (2, 2)];
    let outputs = machine.receive(ack(&both, &both, Some(BACK)));
    ensure(stable(&outputs) == Some(vector(&both)), "all is everywhere")
}

/// This node came back: its log had three numbers.
fn back() -> Machine {
    let end = LogEnd {
        last: 3,
        hash: chain(ME, 3, &[])[2].1,
        low: 4,
    };
    let mut machine = Machine::resume(Resume {
        logs: [(node(ME), end)].into(),
        syncing: true,
        ..Resume::default()
    });
    machine.input(members(&[(ME, 1, None), (2, 0, None)]));
    machine
}

const TO_US: Generations = Generations { mine: 0, yours: 1 };

fn without_our_own() -> Result<(), String> {
    let mut machine = back();
    let two = [(2, 1)];
    let frame = hello(&machine, &[(2, 1), (ME, 3)], &[(2, 1), (ME, 3)], TO_US);
    machine.receive(frame);
    let outputs = machine.batches(&chain(2, 1, &[]));
    let outputs = machine.finish(&outputs);
    let early = "what we made before we left may have been made without it";
    ensure(stable(&outputs).is_none(), early)?;
    ensure(machine.0.applied() == vector(&two), "it is applied")?;
    ensure(machine.0.is_syncing(), "our own are not")
}

fn state_of_our_own() -> Result<(), String> {
    let mut machine = back();
    let said = std::iter::from_fn(|| machine.0.transmit(super::scenarios::now(), node(2))).next();
    let Some(Frame::Hello(said)) = said else {
        return Err(format!("a hello is first: {said:?}"));
    };
    let lacks = said.durable.get(node(ME)) == 3 && said.applied.get(node(ME)) == 0;
    ensure(lacks, "it says that its own are not applied")?;
    // The other side of it: all is in logs there, and it offers its state all the same.
    let mut donor = Machine::new();
    donor.input(members(&[(ME, 0, None), (2, 1, None)]));
    let outputs = donor.batches(&chain(2, 3, &[]));
    donor.finish(&outputs);
    let frame = hello(&donor, &[(2, 3)], &[], BACK);
    donor.receive(frame);
    let mut frames = std::iter::from_fn(|| donor.0.transmit(super::scenarios::now(), node(2)));
    let offers = frames.any(|frame| matches!(frame, Frame::StateBegin(begin) if begin.state == 0));
    ensure(offers, "it is offered a state")?;
    // A batch of before our return, from a peer that had it under way.
    let batches = vec![chain(2, 1, &[(ME, 3)])[0].0.clone()];
    let outputs = machine.receive(Frame::Batches(Batches {
        partition: PARTITION,
        round: 0,
        batches,
    }));
    machine.finish(&outputs);
    ensure(machine.0.applied().is_empty(), "it depends on our own")
}

fn grown(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Grown))
}

fn warned(outputs: &[Output]) -> Vec<&Alarm> {
    let alarms = outputs.iter().filter_map(|output| match output {
        Output::Alarm(alarm) => Some(alarm),
        _ => None,
    });
    alarms.collect()
}

/// The snapshot that the machine joins without a donor.
fn joins(outputs: &[Output]) -> Option<(Ticket, VersionVector)> {
    outputs.iter().find_map(|output| match output {
        Output::State(StateOutput::Join { ticket, held, .. }) => {
            Some((*ticket, held.snapshot.applied.clone()))
        }
        _ => None,
    })
}

fn our_own_are_lost() -> Result<(), String> {
    for others in [vec![], vec![(3, 1, None)]] {
        let mut machine = back();
        let outputs = machine.input(Input::Linked(node(3)));
        ensure(joins(&outputs).is_none(), "the node 2 is a member")?;
        // It is removed, and its logs are closed.
        let all = [vec![(ME, 1, None)], others.clone()].concat();
        let mut outputs = machine.input(members(&all));
        if !others.is_empty() {
            ensure(joins(&outputs).is_none(), "another has not been heard")?;
            // It came back, too.
            let back = Generations { mine: 1, yours: 1 };
            let Frame::Hello(mut said) = hello(&machine, &[(3, 2)], &[], back) else {
                return Err("it is a hello".into());
            };
            said.syncing = Some(true);
            outputs = machine.input(Input::Received(node(3), Frame::Hello(said)));
        }
        ensure(!grown(&outputs), "nothing is durable")?;
        let own = vector(&[(ME, 3)]);
        let Some((ticket, applied)) = joins(&outputs) else {
            return Err("nobody has them: it goes on without".into());
        };
        ensure(applied == own, "of these it is")?;
        ensure(warned(&outputs) == [&Alarm::OwnLost(3)], "it says so")?;
        let outputs = machine.input(Input::Done(ticket));
        ensure(grown(&outputs), "nobody has more")?;
        ensure(warned(&outputs) == [&Alarm::Alone], "it says that, too")?;
        ensure(machine.0.applied() == own && !machine.0.is_syncing(), "all")?;
        // What it writes now follows what it wrote.
        let (bytes, hash) = chain(ME, 4, &[])[3].clone();
        let (first, last) = (4, 4);
        machine.input(Input::Own(Entry { first, last, bytes }, hash));
        ensure(machine.0.durable() == vector(&[(ME, 4)]), "it goes on")?;
    }
    Ok(())
}

/// What a peer reported on a lost stream does not count any more: our own ops may have reached it since.
fn our_own_may_have_come() -> Result<(), String> {
    let mut machine = back();
    machine.input(members(&[(ME, 1, None), (2, 0, None), (3, 1, None)]));
    machine.input(Input::Linked(node(3)));
    let back = Generations { mine: 1, yours: 1 };
    let says = |machine: &mut Machine, syncing: bool, has: &[(u64, u64)]| {
        let Frame::Hello(mut said) = hello(machine, has, has, back) else {
            return Err("it is a hello".to_owned());
        };
        said.syncing = Some(syncing);
        Ok(machine.input(Input::Received(node(3), Frame::Hello(said))))
    };
    let outputs = says(&mut machine, true, &[])?;
    ensure(joins(&outputs).is_none(), "the node 2 is a member")?;
    machine.input(Input::Unlinked(node(3)));
    // All came to the node 3 meanwhile, and the one that had them was removed.
    let outputs = machine.input(members(&[(ME, 1, None), (3, 1, None)]));
    ensure(joins(&outputs).is_none(), "what was said is of before")?;
    machine.input(Input::Linked(node(3)));
    let outputs = says(&mut machine, false, &[(ME, 3)])?;
    ensure(joins(&outputs).is_none(), "they are not lost")?;
    ensure(machine.0.is_syncing(), "it waits for the state")
}

/// A removed member's reports do not count any more. Its batches may have been made without what the others have applied: while one of them waits
/// here, nothing becomes stable.
fn removed_too_early() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.input(members(&[(ME, 0, None), (2, 0, None), (3, 0, None)]));
    own(&mut machine, 1);
    // Made without our own ops, and dependent on what is not here.
    let outputs = machine.batches(&chain(3, 1, &[(2, 1)]));
    machine.finish(&outputs);
    let all = [(ME, 1), (2, 1), (3, 1)];
    machine.receive(ack(&all, &all, None));
    machine.input(members(&[(ME, 0, None), (2, 0, None)]));
    let given = machine.batches(&chain(2, 1, &[]));
    let outputs = machine.finish(&given);
    ensure(stable(&outputs).is_none(), "it waits to be applied")?;
    let asked = given.iter().find_map(|output| match output {
        Output::Read { ticket, .. } => Some(*ticket),
        _ => None,
    });
    let (bytes, _) = chain(3, 1, &[(2, 1)]).remove(0);
    let (first, last) = (1, 1);
    let entries = vec![Entry { first, last, bytes }];
    let Some(ticket) = asked else {
        return Err("it is read".into());
    };
    let outputs = machine.input(Input::Log(ticket, entries));
    let outputs = machine.finish(&outputs);
    ensure(stable(&outputs) == Some(vector(&all)), "all is applied")
}

fn too_many_logs() -> Result<(), String> {
    let most = ORIGINS_MAX as u64;
    let all: Vec<(u64, u64)> = (10..10 + most).map(|id| (id, 1)).collect();
    let more: Vec<(u64, u64)> = all.iter().map(|(id, seq)| (id + most, *seq)).collect();
    let mut machine = Machine::new();
    machine.input(members(&[(ME, 0, None), (2, 0, None), (3, 0, None)]));
    machine.input(Input::Linked(node(2)));
    let stops = |outputs: &[Output]| warned(outputs).contains(&&Alarm::Origins(node(2)));
    let outputs = machine.receive(ack(&all, &all, None));
    ensure(!stops(&outputs), "as many as there may be")?;
    let outputs = machine.receive(ack(&more, &more, None));
    ensure(stops(&outputs), "more, little by little")?;
    machine.input(Input::Unlinked(node(2)));
    machine.input(Input::Linked(node(2)));
    let all = [all, more].concat();
    let said = hello(&machine, &all, &[], Generations::default());
    ensure(stops(&machine.receive(said)), "at once")
}

fn our_own_are_somewhere() -> Result<(), String> {
    let mut machine = back();
    machine.input(members(&[(ME, 1, None), (2, 1, None), (3, 0, None)]));
    machine.input(Input::Linked(node(3)));
    // One came back itself; the other one has all.
    let mut outputs = machine.receive(hello(&machine, &[], &[], Generations { mine: 1, yours: 1 }));
    let all = [(ME, 3)];
    let whole = hello(&machine, &all, &all, TO_US);
    outputs.extend(machine.input(Input::Received(node(3), whole)));
    ensure(joins(&outputs).is_none(), "they are not lost")?;
    ensure(machine.0.is_syncing(), "it waits for the state")?;
    // The node that has them may not be linked.
    let outputs = machine.input(Input::Unlinked(node(3)));
    ensure(joins(&outputs).is_none(), "it is a member")?;
    // When that node is gone for good, the other one lacks them, too.
    let outputs = machine.input(members(&[(ME, 1, None), (2, 1, None)]));
    ensure(joins(&outputs).is_some(), "they are lost")
}
