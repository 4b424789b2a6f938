//! What is kept, and for how long.

use hickory_proto::op::{Message, ResponseCode};
use whimbrel_dns::{Config, Failure, Found, Kind};

use super::ZONE;
use crate::world::{SECOND, World, config, record};

fn world() -> World {
    World::new(config(1), ZONE, 1)
}

/// After so many seconds, whether the question has gone out once more.
fn asks_again(world: &mut World, seconds: u32, name: &str, kind: Kind) -> bool {
    let before = world.sent.len();
    let then = world.now + seconds * SECOND;
    world.run_until(then);
    let _ = world.lookup(name, kind);
    world.sent.len() > before
}

pub fn identical_questions_are_one() {
    let mut world = world();
    let tickets: Vec<u64> = (0..50)
        .map(|_| world.ask("example.org", Kind::Mx))
        .collect();
    world.ask("example.org", Kind::A);
    world.run();
    assert_eq!(world.sent.len(), 2);
    assert!(tickets.iter().all(|ticket| world.answers[ticket].is_ok()));
    assert_eq!(world.resolver.counters().joined, 49);
}

pub fn answers_are_kept_for_their_ttl() {
    let mut world = world();
    world.lookup("example.org", Kind::Mx).unwrap();
    let begun = world.now;
    world.run_until(begun + 299 * SECOND);
    let answer = world.lookup("example.org", Kind::Mx).unwrap();
    assert_eq!(answer.ttl, SECOND);
    assert_eq!((world.sent.len(), world.now), (1, begun + 299 * SECOND));
    assert!(asks_again(&mut world, 1, "example.org", Kind::Mx));
}

pub fn the_ttl_is_the_shortest_of_all() {
    let records = "a.example.org 50 A 198.51.100.4
        a.example.org 20 A 198.51.100.5
        short.example.org 10 CNAME a.example.org";
    let mut world = World::new(config(1), &format!("{ZONE}{records}"), 1);
    let mut ttl = |name| world.lookup(name, Kind::A).unwrap().ttl;
    assert_eq!(ttl("a.example.org"), 20 * SECOND);
    assert_eq!(ttl("short.example.org"), 10 * SECOND);
}

pub fn ttls_are_bounded() {
    let day = 24 * 3600;
    let records = format!("long.example.org {} A 198.51.100.4", i32::MAX);
    let mut world = World::new(config(1), &format!("{ZONE}{records}"), 1);
    let answer = world.lookup("long.example.org", Kind::A).unwrap();
    assert_eq!(answer.ttl, day * SECOND);
    assert!(!asks_again(
        &mut world,
        day - 1,
        "long.example.org",
        Kind::A
    ));
    assert!(asks_again(&mut world, 1, "long.example.org", Kind::A));
}

pub fn what_has_no_ttl_is_not_kept() {
    // RFC 2181 8: above 2^31 it is none.
    for ttl in [0, 1 << 31, u32::MAX] {
        let records = format!("now.example.org {ttl} A 198.51.100.4");
        let mut world = World::new(config(1), &format!("{ZONE}{records}"), 1);
        let tickets = [(); 3].map(|()| world.ask("now.example.org", Kind::A));
        world.run();
        for ticket in tickets {
            let answer = world.answers[&ticket].clone().unwrap();
            assert!(matches!(answer.found, Found::Records(_)) && answer.ttl.is_zero());
        }
        assert_eq!(world.sent.len(), 1);
        assert!(
            asks_again(&mut world, 0, "now.example.org", Kind::A),
            "{ttl}"
        );
    }
}

pub fn negative_answers_are_kept_as_the_soa_says() {
    for (name, kept) in [("absent.example.org", 60), ("nowhere.example.org", 30)] {
        let mut world = world();
        assert_eq!(world.found(name, Kind::A), Ok(Found::NoName));
        assert!(!asks_again(&mut world, kept - 1, name, Kind::A), "{name}");
        assert!(asks_again(&mut world, 1, name, Kind::A), "{name}");
    }
    let mut world = world();
    assert_eq!(world.found("example.org", Kind::A), Ok(Found::NoData));
    assert!(!asks_again(&mut world, 59, "example.org", Kind::A));
    assert!(asks_again(&mut world, 1, "example.org", Kind::A));
    // RFC 2308 5: without SOA it is not kept.
    world.server(1).twist = Some(|answer: &mut Message| answer.authorities.clear());
    assert_eq!(world.found("example.org", Kind::Aaaa), Ok(Found::NoData));
    assert!(asks_again(&mut world, 0, "example.org", Kind::Aaaa));
}

pub fn negative_answers_are_kept_for_a_bounded_time() {
    let zone = "example.org 90000 SOA ns.example.org host.example.org 1 1 1 1 90000";
    let mut world = World::new(config(1), zone, 1);
    assert_eq!(world.found("a.example.org", Kind::A), Ok(Found::NoName));
    assert!(!asks_again(&mut world, 899, "a.example.org", Kind::A));
    assert!(asks_again(&mut world, 1, "a.example.org", Kind::A));
}

pub fn a_soa_of_another_zone_counts_for_nothing() {
    let mut world = world();
    world.server(1).twist = Some(|answer: &mut Message| {
        answer.authorities = vec![record("example.com 900 SOA a b 1 1 1 1 900")];
    });
    assert_eq!(
        world.found("absent.example.org", Kind::A),
        Ok(Found::NoName)
    );
    assert!(asks_again(&mut world, 0, "absent.example.org", Kind::A));
}

pub fn failures_are_held_and_say_nothing_of_the_name() {
    let mut world = world();
    let failure = Err(Failure::ServFail);
    for hold in [5, 10, 20] {
        world.server(1).code = Some(ResponseCode::ServFail);
        assert_eq!(world.found("example.org", Kind::Mx), failure);
        // The server would answer again.
        world.server(1).code = None;
        assert!(!asks_again(&mut world, hold - 1, "example.org", Kind::Mx));
        assert_eq!(world.found("example.org", Kind::Mx), failure);
        assert!(world.lookup("example.org", Kind::A).is_ok(), "another kind");
        let then = world.now + SECOND;
        world.run_until(then);
    }
    assert!(matches!(
        world.found("example.org", Kind::Mx),
        Ok(Found::Records(_))
    ));
}

pub fn silence_is_held_for_the_shortest_time() {
    let config = Config {
        attempts: 1,
        ..config(1)
    };
    let mut world = World::new(config, ZONE, 1);
    world.server(1).silent = true;
    for _ in 0..3 {
        assert_eq!(world.found("example.org", Kind::Mx), Err(Failure::Timeout));
        assert!(!asks_again(&mut world, 4, "example.org", Kind::Mx));
        assert!(asks_again(&mut world, 1, "example.org", Kind::Mx));
        let then = world.now + 5 * SECOND;
        world.run_until(then);
    }
}
