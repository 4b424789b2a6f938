//! Blobs between nodes: all come, in bounded memory, whichever peer lies or goes away.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::Incarnation;
use whimbrel_replication::Now;
use whimbrel_replication::blobs::{Config, FetchOutput, Fetches, ReadId, ServeOutput, Serves};
use whimbrel_replication::wire::{BlobChunk, BlobDone, BlobName, BlobPush, BlobWant, Frame};

fn node(id: u64) -> Incarnation {
    Incarnation::new(id).unwrap()
}

fn at(seconds: u64) -> Now {
    Now {
        wall_micros: 0,
        mono_micros: seconds * 1_000_000,
    }
}

fn blob(number: u8, length: usize) -> (BlobName, Vec<u8>) {
    let data: Vec<u8> = (0..length).map(|at| at as u8 ^ number).collect();
    let mut name = [number; 48];
    name[16..].copy_from_slice(blake3::hash(&data).as_bytes());
    (BlobName(name), data)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Honest,
    Lacks,
    Lies,
    Silent,
    /// Goes away after so many frames.
    Leaves(usize),
}

/// Which blobs one node gets from some others, and in which order they are finished.
fn fetch(blobs: &[(BlobName, Vec<u8>, u8)], peers: &[Kind]) -> (Vec<BlobName>, u64) {
    let config = Config {
        fetches_max: 2,
        window_bytes: 1000,
        chunk_bytes: 100,
        ..Config::default()
    };
    let contents: BTreeMap<BlobName, &Vec<u8>> = blobs.iter().map(|(n, d, _)| (*n, d)).collect();
    let mut fetches = Fetches::new(config);
    let mut serves: Vec<Serves> = peers.iter().map(|_| Serves::new(config)).collect();
    let mut sent = vec![0; peers.len()];
    let mut stores: BTreeMap<BlobName, Vec<u8>> = BTreeMap::new();
    let (mut finished, mut most) = (Vec::new(), 0);
    for (name, _, priority) in blobs {
        assert!(fetches.want(at(0), *name, *priority, false));
    }
    for id in 0..peers.len() {
        fetches.linked(at(0), node(id as u64 + 2), false);
    }
    for second in 0..2000 {
        let (mut writes, mut again) = (Vec::new(), Vec::new());
        while let Some(output) = fetches.poll() {
            match output {
                FetchOutput::Send(peer, Frame::BlobWant(want)) => {
                    let peer = peer.get() as usize - 2;
                    if peers[peer] != Kind::Silent {
                        serves[peer].want(node(1), want);
                    }
                }
                FetchOutput::Write(name, data) => {
                    stores.entry(name).or_default().extend_from_slice(&data);
                    writes.push((name, data.len() as u64));
                }
                FetchOutput::Finish(name) => {
                    let stored = stores.remove(&name).unwrap_or_default();
                    assert_eq!(stored, *contents[&name], "the bytes");
                    finished.push(name);
                }
                FetchOutput::Discard(name, _) => {
                    stores.remove(&name);
                    writes.retain(|(other, _)| *other != name);
                }
                FetchOutput::Nowhere(_) => {}
                FetchOutput::Again(name) => again.push(name),
                other => panic!("{other:?}"),
            }
        }
        most = most.max(fetches.memory_bytes());
        for name in again {
            fetches.want(at(second), name, 0, false);
        }
        for (name, bytes) in writes {
            fetches.written(name, bytes);
        }
        for (at_peer, serve) in serves.iter_mut().enumerate() {
            let peer = node(at_peer as u64 + 2);
            while let Some(output) = serve.poll() {
                if let ServeOutput::Read {
                    id,
                    name,
                    offset,
                    bytes,
                } = output
                {
                    let whole = contents[&name];
                    let end = (offset as usize + bytes).min(whole.len());
                    let mut data = whole[offset as usize..end].to_vec();
                    if peers[at_peer] == Kind::Lies {
                        data.iter_mut().for_each(|byte| *byte ^= 1);
                    }
                    let data = (peers[at_peer] != Kind::Lacks).then(|| Bytes::from(data));
                    serve.read(id, data, end == whole.len());
                }
            }
            for _ in 0..3 {
                let Some(frame) = serve.transmit(node(1)) else {
                    break;
                };
                sent[at_peer] += 1;
                match frame {
                    Frame::BlobChunk(chunk) => fetches.chunk(at(second), peer, chunk),
                    Frame::BlobDone(done) => fetches.done(at(second), peer, done),
                    Frame::BlobHave(have) => fetches.lacks(at(second), peer, have.name),
                    other => panic!("{other:?}"),
                }
            }
            if matches!(peers[at_peer], Kind::Leaves(frames) if sent[at_peer] == frames) {
                sent[at_peer] += 1;
                serve.unlinked(node(1));
                fetches.unlinked(at(second), peer);
            }
        }
        fetches.time(at(second));
        if finished.len() == blobs.len() {
            break;
        }
    }
    (finished, most)
}

