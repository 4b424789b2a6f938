//! Named histories of snapshots at one machine.

use bytes::Bytes;
use whimbrel_crdt::Hash;
use whimbrel_replication::partition::{
    Alarm, Entry, Input, Membership, Output, Rows, Snapshot, StateInput, StateOutput, Ticket,
};
use whimbrel_replication::wire::{Frame, StateBegin, StateChunk, StateEnd, StateTake};

use super::PARTITION;
use super::scenarios::{
    ME, Machine, Scenario, alarm, chain, ensure, heads_of, is_stopped, node, now, sealed,
};

pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("a state is for members", for_members),
    ("a snapshot that nobody asks for", abandoned),
    ("a snapshot that is not durable", not_durable),
    ("rows without room", without_room),
    ("rows and batches take turns", turns),
    ("rows wait for their room, and nothing else does", small),
    ("a donor that says nothing", silent_donor),
    ("rows of somebody else", somebody_else),
    ("an end before the last row", early_end),
    ("a state that knows more of us", knows_more),
    ("a state with another past", another_past),
    ("a state without hashes", without_hashes),
    ("a state that is not needed any more", came_otherwise),
    ("a state from before what is stable", before_stable),
    ("a member that is away for long", away_for_long),
    ("told again that it needs a state", told_again),
    ("a state fixed for an earlier question", fixed_earlier),
    ("an answer to an earlier question", answered_earlier),
];

fn state_of(outputs: &[Output]) -> Vec<&StateOutput> {
    let states = outputs.iter().filter_map(|output| match output {
        Output::State(state) => Some(state),
        _ => None,
    });
    states.collect()
}

fn take(state: u64, after: &[u8], bytes: u64) -> Frame {
    Frame::StateTake(StateTake {
        partition: PARTITION,
        state,
        after: after.to_vec(),
        bytes,
        question: None,
    })
}

/// A question with a number.
fn asked(state: u64, question: u64) -> Frame {
    let Frame::StateTake(frame) = take(state, b"", 1000) else {
        unreachable!("it is one");
    };
    let question = Some(question);
    Frame::StateTake(StateTake { question, ..frame })
}

fn begin(state: u64, applied: &[(u64, u64)], heads: &[(u64, Hash)]) -> Frame {
    Frame::StateBegin(StateBegin {
        partition: PARTITION,
        state,
        applied: applied.iter().map(|(id, n)| (node(*id), *n)).collect(),
        heads: heads_of(heads),
        hlc: Some(1),
        question: None,
    })
}

fn chunk(after: u8, last: u8, bytes: usize) -> Frame {
    Frame::StateChunk(StateChunk {
        partition: PARTITION,
        state: 9,
        after: if after == 0 { vec![] } else { vec![after] },
        last: vec![last],
        rows: Bytes::from(vec![0; bytes]),
    })
}

fn end(last: u8) -> Frame {
    Frame::StateEnd(StateEnd {
        partition: PARTITION,
        state: 9,
        last: vec![last],
    })
}

fn snapshot(ticket: Ticket, applied: &[(u64, u64)]) -> Input {
    let snapshot = Snapshot {
        state: 9,
        applied: applied.iter().map(|(id, n)| (node(*id), *n)).collect(),
        heads: applied
            .iter()
            .map(|(id, _)| (node(*id), Hash::default()))
            .collect(),
        hlc: 1,
    };
    Input::State(StateInput::Snapshot(ticket, Some(snapshot)))
}

fn ticket_of(outputs: &[Output]) -> Result<Ticket, String> {
    let ticket = state_of(outputs).into_iter().find_map(|state| match state {
        StateOutput::Snapshot { ticket } | StateOutput::Read { ticket, .. } => Some(*ticket),
        _ => None,
    });
    ticket.ok_or("nothing is asked".to_owned())
}

fn sent(machine: &mut Machine) -> Vec<Frame> {
    std::iter::from_fn(|| machine.0.transmit(now(), node(2))).collect()
}

