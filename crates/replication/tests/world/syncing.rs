//! A new node: when it has what clients may know.

use whimbrel_replication::{
    partition::{Input, Membership, Output, Resume},
    wire::Frame,
};

use super::scenarios::{Machine, chain, ensure, node, now};

fn new_node() -> Machine {
    let syncing = true;
    Machine::resume(Resume {
        syncing,
        ..Resume::default()
    })
}

fn grown(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Grown))
}

/// Two batches of the node 3, taken and applied.
fn take(machine: &mut Machine) -> Vec<Output> {
    let outputs = machine.batches(&chain(3, 2, &[]));
    machine.finish(&outputs)
}

/// The hello that waits for the node 2.
fn says_syncing(machine: &mut Machine) -> Option<bool> {
    match machine.0.transmit(now(), node(2)) {
        Some(Frame::Hello(hello)) => Some(hello.syncing == Some(true)),
        _ => None,
    }
}

pub(super) fn has_what_another_had() -> Result<(), String> {
    let mut machine = new_node();
    ensure(
        says_syncing(&mut machine) == Some(true),
        "it says what it is",
    )?;
    let heads = [(3, chain(3, 2, &[])[1].1)];
    let mut outputs = machine.hello(&[(3, 2)], &heads, u64::MAX);
    // What the other node has in addition at its next link was reported to no client that could have come before.
    outputs.extend(machine.hello(&[(3, 90)], &[], u64::MAX));
    let ends = !grown(&outputs) && machine.0.is_syncing();
    ensure(ends, "nothing is here, and it is syncing")?;
    let outputs = machine.batches(&chain(3, 2, &[]));
    ensure(!grown(&outputs), "what is not on disk does not count")?;
    let outputs = machine.finish(&outputs);
    let ends = grown(&outputs) && !machine.0.is_syncing();
    ensure(ends, "it has what the other had at first")?;
    let said = says_syncing(&mut machine);
    ensure(said == Some(false), "it says so on the same link")
}

pub(super) fn both_are_new() -> Result<(), String> {
    let mut machine = new_node();
    machine.input(Input::Members(Membership::of([node(1), node(2), node(3)])));
    let mut hello = machine.hello_of(&[], &[], u64::MAX);
    hello.syncing = Some(true);
    let outputs = machine.receive(Frame::Hello(hello));
    ensure(
        !grown(&outputs),
        "one that is new says nothing of what there is",
    )?;
    take(&mut machine);
    ensure(machine.0.is_syncing(), "the node 3 was not heard")?;
    // The other node has stopped syncing.
    let outputs = machine.hello(&[(3, 2)], &[(3, chain(3, 2, &[])[1].1)], u64::MAX);
    ensure(grown(&outputs), "its word counts now")
}

pub(super) fn the_others_are_gone() -> Result<(), String> {
    let mut machine = new_node();
    machine.input(Input::Members(Membership::of([node(1), node(2), node(3)])));
    let mut hello = machine.hello_of(&[(3, 2)], &[(3, chain(3, 2, &[])[1].1)], u64::MAX);
    hello.syncing = Some(true);
    machine.receive(Frame::Hello(hello));
    let outputs = machine.input(Input::Members(Membership::of([node(1), node(2)])));
    ensure(!grown(&outputs), "all are new, and one has more")?;
    ensure(grown(&take(&mut machine)), "nobody has more")?;
    let mut machine = new_node();
    machine.input(Input::Unlinked(node(2)));
    let outputs = machine.input(Input::Members(Membership::of([node(1)])));
    ensure(grown(&outputs), "nobody else is left")
}