#[test]
fn all_come_from_whoever_has_them() {
    let blobs: Vec<_> = [0, 1, 99, 100, 101, 1000, 5000, 7001]
        .iter()
        .enumerate()
        .map(|(number, length)| {
            let (name, data) = blob(number as u8, *length);
            (name, data, 1)
        })
        .collect();
    let check = |peers: &[Kind]| {
        let (mut finished, most) = fetch(&blobs, peers);
        finished.sort();
        let mut expected: Vec<BlobName> = blobs.iter().map(|(name, _, _)| *name).collect();
        expected.sort();
        assert_eq!(finished, expected);
        assert!(most <= 2 * 1000, "two windows at most: {most}");
    };
    check(&[Kind::Honest]);
    check(&[Kind::Honest, Kind::Honest, Kind::Honest]);
    check(&[Kind::Lacks, Kind::Honest]);
    check(&[Kind::Silent, Kind::Honest]);
    check(&[Kind::Lies, Kind::Honest]);
    check(&[Kind::Leaves(20), Kind::Honest]);
    check(&[
        Kind::Leaves(7),
        Kind::Lies,
        Kind::Silent,
        Kind::Lacks,
        Kind::Honest,
    ]);
}

#[test]
pub(crate) fn nobody_is_believed_without_the_hash() {
    let (name, data) = blob(1, 500);
    let (finished, _) = fetch(&[(name, data, 1)], &[Kind::Lies]);
    assert_eq!(finished, []);
}

#[test]
fn the_urgent_come_first() {
    let blobs: Vec<_> = (0..6)
        .map(|number| {
            let (name, data) = blob(number, 300);
            (name, data, 6 - number)
        })
        .collect();
    let (finished, _) = fetch(&blobs, &[Kind::Honest]);
    // Two were begun when nothing else was wanted.
    let order: Vec<u8> = finished[2..].iter().map(|name| name.0[0]).collect();
    assert_eq!(order, [5, 4, 3, 2]);
}

/// What each peer is asked for, in this order.
fn asked(fetches: &mut Fetches) -> Vec<(Incarnation, BlobName)> {
    let mut asked = Vec::new();
    while let Some(output) = fetches.poll() {
        match output {
            FetchOutput::Send(peer, Frame::BlobWant(want)) if want.bytes > 0 => {
                asked.push((peer, want.name));
            }
            // A peer that was silent is told to stop.
            FetchOutput::Send(..) | FetchOutput::Nowhere(_) => {}
            other => panic!("{other:?}"),
        }
    }
    asked
}

/// Blobs for which the driver is asked to want them again; other outputs are skipped.
fn again(fetches: &mut Fetches) -> Vec<BlobName> {
    let all = std::iter::from_fn(|| fetches.poll());
    let again = all.filter_map(|output| match output {
        FetchOutput::Again(name) => Some(name),
        _ => None,
    });
    again.collect()
}