/// A machine that takes the state 9 from node 2.
fn taking() -> Machine {
    let mut machine = Machine::new();
    machine.hello(&[(3, 5)], &[], 1 << 20);
    machine.receive(begin(0, &[(3, 5)], &[]));
    machine.receive(begin(9, &[(3, 5)], &[(3, Hash([5; 32]))]));
    machine
}

fn for_members() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.input(Input::Members(Membership::of([node(ME)])));
    let outputs = machine.receive(take(0, b"", 1000));
    ensure(state_of(&outputs).is_empty(), "others get nothing")?;
    machine.input(Input::Members(Membership::of([node(ME), node(2)])));
    let outputs = machine.receive(take(0, b"", 1000));
    ensure(ticket_of(&outputs).is_ok(), "a member gets a state")
}

fn abandoned() -> Result<(), String> {
    let mut machine = Machine::new();
    let outputs = machine.receive(take(0, b"", 1000));
    let ticket = ticket_of(&outputs)?;
    machine.input(snapshot(ticket, &[]));
    let outputs = machine.at(59, Input::Time);
    ensure(state_of(&outputs).is_empty(), "it is kept for a while")?;
    let outputs = machine.at(60, Input::Time);
    let dropped = matches!(state_of(&outputs)[..], [StateOutput::Drop { state: 9 }]);
    ensure(dropped, "and dropped")
}

/// What the receiver has joined since may depend on more than is in a snapshot that was made before.
fn fixed_earlier() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.hello(&[], &[], 1 << 20);
    let is_made = |outputs: &[Output]| ticket_of(outputs).is_ok();
    let is_dropped = |outputs: &[Output]| {
        let states = state_of(outputs);
        let drops = |state: &&StateOutput| matches!(state, StateOutput::Drop { state: 9 });
        states.iter().any(drops)
    };
    let first = ticket_of(&machine.receive(asked(0, 1)))?;
    let outputs = machine.receive(asked(0, 1));
    ensure(!is_made(&outputs), "the same question, once more")?;
    let second = ticket_of(&machine.receive(asked(0, 2)))?;
    let outputs = machine.input(snapshot(first, &[]));
    ensure(is_dropped(&outputs), "it was for the first question")?;
    machine.input(snapshot(second, &[]));
    let begun = |frames: Vec<Frame>| {
        frames.into_iter().find_map(|frame| match frame {
            Frame::StateBegin(frame) if frame.state == 9 => frame.question,
            _ => None,
        })
    };
    ensure(begun(sent(&mut machine)) == Some(2), "it says for which")?;
    let outputs = machine.receive(asked(9, 3));
    ensure(!is_dropped(&outputs), "what has come goes on")?;
    let outputs = machine.receive(asked(0, 4));
    let anew = is_dropped(&outputs) && is_made(&outputs);
    ensure(anew, "another question")?;
    machine.input(snapshot(ticket_of(&outputs)?, &[]));
    sent(&mut machine);
    machine.input(Input::Unlinked(node(2)));
    machine.input(Input::Linked(node(2)));
    let outputs = machine.receive(asked(0, 4));
    ensure(is_made(&outputs), "numbers are those of one link")
}

fn answered_earlier() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.hello(&[(3, 5)], &[], 1 << 20);
    machine.receive(begin(0, &[(3, 5)], &[]));
    let numbers = |frames: Vec<Frame>| {
        frames.into_iter().find_map(|frame| match frame {
            Frame::StateTake(take) => take.question,
            _ => None,
        })
    };
    let question = numbers(sent(&mut machine)).ok_or("it is asked with a number")?;
    let answer = |question| {
        let Frame::StateBegin(frame) = begin(9, &[(3, 5)], &[(3, Hash([5; 32]))]) else {
            unreachable!("it is one");
        };
        let question = Some(question);
        Frame::StateBegin(StateBegin { question, ..frame })
    };
    let outputs = machine.receive(answer(question + 1));
    ensure(state_of(&outputs).is_empty(), "it is for another question")?;
    let outputs = machine.receive(answer(question));
    let begins = matches!(state_of(&outputs)[..], [StateOutput::Begin { .. }]);
    ensure(begins, "this is what was asked")
}

