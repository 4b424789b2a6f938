//! Who adopts: the cases of the GeoRep paper (Brahneborg et al., 2022, Tables 2, 3 and 5), and every relation of who hears whom among up to five nodes,
//! which the paper leaves as future work.

use std::sync::atomic::{AtomicU64, Ordering};

use whimbrel_queue::{Choice, Config, Id, Input, PeerState};
use whimbrel_testkit::Rng;

use crate::world::{self, SECOND, World, node};

/// Nodes choose peers by number, so that the owners are 0, 1, 2 ...
fn config(copies: usize) -> Config {
    Config {
        choice: Choice::Nearest(0),
        wave_every: SECOND,
        repair_after: 1000 * SECOND,
        ask_every: 1000 * SECOND,
        ..world::config(copies)
    }
}

/// A whole network of so many nodes, in which node 0 has accepted a tuple and does not forward it.
fn prepared(count: usize, copies: usize) -> (World, Id) {
    let mut world = World::new(count, config(copies));
    world.link_all();
    for at in 0..count {
        for other in 0..count {
            world.input(at, Input::RoundTrip(node(other), 1000 * other as u64));
        }
    }
    let mut rng = Rng::new(1);
    world.settle(&mut rng, SECOND);
    let id = world.put(0, true);
    let tuple = world.tuples.get_mut(&id).unwrap();
    tuple.held_back = true;
    world.settle(&mut rng, SECOND);
    assert!(world.tuples[&id].accepted);
    let owners = world.sites[0]
        .queue
        .as_ref()
        .unwrap()
        .get(id)
        .unwrap()
        .owners;
    let expected: Vec<_> = (0..=copies).map(node).collect();
    assert_eq!(owners.as_slice(), expected);
    (world, id)
}

/// All that is under way happens, and time passes.
fn go(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        world.drain();
        world.pass(SECOND);
    }
    world.drain();
}

fn acting(world: &World, id: Id) -> Vec<usize> {
    let acts = |at: &usize| {
        let queue = world.sites[*at].queue.as_ref();
        queue.is_some_and(|queue| queue.acts_on(id)) && world.sites[*at].mine.contains(&id)
    };
    (0..world.sites.len()).filter(acts).collect()
}

/// Cuts these directions until the silent ones are taken for dead.
fn cut(world: &mut World, pairs: impl IntoIterator<Item = (usize, usize)>) {
    world.cut.extend(pairs);
    go(world, 9);
}

/// Mends everything: one node acts, it forwards, and nothing is left.
fn heal(world: &mut World, id: Id) -> Result<(), String> {
    world.cut.clear();
    world.link_all();
    go(world, 2);
    let acts = acting(world, id);
    let [one] = acts[..] else {
        return Err(format!("after healing {acts:?} act"));
    };
    world.consume(one, id);
    world.done(one, id);
    go(world, 2);
    match world.breach.take().or_else(|| world.leftover()) {
        Some(breach) => Err(breach),
        None => Ok(()),
    }
}

#[test]
pub fn the_tables_of_the_paper() {
    // Who is isolated, and who of the others adopts; nodes are numbered from 1, as in the paper.
    let cases: [(&str, &[usize], Option<usize>); 9] = [
        ("0", &[], None),
        ("1", &[1], Some(2)),
        ("3", &[1, 2], Some(3)),
        ("5", &[1, 3], Some(2)),
        ("7", &[1, 2, 3], Some(4)),
        ("9", &[1, 4], Some(2)),
        ("11", &[1, 2, 4], Some(3)),
        ("13", &[1, 3, 4], Some(2)),
        ("15", &[1, 2, 3, 4], None),
    ];
    let (whole, id) = prepared(4, 3);
    println!("case  isolated      adopts");
    for (name, isolated, adopter) in cases {
        let mut world = whole.clone();
        let out = |at: usize| isolated.contains(&(at + 1));
        let pairs = (0..4).flat_map(|from| (0..4).map(move |to| (from, to)));
        cut(
            &mut world,
            pairs.filter(|(from, to)| from != to && (out(*from) || out(*to))),
        );
        let acts: Vec<usize> = world.tuples[&id].acted.iter().map(|at| at + 1).collect();
        // The first owner acts all the time; every other one that is isolated takes all before it for dead, as in Table 5.
        let mut expected: Vec<usize> = isolated.iter().copied().chain(adopter).chain([1]).collect();
        expected.sort_unstable();
        expected.dedup();
        println!(
            "{name:>4}  {:<12}  {adopter:?}; {acts:?} act",
            format!("{isolated:?}")
        );
        assert_eq!(acts, expected, "case {name}");
        // Who is isolated takes nothing.
        for at in isolated {
            let put = world.put(at - 1, true);
            assert!(world.tuples[&put].refused, "case {name}");
            world.tuples.remove(&put);
        }
        heal(&mut world, id).unwrap();
    }
}

