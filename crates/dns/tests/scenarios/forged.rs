//! Answers that are none.

use std::collections::BTreeSet;

use hickory_proto::{
    op::Message,
    rr::{Name, RecordType},
};
use whimbrel_dns::{Found, GUESSES_MAX, Kind, Records, Socket};

use super::ZONE;
use crate::world::{MILLI, Sent, World, address, config, record};

fn world() -> World {
    let mut world = World::new(config(1), ZONE, 1);
    world.server(1).delay = 500 * MILLI;
    world
}

/// An answer to a question, with a wrong address.
fn forged(sent: &Sent) -> Message {
    let mut answer = sent.message.clone().into_response();
    let name = sent.name().to_lowercase();
    answer.add_answer(record(&format!("{name} 900 A 203.0.113.66")));
    answer
}

/// Whether the wrong address was taken.
fn was_taken(world: &mut World) -> bool {
    let addresses = world.records("mx1.example.org", Kind::A);
    addresses == Records::A(vec!["203.0.113.66".parse().unwrap()])
}

pub fn each_question_is_different() {
    let mut world = world();
    for at in 0..40 {
        world.ask(&format!("long-name-{at}.example.org"), Kind::A);
    }
    world.run();
    let ids: BTreeSet<u16> = world.sent.iter().map(|sent| sent.message.id).collect();
    assert!(ids.len() > 35, "40 numbers of 16 bits");
    let mut upper = 0;
    for sent in &world.sent {
        let name = sent.name();
        upper += name.chars().filter(char::is_ascii_uppercase).count();
        assert_ne!(name, name.to_lowercase());
    }
    // 40 names with 18 letters each.
    assert!((240..480).contains(&upper), "{upper}");
}

pub fn an_answer_must_match() {
    let check = |expected: bool, twist: fn(&mut Message)| {
        let mut world = world();
        world.ask("mx1.example.org", Kind::A);
        let mut answer = forged(&world.sent[0]);
        twist(&mut answer);
        let socket = world.socket();
        world.datagram(socket, address(1), answer.to_vec().unwrap());
        let unmatched = u64::from(!expected);
        assert_eq!(world.resolver.counters().unmatched, unmatched);
        world.run();
        assert_eq!(was_taken(&mut world), expected);
    };
    check(true, |_| {});
    check(false, |answer| answer.metadata.id ^= 1);
    check(false, |answer| answer.queries.clear());
    check(false, |answer| {
        let again = answer.queries[0].clone();
        answer.add_query(again);
    });
    check(false, |answer| {
        answer.queries[0].set_query_type(RecordType::AAAA);
    });
    check(false, |answer| {
        let name = Name::from_ascii("mx2.example.org.").unwrap();
        answer.queries[0].set_name(name);
    });
    check(false, |answer| {
        answer.metadata.message_type = hickory_proto::op::MessageType::Query;
    });
    check(false, |answer| {
        answer.metadata.op_code = hickory_proto::op::OpCode::Notify;
    });

    // In another case of letters it is asked for by TCP.
    let mut world = world();
    world.ask("mx1.example.org", Kind::A);
    let mut answer = forged(&world.sent[0]);
    answer.queries[0].name = answer.queries[0].name.to_lowercase();
    let socket = world.socket();
    world.datagram(socket, address(1), answer.to_vec().unwrap());
    world.run();
    assert!(!was_taken(&mut world));
    assert_eq!(world.ways(), [1, -1]);

    // From elsewhere, and to other sockets.
    let mut world = self::world();
    world.ask("mx1.example.org", Kind::A);
    let answer = forged(&world.sent[0]).to_vec().unwrap();
    let socket = world.socket();
    world.datagram(socket, address(2), answer.clone());
    let mut other_port = address(1);
    other_port.set_port(5353);
    world.datagram(socket, other_port, answer.clone());
    world.datagram(Socket(socket.0 + 1), address(1), answer.clone());
    world.datagram(Socket(u64::MAX), address(1), answer);
    world.run();
    assert!(!was_taken(&mut world));
    assert_eq!(world.resolver.counters().unmatched, 4);
}

pub fn late_answers_are_ignored() {
    let mut world = world();
    world.server(1).delay = 1500 * MILLI;
    assert!(world.lookup("mx1.example.org", Kind::A).is_ok());
    assert_eq!(world.ways(), [1, 1]);
    // The first answer came while the second question was on its way.
    assert_eq!(world.resolver.counters().unmatched, 1);
    assert_eq!(world.now, 2500 * MILLI);
}

pub fn who_guesses_is_answered_by_tcp() {
    let mut world = world();
    world.ask("mx1.example.org", Kind::A);
    let answer = forged(&world.sent[0]);
    let socket = world.socket();
    for guess in 1..10_000_u16 {
        let mut answer = answer.clone();
        answer.metadata.id ^= guess;
        world.datagram(socket, address(1), answer.to_vec().unwrap());
        if u32::from(guess) < GUESSES_MAX {
            assert_eq!(world.socket(), socket);
        }
    }
    // The right one at last, too late.
    world.datagram(socket, address(1), answer.to_vec().unwrap());
    world.run();
    assert_eq!(world.ways(), [1, -1]);
    assert!(!was_taken(&mut world));
    // The server's own answer came too late, too.
    assert_eq!(world.resolver.counters().unmatched, 10_001);
}

pub fn records_of_other_names_are_left_out() {
    let mut world = world();
    world.server(1).twist = Some(|answer: &mut Message| {
        answer.add_answer(record("mx2.example.org 900 A 203.0.113.66"));
        answer.add_answer(record("web.example.org 900 CNAME bad.example.com"));
        answer.add_additional(record("mx2.example.org 900 A 203.0.113.66"));
        answer.add_authority(record("example.org 900 NS bad.example.com"));
    });
    match world.records("mx1.example.org", Kind::A) {
        Records::A(addresses) => assert_eq!(addresses.len(), 2),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        world.found("mx2.example.org", Kind::Aaaa),
        Ok(Found::NoName)
    );
    let mut world = World::new(config(1), ZONE, 1);
    world.server(1).twist = Some(|answer: &mut Message| {
        answer.add_answer(record("mx2.example.org 900 A 203.0.113.66"));
    });
    assert_eq!(world.found("mx3.example.org", Kind::A), Ok(Found::NoName));
}

pub fn an_answer_by_tcp_must_match() {
    let check = |twist: fn(&mut Message), ways: &[i16]| {
        let mut world = World::new(config(1), ZONE, 1);
        world.server(1).raw = Some(|bytes| {
            // By UDP: only the bit TC.
            bytes[2] |= 2;
        });
        let ticket = world.ask("mx1.example.org", Kind::A);
        world.run_until(10 * MILLI);
        world.server(1).raw = None;
        world.server(1).twist = Some(twist);
        world.run();
        assert_eq!(world.ways(), ways);
        world.answers[&ticket].is_ok()
    };
    assert!(check(|_| {}, &[1, -1]));
    assert!(!check(|answer| answer.metadata.id ^= 1, &[1, -1]));
    assert!(!check(|answer| answer.metadata.truncation = true, &[1, -1]));
    assert!(!check(
        |answer| {
            answer.queries[0].set_query_type(RecordType::MX);
        },
        &[1, -1]
    ));
    assert!(!check(|answer| answer.queries.clear(), &[1, -1]));
}
