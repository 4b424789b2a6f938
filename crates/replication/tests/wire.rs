//! The wire format: old bytes keep their meaning, unknown fields and kinds are skipped, garbage is refused within bounds.

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_crdt::{Incarnation, PartitionId, VersionVector};
use whimbrel_replication::wire::*;
use whimbrel_replication::{
    fuzz,
    placement::Role,
    roster::{Holding, Place},
};

fn node(id: u64) -> Incarnation {
    Incarnation::new(id).expect("not zero")
}

fn vector(pairs: &[(u64, u64)]) -> VersionVector {
    pairs.iter().map(|(id, seq)| (node(*id), *seq)).collect()
}

fn roster() -> Roster {
    let mut roster = Roster::found(node(7), "north-1", 3, !0b1111);
    roster.sponsor(node(7), node(8), "south-1").expect("a slot");
    let place = Place {
        shares: None,
        version: 2,
        incarnation: node(8),
        address: "south.example.org:10700".into(),
        region: "south".into(),
        role: None,
    };
    roster.announce("south-1", place).expect("room");
    roster
}

fn roster_with_role() -> Roster {
    let mut roster = roster();
    let mut place = roster.places()["south-1"].clone();
    place.version += 1;
    place.role = Role::Storage.number();
    roster.announce("south-1", place).expect("room");
    roster
}

/// The first has given free slots to the second.
fn roster_with_grants() -> Roster {
    let mut roster = roster();
    let mut place = roster.places()["south-1"].clone();
    place.version += 1;
    place.shares = Some(true);
    roster.announce("south-1", place).expect("room");
    assert_eq!(roster.share_out(node(7), &[node(8)].into()), Ok(true));
    roster
}

fn roster_with_holders() -> Roster {
    let (mut roster, partition) = (roster(), PartitionId::accounts(200));
    roster.leave(node(8), partition).expect("it holds it");
    roster.left(node(8), partition, 70_000).expect("it leaves");
    roster
        .leave(node(7), PartitionId::accounts(3))
        .expect("it holds it");
    roster
}

/// One was removed, and of two others one has said what it holds of its logs.
fn roster_with_word() -> Roster {
    let mut roster = roster();
    roster.sponsor(node(7), node(9), "east-1").expect("a slot");
    roster.remove(node(7), node(8), 1).expect("a member");
    let log = Holding {
        taken: 5,
        stored: 5,
        applied: 5,
        ..Holding::default()
    };
    let holdings = [(node(8), [(PartitionId::accounts(200), log)].into())].into();
    roster.settle(node(7), &holdings).expect("room");
    roster
}