/// Blobs that were removed everywhere before they were fetched were wanted for ever, and took places of others: after a long network partition they
/// had all places, and nothing was fetched any more.
#[test]
fn bodies_that_nobody_has_make_place() {
    let config = Config {
        fetches_max: 2,
        wanted_max: 4,
        ..Config::default()
    };
    let mut fetches = Fetches::new(config);
    let names: Vec<BlobName> = (0..8).map(|number| blob(number, 10).0).collect();
    for name in &names[..4] {
        assert!(fetches.want(at(0), *name, 0, false));
    }
    assert!(!fetches.want(at(0), names[4], 0, false), "too many");
    fetches.linked(at(0), node(2), false);
    assert_eq!(
        asked(&mut fetches),
        [(node(2), names[0]), (node(2), names[1])]
    );
    fetches.lacks(at(0), node(2), names[0]);
    fetches.lacks(at(0), node(2), names[1]);
    assert_eq!(
        asked(&mut fetches),
        [(node(2), names[2]), (node(2), names[3])]
    );
    fetches.lacks(at(0), node(2), names[2]);
    // Nobody is asked again at once, also if they are wanted once more.
    assert!(fetches.want(at(0), names[0], 0, false));
    assert_eq!(asked(&mut fetches), []);
    for name in &names[4..7] {
        assert!(fetches.want(at(0), *name, 0, false), "there is place");
    }
    assert!(!fetches.want(at(0), names[7], 0, false), "too many");
    assert_eq!(asked(&mut fetches), [(node(2), names[4])]);
    let rested = fetches.deadline().expect("they are tried again");
    let later = Now {
        wall_micros: 0,
        mono_micros: rested,
    };
    fetches.lacks(later, node(2), names[3]);
    fetches.lacks(later, node(2), names[4]);
    fetches.time(later);
    assert_eq!(again(&mut fetches), names[..3]);
    // One is lacking still; nothing names the others any more.
    assert!(fetches.want(later, names[1], 0, false));
    fetches.lacks(later, node(2), names[5]);
    assert_eq!(asked(&mut fetches), [(node(2), names[1])]);
    // Whoever comes may have what nobody had.
    fetches.linked(later, node(3), false);
    assert_eq!(again(&mut fetches), names[3..6]);
    fetches.time(at(1000));
    fetches.time(at(2000));
    let asked = asked(&mut fetches);
    assert!(asked.iter().all(|(_, name)| *name != names[0]), "{asked:?}");
}

/// Each was asked for every five seconds, for as long as the node that wrote it was gone.
#[test]
fn what_nobody_has_rests_longer_each_time_until_there_is_a_link() {
    let mut fetches = Fetches::new(Config::default());
    fetches.linked(at(0), node(2), false);
    let (name, _) = blob(1, 50);
    let mut now = at(0);
    let rest = |fetches: &mut Fetches, now: &mut Now| {
        assert!(fetches.want(*now, name, 0, false));
        assert_eq!(asked(fetches), [(node(2), name)]);
        fetches.lacks(*now, node(2), name);
        let (before, until) = (now.mono_micros, fetches.deadline().unwrap());
        now.mono_micros = until - 1;
        fetches.time(*now);
        assert_eq!(again(fetches), []);
        now.mono_micros = until;
        fetches.time(*now);
        assert_eq!(again(fetches), [name]);
        (until - before) / 1_000_000
    };
    let rests: Vec<u64> = (0..7).map(|_| rest(&mut fetches, &mut now)).collect();
    assert_eq!(rests, [5, 10, 20, 40, 80, 80, 80]);
    fetches.linked(now, node(2), false);
    assert_eq!(rest(&mut fetches, &mut now), 5, "the link is another one");
}

#[test]
fn as_many_rest_as_there_is_room_for_and_one_that_comes_is_taken() {
    let config = Config {
        resting_max: 2,
        ..Config::default()
    };
    let mut fetches = with_a_pusher(config);
    let bodies: Vec<_> = (0..3).map(|number| blob(number, 70)).collect();
    for (name, _) in &bodies {
        assert!(fetches.want(at(0), *name, 0, false));
        fetches.lacks(at(0), node(2), *name);
    }
    assert_eq!(again(&mut fetches), [bodies[0].0], "the first, sooner");
    let (name, data) = &bodies[1];
    fetches.pushed(at(1), node(2), push(*name, data));
    written_completely(&mut fetches, *name, data);
    fetches.time(at(100));
    assert_eq!(again(&mut fetches), [bodies[2].0]);
}

