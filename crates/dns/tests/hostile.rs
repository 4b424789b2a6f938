//! Answers that no honest server gives. None of them makes the machine panic, take what it must not, or work without bound.

use hickory_proto::op::Message;
use whimbrel_dns::{Failure, Found, Kind, Mx, Records};

use crate::{
    scenarios::ZONE,
    world::{MILLI, Tcp, World, address, config, record},
};

/// A world in which a question has just gone out, by UDP or by TCP.
fn asked(text: &str, kind: Kind, by_tcp: bool) -> World {
    let mut config = config(1);
    config.attempts = 1;
    let mut world = World::new(config, ZONE, 1);
    world.server(1).silent = !by_tcp;
    world.server(1).tcp = Tcp::Silent;
    world.ask(text, kind);
    if by_tcp {
        let mut answer = world.sent[0].message.clone().into_response();
        answer.metadata.truncation = true;
        let socket = world.socket();
        world.datagram(socket, address(1), answer.to_vec().unwrap());
        world.run_until(50 * MILLI);
    }
    assert_eq!(world.sent.len(), 1 + usize::from(by_tcp));
    world
}

/// Gives the answer to the question that went out last.
fn give(world: &mut World, by_tcp: bool, bytes: Vec<u8>) {
    if by_tcp {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        world.stream_bytes([&length[..], &bytes].concat());
    } else {
        let socket = world.socket();
        world.datagram(socket, address(1), bytes);
    }
}

fn outcome(mut world: World) -> Result<Found, Failure> {
    world.all_servers(|server| server.silent = true);
    world.run();
    world.answers[&1].clone().map(|answer| answer.found)
}

/// What comes of octets behind the header and the question of `mx1.example.org` A, which begins at 12 and ends at 33.
fn check(counts: [u16; 3], records: &[u8], expected: Result<Found, Failure>) {
    for outcome in outcomes(counts, records) {
        assert_eq!(outcome, expected, "{counts:?}");
    }
}

/// By UDP, if it has room, and by TCP.
fn outcomes(counts: [u16; 3], records: &[u8]) -> Vec<Result<Found, Failure>> {
    let mut outcomes = Vec::new();
    for by_tcp in [false, true] {
        let mut world = asked("mx1.example.org", Kind::A, by_tcp);
        let mut answer = world.sent.last().unwrap().message.clone().into_response();
        answer.edns = None;
        let mut bytes = answer.to_vec().unwrap();
        assert_eq!(bytes.len(), 33);
        for (at, count) in counts.into_iter().enumerate() {
            bytes[6 + 2 * at..8 + 2 * at].copy_from_slice(&count.to_be_bytes());
        }
        bytes.extend_from_slice(records);
        if !by_tcp && bytes.len() > 4096 {
            continue;
        }
        give(&mut world, by_tcp, bytes);
        outcomes.push(outcome(world));
    }
    outcomes
}

