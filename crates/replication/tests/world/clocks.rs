//! Named histories of a node's clock.

use whimbrel_replication::Now;
use whimbrel_replication::clocks::{Clocks, Config, Event, Refused};

use super::SECOND;
use super::scenarios::{Scenario, ensure, node};

pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("a clock that is off", off),
    ("the median of peers' clocks", medians),
    ("a clock that jumps and is right", jumps_rightly),
    ("a clock that jumps and is wrong", jumps_wrongly),
    ("a clock that jumps while nobody is there", jumps_alone),
    ("half of the peers are asked after a jump", half_are_asked),
    ("a clock that is slewed", slewed),
];

fn at(wall: u64, mono: u64) -> Now {
    Now {
        wall_micros: (1_000_000 + wall) * SECOND,
        mono_micros: mono * SECOND,
    }
}

/// Linked to the nodes 1 to `peers`.
fn clocks(peers: u64) -> Clocks {
    let mut clocks = Clocks::new(Config::default(), at(0, 0));
    for peer in 1..=peers {
        clocks.linked(at(0, 0), node(peer));
    }
    clocks
}

fn events(clocks: &mut Clocks) -> Vec<Event> {
    std::iter::from_fn(|| clocks.poll()).collect()
}

fn seconds(seconds: i64) -> i64 {
    seconds * SECOND as i64
}

fn off() -> Result<(), String> {
    let mut clocks = clocks(1);
    clocks.measured(at(1, 1), node(1), seconds(60));
    ensure(clocks.check().is_ok(), "a minute may be")?;
    clocks.measured(at(2, 2), node(1), seconds(-61));
    let micros = seconds(-61);
    let refused = Refused::Off { micros };
    ensure(clocks.check() == Err(refused), "no more than that")?;
    let peer = node(1);
    let told = events(&mut clocks);
    let expected = [Event::PeerOff { peer, micros }, Event::Stopped(refused)];
    ensure(told == expected, "it is told")?;
    clocks.measured(at(3, 3), node(1), seconds(-62));
    ensure(events(&mut clocks).is_empty(), "once")?;
    clocks.measured(at(4, 4), node(1), 0);
    ensure(clocks.check().is_ok(), "until it is right")?;
    let told = events(&mut clocks);
    ensure(told == [Event::PeerBack(peer), Event::GoesOn], "told, too")?;
    clocks.measured(at(5, 5), node(1), seconds(-61));
    clocks.unlinked(at(6, 6), node(1));
    ensure(clocks.check().is_ok(), "who is gone is not asked")
}

fn medians() -> Result<(), String> {
    let check = |ahead: &[i64], stops: bool| {
        let mut clocks = clocks(ahead.len() as u64);
        for (peer, ahead) in (1..).zip(ahead) {
            clocks.measured(at(1, 1), node(peer), seconds(*ahead));
        }
        let text = format!("{ahead:?}");
        ensure(clocks.check().is_err() == stops, &text)
    };
    check(&[0, 500], false)?;
    check(&[0, -500], false)?;
    check(&[500, 400], true)?;
    check(&[0, 500, 1], false)?;
    check(&[400, 0, 500], true)?;
    check(&[-400, -500, 0, 0], false)?;
    check(&[i64::MAX / 1_000_000, 0, 0], false)
}

fn jumps_rightly() -> Result<(), String> {
    let mut clocks = clocks(1);
    clocks.measured(at(1, 1), node(1), 0);
    clocks.time(at(31, 2));
    let micros = seconds(29);
    let refused = Refused::Jumped { micros };
    ensure(clocks.check() == Err(refused), "it waits")?;
    clocks.measured(at(32, 3), node(1), seconds(1));
    ensure(clocks.check().is_ok(), "until a peer agrees")?;
    let told = events(&mut clocks);
    ensure(told == [Event::Stopped(refused), Event::GoesOn], "told")
}

fn jumps_wrongly() -> Result<(), String> {
    let mut clocks = clocks(1);
    clocks.measured(at(1, 1), node(1), 0);
    clocks.time(at(1000, 2));
    clocks.measured(at(1001, 3), node(1), seconds(-998));
    let micros = seconds(-998);
    ensure(clocks.check() == Err(Refused::Off { micros }), "it stops")?;
    // Somebody sets it right: another jump.
    clocks.time(at(4, 4));
    let jumped = matches!(clocks.check(), Err(Refused::Jumped { .. }));
    ensure(jumped, "it waits again")?;
    clocks.measured(at(5, 5), node(1), 0);
    ensure(clocks.check().is_ok(), "and goes on")
}

fn jumps_alone() -> Result<(), String> {
    let mut alone = clocks(0);
    alone.time(at(1000, 1));
    ensure(alone.check().is_ok(), "it goes on")?;
    let micros = seconds(999);
    let told = events(&mut alone);
    ensure(told == [Event::JumpedAlone { micros }], "and tells")?;
    // The peer goes away before it answers.
    let mut left = clocks(1);
    left.time(at(1000, 1));
    ensure(left.check().is_err(), "it waits")?;
    left.unlinked(at(1001, 2), node(1));
    ensure(left.check().is_ok(), "as long as somebody is there")
}

fn half_are_asked() -> Result<(), String> {
    let mut clocks = clocks(4);
    clocks.time(at(1000, 1));
    clocks.measured(at(1000, 1), node(1), 0);
    ensure(clocks.check().is_err(), "one of four is not enough")?;
    clocks.measured(at(1000, 1), node(2), 0);
    ensure(clocks.check().is_ok(), "two are")
}

fn slewed() -> Result<(), String> {
    let mut clocks = clocks(1);
    for second in 1..100 {
        // A tenth too fast.
        let now = Now {
            wall_micros: at(0, 0).wall_micros + second * 1_100_000,
            mono_micros: second * SECOND,
        };
        clocks.time(now);
        ensure(clocks.check().is_ok(), "no jump")?;
    }
    let deadline = clocks.deadline();
    ensure(deadline == 100 * SECOND, "it is looked at each second")
}