fn push(name: BlobName, data: &[u8]) -> BlobPush {
    let data = Some(Bytes::copy_from_slice(data));
    BlobPush { name, data }
}

fn written_completely(fetches: &mut Fetches, name: BlobName, data: &[u8]) {
    let write = FetchOutput::Write(name, Bytes::copy_from_slice(data));
    assert_eq!(fetches.poll(), Some(write));
    assert_eq!(fetches.poll(), Some(FetchOutput::Finish(name)));
}

/// Linked with one peer that gives unasked.
fn with_a_pusher(config: Config) -> Fetches {
    let mut fetches = Fetches::new(config);
    fetches.linked(at(0), node(2), true);
    fetches
}

#[test]
fn a_body_that_is_given_unasked_is_not_asked_for() {
    let mut fetches = with_a_pusher(Config::default());
    let (name, data) = blob(1, 70);
    assert!(fetches.want(at(0), name, 0, true));
    assert_eq!(fetches.poll(), None, "it is waited for");
    fetches.pushed(at(0), node(2), push(name, &data));
    written_completely(&mut fetches, name, &data);
    fetches.time(at(100));
    assert_eq!(asked(&mut fetches), []);
    // An empty one has nothing to be written.
    let (name, data) = blob(2, 0);
    assert!(fetches.want(at(100), name, 0, true));
    fetches.pushed(at(100), node(2), push(name, &data));
    assert_eq!(fetches.poll(), Some(FetchOutput::Finish(name)));
}

#[test]
fn what_is_not_given_unasked_is_asked_for() {
    let config = Config::default();
    let mut fetches = with_a_pusher(config);
    let names: Vec<BlobName> = (1..6).map(|number| blob(number, 50).0).collect();
    // It does not come.
    assert!(fetches.want(at(0), names[0], 0, true));
    assert_eq!(asked(&mut fetches), []);
    assert_eq!(fetches.deadline(), Some(config.coming_micros_max));
    fetches.time(at(1));
    assert_eq!(asked(&mut fetches), [(node(2), names[0])]);
    // It is too large, which was said before or after it was wanted.
    let large = |name| BlobPush { name, data: None };
    assert!(fetches.want(at(1), names[1], 0, true));
    fetches.pushed(at(1), node(2), large(names[1]));
    assert_eq!(asked(&mut fetches), [(node(2), names[1])]);
    fetches.pushed(at(1), node(2), large(names[2]));
    assert!(fetches.want(at(1), names[2], 0, true));
    assert_eq!(asked(&mut fetches), [(node(2), names[2])]);
    // It is not what its name says.
    assert!(fetches.want(at(1), names[3], 0, true));
    fetches.pushed(at(1), node(2), push(names[3], b"another"));
    assert_eq!(asked(&mut fetches), [(node(2), names[3])]);
    // It is wanted after a start: no batch has come.
    assert!(fetches.want(at(1), names[4], 0, false));
    assert_eq!(asked(&mut fetches), [(node(2), names[4])]);
    // A peer has an earlier version: it may be the one that sent the batch.
    for peers in 1..3 {
        let mut fetches = Fetches::new(config);
        for peer in 0..peers {
            fetches.linked(at(0), node(2 + peer), peer > 0);
        }
        assert!(fetches.want(at(0), names[0], 0, true));
        assert_eq!(asked(&mut fetches).len(), 1, "of {peers}");
    }
}

