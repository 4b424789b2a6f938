//! Every bound is met.

use std::fmt::Write;

use whimbrel_dns::{
    Config, DATAGRAM_BYTES_MAX, Failure, Found, Kind, RECORDS_MAX, Records, SERVERS_MAX,
};

use super::ZONE;
use crate::world::{MILLI, SECOND, Tcp, World, address, config};

pub fn lookups_are_bounded() {
    let config = Config {
        lookups_max: 3,
        ..config(1)
    };
    let mut world = World::new(config, ZONE, 1);
    let tickets = [(); 4].map(|()| world.ask("example.org", Kind::Mx));
    assert_eq!(world.answers[&tickets[3]], Err(Failure::Busy));
    world.run();
    assert!(world.answers[&tickets[2]].is_ok());
    assert!(world.lookup("example.org", Kind::Mx).is_ok());
}

pub fn questions_are_bounded() {
    let config = Config {
        questions_max: 4,
        ..config(1)
    };
    let mut world = World::new(config, ZONE, 1);
    let tickets: Vec<u64> = (0..21)
        .map(|at| world.ask(&format!("n{at}.example.org"), Kind::A))
        .collect();
    world.run();
    assert_eq!(world.sockets_seen, 4);
    // Six rounds of 10 ms, in the order in which they came.
    assert_eq!(world.now, 60 * MILLI);
    let last = world.sent.last().unwrap().name().to_lowercase();
    assert_eq!(last, "n20.example.org.");
    for ticket in tickets {
        let found = world.answers[&ticket].clone().map(|answer| answer.found);
        assert_eq!(found, Ok(Found::NoName));
    }
}

pub fn questions_that_are_given_up_leave_no_place_in_the_queue() {
    let config = Config {
        questions_max: 1,
        patience: SECOND,
        ..config(1)
    };
    let mut world = World::new(config, ZONE, 1);
    world.server(1).silent = true;
    let first = world.ask("example.org", Kind::A);
    let others = [1, 2, 3].map(|at| world.ask(&format!("n{at}.example.org"), Kind::A));
    world.cancel(others[0]);
    world.cancel(first);
    assert_eq!(
        world.sent.len(),
        2,
        "the second of the others has its place"
    );
    world.run();
    assert_eq!(world.answers[&others[2]], Err(Failure::Timeout));
    world.server(1).silent = false;
    assert!(world.lookup("example.org", Kind::A).is_ok());
}

pub fn connections_are_bounded() {
    let mut zone = String::from(ZONE);
    for at in 0..7 {
        let text = "t".repeat(255);
        let texts = format!("\"{text}\" ").repeat(6);
        writeln!(zone, "n{at}.example.org 300 TXT {texts}").unwrap();
    }
    let config = Config {
        streams_max: 2,
        ..config(1)
    };
    for tcp in [Tcp::Works, Tcp::Silent] {
        let mut world = World::new(config.clone(), &zone, 1);
        world.server(1).tcp = tcp;
        let tickets: Vec<u64> = (0..7)
            .map(|at| world.ask(&format!("n{at}.example.org"), Kind::Txt))
            .collect();
        world.run_until(15 * MILLI);
        world.cancel(tickets[5]);
        world.run();
        assert_eq!(world.streams_seen, 2);
        assert_eq!(world.answers.len(), 6);
        let is_right = |ticket| world.answers[ticket].is_ok() == (tcp == Tcp::Works);
        assert!(
            tickets
                .iter()
                .filter(|ticket| **ticket != tickets[5])
                .all(is_right)
        );
    }
}

pub fn the_cache_is_bounded() {
    let config = Config {
        cache_entries_max: 50,
        cache_bytes_max: 12_000,
        ..config(1)
    };
    let mut world = World::new(config, ZONE, 1);
    for at in 0..200 {
        let found = world.found(&format!("n{at}.example.org"), Kind::A);
        assert_eq!(found, Ok(Found::NoName));
        assert!(world.resolver.cache_entries() <= 50);
        assert!(world.resolver.cache_bytes() <= 12_000);
    }
    assert!(world.resolver.cache_entries() > 20);
    let sent = world.sent.len();
    assert!(world.lookup("n199.example.org", Kind::A).is_ok());
    assert_eq!(world.sent.len(), sent);
    assert!(world.lookup("n0.example.org", Kind::A).is_ok());
    assert_eq!(world.sent.len(), sent + 1);
}

pub fn records_are_bounded() {
    let zone = |records: usize| {
        let mut zone = String::from(ZONE);
        for at in 0..records {
            writeln!(
                zone,
                "many.example.org 300 A 10.0.{}.{}",
                at / 256,
                at % 256
            )
            .unwrap();
        }
        zone
    };
    let mut world = World::new(config(1), &zone(RECORDS_MAX), 1);
    match world.records("many.example.org", Kind::A) {
        Records::A(addresses) => assert_eq!(addresses.len(), RECORDS_MAX),
        other => panic!("{other:?}"),
    }
    let mut world = World::new(config(1), &zone(RECORDS_MAX + 1), 1);
    let failure = Err(Failure::TooLarge);
    assert_eq!(world.found("many.example.org", Kind::A), failure);
}

pub fn datagrams_are_bounded() {
    for (octets, is_read) in [(DATAGRAM_BYTES_MAX, true), (DATAGRAM_BYTES_MAX + 1, false)] {
        let mut world = World::new(config(1), ZONE, 1);
        let ticket = world.ask("mx1.example.org", Kind::A);
        let asked = world.sent[0].message.clone();
        let mut bytes = world.zone.answer(&asked, 0).to_vec().unwrap();
        // What is behind the records is not looked at.
        bytes.resize(octets, 0);
        let socket = world.socket();
        world.datagram(socket, address(1), bytes);
        assert_eq!(world.answers.contains_key(&ticket), is_read);
        world.run();
    }
}

pub fn servers_are_bounded() {
    let servers = u8::try_from(SERVERS_MAX).unwrap() + 2;
    let mut world = World::new(config(servers), ZONE, 1);
    world.all_servers(|server| server.silent = true);
    assert_eq!(world.found("example.org", Kind::A), Err(Failure::Timeout));
    assert_eq!(world.sent.len(), 2 * SERVERS_MAX);
    assert!(
        world
            .sent
            .iter()
            .all(|sent| sent.server != address(servers))
    );
}