/// A record: its owner as octets, type, class, TTL and data.
fn raw(owner: &[u8], kind: u16, class: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    let mut bytes = owner.to_vec();
    bytes.extend(kind.to_be_bytes());
    bytes.extend(class.to_be_bytes());
    bytes.extend(300_u32.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

const A: u16 = 1;
const CNAME: u16 = 5;
const OPT: u16 = 41;
const IN: u16 = 1;
/// Where the name of the question is.
const QUESTION: &[u8] = &[0xC0, 12];
const ADDRESS: &[u8] = &[192, 0, 2, 99];
const MALFORMED: Result<Found, Failure> = Err(Failure::Malformed);

fn found(addresses: &[[u8; 4]]) -> Result<Found, Failure> {
    let addresses = addresses.iter().map(|octets| (*octets).into());
    Ok(Found::Records(Records::A(addresses.collect()).into()))
}

#[test]
fn a_plain_answer_is_taken() {
    check(
        [1, 0, 0],
        &raw(QUESTION, A, IN, ADDRESS),
        found(&[[192, 0, 2, 99]]),
    );
}

#[test]
fn an_answer_that_is_cut_off_is_none() {
    let questions = [
        ("example.org", Kind::Mx),
        ("mx1.example.org", Kind::Aaaa),
        ("_25._tcp.mx1.example.org", Kind::Tlsa),
        ("www.example.org", Kind::A),
        ("absent.example.org", Kind::A),
    ];
    for (name, kind) in questions {
        for by_tcp in [false, true] {
            let mut world = asked(name, kind, by_tcp);
            let whole = world.zone.answer(&world.sent.last().unwrap().message, 9);
            let whole = whole.to_vec().unwrap();
            for end in 0..whole.len() {
                let mut world = asked(name, kind, by_tcp);
                give(&mut world, by_tcp, whole[..end].to_vec());
                assert!(outcome(world).is_err(), "{name} {kind:?} cut at {end}");
            }
            give(&mut world, by_tcp, whole);
            assert!(outcome(world).is_ok());
        }
    }
}

#[test]
fn any_octet_may_be_another() {
    let whole = |world: &World| {
        let message = &world.sent.last().unwrap().message;
        world.zone.answer(message, 9).to_vec().unwrap()
    };
    for (name, kind) in [("example.org", Kind::Mx), ("www.example.org", Kind::A)] {
        let length = whole(&asked(name, kind, true)).len();
        for at in 0..length {
            for change in [1, 0x20, 0x80, 0xC0, 0xFF] {
                let mut world = asked(name, kind, true);
                let mut bytes = whole(&world);
                bytes[at] ^= change;
                give(&mut world, true, bytes);
                // Whatever comes of it, it ends.
                let _ = outcome(world);
            }
        }
    }
}

#[test]
fn pointers_that_lead_nowhere() {
    let here = 33_u8;
    let mut names: Vec<Vec<u8>> = vec![
        // To itself, forwards, to the end, to each other.
        vec![0xC0, here],
        vec![0xC0, here + 2],
        vec![0xFF, 0xFF],
        vec![0xC0, here + 2, 0xC0, here],
        vec![1, b'a', 0xC0, here],
        // Kinds of labels that there are not.
        vec![0x40, 0],
        vec![0x80, 0],
        // The header is no name.
        vec![0xC0, 2],
        // Too long.
        [[&[63][..], &[b'a'; 63]].concat().repeat(4), vec![0]].concat(),
    ];
    names.push([[1, b'a'].repeat(128), vec![0]].concat());
    for name in names {
        check([1, 0, 0], &raw(&name, A, IN, ADDRESS), MALFORMED);
        // Some of these lead to a name when they stand here: to the alias itself, or to the root.
        let alias = outcomes([1, 0, 0], &raw(QUESTION, CNAME, IN, &name));
        let is_found = |outcome: &_| matches!(outcome, Ok(Found::Records(_)));
        assert!(!alias.iter().any(is_found), "{name:?}");
        check([0, 1, 0], &raw(&name, A, IN, ADDRESS), MALFORMED);
        check([0, 0, 1], &raw(&name, A, IN, ADDRESS), MALFORMED);
    }
}

#[test]
fn names_of_thousands_of_pointers_are_not_followed() {
    // A text that is a chain of pointers, each to the one before it, then records whose names begin at its end.
    let chain: Vec<u8> = (0..8000_u16)
        .flat_map(|link| (0xC000 | if link == 0 { 12 } else { 45 + 2 * (link - 1) }).to_be_bytes())
        .collect();
    let mut records = raw(&[0], 16, IN, &chain);
    let last = (0xC000_u16 | (45 + 2 * 7000)).to_be_bytes();
    for _ in 0..3000 {
        records.extend(raw(&last, A, IN, ADDRESS));
    }
    check([3001, 0, 0], &records, MALFORMED);
}

#[test]
fn counts_may_claim_anything() {
    let one = raw(QUESTION, A, IN, ADDRESS);
    for counts in [[65_535, 0, 0], [1, 65_535, 0], [1, 0, 65_535], [2, 0, 0]] {
        check(counts, &one, MALFORMED);
    }
    check([0, 0, 0], &one, Ok(Found::NoData));
    // As many as fit, of other kinds and names: walked over.
    let many = raw(&[0], 99, IN, &[]).repeat(5000);
    check([5000, 0, 0], &many, Ok(Found::NoData));
    let others = raw(&[0], A, IN, ADDRESS).repeat(256);
    check([256, 0, 0], &others, Ok(Found::NoData));
    let others = raw(&[0], A, IN, ADDRESS).repeat(257);
    check([257, 0, 0], &others, Err(Failure::TooLarge));
}

#[test]
fn questions_may_be_claimed_by_the_thousand() {
    let mut world = asked("mx1.example.org", Kind::A, false);
    let answer = world.sent[0].message.clone().into_response();
    let mut bytes = answer.to_vec().unwrap();
    bytes[4..6].copy_from_slice(&[0xFF, 0xFF]);
    give(&mut world, false, bytes);
    assert_eq!(world.resolver.counters().unmatched, 1);
    assert_eq!(outcome(world), Err(Failure::Timeout));
}

#[test]
fn data_must_be_as_long_as_it_says() {
    for data in [&[1, 2, 3][..], &[1, 2, 3, 4, 5], &[]] {
        check([1, 0, 0], &raw(QUESTION, A, IN, data), MALFORMED);
    }
    check([1, 0, 0], &raw(QUESTION, CNAME, IN, &[0, 0]), MALFORMED);
    let mut long = raw(QUESTION, A, IN, ADDRESS);
    long[10..12].copy_from_slice(&[0xFF, 0xFF]);
    check([1, 0, 0], &long, MALFORMED);
    let mut world = asked("example.org", Kind::Txt, false);
    let mut answer = world.sent[0].message.clone().into_response();
    answer.edns = None;
    let mut bytes = answer.to_vec().unwrap();
    bytes[7] = 1;
    // A string of nine octets in data of four.
    bytes.extend(raw(QUESTION, 16, IN, &[9, b'a', b'b', b'c']));
    bytes.extend([b'd'; 9]);
    give(&mut world, false, bytes);
    assert_eq!(outcome(world), MALFORMED);
}

#[test]
fn odd_records_are_left_out() {
    let ours = raw(QUESTION, A, IN, ADDRESS);
    let chaos = raw(QUESTION, A, 3, ADDRESS);
    let opt = raw(&[0], OPT, 1232, &[0, 10, 0, 2, 1, 2]);
    let address = found(&[[192, 0, 2, 99]]);
    check(
        [2, 0, 0],
        &[chaos.clone(), ours.clone()].concat(),
        address.clone(),
    );
    check([1, 0, 0], &chaos, Ok(Found::NoData));
    check(
        [2, 0, 0],
        &[opt.clone(), ours.clone()].concat(),
        address.clone(),
    );
    check([1, 0, 2], &[ours, opt.clone(), opt].concat(), address);
}

#[test]
fn a_message_by_tcp_may_be_empty_or_followed_by_more() {
    for length in [0_u8, 1, 11] {
        let mut world = asked("mx1.example.org", Kind::A, true);
        give(&mut world, true, vec![0; length.into()]);
        assert_eq!(outcome(world), MALFORMED);
    }
    let mut world = asked("mx1.example.org", Kind::A, true);
    let whole = world.zone.answer(&world.sent[1].message, 9);
    let whole = whole.to_vec().unwrap();
    let length = u16::try_from(whole.len()).unwrap().to_be_bytes();
    let more = vec![0xAA; 100_000];
    world.stream_bytes([&length[..], &whole, &more].concat());
    assert!(outcome(world).is_ok());
}

#[test]
fn names_may_have_any_octet() {
    let mut world = World::new(config(1), ZONE, 1);
    world.server(1).twist = Some(|answer: &mut Message| {
        answer.answers = vec![record("example.org 300 MX 1 a\\.b.c")];
    });
    let exchange = match world.records("example.org", Kind::Mx) {
        Records::Mx(list) => list.into_iter().map(|Mx { exchange, .. }| exchange).next(),
        other => panic!("{other:?}"),
    };
    let exchange = exchange.unwrap();
    assert_eq!(exchange.to_string(), "a\\.b.c");
    assert!(!exchange.is_host_name());
}