#[test]
fn a_body_that_is_given_while_it_is_asked_for_is_taken_once() {
    let config = Config {
        fetches_max: 1,
        ..Config::default()
    };
    let mut fetches = Fetches::new(config);
    fetches.linked(at(0), node(2), true);
    let (first, data) = blob(1, 40);
    let (second, other) = blob(2, 40);
    assert!(fetches.want(at(0), first, 0, false));
    assert!(fetches.want(at(0), second, 0, false));
    assert_eq!(asked(&mut fetches), [(node(2), first)]);
    // One that waits for its turn.
    fetches.pushed(at(0), node(2), push(second, &other));
    written_completely(&mut fetches, second, &other);
    fetches.pushed(at(0), node(2), push(first, &data));
    written_completely(&mut fetches, first, &data);
    assert_eq!(asked(&mut fetches), [], "and the peer is told to stop");
    let chunk = BlobChunk {
        name: first,
        offset: 0,
        data: Bytes::from(data),
    };
    fetches.chunk(at(0), node(2), chunk);
    fetches.time(at(100));
    assert_eq!(fetches.poll(), None);
}

#[test]
fn what_nobody_wants_is_kept_in_bounded_memory_for_a_bounded_time() {
    let config = Config {
        ahead_bytes_max: 1000,
        push_bytes_max: 500,
        ..Config::default()
    };
    let mut fetches = Fetches::new(config);
    fetches.linked(at(0), node(2), true);
    let given: Vec<(BlobName, Vec<u8>)> = (0..20).map(|number| blob(number, 200)).collect();
    for (name, data) in &given {
        fetches.pushed(at(0), node(2), push(*name, data));
    }
    let memory = fetches.memory_bytes();
    assert!(memory > 200 && memory <= 1000, "{memory}");
    let (name, data) = &given[0];
    assert!(fetches.want(at(0), *name, 0, true), "the first ones stay");
    written_completely(&mut fetches, *name, data);
    fetches.finished(name);
    fetches.time(at(20));
    assert_eq!(fetches.memory_bytes(), 0);
    assert_eq!(fetches.deadline(), None);
    // Larger than what is given unasked, and by who is not linked.
    let (name, data) = blob(50, 600);
    fetches.pushed(at(20), node(2), push(name, &data));
    fetches.pushed(at(20), node(3), push(given[1].0, &given[1].1));
    assert_eq!(fetches.memory_bytes(), 0);
}

/// One body has come to peer 2, and then comes once more.
#[test]
fn what_comes_twice_is_taken_once() {
    let config = Config {
        pushes_max: 2,
        ..Config::default()
    };
    let mut fetches = with_a_pusher(config);
    fetches.linked(at(0), node(3), true);
    let (name, data) = blob(1, 70);
    // Before it is wanted, and by two peers.
    fetches.pushed(at(0), node(2), push(name, &data));
    let kept = fetches.memory_bytes();
    fetches.pushed(at(0), node(3), push(name, &data));
    assert_eq!(fetches.memory_bytes(), kept);
    assert!(fetches.want(at(0), name, 0, true));
    written_completely(&mut fetches, name, &data);
    // While it is written, and when it is.
    fetches.pushed(at(0), node(3), push(name, &data));
    assert_eq!(fetches.memory_bytes(), 70);
    fetches.finished(&name);
    fetches.pushed(at(0), node(3), push(name, &data));
    assert_eq!((fetches.memory_bytes(), fetches.poll()), (0, None));
    // The store has let go of it: nobody gives it a second time, so it is asked for at once.
    assert!(fetches.want(at(0), name, 0, true));
    assert_eq!(asked(&mut fetches).len(), 1);
    // And what was asked for, and then comes unasked.
    let (name, data) = blob(2, 10);
    assert!(fetches.want(at(0), name, 0, false));
    let peer = asked(&mut fetches)[0].0;
    let (offset, length) = (0, 10);
    let chunk = BlobChunk {
        name,
        offset,
        data: Bytes::from(data.clone()),
    };
    fetches.chunk(at(0), peer, chunk);
    fetches.done(at(0), peer, BlobDone { name, length });
    written_completely(&mut fetches, name, &data);
    fetches.pushed(at(0), node(2), push(name, &data));
    assert_eq!((fetches.memory_bytes(), fetches.poll()), (0, None));
    // What came is remembered for a while only.
    for number in 3..6 {
        let (name, data) = blob(number, 1);
        assert!(fetches.want(at(0), name, 0, true));
        fetches.pushed(at(0), node(2), push(name, &data));
        written_completely(&mut fetches, name, &data);
        fetches.finished(&name);
    }
    fetches.pushed(at(0), node(2), push(name, &data));
    assert!(fetches.memory_bytes() > 0);
}

