//! Every order of events of a few nodes, within bounds: what arrives when, which write is durable first, where a link ends, who crashes, whose disk is
//! lost, and when time passes. In each state in which nothing is under way all is mended, and what was promised must hold in the end.
//!
//! Time passes only when nothing else can happen, and only until something does.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
};

use whimbrel_queue::{Choice, Config, Frame, Id, Input};

use crate::world::{self, Message, SECOND, World, node};

/// What may happen, and how often.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub struct Left {
    pub puts: u8,
    pub unlinks: u8,
    pub cuts: u8,
    pub crashes: u8,
    pub losses: u8,
    pub restores: u8,
    pub ticks: u8,
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub nodes: usize,
    pub copies: usize,
    pub left: Left,
    /// After so many states it ends.
    pub states_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Put(usize),
    Deliver(usize, usize),
    Sync(usize),
    Unlink(usize, usize),
    Cut(usize, usize),
    Link,
    Crash(usize),
    LoseDisk(usize),
    /// The copy of its disk from before the put is put back.
    Restore(usize),
    Start(usize),
    Consume(usize),
    Answer(usize),
    Tick,
}

/// The way to a state, backwards.
struct Way(Step, Option<Rc<Way>>);

#[derive(Debug, Default)]
pub struct Found {
    pub states: usize,
    pub depth: usize,
    /// States that were mended to the end.
    pub mended: usize,
    /// Whether that was all.
    pub ended: bool,
    pub breach: Option<(Vec<Step>, String)>,
}

fn config(copies: usize) -> Config {
    Config {
        choice: Choice::Nearest(0),
        wave_every: SECOND,
        tombstone_wait: 1500 * world::MILLI,
        ..world::config(copies)
    }
}

pub fn is_idle(world: &World) -> bool {
    let channels = world.channels.values().all(|channel| channel.is_empty());
    channels && world.sites.iter().all(|site| site.writes.is_empty())
}

/// Heartbeats arrive at once: they are no events.
fn pass_waves(world: &mut World) {
    let is_wave =
        |message: &Message| matches!(message, Message::Frame(Frame::Wave(_) | Frame::Low { .. }));
    let count = world.sites.len();
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for from in 0..count {
            for to in 0..count {
                while world
                    .channels
                    .get(&(from, to))
                    .and_then(|channel| channel.front())
                    .is_some_and(is_wave)
                {
                    world.deliver(from, to);
                    goes_on = true;
                }
            }
        }
    }
}

pub fn steps(world: &World, left: &Left) -> Vec<Step> {
    let mut steps = Vec::new();
    let count = world.sites.len();
    let idle = is_idle(world);
    let is_up = |at: usize| world.sites[at].queue.is_some();
    for from in 0..count {
        for to in 0..count {
            if world
                .channels
                .get(&(from, to))
                .is_some_and(|channel| !channel.is_empty())
            {
                steps.push(Step::Deliver(from, to));
            }
        }
        if !world.sites[from].writes.is_empty() {
            steps.push(Step::Sync(from));
        }
        if !is_up(from) {
            steps.push(Step::Start(from));
        }
        if !world.sites[from].mine.is_empty() {
            steps.push(Step::Consume(from));
        }
        if !world.answers_for(from).is_empty() {
            steps.push(Step::Answer(from));
        }
    }
    if left.puts > 0 {
        // Nodes are alike before it.
        steps.push(Step::Put(0));
        return steps;
    }
    for at in 0..count {
        if left.crashes > 0 && is_up(at) {
            steps.push(Step::Crash(at));
        }
        if left.losses > 0 && world.losses < world.config.copies {
            steps.push(Step::LoseDisk(at));
        }
        if left.restores > 0 && world.losses < world.config.copies && is_up(at) {
            steps.push(Step::Restore(at));
        }
        for other in 0..count {
            if at < other && left.unlinks > 0 && world.is_linked(at, other) {
                steps.push(Step::Unlink(at, other));
            }
            if at != other
                && left.cuts > 0
                && world.is_linked(at, other)
                && !world.cut.contains(&(at, other))
            {
                steps.push(Step::Cut(at, other));
            }
        }
    }
    let apart = (0..count).any(|one| {
        (one + 1..count).any(|other| is_up(one) && is_up(other) && !world.is_linked(one, other))
    });
    if apart {
        steps.push(Step::Link);
    }
    if left.ticks > 0 && idle {
        steps.push(Step::Tick);
    }
    steps
}

pub fn take(world: &mut World, left: &mut Left, step: Step) {
    match step {
        Step::Put(at) => {
            left.puts -= 1;
            world.put(at, true);
        }
        Step::Deliver(from, to) => world.deliver(from, to),
        Step::Sync(at) => world.sync(at),
        Step::Unlink(one, other) => {
            left.unlinks -= 1;
            world.unlink(one, other);
        }
        Step::Cut(from, to) => {
            left.cuts -= 1;
            world.cut.insert((from, to));
        }
        Step::Link => {
            world.cut.clear();
            world.link_all();
        }
        Step::Crash(at) => {
            left.crashes -= 1;
            world.crash(at);
        }
        Step::LoseDisk(at) => {
            left.losses -= 1;
            world.lose_disk(at);
        }
        Step::Restore(at) => {
            left.restores -= 1;
            let older = world.sites[at].copy.clone().unwrap_or_default();
            world.put_back(at, older);
        }
        Step::Start(at) => world.start(at),
        Step::Consume(at) => {
            if let Some(id) = world.sites[at].mine.first().copied() {
                world.consume_slowly(at, id);
                world.sites[at].mine.remove(&id);
            }
        }
        Step::Answer(at) => {
            if let Some(id) = world.answers_for(at).first().copied() {
                world.answer(at, id);
                world.done(at, id);
            }
        }
        Step::Tick => {
            left.ticks -= 1;
            for _ in 0..12 {
                world.pass(SECOND);
                pass_waves(world);
                let acts = world.sites.iter().any(|site| !site.mine.is_empty());
                if !is_idle(world) || acts {
                    break;
                }
            }
        }
    }
    pass_waves(world);
    world.excuse();
    // A copy of each disk with the tuple on it: what an operator may put back.
    for site in &mut world.sites {
        if site.copy.is_none() && !site.disk.payloads.is_empty() {
            site.copy = Some(site.disk.clone());
        }
    }
}

