//! Which server is asked, when and how.

use std::time::Duration;

use hickory_proto::op::{Edns, Message, ResponseCode};
use whimbrel_dns::{Failure, Found, Kind, Records};

use super::ZONE;
use crate::world::{MILLI, SECOND, Tcp, World, config, record};

fn world(servers: u8) -> World {
    World::new(config(servers), ZONE, 1)
}

/// More texts than a datagram has room for.
fn large(servers: u8) -> World {
    let key = format!("\"{}\" ", "k".repeat(250)).repeat(8);
    let zone = format!("{ZONE}\nkey.example.org 300 TXT {key}");
    World::new(config(servers), &zone, 1)
}

fn check_large(world: &mut World) {
    match world.records("key.example.org", Kind::Txt) {
        Records::Txt(texts) => assert_eq!(texts, [vec![b'k'; 2000].into()]),
        other => panic!("{other:?}"),
    }
}

fn times(world: &World) -> Vec<Duration> {
    world.sent.iter().map(|sent| sent.at).collect()
}

pub fn the_next_server_is_asked_when_one_is_silent() {
    let mut world = world(3);
    world.server(1).silent = true;
    world.server(2).silent = true;
    assert!(world.lookup("example.org", Kind::Mx).is_ok());
    assert_eq!(world.ways(), [1, 2, 3]);
    assert_eq!(times(&world), [Duration::ZERO, SECOND, 2 * SECOND]);
}

pub fn each_round_waits_longer() {
    let mut config = config(2);
    config.attempts = 4;
    let mut world = World::new(config, ZONE, 1);
    world.all_servers(|server| server.silent = true);
    assert_eq!(world.found("example.org", Kind::Mx), Err(Failure::Timeout));
    assert_eq!(world.ways(), [1, 2, 1, 2, 1, 2, 1, 2]);
    let seconds = [0, 1, 2, 4, 6, 10, 14, 18].map(|seconds| seconds * SECOND);
    assert_eq!(times(&world), seconds);
    assert_eq!(world.now, 22 * SECOND);
    // Each has an id of its own; the case of letters is mixed in the first round alone.
    let names: Vec<String> = world.sent.iter().map(|sent| sent.name()).collect();
    assert!(names[..2].iter().all(|name| name != "example.org."));
    assert!(names[2..].iter().all(|name| name == "example.org."));
}

pub fn the_server_that_answered_is_asked_first() {
    let mut world = world(3);
    world.server(1).silent = true;
    assert!(world.lookup("example.org", Kind::Mx).is_ok());
    assert!(world.lookup("example.org", Kind::A).is_ok());
    world.server(1).silent = false;
    world.server(2).silent = true;
    world.server(3).silent = true;
    assert!(world.lookup("example.org", Kind::Txt).is_ok());
    assert!(world.lookup("example.org", Kind::Aaaa).is_ok());
    assert_eq!(world.ways(), [1, 2, 2, 2, 3, 1, 1]);
}

pub fn a_server_that_failed_is_not_asked_again() {
    let mut world = world(3);
    world.server(1).code = Some(ResponseCode::ServFail);
    world.server(2).silent = true;
    world.server(3).code = Some(ResponseCode::Refused);
    // What a server has said tells more than another's silence.
    let failure = Err(Failure::Refused);
    assert_eq!(world.found("example.org", Kind::Mx), failure);
    assert_eq!(world.ways(), [1, 2, 3, 2]);
    world.server(2).silent = false;
    assert!(world.lookup("mx1.example.org", Kind::A).is_ok());
    assert_eq!(world.ways()[4..], [1, 2]);
}

pub fn every_failure_has_its_name() {
    let check = |code: Option<ResponseCode>, twist: Option<fn(&mut Message)>, expected| {
        let mut world = world(1);
        world.server(1).code = code;
        world.server(1).twist = twist;
        let found = world.found("mx1.example.org", Kind::A);
        assert_eq!(found, Err(expected));
    };
    check(Some(ResponseCode::ServFail), None, Failure::ServFail);
    check(Some(ResponseCode::Refused), None, Failure::Refused);
    check(Some(ResponseCode::NotImp), None, Failure::Code(4));
    check(Some(ResponseCode::FormErr), None, Failure::Code(1));
    // Without the question, too.
    let without: fn(&mut Message) = |answer| answer.queries.clear();
    check(
        Some(ResponseCode::ServFail),
        Some(without),
        Failure::ServFail,
    );
    let referral: fn(&mut Message) = |answer| {
        answer.answers.clear();
        answer.authorities = vec![record("org 300 NS ns.org")];
    };
    check(None, Some(referral), Failure::NotRecursive);
    let nonsense: fn(&mut Message) =
        |answer| answer.metadata.response_code = ResponseCode::NXDomain;
    check(None, Some(nonsense), Failure::Malformed);
}