/// A peer that pushes more than its share leaves the others theirs.
#[test]
fn each_peer_has_its_share_of_what_is_kept() {
    let config = Config {
        ahead_bytes_max: 2000,
        ..Config::default()
    };
    let mut fetches = with_a_pusher(config);
    fetches.linked(at(0), node(3), true);
    for number in 0..20 {
        let (name, data) = blob(number, 200);
        fetches.pushed(at(0), node(2), push(name, &data));
    }
    let memory = fetches.memory_bytes();
    assert!(memory > 500 && memory <= 1000, "{memory}");
    let (name, data) = blob(50, 200);
    fetches.pushed(at(0), node(3), push(name, &data));
    assert!(fetches.want(at(0), name, 0, true));
    written_completely(&mut fetches, name, &data);
    // Names without bytes are no way around it.
    for number in 60..200 {
        let name = blob(number, 1).0;
        fetches.pushed(at(0), node(3), BlobPush { name, data: None });
    }
    assert!(fetches.memory_bytes() <= 2000 + 200);
    // When it leaves, its place is free after a while.
    fetches.finished(&name);
    fetches.unlinked(at(0), node(2));
    fetches.time(at(20));
    assert_eq!(fetches.memory_bytes(), 0);
}

/// The disk takes nothing for a while: what is given meanwhile is asked for later, by and by.
#[test]
fn what_cannot_be_written_yet_is_bounded() {
    let config = Config {
        ahead_bytes_max: 1000,
        fetches_max: 1,
        ..Config::default()
    };
    let mut fetches = with_a_pusher(config);
    let bodies: Vec<_> = (0..20).map(|number| blob(number, 200)).collect();
    for (name, _) in &bodies {
        assert!(fetches.want(at(0), *name, 0, true));
    }
    for (name, data) in &bodies {
        fetches.pushed(at(0), node(2), push(*name, data));
    }
    assert_eq!(fetches.memory_bytes(), 1000);
    for (name, data) in &bodies[..5] {
        written_completely(&mut fetches, *name, data);
    }
    assert_eq!(asked(&mut fetches), [(node(2), bodies[5].0)]);
    for (name, _) in &bodies[..5] {
        fetches.finished(name);
    }
    assert_eq!(fetches.memory_bytes(), 0);
    let (name, data) = &bodies[6];
    fetches.pushed(at(0), node(2), push(*name, data));
    written_completely(&mut fetches, *name, data);
}

/// A blob that was asked for while it was read to be pushed came once, found no room, and was waited for until its peer counted as silent. When nodes
/// caught up after a network partition, all fetches stood still for seconds.
#[test]
fn an_answer_that_finds_no_room_is_asked_for_again() {
    let config = Config {
        ahead_bytes_max: 300,
        ..Config::default()
    };
    let mut fetches = with_a_pusher(config);
    let mut serves = Serves::new(config);
    serves.linked(node(1), true);
    let ((first, held), (name, data)) = (blob(1, 200), blob(2, 200));
    assert!(fetches.want(at(0), first, 0, true));
    fetches.pushed(at(0), node(2), push(first, &held));
    written_completely(&mut fetches, first, &held);
    assert!(fetches.want(at(0), name, 0, false));
    let ask = |fetches: &mut Fetches| match fetches.poll() {
        Some(FetchOutput::Send(_, Frame::BlobWant(want))) => want,
        other => panic!("{other:?}"),
    };
    // The question comes while it is read: it is given as a whole, once.
    serves.push(node(1), name);
    let read = read_ids(&mut serves);
    serves.want(node(1), ask(&mut fetches));
    serves.read(read[0], Some(Bytes::from(data.clone())), true);
    let Some(Frame::BlobPush(given)) = serves.transmit(node(1)) else {
        panic!("it is not given");
    };
    assert_eq!(serves.transmit(node(1)), None);
    // The first is still being written.
    fetches.pushed(at(0), node(2), given);
    serves.want(node(1), ask(&mut fetches));
    assert_eq!(fetches.poll(), None, "once");
    let read = read_ids(&mut serves);
    serves.read(read[0], Some(Bytes::from(data.clone())), true);
    for frame in std::iter::from_fn(|| serves.transmit(node(1))) {
        match frame {
            Frame::BlobChunk(chunk) => fetches.chunk(at(0), node(2), chunk),
            Frame::BlobDone(done) => fetches.done(at(0), node(2), done),
            other => panic!("{other:?}"),
        }
    }
    written_completely(&mut fetches, name, &data);
}

