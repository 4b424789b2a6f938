//! How much waits for other nodes at once, in all partitions together: docs/replication.md, "What a driver owes".

use whimbrel_mailbox::RowKey;
use whimbrel_service::{
    machine::Machine as _,
    owner::Config,
    peers::{PeerInput, budget},
};

use super::pair::{Pair, incarnation};

const SMALLEST: u64 = 1 << 10;

/// The largest batch of [`write`], about.
const BATCH: u64 = 1 << 10;

fn write(pair: &mut Pair) {
    for _ in 0..100 {
        pair.append(0, "box", 1);
    }
}

/// Bytes that wait for node 1, or for its acknowledgement.
fn queued(pair: &Pair) -> u64 {
    let reports = pair.nodes[0].owner.reports().into_iter();
    let open = reports.filter_map(|report| report.open);
    let to_it = open.filter_map(|open| open.peers.get(&incarnation(1)).copied());
    to_it.map(|peer| peer.queued_bytes).sum()
}

/// At node 1. Nobody reads there: writers would wait for him.
fn messages(pair: &Pair) -> usize {
    let is_message = |row: &RowKey| matches!(row, RowKey::Message(_));
    pair.nodes[1].rows_of(is_message).len()
}

#[test]
fn a_window_grows_with_its_use_and_is_given_back() {
    let mut pair = Pair::with(Config {
        windows: budget::Config {
            total_bytes_max: 1 << 20,
            window_bytes_min: SMALLEST,
            window_bytes_max: 1 << 20,
        },
        ..Config::default()
    });
    // As much is on its way as is sent in a second.
    for node in 0..2 {
        pair.peer(node, PeerInput::RoundTrip(incarnation(1 - node), 1_000_000));
    }
    pair.create(0, "box");
    pair.settle();
    // No frame travels.
    write(&mut pair);
    let first = queued(&pair);
    assert!((1..=SMALLEST + BATCH).contains(&first), "{first}");
    pair.settle();
    assert_eq!((messages(&pair), queued(&pair)), (100, 0));
    for _ in 0..6 {
        write(&mut pair);
        pair.travel();
        pair.pass(0, 1);
        pair.pass(1, 0);
        pair.travel();
    }
    write(&mut pair);
    let grown = queued(&pair);
    assert!(grown > 4 * SMALLEST + BATCH, "{grown}");
    pair.settle();
    assert_eq!(messages(&pair), 800);
    for _ in 0..12 {
        pair.pass(0, 1);
        pair.pass(1, 0);
        pair.travel();
    }
    write(&mut pair);
    let shrunk = queued(&pair);
    assert!((1..=SMALLEST + BATCH).contains(&shrunk), "{shrunk}");
}