pub fn an_unreachable_server_costs_no_time() {
    let mut world = world(2);
    world.server(1).unreachable = true;
    assert!(world.lookup("example.org", Kind::Mx).is_ok());
    assert_eq!(world.ways(), [1, 2]);
    assert_eq!(times(&world), [Duration::ZERO, 10 * MILLI]);
}

pub fn what_is_truncated_is_asked_by_tcp() {
    for tcp in [Tcp::Works, Tcp::Trickles] {
        let mut world = large(2);
        world.server(1).tcp = tcp;
        check_large(&mut world);
        assert_eq!(world.ways(), [1, -1]);
        assert_eq!(world.resolver.counters().truncated, 1);
    }
    // Some send what has room, and the bit.
    let mut world = world(1);
    world.server(1).twist = Some(|answer: &mut Message| {
        answer.metadata.truncation = answer.answers.len() == 2;
        answer.answers.truncate(1);
    });
    let _ = world.lookup("mx1.example.org", Kind::A);
    assert_eq!(world.ways()[..2], [1, -1]);
}

pub fn truncated_answers_of_two_slow_servers_come_one_by_one() {
    let mut world = large(2);
    world.all_servers(|server| server.delay = 400 * MILLI);
    world.server(1).tcp = Tcp::Silent;
    check_large(&mut world);
    assert_eq!(world.ways(), [1, -1, 2, -2]);
    assert_eq!(world.streams_seen, 1);
}

pub fn tcp_that_fails_goes_on_to_the_next_server() {
    for tcp in [Tcp::Refuses, Tcp::Silent, Tcp::Ends] {
        let mut world = large(2);
        world.server(1).tcp = tcp;
        check_large(&mut world);
        let ways = if tcp == Tcp::Refuses {
            vec![1, 2, -2]
        } else {
            vec![1, -1, 2, -2]
        };
        assert_eq!(world.ways(), ways);
        world.server(2).tcp = tcp;
        world.run_until(world.now + 301 * SECOND);
        let failure = Err(Failure::Timeout);
        assert_eq!(world.found("key.example.org", Kind::Txt), failure);
    }
}

pub fn a_server_without_edns_is_asked_without() {
    let mut world = world(2);
    world.server(1).edns = false;
    assert!(world.lookup("example.org", Kind::Mx).is_ok());
    assert_eq!(world.ways(), [1, 1]);
    let has_edns = |at: usize| world.sent[at].message.edns.is_some();
    assert!(has_edns(0) && !has_edns(1));
    // It must say so in 512 octets, or by TCP.
    let mut world = large(2);
    world.server(1).edns = false;
    check_large(&mut world);
    assert_eq!(world.ways(), [1, 1, -1]);
    // By TCP, too.
    let mut world = large(2);
    world.server(1).twist = Some(|answer: &mut Message| {
        let by_tcp = answer.metadata.response_code == ResponseCode::NoError;
        if by_tcp && answer.edns.is_some() {
            answer.answers.clear();
            answer.metadata.truncation = false;
            answer.metadata.response_code = ResponseCode::FormErr;
        }
    });
    check_large(&mut world);
    assert_eq!(world.ways(), [1, 1, -1]);
}

pub fn the_upper_part_of_the_code_counts() {
    let mut world = world(1);
    // BADVERS: its lower four bits are those of NOERROR.
    world.server(1).twist = Some(|answer: &mut Message| {
        answer.answers.clear();
        answer.set_edns(Edns::new());
        answer.metadata.response_code = ResponseCode::BADVERS;
    });
    let failure = Err(Failure::Code(16));
    assert_eq!(world.found("example.org", Kind::Mx), failure);
}

pub fn a_server_that_loses_case_is_found_out() {
    let mut world = world(1);
    world.server(1).keeps_case = false;
    assert!(world.lookup("example.org", Kind::Mx).is_ok());
    // By TCP it is sure that it was the server.
    assert_eq!(world.ways(), [1, -1]);
    assert!(world.lookup("mx1.example.org", Kind::A).is_ok());
    assert_eq!(world.ways(), [1, -1, 1]);
    assert_eq!(world.sent[2].name(), "mx1.example.org.");
    assert_eq!(world.resolver.counters().other_case, 1);
    // Where it does not take TCP, the second round does without.
    let mut world = self::world(1);
    world.server(1).keeps_case = false;
    world.server(1).tcp = Tcp::Refuses;
    let found = world.found("example.org", Kind::Mx);
    assert!(matches!(found, Ok(Found::Records(_))));
    assert_eq!(world.ways(), [1, 1]);
}
