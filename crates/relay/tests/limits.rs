//! How many connections, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_relay::destinations::Key;
use whimbrel_relay::limits::{Change, Config, Limits, Offer, Outcome};
use whimbrel_testkit::Rng;

use crate::Case;

pub const ALL: &[Case] = &[
    ("windows", windows_grow_and_shrink),
    ("death", failures_in_a_row_are_death),
    ("death is jittered", deaths_of_one_moment_end_apart),
    ("greylisting", greylisting_is_no_death),
    ("a slow destination", a_slow_destination_delays_nobody),
    ("turns", destinations_take_turns),
    (
        "connections are kept",
        many_slow_destinations_leave_connections,
    ),
    ("room to wait", greedy_destinations_leave_room_to_wait),
    ("forgetting", the_oldest_healthy_destination_is_forgotten),
    ("reuse", a_connection_is_used_again_unless_others_wait),
    ("sums", sums_hold_in_any_history),
];

fn key(number: u64) -> Key {
    Key::of([format!("mx{number}.example").as_str()])
}

fn limits(config: Config) -> Limits<u64> {
    Limits::new(config, 1)
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn offer(limits: &mut Limits<u64>, now: u64, destination: u64, count: u64) {
    for item in 0..count {
        assert_eq!(limits.offer(at(now), key(destination), item), Offer::Waits);
    }
}

/// Begins all that may begin now; how many to each destination.
fn begin(limits: &mut Limits<u64>, now: u64) -> BTreeMap<Key, usize> {
    let mut begun = BTreeMap::new();
    while let Some((key, _)) = limits.begin(at(now)) {
        *begun.entry(key).or_default() += 1;
    }
    begun
}

#[test]
fn windows_grow_and_shrink() {
    let mut limits = limits(Config::default());
    offer(&mut limits, 0, 1, 900);
    let window = |limits: &Limits<u64>| limits.look(at(0), key(1)).unwrap().0;
    assert_eq!(begin(&mut limits, 0)[&key(1)], 2);
    // 1/N each: N successes make one more.
    let mut sizes = Vec::new();
    for _ in 0..230 {
        assert_eq!(limits.done(at(0), key(1), Outcome::Success), Change::None);
        let begun = begin(&mut limits, 0);
        sizes.push(window(&limits));
        assert_eq!(
            limits.look(at(0), key(1)).unwrap().1 as u64,
            window(&limits),
            "{begun:?}"
        );
    }
    let reached = |size: u64| sizes.iter().position(|other| *other >= size).unwrap() + 1;
    assert_eq!((reached(3), reached(4)), (3, 6));
    assert!((190..215).contains(&reached(20)), "{}", reached(20));
    assert_eq!(*sizes.last().unwrap(), 20);
    limits.done(at(0), key(1), Outcome::Failure);
    assert_eq!(window(&limits), 19);
    limits.done(at(0), key(1), Outcome::Busy);
    assert_eq!(window(&limits), 9);
    limits.done(at(0), key(1), Outcome::Nothing);
    assert_eq!(window(&limits), 9);
    // More are connected than may be: nobody begins before some have ended.
    assert!(begin(&mut limits, 0).is_empty());
    assert_eq!(limits.again(at(0), key(1)), None);
    // A day without mail, and nothing is known.
    while limits.look(at(0), key(1)).unwrap().1 > 0 {
        limits.done(at(0), key(1), Outcome::Success);
    }
    assert_eq!(limits.look(at(0), key(1)).unwrap().0, 11);
    for _ in 0..900 {
        limits
            .begin(at(0))
            .map(|(key, _)| limits.done(at(0), key, Outcome::Nothing));
    }
    assert_eq!(limits.waiting(), 0);
    offer(&mut limits, 86_400, 1, 1);
    assert_eq!(window(&limits), 2);
}

#[test]
fn failures_in_a_row_are_death() {
    let config = Config::default();
    let mut limits = limits(config);
    let mut now = 0;
    let mut deaths = Vec::new();
    for death in 0..10 {
        offer(&mut limits, now, 1, 5);
        let begun = begin(&mut limits, now);
        // At first two, then one that finds out.
        assert_eq!(begun[&key(1)], if death == 0 { 2 } else { 1 });
        if death == 0 {
            assert_eq!(limits.done(at(now), key(1), Outcome::Failure), Change::None);
        }
        let Change::Died(until, waiting) = limits.done(at(now), key(1), Outcome::Failure) else {
            panic!("alive after a whole window of failures");
        };
        assert_eq!(waiting.len(), if death == 0 { 3 } else { 4 });
        assert_eq!(limits.offer(at(now), key(1), 7), Offer::Dead(7, until));
        assert_eq!(
            limits.offer(until - at(1), key(1), 7),
            Offer::Dead(7, until)
        );
        assert!(limits.begin(until - at(1)).is_none());
        deaths.push((until - at(now)).as_secs());
        now = until.as_secs() + 1;
    }
    let nominal = [60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600, 3_600];
    for (seconds, nominal) in deaths.iter().zip(nominal) {
        assert!(
            (nominal * 90 / 100..=nominal * 110 / 100).contains(seconds),
            "{deaths:?}"
        );
    }
    // It is back: as at the beginning, and the next death is short again.
    offer(&mut limits, now, 1, 5);
    assert_eq!(begin(&mut limits, now)[&key(1)], 1);
    limits.done(at(now), key(1), Outcome::Success);
    assert_eq!(limits.look(at(now), key(1)), Some((2, 0, None)));
    begin(&mut limits, now);
    limits.done(at(now), key(1), Outcome::Failure);
    let Change::Died(until, _) = limits.done(at(now), key(1), Outcome::Busy) else {
        panic!("alive");
    };
    assert!(until <= at(now + 66));
    // Connections of before that end now make it no deader; a success among them brings it back.
    assert_eq!(
        limits.learn(at(now), key(1), Outcome::Failure),
        Change::None
    );
    limits.learn(at(now), key(1), Outcome::Success);
    offer(&mut limits, now, 1, 1);
}

#[test]
fn deaths_of_one_moment_end_apart() {
    let mut limits = limits(Config::default());
    let mut ends = BTreeSet::new();
    for destination in 0..100 {
        offer(&mut limits, 0, destination, 2);
        begin(&mut limits, 0);
        limits.done(at(0), key(destination), Outcome::Failure);
        if let Change::Died(until, _) = limits.done(at(0), key(destination), Outcome::Failure) {
            ends.insert(until);
        }
    }
    assert!(ends.len() >= 15, "{ends:?}");
}

#[test]
fn greylisting_is_no_death() {
    let mut limits = limits(Config::default());
    for _ in 0..50 {
        offer(&mut limits, 0, 1, 1);
        begin(&mut limits, 0);
        assert_eq!(limits.done(at(0), key(1), Outcome::Slow), Change::None);
    }
    assert_eq!(limits.look(at(0), key(1)), Some((1, 0, None)));
}

/// 10,000 recipients at a destination that takes a minute for each, 100 at others that take a second: the 100 are through in no time.
#[test]
fn a_slow_destination_delays_nobody() {
    let mut limits = limits(Config {
        connections_max: 20,
        connections_kept: 5,
        ..Config::default()
    });
    let mut slow_left = 10_000_u64;
    let mut refill = |limits: &mut Limits<u64>, now| {
        while slow_left > 0 && limits.offer(at(now), key(0), slow_left) == Offer::Waits {
            slow_left -= 1;
        }
    };
    refill(&mut limits, 0);
    let mut ends: BTreeSet<(u64, u64, Key)> = BTreeSet::new();
    let mut fast_done = Vec::new();
    let mut number = 0;
    for now in 0..600 {
        if now == 300 {
            // The slow one has had time to take all it gets.
            for item in 0..100 {
                offer(&mut limits, now, 1 + item % 10, 1);
            }
        }
        while let Some(&(end, number, key)) = ends.first().filter(|(end, ..)| *end <= now) {
            ends.remove(&(end, number, key));
            limits.done(at(now), key, Outcome::Success);
            if key != self::key(0) {
                fast_done.push(now);
            }
        }
        refill(&mut limits, now);
        while let Some((key, _)) = limits.begin(at(now)) {
            number += 1;
            let takes = if key == self::key(0) { 60 } else { 1 };
            ends.insert((now + takes, number, key));
        }
        assert!(limits.active() <= 20);
    }
    assert_eq!(fast_done.len(), 100);
    // Five connections are theirs at once: 100 take 20 seconds, whatever the slow one does.
    assert!(*fast_done.last().unwrap() <= 300 + 21, "{fast_done:?}");
}

#[test]
fn destinations_take_turns() {
    let mut limits = limits(Config {
        connections_max: 1,
        connections_kept: 0,
        ..Config::default()
    });
    offer(&mut limits, 0, 1, 50);
    offer(&mut limits, 0, 2, 50);
    offer(&mut limits, 0, 3, 2);
    let mut order = Vec::new();
    for _ in 0..8 {
        let (key, _) = limits.begin(at(0)).unwrap();
        order.push((1..=3).find(|number| self::key(*number) == key).unwrap());
        limits.done(at(0), key, Outcome::Success);
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 3, 1, 2]);
}