/// The link ends before the blobs have come: they are asked of the remaining peers, and on a new link all begins anew.
#[test]
fn a_link_that_goes_takes_nothing_with_it() {
    let config = Config::default();
    let mut fetches = with_a_pusher(config);
    fetches.linked(at(0), node(3), true);
    let (name, data) = blob(1, 70);
    assert!(fetches.want(at(0), name, 0, true));
    fetches.unlinked(at(0), node(2));
    fetches.pushed(at(0), node(2), push(name, &data));
    assert_eq!(asked(&mut fetches), [], "who is not linked gives nothing");
    fetches.time(at(1));
    assert_eq!(asked(&mut fetches), [(node(3), name)]);
    // The giver's side: what was read for the old link is not sent on the new one, which gives all again.
    let mut serves = Serves::new(config);
    serves.linked(node(2), true);
    serves.push(node(2), name);
    let before = read_ids(&mut serves);
    serves.unlinked(node(2));
    serves.push(node(2), name);
    assert_eq!(read_ids(&mut serves), [], "there is no link");
    serves.linked(node(2), true);
    serves.push(node(2), name);
    let after = read_ids(&mut serves);
    serves.read(before[0], Some(Bytes::from_static(b"of before")), true);
    assert_eq!(serves.transmit(node(2)), None);
    serves.read(after[0], Some(Bytes::from(data.clone())), true);
    let sent = serves.transmit(node(2));
    assert_eq!(sent, Some(Frame::BlobPush(push(name, &data))));
}

/// An older peer gets what it asks for, and nothing else.
#[test]
fn an_older_peer_is_given_nothing_unasked() {
    let mut serves = Serves::new(Config::default());
    serves.linked(node(2), false);
    let (name, data) = blob(1, 70);
    serves.push(node(2), name);
    assert_eq!(reads(&mut serves), []);
    let (offset, bytes) = (0, 1000);
    serves.want(
        node(2),
        BlobWant {
            name,
            offset,
            bytes,
        },
    );
    let ids = read_ids(&mut serves);
    serves.read(ids[0], Some(Bytes::from(data)), true);
    assert!(matches!(
        serves.transmit(node(2)),
        Some(Frame::BlobChunk(_))
    ));
}

/// One answer of the store was taken for another: the peer got the end of a blob as the whole blob.
#[test]
fn what_is_being_asked_for_is_not_given_unasked_as_well() {
    let config = Config {
        chunk_bytes: 50,
        push_bytes_max: 100,
        ..Config::default()
    };
    let mut serves = Serves::new(config);
    serves.linked(node(2), true);
    let (name, data) = blob(1, 80);
    let want = |offset, bytes| BlobWant {
        name,
        offset,
        bytes,
    };
    serves.want(node(2), want(50, 1000));
    let asked = read_ids(&mut serves);
    serves.push(node(2), name);
    assert_eq!(read_ids(&mut serves), [], "it is on its way");
    // The peer wants no more of it, and then a batch names it, while the old read is under way.
    serves.want(node(2), want(0, 0));
    serves.push(node(2), name);
    let given = read_ids(&mut serves);
    serves.read(asked[0], Some(Bytes::copy_from_slice(&data[50..])), true);
    assert_eq!(serves.transmit(node(2)), None);
    serves.read(given[0], Some(Bytes::from(data.clone())), true);
    let sent = serves.transmit(node(2));
    assert_eq!(sent, Some(Frame::BlobPush(push(name, &data))));
}

