//! Bodies between nodes: all come, in bounded memory, whoever lies or goes away.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::Incarnation;
use whimbrel_replication::Now;
use whimbrel_replication::blobs::{Config, FetchOutput, Fetches, ServeOutput, Serves};
use whimbrel_replication::wire::{BlobName, Frame};

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
        assert!(fetches.want(at(0), *name, *priority));
    }
    for id in 0..peers.len() {
        fetches.linked(at(0), node(id as u64 + 2));
    }
    for second in 0..2000 {
        let mut writes = Vec::new();
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
                other => panic!("{other:?}"),
            }
        }
        most = most.max(fetches.memory_bytes());
        for (name, bytes) in writes {
            fetches.written(name, bytes);
        }
        for (at_peer, serve) in serves.iter_mut().enumerate() {
            let peer = node(at_peer as u64 + 2);
            while let Some(output) = serve.poll() {
                if let ServeOutput::Read {
                    name,
                    offset,
                    bytes,
                    ..
                } = output
                {
                    let whole = contents[&name];
                    let end = (offset as usize + bytes).min(whole.len());
                    let mut data = whole[offset as usize..end].to_vec();
                    if peers[at_peer] == Kind::Lies {
                        data.iter_mut().for_each(|byte| *byte ^= 1);
                    }
                    let data = (peers[at_peer] != Kind::Lacks).then(|| Bytes::from(data));
                    serve.read(node(1), name, data, end == whole.len());
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
fn nobody_is_believed_without_the_hash() {
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

/// Removed everywhere before they were fetched, such bodies are wanted for long: they must not keep the others out.
#[test]
fn bodies_that_nobody_has_make_place() {
    let config = Config {
        fetches_max: 2,
        ..Config::default()
    };
    let mut fetches = Fetches::new(config);
    let names: Vec<BlobName> = (0..4).map(|number| blob(number, 10).0).collect();
    for name in &names {
        assert!(fetches.want(at(0), *name, 0));
    }
    fetches.linked(at(0), node(2));
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
    // Nobody is asked again at once.
    assert_eq!(asked(&mut fetches), []);
    let rested = fetches.deadline().expect("they are tried again");
    let later = Now {
        wall_micros: 0,
        mono_micros: rested,
    };
    fetches.time(later);
    assert_eq!(
        asked(&mut fetches),
        [(node(2), names[0]), (node(2), names[1])]
    );
    // Whoever comes may have what nobody had.
    fetches.lacks(later, node(2), names[0]);
    fetches.lacks(later, node(2), names[1]);
    assert_eq!(asked(&mut fetches), [(node(2), names[2])]);
    fetches.linked(later, node(3));
    let asked_now = asked(&mut fetches);
    assert!(
        matches!(asked_now[..], [(peer, _)] if peer == node(3)),
        "{asked_now:?}"
    );
    // And each is wanted once.
    assert!(names.iter().all(|name| fetches.want(later, *name, 0)));
    assert_eq!(asked(&mut fetches), []);
}