#[test]
fn many_slow_destinations_leave_connections() {
    let mut limits = limits(Config::default());
    for destination in 0..100 {
        offer(&mut limits, 0, destination, 100);
    }
    let begun = begin(&mut limits, 0);
    assert_eq!(limits.active(), 150);
    assert!(begun.values().all(|count| *count <= 2));
    offer(&mut limits, 0, 1_000, 2);
    assert_eq!(begin(&mut limits, 0), BTreeMap::from([(key(1_000), 1)]));
    for destination in 2_000..2_100 {
        offer(&mut limits, 0, destination, 1);
    }
    begin(&mut limits, 0);
    assert_eq!(limits.active(), 200);
}

#[test]
fn greedy_destinations_leave_room_to_wait() {
    let mut limits = limits(Config {
        waiting_max: 3_000,
        ..Config::default()
    });
    for destination in 0..20 {
        let mut taken = 0;
        while limits.offer(at(0), key(destination), 0) == Offer::Waits {
            taken += 1;
        }
        assert!(
            (1..=1_000).contains(&taken) || limits.waiting() > 2_990,
            "{destination}: {taken}"
        );
        assert!(destination > 0 || taken == 1_000);
        assert!(destination > 5 || taken > 20, "{destination}: {taken}");
    }
    assert!(limits.waiting() <= 3_000);
}