/// Who acts by the rule: the first owner, and each one that is linked with none of those before it. A link in one direction is none.
fn oracle(owners: usize, hears: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let linked = |one, other| hears(one, other) && hears(other, one);
    (0..owners)
        .filter(|at| (0..*at).all(|before| !linked(*at, before)))
        .collect()
}

/// One relation: bit by bit whether one hears another.
fn relation(whole: &World, id: Id, owners: usize, bits: u64) -> Result<(), String> {
    let count = whole.sites.len();
    let pairs: Vec<(usize, usize)> = (0..count)
        .flat_map(|from| (0..count).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    let is_cut = |pair: &(usize, usize)| {
        let place = pairs.iter().position(|other| other == pair).unwrap();
        bits & 1 << place != 0
    };
    let mut world = whole.clone();
    cut(&mut world, pairs.iter().copied().filter(is_cut));
    let acts: Vec<usize> = world.tuples[&id].acted.iter().copied().collect();
    let expected = oracle(owners, |at, from| !is_cut(&(from, at)));
    // One that has heard by a third node of another that acts does not act.
    let heard = |at: &usize| {
        let queue = world.sites[*at].queue.as_ref().unwrap();
        let first = queue.get(id).unwrap().owners.first();
        first != node(0) && acts.contains(&usize::from(first.number()))
    };
    let right = acts.iter().all(|at| expected.contains(at))
        && expected.iter().all(|at| acts.contains(at) || heard(at));
    if !right {
        return Err(format!("{acts:?} act instead of {expected:?}"));
    }
    for at in &acts {
        for before in 0..*at {
            let queue = world.sites[*at].queue.as_ref().unwrap();
            assert_eq!(queue.state_of(node(before)), PeerState::Terminated);
        }
    }
    heal(&mut world, id)
}

/// Looks at every relation, or at one of so many.
pub fn relations(count: usize, copies: usize, one_in: u64) -> u64 {
    let (whole, id) = prepared(count, copies);
    let all = 1u64 << (count * (count - 1));
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let bits = next.fetch_add(one_in, Ordering::Relaxed);
                    if bits >= all {
                        break;
                    }
                    // Whatever is left out, every bit is seen in both states.
                    let bits = if one_in == 1 {
                        bits
                    } else {
                        Rng::new(bits).below(all)
                    };
                    if let Err(error) = relation(&whole, id, copies + 1, bits) {
                        panic!("{count} nodes, {copies} copies, relation {bits:#x}: {error}");
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let done = done.into_inner();
    println!("{count} nodes, {copies} copies: {done} of {all} relations as the rule says");
    done
}

#[test]
fn every_relation_of_up_to_four_nodes() {
    for count in 2..=4 {
        for copies in 1..count {
            relations(count, copies, 1);
        }
    }
}

#[test]
fn some_relations_of_five_nodes() {
    for copies in 1..5 {
        relations(5, copies, 512);
    }
}

#[test]
#[ignore = "long: a million relations"]
fn every_relation_of_five_nodes() {
    assert_eq!(relations(5, 4, 1), 1 << 20);
    // Nodes that are no owners change nothing: one of 16.
    for copies in 1..4 {
        relations(5, copies, 16);
    }
}