/// One of each, with the name of its fixture.
fn examples() -> Vec<(&'static str, Frame)> {
    let partition = PartitionId::accounts(200);
    let room = Room {
        bytes: 1 << 20,
        batches: 1024,
    };
    let head = Head {
        origin: node(7),
        hash: [0xAB; 32],
    };
    let name = BlobName([5; 48]);
    let data = Bytes::from_static(b"opaque");
    vec![
        (
            "handshake",
            Frame::Handshake(Handshake {
                cluster: [9; 16],
                name: "north-1".into(),
                incarnation: node(0xDEAD_BEEF_0BAD_CAFE),
                wire_min: 1,
                wire_max: 1,
                features: 0b101,
            }),
        ),
        ("ping", Frame::Ping(Ping { id: 3 })),
        (
            "pong",
            Frame::Pong(Pong {
                id: 3,
                wall_micros: None,
            }),
        ),
        (
            "pong_wall",
            Frame::Pong(Pong {
                id: 3,
                wall_micros: Some(1_700_000_000_000_000),
            }),
        ),
        ("roster_eighth", Frame::Roster(roster())),
        ("roster_role", Frame::Roster(roster_with_role())),
        ("roster_grants", Frame::Roster(roster_with_grants())),
        ("roster_holders", Frame::Roster(roster_with_holders())),
        ("roster_word", Frame::Roster(roster_with_word())),
        (
            "hello",
            Frame::Hello(Hello {
                partition,
                durable: vector(&[(7, 300), (8, 2)]),
                applied: vector(&[(7, 299)]),
                heads: vec![head],
                room,
                yours: None,
                anew: None,
                syncing: None,
                lives: None,
            }),
        ),
        (
            "hello_yours",
            Frame::Hello(Hello {
                partition,
                durable: vector(&[(7, 300)]),
                applied: vector(&[]),
                heads: vec![],
                room,
                yours: Some(vector(&[(8, 2)])),
                anew: None,
                syncing: None,
                lives: None,
            }),
        ),
        (
            "hello_anew",
            Frame::Hello(Hello {
                partition,
                durable: vector(&[(7, 300)]),
                applied: vector(&[(7, 300)]),
                heads: vec![head],
                room: Room {
                    bytes: 0,
                    batches: 0,
                },
                yours: Some(vector(&[])),
                anew: Some(true),
                syncing: None,
                lives: None,
            }),
        ),
        (
            "hello_syncing",
            Frame::Hello(Hello {
                partition,
                durable: vector(&[(7, 300)]),
                applied: vector(&[]),
                heads: vec![],
                room,
                yours: None,
                anew: None,
                syncing: Some(true),
                lives: None,
            }),
        ),
        (
            "hello_lives",
            Frame::Hello(Hello {
                partition,
                durable: vector(&[(7, 300)]),
                applied: vector(&[]),
                heads: vec![head],
                room,
                yours: None,
                anew: None,
                syncing: Some(true),
                lives: Some(Generations { mine: 2, yours: 1 }),
            }),
        ),
        (
            "batches",
            Frame::Batches(Batches {
                partition,
                round: 2,
                batches: vec![data.clone(), Bytes::from_static(b"another")],
            }),
        ),
        (
            "ack",
            Frame::Ack(Ack {
                partition,
                durable: vector(&[(7, 300)]),
                applied: vector(&[]),
                room,
                again: Some(2),
                lives: None,
            }),
        ),
        (
            "ack_lives",
            Frame::Ack(Ack {
                partition,
                durable: vector(&[(7, 300)]),
                applied: vector(&[]),
                room,
                again: Some(2),
                lives: Some(Generations { mine: 0, yours: 3 }),
            }),
        ),
        (
            "readers",
            Frame::Readers(Readers {
                partition,
                upto: 17,
                accounts: vec![Reading {
                    account: [3; 16],
                    reading: true,
                    counter: 99,
                }],
                anew: None,
            }),
        ),
        (
            "readers_anew",
            Frame::Readers(Readers {
                partition,
                upto: 17,
                accounts: vec![],
                anew: Some(true),
            }),
        ),
        (
            "links",
            Frame::Links(Links {
                partition,
                peers: vec![node(8), node(9)],
            }),
        ),
        (
            "readers_of",
            Frame::ReadersOf(ReadersOf {
                partition,
                member: node(9),
                round_trip_micros: Some(60_000),
                upto: 17,
                accounts: vec![Reading {
                    account: [3; 16],
                    reading: true,
                    counter: 99,
                }],
                anew: Some(true),
                ends: None,
            }),
        ),
        (
            "readers_of_nobody",
            Frame::ReadersOf(ReadersOf {
                partition,
                member: node(9),
                round_trip_micros: None,
                upto: 0,
                accounts: vec![],
                anew: None,
                ends: Some(true),
            }),
        ),
        (
            "announced",
            Frame::Announced(Announced {
                partition,
                vector: vector(&[(7, 300), (8, 17)]),
                except: vec![[3; 16], [4; 16]],
            }),
        ),
        (
            "shown",
            Frame::VisibleVector(VisibleVector {
                partition,
                member: node(9),
                vector: vector(&[(7, 300), (8, 17)]),
                except: vec![Excepted {
                    account: [3; 16],
                    vector: vector(&[(8, 16)]),
                }],
            }),
        ),
        (
            "state_begin",
            Frame::StateBegin(StateBegin {
                partition,
                state: 4,
                applied: vector(&[(7, 300)]),
                heads: vec![head],
                hlc: None,
                question: None,
            }),
        ),
        (
            "state_begin_hlc",
            Frame::StateBegin(StateBegin {
                partition,
                state: 4,
                applied: vector(&[(7, 300)]),
                heads: vec![head],
                hlc: Some(1_700_000_000_000_000),
                question: None,
            }),
        ),
        (
            "state_hint",
            Frame::StateBegin(StateBegin {
                partition,
                state: 0,
                applied: vector(&[(7, 300)]),
                heads: vec![],
                hlc: None,
                question: None,
            }),
        ),
        (
            "state_release",
            Frame::StateTake(StateTake {
                partition,
                state: 4,
                after: vec![],
                bytes: 0,
                question: None,
            }),
        ),
        (
            "state_chunk",
            Frame::StateChunk(StateChunk {
                partition,
                state: 4,
                after: b"a".to_vec(),
                last: b"k".to_vec(),
                rows: data.clone(),
            }),
        ),
        (
            "state_end",
            Frame::StateEnd(StateEnd {
                partition,
                state: 4,
                last: b"z".to_vec(),
            }),
        ),
        (
            "state_begin_answers",
            Frame::StateBegin(StateBegin {
                partition,
                state: 4,
                applied: vector(&[(7, 300)]),
                heads: vec![head],
                hlc: Some(1_700_000_000_000_000),
                question: Some(12),
            }),
        ),
        (
            "state_take_asks",
            Frame::StateTake(StateTake {
                partition,
                state: 0,
                after: vec![],
                bytes: 1 << 20,
                question: Some(12),
            }),
        ),
        (
            "state_take",
            Frame::StateTake(StateTake {
                partition,
                state: 4,
                after: b"k".to_vec(),
                bytes: 1 << 20,
                question: None,
            }),
        ),
        (
            "blob_want",
            Frame::BlobWant(BlobWant {
                name,
                offset: 65536,
                bytes: 1 << 20,
            }),
        ),
        (
            "blob_have",
            Frame::BlobHave(BlobHave {
                name,
                here: true,
                ask: false,
                partition: None,
            }),
        ),
        (
            "blob_have_of",
            Frame::BlobHave(BlobHave {
                name,
                here: true,
                ask: true,
                partition: Some(partition),
            }),
        ),
        (
            "blob_chunk",
            Frame::BlobChunk(BlobChunk {
                name,
                offset: 65536,
                data,
            }),
        ),
        (
            "blob_done",
            Frame::BlobDone(BlobDone {
                name,
                length: 65542,
            }),
        ),
        (
            "blob_push",
            Frame::BlobPush(BlobPush {
                name,
                data: Some(Bytes::from_static(b"a body")),
            }),
        ),
        (
            "blob_push_large",
            Frame::BlobPush(BlobPush { name, data: None }),
        ),
        (
            "leaving",
            Frame::Leaving(Leaving {
                partition,
                has: vector(&[(7, 3), (8, 70_000)]),
            }),
        ),
        (
            "covered",
            Frame::Covered(Covered {
                partition,
                has: vector(&[(7, 3), (8, 70_000)]),
                lacks: vec![name],
                holders: [node(7), node(9)].into(),
            }),
        ),
        (
            "deliver",
            Frame::Deliver(Deliver {
                entry: [6; 16],
                index: 1,
                needed: 1,
                nodes: [node(7), node(8)].into(),
                asks: true,
                delivery: Bytes::from_static(b"the entry"),
            }),
        ),
        (
            "delivered",
            Frame::Delivered(Delivered {
                entry: [6; 16],
                index: 1,
                done: true,
            }),
        ),
        (
            "queue",
            Frame::Queue(Bytes::from_static(b"a frame of the queue")),
        ),
    ]
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Frame>, WireError> {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = decoder.frame()? {
        frames.push(frame);
    }
    assert_eq!(decoder.buffered(), 0);
    Ok(frames)
}

#[test]
fn version_2_keeps_its_meaning() {
    for (name, frame) in examples() {
        let path = format!("{}/fixtures/v2/{name}.bin", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("WHIMBREL_WRITE_FIXTURES").is_some() {
            std::fs::write(&path, encoded(&frame)).expect("the fixture is written");
        }
        let bytes = std::fs::read(&path).expect("the fixture is there");
        assert_eq!(read(&bytes), Ok(vec![frame.clone()]), "{name}");
        assert_eq!(encoded(&frame), bytes, "{name}");
        fuzz::stream(&bytes);
        fuzz::peer(&bytes);
    }
}

/// When a newcomer got half of its sponsor's free slots: what was given stays given.
#[test]
fn a_roster_of_before_keeps_its_meaning() {
    let path = format!("{}/fixtures/v2/roster.bin", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).expect("the fixture is there");
    let frames = read(&bytes).expect("a frame");
    let [Frame::Roster(before)] = frames.as_slice() else {
        panic!("not a roster: {frames:?}");
    };
    let now = roster();
    assert_eq!(before.slots(), now.slots());
    assert_eq!(before.places(), now.places());
    let free = |roster: &Roster, id| roster.members().free(node(id)).count_ones();
    assert_eq!((free(before, 7), free(before, 8)), (30, 29));
    assert_eq!(encoded(&frames[0]), bytes);
}

/// From a version in which the greater of two reports counted, not the last.
#[test]
fn a_word_of_before_keeps_its_meaning() {
    let path = format!(
        "{}/fixtures/v2/roster_word_greater.bin",
        env!("CARGO_MANIFEST_DIR")
    );
    let bytes = std::fs::read(path).expect("the fixture is there");
    assert_eq!(read(&bytes), Ok(vec![Frame::Roster(roster_with_word())]));
}

/// A newer node adds fields and kinds.
#[test]
fn what_is_not_known_is_skipped() {
    let mut stream = Vec::new();
    for (name, frame) in examples() {
        let mut bytes = encoded(&frame);
        // Its last field is left out where there is nothing to say: the next place is not a new one.
        let short = matches!(
            name,
            "hello"
                | "hello_yours"
                | "hello_anew"
                | "hello_syncing"
                | "ack"
                | "state_begin"
                | "state_begin_hlc"
                | "state_release"
                | "state_take"
                | "state_hint"
                | "readers"
                | "readers_of"
                | "pong"
                | "blob_have"
                | "roster_eighth"
                | "roster_role"
                | "roster_grants"
                | "roster_word"
        );
        if !short
            && !matches!(
                frame,
                Frame::Batches(_)
                    | Frame::StateChunk(_)
                    | Frame::BlobChunk(_)
                    | Frame::BlobPush(_)
                    | Frame::Deliver(_)
                    | Frame::Queue(_)
            )
        {
            // The array of fields gets one more, an array itself.
            assert!((0x80..0x97).contains(&bytes[HEADER_BYTES]));
            bytes[HEADER_BYTES] += 1;
            bytes.extend_from_slice(&[0x82, 0x01, 0x63, b'n', b'e', b'w']);
            let length = u32::from_be_bytes(bytes[..4].try_into().expect("four")) + 6;
            bytes[..4].copy_from_slice(&length.to_be_bytes());
        }
        stream.extend(bytes);
        stream.extend([0, 0, 0x40, 0, 0x77, 0x77]);
        stream.extend([0xFF; 0x4000]);
    }
    let expected: Vec<Frame> = examples().into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(read(&stream), Ok(expected));
    fuzz::stream(&stream);
}

#[test]
fn nothing_is_kept_of_what_is_too_long_or_unknown() {
    let check = |kind: u16, length: usize, refused: bool| {
        let mut bytes = (length as u32).to_be_bytes().to_vec();
        bytes.extend(kind.to_be_bytes());
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let found = decoder.frame();
        let expected = if refused {
            Err(WireError::TooLong {
                kind,
                bytes: length,
            })
        } else {
            Ok(None)
        };
        assert_eq!(found, expected);
        decoder.push(&[0; 1000]);
        assert!(decoder.buffered() <= 1000 + HEADER_BYTES);
        if kind == 999 && !refused {
            assert_eq!(decoder.buffered(), 0);
        }
    };
    check(16, CONTROL_BYTES_MAX, false);
    check(16, CONTROL_BYTES_MAX + 1, true);
    check(17, BULK_BYTES_MAX, false);
    check(17, BULK_BYTES_MAX + 1, true);
    check(999, BULK_BYTES_MAX, false);
    check(999, BULK_BYTES_MAX + 1, true);
}

#[test]
fn batches_lie_within_their_frame() {
    let frame = Frame::Batches(Batches {
        partition: PartitionId(1),
        round: 0,
        batches: vec![Bytes::from_static(b"abc")],
    });
    let mut bytes = encoded(&frame);
    bytes.pop();
    bytes[3] -= 1;
    assert!(matches!(
        read(&bytes),
        Err(WireError::Malformed { kind: 17, .. })
    ));
}

proptest! {
    #[test]
    fn garbage_breaks_nothing(data: Vec<u8>, which in 0..examples().len(), at: usize, bit in 0..8u8) {
        fuzz::stream(&data);
        let mut bytes = encoded(&examples()[which].1);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        // What the length promises and does not come is waited for: put the end behind it.
        bytes.extend(encoded(&Frame::Ping(Ping { id: 1 })));
        fuzz::stream(&bytes);
        fuzz::peer(&bytes);
    }

    /// All frames, one after the other in any order, each with a bit that is wrong or not.
    #[test]
    fn no_peer_breaks_a_machine(picks: Vec<(u8, u16, u8)>) {
        let all = examples();
        let mut bytes = Vec::new();
        for (which, at, bit) in picks {
            let mut frame = encoded(&all[usize::from(which) % all.len()].1);
            let at = usize::from(at) % frame.len();
            if at >= HEADER_BYTES && bit % 4 == 0 {
                frame[at] ^= 1 << (bit / 4 % 8);
            }
            bytes.extend(frame);
        }
        fuzz::peer(&bytes);
    }
}