fn read_ids(serves: &mut Serves) -> Vec<ReadId> {
    let ids = std::iter::from_fn(|| serves.poll()).filter_map(|output| match output {
        ServeOutput::Read { id, .. } => Some(id),
        ServeOutput::Wake(_) => None,
    });
    ids.collect()
}

/// What is to be read for peer 2.
fn reads(serves: &mut Serves) -> Vec<(BlobName, u64, usize)> {
    reads_of(serves, &mut BTreeMap::new())
}

fn reads_of(
    serves: &mut Serves,
    ids: &mut BTreeMap<BlobName, ReadId>,
) -> Vec<(BlobName, u64, usize)> {
    let mut reads = Vec::new();
    while let Some(output) = serves.poll() {
        if let ServeOutput::Read {
            id,
            name,
            offset,
            bytes,
        } = output
        {
            ids.insert(name, id);
            reads.push((name, offset, bytes));
        }
    }
    reads
}

#[test]
fn bodies_go_unasked_behind_their_batches() {
    let config = Config {
        push_bytes_max: 100,
        pushing_max: 2,
        pushes_max: 5,
        ..Config::default()
    };
    let mut serves = Serves::new(config);
    serves.linked(node(2), true);
    let mut ids = BTreeMap::new();
    let of: Vec<(BlobName, Vec<u8>)> = (0..9).map(|number| blob(number, 60)).collect();
    for (name, _) in &of {
        serves.push(node(2), *name);
        serves.push(node(2), *name);
    }
    let read = |of: &(BlobName, Vec<u8>)| (of.0, 0, 100);
    assert_eq!(
        reads_of(&mut serves, &mut ids),
        [read(&of[0]), read(&of[1])]
    );
    serves.read(ids[&of[0].0], Some(Bytes::from(of[0].1.clone())), true);
    assert_eq!(
        reads_of(&mut serves, &mut ids),
        [],
        "as long as it is not sent"
    );
    let sent = serves.transmit(node(2));
    assert_eq!(sent, Some(Frame::BlobPush(push(of[0].0, &of[0].1))));
    assert_eq!(reads_of(&mut serves, &mut ids), [read(&of[2])]);
    // A larger one is to be asked for.
    serves.read(ids[&of[1].0], Some(Bytes::from(vec![0; 100])), false);
    let (name, data) = (of[1].0, None);
    let sent = serves.transmit(node(2));
    assert_eq!(sent, Some(Frame::BlobPush(BlobPush { name, data })));
    assert_eq!(reads_of(&mut serves, &mut ids), [read(&of[3])]);
    // One that is asked for while it is read comes as it was to come,
    let want = |name| BlobWant {
        name,
        offset: 0,
        bytes: 1000,
    };
    serves.want(node(2), want(of[2].0));
    serves.want(node(2), want(of[3].0));
    assert_eq!(reads_of(&mut serves, &mut ids), []);
    serves.read(ids[&of[2].0], Some(Bytes::from(of[2].1.clone())), true);
    let sent = serves.transmit(node(2));
    assert_eq!(sent, Some(Frame::BlobPush(push(of[2].0, &of[2].1))));
    // but if it is larger, as it was asked for,
    serves.read(ids[&of[3].0], Some(Bytes::from(vec![0; 100])), false);
    let begun = reads_of(&mut serves, &mut ids);
    assert!(begun.contains(&(of[3].0, 0, 1000)), "{begun:?}");
    // and one that was not read is not given unasked. Of nine the last two had no place.
    assert!(begun.contains(&read(&of[4])), "{begun:?}");
    serves.want(node(2), want(of[6].0));
    assert_eq!(reads_of(&mut serves, &mut ids), [(of[6].0, 0, 1000)]);
    serves.read(ids[&of[4].0], None, false);
    assert!(serves.transmit(node(2)).is_some());
    assert_eq!(reads_of(&mut serves, &mut ids), []);
}