fn not_durable() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.hello(&[], &[], 1 << 20);
    sent(&mut machine);
    let outputs = machine.receive(take(0, b"", 1000));
    let ticket = ticket_of(&outputs)?;
    let batch = chain(ME, 1, &[]).remove(0);
    machine.input(snapshot(ticket, &[(ME, 1)]));
    let begins = |frames: Vec<Frame>| frames.iter().any(|f| matches!(f, Frame::StateBegin(_)));
    ensure(!begins(sent(&mut machine)), "it is not sent")?;
    let entry = Entry {
        first: 1,
        last: 1,
        bytes: batch.0,
    };
    machine.input(Input::Own(entry, batch.1));
    ensure(begins(sent(&mut machine)), "before its rows are durable")
}

fn without_room() -> Result<(), String> {
    let mut machine = taking();
    let mut stored = 0;
    for number in 1..=20 {
        let outputs = machine.receive(chunk(number - 1, number, 1000));
        stored += state_of(&outputs).len();
    }
    ensure(stored == 8, "the window is used, and no more")?;
    ensure(machine.0.memory_bytes() == 8000, "memory is bounded")
}

/// A stream without room for rows takes all other frames, and rows when it has room again.
fn small() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.hello(&[], &[], 1 << 20);
    let ticket = ticket_of(&machine.receive(take(0, b"", 1 << 20)))?;
    machine.input(snapshot(ticket, &[]));
    // It begins, and then reads.
    sent(&mut machine);
    let outputs: Vec<Output> = std::iter::from_fn(|| machine.0.poll()).collect();
    let rows = |ticket, last: u8, end| {
        let rows = Bytes::from(vec![0; 100]);
        let last = vec![last];
        Input::State(StateInput::Rows(ticket, Rows { rows, last, end }))
    };
    machine.input(rows(ticket_of(&outputs)?, 1, false));
    let mut own = chain(ME, 2, &[]).into_iter();
    for number in 1..=2 {
        let (bytes, hash) = own.next().ok_or("two")?;
        let (first, last) = (number, number);
        let entry = Entry { first, last, bytes };
        machine.input(Input::Own(entry, hash));
        let small = std::iter::from_fn(|| machine.0.transmit_small(now(), node(2)));
        let small: Vec<Frame> = small.collect();
        let batches = small
            .iter()
            .filter(|frame| matches!(frame, Frame::Batches(_)));
        ensure(batches.count() == 1, &format!("{small:?}"))?;
        let bulk = |frame: &Frame| matches!(frame, Frame::StateChunk(_) | Frame::StateEnd(_));
        ensure(!small.iter().any(bulk), &format!("{small:?}"))?;
    }
    let rest = sent(&mut machine);
    ensure(
        matches!(rest[..], [Frame::StateChunk(_)]),
        &format!("{rest:?}"),
    )
}

fn turns() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.hello(&[], &[], 1 << 20);
    for (number, (bytes, hash)) in (1..).zip(chain(ME, 12, &[])) {
        let entry = Entry {
            first: number,
            last: number,
            bytes,
        };
        machine.input(Input::Own(entry, hash));
    }
    let ticket = ticket_of(&machine.receive(take(0, b"", 1 << 20)))?;
    machine.input(snapshot(ticket, &[]));
    let mut kinds = Vec::new();
    while let Some(frame) = machine.0.transmit(now(), node(2)) {
        match frame {
            Frame::Batches(_) => kinds.push('b'),
            Frame::StateChunk(_) => kinds.push('s'),
            _ => {}
        }
        while let Some(output) = machine.0.poll() {
            if let Output::State(StateOutput::Read { ticket, after, .. }) = output {
                let next = after.first().map_or(1, |last| last + 1);
                let rows = Rows {
                    rows: Bytes::from(vec![0; 100]),
                    last: vec![next],
                    end: next == 4,
                };
                machine
                    .0
                    .handle(now(), Input::State(StateInput::Rows(ticket, rows)));
            }
        }
    }
    let kinds: String = kinds.into_iter().collect();
    ensure(kinds.starts_with("bsbsbsbs"), &kinds)
}