/// Mends everything, and looks whether what was promised holds.
pub fn mend(world: &World) -> Option<String> {
    let mut world = world.clone();
    world.cut.clear();
    for at in 0..world.sites.len() {
        world.start(at);
    }
    for _ in 0..40 {
        world.link_all();
        world.drain();
        for at in 0..world.sites.len() {
            let mine: Vec<Id> = world.sites[at].mine.iter().copied().collect();
            for id in mine.into_iter().chain(world.answers_for(at)) {
                if world.sites[at].mine.contains(&id) {
                    world.consume(at, id);
                }
                world.answer(at, id);
                world.done(at, id);
            }
        }
        world.drain();
        world.pass(SECOND);
        if world.breach.is_some() || world.leftover().is_none() {
            break;
        }
    }
    if world.breach.is_none() {
        world.check_end();
    }
    world.breach
}

pub fn digest(world: &World, left: &Left) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    left.hash(&mut hasher);
    hasher.finish()
}

/// A cluster before anything has happened.
pub fn whole(nodes: usize, copies: usize) -> World {
    let mut world = World::new(nodes, config(copies));
    world.link_all();
    for at in 0..nodes {
        for other in 0..nodes {
            world.input(at, Input::RoundTrip(node(other), 1000 * other as u64));
        }
    }
    world.drain();
    world
}

pub fn explore(bounds: Bounds) -> Found {
    let world = whole(bounds.nodes, bounds.copies);
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let mut stack: Vec<(World, Left, Option<Rc<Way>>, usize)> = vec![(world, bounds.left, None, 0)];
    while let Some((world, left, way, depth)) = stack.pop() {
        if found.states >= bounds.states_max {
            return found;
        }
        found.states += 1;
        found.depth = found.depth.max(depth);
        let mut breach = world.breach.clone();
        if breach.is_none() && is_idle(&world) {
            found.mended += 1;
            breach = mend(&world).map(|breach| format!("when all is mended: {breach}"));
        }
        if let Some(breach) = breach {
            let mut path = Vec::new();
            let mut at = way.as_ref();
            while let Some(step) = at {
                path.push(step.0);
                at = step.1.as_ref();
            }
            path.reverse();
            found.breach = Some((path, breach));
            return found;
        }
        for step in steps(&world, &left) {
            let (mut world, mut left) = (world.clone(), left);
            take(&mut world, &mut left, step);
            if seen.insert(digest(&world, &left)) {
                let way = Rc::new(Way(step, way.clone()));
                stack.push((world, left, Some(way), depth + 1));
            }
        }
    }
    found.ended = true;
    found
}

/// The spaces: a name, and how much may happen.
pub fn spaces(states_max: usize) -> Vec<(&'static str, Bounds)> {
    let left = Left {
        puts: 1,
        ..Left::default()
    };
    let space = |nodes, copies, left| Bounds {
        nodes,
        copies,
        left,
        states_max,
    };
    vec![
        (
            "two nodes, links end",
            space(
                2,
                1,
                Left {
                    unlinks: 2,
                    ticks: 2,
                    ..left
                },
            ),
        ),
        (
            "two nodes, a disk is lost",
            space(
                2,
                1,
                Left {
                    losses: 1,
                    crashes: 1,
                    ticks: 3,
                    ..left
                },
            ),
        ),
        (
            "two nodes, an older disk",
            space(
                2,
                1,
                Left {
                    restores: 1,
                    unlinks: 1,
                    ticks: 3,
                    ..left
                },
            ),
        ),
        (
            "three nodes, one is cut off",
            space(
                3,
                1,
                Left {
                    cuts: 2,
                    ticks: 2,
                    ..left
                },
            ),
        ),
        (
            "three nodes, one crashes",
            space(
                3,
                1,
                Left {
                    crashes: 1,
                    unlinks: 1,
                    ticks: 2,
                    ..left
                },
            ),
        ),
        (
            "three nodes, two copies",
            space(
                3,
                2,
                Left {
                    crashes: 1,
                    losses: 1,
                    ticks: 2,
                    ..left
                },
            ),
        ),
        (
            "four nodes, two copies",
            space(
                4,
                2,
                Left {
                    losses: 1,
                    unlinks: 1,
                    ticks: 2,
                    ..left
                },
            ),
        ),
    ]
}

fn look(states_max: usize) {
    for (name, bounds) in spaces(states_max) {
        let found = explore(bounds);
        println!(
            "{name}: {} states, depth {}, {} mended, {}",
            found.states,
            found.depth,
            found.mended,
            if found.ended { "all" } else { "not all" }
        );
        if let Some((path, breach)) = found.breach {
            panic!("{name}: {breach}\n{path:#?}");
        }
    }
}

#[test]
fn every_order_within_bounds() {
    look(4_000);
}

#[test]
#[ignore = "long: millions of states"]
fn every_order() {
    let wanted = std::env::var("WHIMBREL_STATES").ok();
    look(
        wanted
            .and_then(|text| text.parse().ok())
            .unwrap_or(1_000_000),
    );
}