#[test]
fn the_oldest_healthy_destination_is_forgotten() {
    let mut limits = limits(Config {
        destinations_max: 4,
        ..Config::default()
    });
    // 1 is dead, 2 and 3 have worked, 4 waits.
    offer(&mut limits, 0, 1, 2);
    begin(&mut limits, 0);
    limits.done(at(0), key(1), Outcome::Failure);
    limits.done(at(0), key(1), Outcome::Failure);
    for destination in [2, 3] {
        offer(&mut limits, destination, destination, 1);
        begin(&mut limits, destination);
        limits.done(at(destination), key(destination), Outcome::Success);
    }
    offer(&mut limits, 4, 4, 1);
    let known = |limits: &Limits<u64>| {
        let known = (1..10).filter(|number| limits.look(at(4), key(*number)).is_some());
        known.collect::<Vec<u64>>()
    };
    assert_eq!(known(&limits), [1, 2, 3, 4]);
    offer(&mut limits, 4, 5, 1);
    assert_eq!(known(&limits), [1, 3, 4, 5]);
    offer(&mut limits, 4, 6, 1);
    assert_eq!(known(&limits), [1, 4, 5, 6]);
    // Only then one that has failed, and never one that waits.
    offer(&mut limits, 4, 7, 1);
    assert_eq!(known(&limits), [4, 5, 6, 7]);
    assert_eq!(limits.offer(at(4), key(8), 3), Offer::Full(3));
    assert_eq!(limits.destinations(), 4);
}

#[test]
fn a_connection_is_used_again_unless_others_wait() {
    let mut limits = limits(Config {
        connections_max: 2,
        connections_kept: 0,
        ..Config::default()
    });
    offer(&mut limits, 0, 1, 5);
    assert_eq!(begin(&mut limits, 0)[&key(1)], 2);
    assert_eq!(limits.learn(at(0), key(1), Outcome::Success), Change::None);
    assert_eq!(limits.again(at(0), key(1)), Some(2));
    offer(&mut limits, 0, 2, 1);
    assert_eq!(limits.again(at(0), key(1)), None);
    limits.done(at(0), key(1), Outcome::Success);
    assert_eq!(limits.begin(at(0)), Some((key(2), 0)));
    // Each has one: both go on.
    assert_eq!(limits.again(at(0), key(1)), Some(3));
    assert_eq!(limits.again(at(0), key(2)), None);
    assert_eq!(limits.again(at(0), key(3)), None);
}

#[test]
#[should_panic(expected = "a connection ends that did not begin")]
fn a_connection_ends_once() {
    let mut limits = limits(Config::default());
    limits.done(at(0), key(1), Outcome::Success);
}

/// Random histories against counts of their own.
#[test]
fn sums_hold_in_any_history() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let config = Config {
            connections_max: 12,
            connections_kept: 3,
            destinations_max: 8,
            waiting_max: 60,
            waiting_of_one_max: 20,
            ..Config::default()
        };
        let mut limits = limits(config);
        let (mut open, mut waiting, mut now) = (Vec::new(), 0, 0);
        for _ in 0..2_000 {
            now += rng.below(20);
            match rng.below(4) {
                0 | 1 => {
                    let offered = limits.offer(at(now), key(rng.below(12)), 0);
                    waiting += usize::from(offered == Offer::Waits);
                }
                2 => {
                    while let Some((key, _)) = limits.begin(at(now)) {
                        waiting -= 1;
                        open.push(key);
                        let (window, active, dead) = limits.look(at(now), key).unwrap();
                        assert!(active as u64 <= window && window <= 20 && dead.is_none());
                        assert_eq!(active, open.iter().filter(|other| **other == key).count());
                    }
                }
                _ if open.is_empty() => {}
                _ => {
                    let key =
                        open.swap_remove(usize::try_from(rng.below(open.len() as u64)).unwrap());
                    let outcomes = [
                        Outcome::Success,
                        Outcome::Failure,
                        Outcome::Busy,
                        Outcome::Slow,
                        Outcome::Nothing,
                    ];
                    if let Change::Died(_, back) = limits.done(at(now), key, *rng.pick(&outcomes)) {
                        waiting -= back.len();
                    }
                }
            }
            assert_eq!((limits.active(), limits.waiting()), (open.len(), waiting));
            assert!(open.len() <= 12 && waiting <= 60 && limits.destinations() <= 8);
        }
    }
}