fn silent_donor() -> Result<(), String> {
    let mut machine = taking();
    machine.input(Input::Linked(node(3)));
    let hello = Frame::Hello(machine.hello_of(&[(4, 5)], &[], 1 << 20));
    machine.input(Input::Received(node(3), hello));
    machine.input(Input::Received(node(3), begin(0, &[(4, 5)], &[])));
    let asked = |machine: &mut Machine| {
        let frames = std::iter::from_fn(|| machine.0.transmit(now(), node(3)));
        frames
            .filter(|frame| matches!(frame, Frame::StateTake(StateTake { state: 0, .. })))
            .count()
    };
    machine.at(14, Input::Time);
    ensure(asked(&mut machine) == 0, "one donor at a time")?;
    machine.at(15, Input::Time);
    ensure(asked(&mut machine) == 1, "then another is asked")
}

fn somebody_else() -> Result<(), String> {
    let mut machine = taking();
    machine.input(Input::Linked(node(3)));
    let outputs = machine.input(Input::Received(node(3), chunk(0, 1, 10)));
    ensure(state_of(&outputs).is_empty(), "only the donor's are kept")?;
    let outputs = machine.receive(chunk(0, 1, 10));
    ensure(state_of(&outputs).len() == 1, "these are")
}

fn early_end() -> Result<(), String> {
    let mut machine = taking();
    machine.receive(chunk(0, 1, 10));
    let outputs = machine.receive(end(2));
    ensure(state_of(&outputs).is_empty(), "a row is missing")?;
    machine.receive(chunk(1, 2, 10));
    let outputs = machine.receive(end(2));
    let [StateOutput::Join { jumps, .. }] = state_of(&outputs)[..] else {
        return Err("then it is joined".into());
    };
    let expected = [(node(3), (5, Hash([5; 32])))].into();
    ensure(*jumps == expected, "the log goes on where the state ends")?;
    let batch = sealed(3, 6, Hash([5; 32]), &[(3, 5)], 0);
    let outputs = machine.batches(&[batch]);
    ensure(
        outputs
            .iter()
            .any(|o| matches!(o, Output::Store { apply: true, .. })),
        "and what follows is applied",
    )
}

fn knows_more() -> Result<(), String> {
    let mut machine = taking();
    let heads = [(ME, Hash([1; 32])), (3, Hash([5; 32]))];
    let outputs = machine.receive(begin(10, &[(ME, 7), (3, 5)], &heads));
    let (peer, number) = (node(2), 7);
    let expected = Alarm::Forgotten { peer, number };
    ensure(alarm(&outputs) == Some(&expected), "an alarm")?;
    ensure(state_of(&outputs).is_empty(), "and nothing is taken")
}

fn another_past() -> Result<(), String> {
    let mut machine = taking();
    machine.batches(&chain(3, 5, &[]));
    let outputs = machine.receive(begin(10, &[(3, 5)], &[(3, Hash([6; 32]))]));
    ensure(is_stopped(&outputs), "the link stops")?;
    ensure(state_of(&outputs).is_empty(), "and nothing is taken")
}

fn without_hashes() -> Result<(), String> {
    let mut machine = taking();
    let outputs = machine.receive(begin(10, &[(3, 5), (4, 1)], &[(3, Hash([5; 32]))]));
    ensure(is_stopped(&outputs), "the link stops")
}

