//! Entry points for fuzzers, also used by tests: each takes any bytes and panics when an invariant is broken.

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};

use crate::{
    Now,
    announced::Announced,
    partition::{
        Config, Input, Membership, Output, Partition, Resume, Rows, Snapshot, StateConfig,
        StateInput, StateOutput,
    },
    readers::{self, Readers},
    wire::{BULK_BYTES_MAX, Decoder, Frame, HEADER_BYTES, WireError},
};

fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, Option<WireError>) {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.buffered() < HEADER_BYTES + BULK_BYTES_MAX + piece.len());
    }
    (frames, None)
}

/// A stream from a peer: the same however it is cut; what is read is written and read as the same.
pub fn stream(data: &[u8]) {
    let whole = frames(&[data]);
    let middle = data.len() / 2;
    assert_eq!(frames(&[&data[..middle], &data[middle..]]), whole);
    let bytes: Vec<&[u8]> = data.chunks(1).collect();
    assert_eq!(frames(&bytes), whole);
    for frame in &whole.0 {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(frames(&[&again]), (vec![frame.clone()], None));
    }
}

/// Whatever a member sends to the machines of a partition, whose driver does what they want: nothing panics, and memory is bounded.
pub fn peer(data: &[u8]) {
    const WINDOW: usize = 4096;
    let (me, peer) = (Incarnation::from_hash(1), Incarnation::from_hash(2));
    let (frames, _) = frames(&[data]);
    let id = frames.iter().find_map(Frame::partition);
    let id = id.unwrap_or(PartitionId::accounts(7));
    let config = Config {
        window_bytes: WINDOW as u64,
        applying_bytes_max: WINDOW,
        state: StateConfig {
            window_bytes: WINDOW as u64,
            ..StateConfig::default()
        },
        ..Config::default()
    };
    let resume = Resume {
        members: Membership::of([me, peer]),
        ..Resume::default()
    };
    let Ok(mut partition) = Partition::resume(config, id, me, resume) else {
        unreachable!("an empty store is sound");
    };
    let mut readers = Readers::new(readers::Config::default(), id, me, 0);
    let Ok(mut announced) = Announced::resume(id, None, &VersionVector::new()) else {
        unreachable!("nothing was kept");
    };
    let mut now = Now::default();
    partition.handle(now, Input::Linked(peer));
    readers.linked(now, peer);
    announced.linked(peer);
    for frame in frames {
        now.mono_micros += 1_000_000;
        now.wall_micros += 1_000_000;
        match frame.clone() {
            Frame::Readers(told) => readers.received(now, peer, told),
            Frame::Links(told) => readers.received_links(peer, told),
            Frame::ReadersOf(told) => readers.received_of(now, peer, told),
            Frame::Announced(told) => announced.received(peer, told, &VersionVector::new()),
            Frame::VisibleVector(told) => announced.received_of(told, &VersionVector::new()),
            _ => {}
        }
        while readers.poll().is_some() {}
        if let Some(row) = announced.row() {
            let again = Announced::resume(id, Some(&row), &VersionVector::new());
            assert!(again.is_ok(), "what is kept can be read");
        }
        readers.time(now);
        partition.handle(now, Input::Received(peer, frame));
        partition.handle(now, Input::Time);
        while let Some(output) = partition.poll() {
            // A batch is taken whatever its size when nothing else is on the way, and so is a chunk.
            let most = 4 * (WINDOW + data.len());
            assert!(partition.memory_bytes() <= most, "memory is bounded");
            answer(&mut partition, now, output);
        }
        while partition.transmit(now, peer).is_some() {}
    }
}

fn answer(partition: &mut Partition, now: Now, output: Output) {
    let input = match output {
        Output::Store { ticket, .. } | Output::Apply { ticket, .. } => Input::Done(ticket),
        Output::Read { ticket, .. } => Input::Log(ticket, Vec::new()),
        Output::State(output) => match output {
            StateOutput::Snapshot { ticket } => {
                let snapshot = Snapshot {
                    state: 9,
                    applied: Default::default(),
                    heads: Default::default(),
                    hlc: 0,
                };
                Input::State(StateInput::Snapshot(ticket, Some(snapshot)))
            }
            StateOutput::Read { ticket, after, .. } => {
                let next = after.first().map_or(1, |last| last.saturating_add(1));
                let rows = Rows {
                    rows: Bytes::from_static(&[0; 100]),
                    last: vec![next],
                    end: next > 8,
                };
                Input::State(StateInput::Rows(ticket, rows))
            }
            StateOutput::Store { ticket, .. } | StateOutput::Join { ticket, .. } => {
                Input::Done(ticket)
            }
            StateOutput::Drop { .. } | StateOutput::Begin { .. } | StateOutput::Forget => return,
        },
        _ => return,
    };
    partition.handle(now, input);
}