fn came_otherwise() -> Result<(), String> {
    let mut machine = taking();
    machine.batches(&chain(3, 5, &[]));
    let outputs = machine.at(1, Input::Time);
    let forgets = matches!(state_of(&outputs)[..], [StateOutput::Forget]);
    ensure(forgets, "what is held is forgotten")?;
    let released = sent(&mut machine);
    let release = take(9, b"", 0);
    ensure(released.contains(&release), "and the donor told")
}

/// What was collected must not come back.
fn before_stable() -> Result<(), String> {
    let mut machine = Machine::new();
    let outputs = machine.batches(&chain(2, 3, &[]));
    machine.finish(&outputs);
    machine.hello(&[(2, 3)], &[], 1 << 20);
    ensure(machine.0.stable().get(node(2)) == 3, "all have it")?;
    machine.receive(begin(0, &[(2, 3), (3, 5)], &[]));
    let heads = [(2, chain(2, 3, &[])[1].1), (3, Hash([5; 32]))];
    let outputs = machine.receive(begin(9, &[(2, 2), (3, 5)], &heads));
    let forgets = matches!(state_of(&outputs)[..], [StateOutput::Forget]);
    ensure(forgets, "an older one is not taken")?;
    let frames = sent(&mut machine);
    ensure(frames.contains(&take(9, b"", 0)), "it may be dropped")?;
    let is_asked = |frame: &Frame| {
        let first =
            |take: &StateTake| take.state == 0 && take.after.is_empty() && take.bytes == 8000;
        matches!(frame, Frame::StateTake(take) if first(take))
    };
    ensure(frames.iter().any(is_asked), "and a new one is asked for")?;
    let heads = [(2, chain(2, 3, &[])[2].1), (3, Hash([5; 32]))];
    machine.receive(begin(10, &[(2, 3), (3, 5)], &heads));
    let outputs = machine.batches(&[sealed(2, 4, chain(2, 3, &[])[2].1, &[], 0)]);
    machine.finish(&outputs);
    machine.hello(&[(2, 4)], &[], 1 << 20);
    ensure(
        machine.0.stable().get(node(2)) == 3,
        "nothing gets stable meanwhile",
    )
}

fn away_for_long() -> Result<(), String> {
    let mut machine = Machine::new();
    machine.input(Input::Unlinked(node(2)));
    let mut cut = 0;
    for (number, (bytes, hash)) in (1..).zip(chain(ME, 200, &[])) {
        let entry = Entry {
            first: number,
            last: number,
            bytes,
        };
        for output in machine.input(Input::Own(entry, hash)) {
            if let Output::Cut { below, .. } = output {
                cut = below;
            }
        }
    }
    // 200, less 64 for it and 16 in any case, in steps of 10.
    ensure(cut == 121, &format!("cut below {cut}"))
}

fn told_again() -> Result<(), String> {
    let mut machine = Machine::new();
    for (number, (bytes, hash)) in (1..).zip(chain(ME, 3, &[])) {
        let entry = Entry {
            first: number,
            last: number,
            bytes,
        };
        machine.input(Input::Own(entry, hash));
    }
    let outputs = machine.hello(&[], &[], 1 << 20);
    let ticket = outputs.iter().find_map(|output| match output {
        Output::Read { ticket, .. } => Some(*ticket),
        _ => None,
    });
    let third = chain(ME, 3, &[]).remove(2).0;
    let cut = Entry {
        first: 3,
        last: 3,
        bytes: third,
    };
    machine.input(Input::Log(ticket.ok_or("nothing is read")?, vec![cut]));
    let hint = |frames: Vec<Frame>| {
        let lacks = [(node(ME), 3)].into_iter().collect();
        frames
            .iter()
            .any(|f| matches!(f, Frame::StateBegin(b) if b.state == 0 && b.applied == lacks))
    };
    ensure(hint(sent(&mut machine)), "it is told")?;
    ensure(!hint(sent(&mut machine)), "once")?;
    machine.at(5, Input::Time);
    ensure(hint(sent(&mut machine)), "and again after a while")
}
