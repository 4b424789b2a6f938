//! Random histories: nodes crash, disks are lost or put back, links are cut, in one direction or both; then all is mended, and what was promised must hold.

use whimbrel_queue::Input;
use whimbrel_testkit::Rng;

use crate::world::{self, MILLI, SECOND, World};

/// What one history has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub accepted: u64,
    pub refused: u64,
    pub adopted: u64,
    pub repaired: u64,
    pub replaced: u64,
    pub doubles: u64,
    pub forgotten: u64,
}

/// Which faults a history has.
struct Faults {
    crash: bool,
    cut: bool,
    lose: bool,
    put_back: bool,
    remove: bool,
    goodbye: bool,
    slow: bool,
    refuse: bool,
}

pub fn history(seed: u64, log: bool) -> (World, Done) {
    let mut rng = Rng::new(seed);
    let count = rng.between(1, 5) as usize;
    let copies = (rng.between(1, 2) as usize).min(count - 1);
    let faults = Faults {
        crash: rng.one_in(2),
        cut: rng.one_in(2),
        lose: rng.one_in(2),
        put_back: rng.one_in(2),
        remove: rng.one_in(3),
        goodbye: rng.one_in(3),
        slow: rng.one_in(2),
        refuse: rng.one_in(4),
    };
    // In some histories everything that was delivered is removed at once, and forgotten as soon as may be.
    let forgets = seed.is_multiple_of(2);
    let mut config = world::config(copies);
    if forgets {
        config.wave_every = 200 * MILLI;
        config.silent_after = SECOND;
        config.takeover_after = 3 * SECOND;
        config.repair_after = 4 * SECOND;
        config.ask_every = 2 * SECOND;
    }
    let mut world = World::new(count, config);
    world.log = log.then(Vec::new);
    let tuples = rng.between(1, 4);
    let hold_back = rng.one_in(3);
    world.say(|| format!("{count} nodes, {copies} copies, {tuples} tuples"));
    let length = *rng.pick(&[60_u64, 200, 500]);
    let mut down: Vec<(usize, u64)> = Vec::new();
    let mut slow = (0, 0);
    // Directions that bring little for a time.
    let mut lag: Vec<(usize, usize, u64)> = Vec::new();
    for step in 0..length {
        if world.breach.is_some() {
            break;
        }
        let at = rng.below(count as u64) as usize;
        let up = world.sites[at].queue.is_some();
        if (world.tuples.len() as u64) < tuples && up && rng.one_in(12) {
            let tracked = forgets || rng.below(3) < 2;
            let id = world.put(at, tracked);
            let held_back = hold_back && rng.one_in(2);
            world.tuples.get_mut(&id).unwrap().held_back = held_back;
        }
        // A client waits for some seconds.
        let patience: Vec<(usize, u64)> = world
            .tuples
            .values()
            .filter(|tuple| !tuple.accepted && !tuple.refused)
            .map(|tuple| (tuple.at, tuple.ticket))
            .collect();
        for (at, ticket) in patience {
            if rng.one_in(60) {
                world.input(at, Input::GiveUp(ticket));
            }
        }
        let other = rng.below(count as u64) as usize;
        if faults.cut && at != other && rng.one_in(30) {
            world.say(|| format!("cut {at} -> {other}"));
            world.cut.insert((at, other));
            if !rng.one_in(3) {
                world.cut.insert((other, at));
            }
        }
        if faults.cut && rng.one_in(100) {
            world.say(|| format!("{at} is isolated"));
            for other in (0..count).filter(|other| *other != at) {
                world.cut.insert((at, other));
                world.cut.insert((other, at));
            }
        }
        if rng.one_in(50) {
            let cut: Vec<(usize, usize)> = world.cut.iter().copied().collect();
            for pair in cut {
                if rng.one_in(2) {
                    world.cut.remove(&pair);
                }
            }
        }
        if faults.crash && up && rng.one_in(60) {
            world.crash(at);
            down.push((at, step + *rng.pick(&[1, 10, 100, 250])));
        }
        if faults.goodbye && up && rng.one_in(150) {
            world.input(at, Input::Leaving(5 * SECOND));
            world.run_once(&mut rng, true);
            world.crash(at);
            down.push((at, step + *rng.pick(&[20, 80, 200])));
        }
        if rng.one_in(40) {
            world.sites[at].copy = Some(world.sites[at].disk.clone());
        }
        let may_lose = world.losses < copies && !world.tuples.is_empty() && world.is_member(at);
        if faults.lose && may_lose && rng.one_in(150) {
            world.lose_disk(at);
            down.push((at, step + *rng.pick(&[1, 20, 150])));
        } else if faults.put_back && may_lose && up && rng.one_in(150) {
            if let Some(copy) = world.sites[at].copy.clone() {
                world.put_back(at, copy);
            }
        } else if faults.remove && may_lose && world.members.len() > 2 && rng.one_in(250) {
            world.remove(at);
        }
        if faults.slow && rng.one_in(80) {
            slow = (at, step + 40);
        }
        if faults.refuse && rng.one_in(20) {
            world.refuse(at);
        }
        if faults.slow && rng.one_in(if forgets { 8 } else { 25 }) {
            lag.push((at, other, step + rng.between(5, 60)));
        }
        lag.retain(|(_, _, until)| *until > step);
        let ids: Vec<_> = world.tuples.keys().copied().collect();
        for id in ids {
            // Everybody has heard of the delivery, and of its removal.
            if forgets || rng.one_in(40) {
                world.make_stable(id);
            }
        }
        let back: Vec<usize> = down
            .iter()
            .filter(|(_, when)| *when <= step)
            .map(|(at, _)| *at)
            .collect();
        down.retain(|(_, when)| *when > step);
        for at in back {
            world.start(at);
        }
        if rng.one_in(3) {
            world.link_all();
        }
        world.excuse();
        for from in 0..count {
            for to in 0..count {
                let is_slow = step < slow.1 && (from == slow.0 || to == slow.0) && !rng.one_in(10);
                let lags = lag.iter().any(|(one, two, _)| (*one, *two) == (from, to));
                let most = if is_slow || (lags && !rng.one_in(12)) {
                    0
                } else {
                    rng.below(4)
                };
                for _ in 0..most {
                    world.deliver(from, to);
                }
            }
            let writes = world.sites[from].writes.len() as u64;
            for _ in 0..rng.below(writes + 1) {
                world.sync(from);
            }
            world.work(&mut rng, from);
        }
        world.pass(rng.between(20, 300) * MILLI);
    }
    end(&mut world, &mut rng);
    let mut done = Done::default();
    for site in &world.sites {
        if let Some(queue) = &site.queue {
            let counters = queue.counters();
            done.adopted += counters.adopted;
            done.repaired += counters.repaired;
            done.replaced += counters.replaced;
        }
    }
    for tuple in world.tuples.values() {
        done.accepted += u64::from(tuple.accepted);
        done.refused += u64::from(tuple.refused);
        done.doubles += u64::from(tuple.forwarded.saturating_sub(1));
        done.forgotten += u64::from(tuple.forgotten);
    }
    (world, done)
}

/// All is mended; in the end everything was forwarded, and nothing is left.
fn end(world: &mut World, rng: &mut Rng) {
    if world.breach.is_some() {
        return;
    }
    world.say(|| "all is mended".to_owned());
    world.cut.clear();
    for at in 0..world.sites.len() {
        world.start(at);
    }
    world.link_all();
    for _ in 0..30 {
        world.settle(rng, SECOND);
        world.link_all();
    }
    // Long enough for all lists to be whole again, while nothing is forwarded.
    let held: Vec<_> = world.tuples.values().map(|tuple| tuple.held_back).collect();
    if held.contains(&true) && world.breach.is_none() {
        let needed = world.config.copies.min(world.members.len() - 1) + 1;
        let few = world.tuples.iter().find(|(id, tuple)| {
            let holds = world
                .sites
                .iter()
                .filter(|site| site.disk.payloads.contains_key(id));
            tuple.held_back && tuple.accepted && tuple.forwarded == 0 && holds.count() < needed
        });
        if let Some((id, _)) = few.filter(|_| world.losses <= world.config.copies) {
            let id = *id;
            world.fail(format!("copies: {id:?} has too few after a long calm"));
        }
        for tuple in world.tuples.values_mut() {
            tuple.held_back = false;
        }
    }
    for _ in 0..60 {
        world.settle(rng, SECOND);
        world.link_all();
        if world.breach.is_some() || world.leftover().is_none() {
            break;
        }
    }
    if world.breach.is_none() {
        world.check_end();
    }
}

fn seeds() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("WHIMBREL_FIRST").unwrap_or(1);
    (first, number("WHIMBREL_SEEDS").unwrap_or(300))
}

#[test]
fn random_histories() {
    let (first, count) = seeds();
    let mut sum = Done::default();
    let mut failed = Vec::new();
    for seed in first..first + count {
        let (world, done) = history(seed, false);
        if let Some(breach) = world.breach {
            failed.push((seed, breach));
        }
        sum.accepted += done.accepted;
        sum.refused += done.refused;
        sum.adopted += done.adopted;
        sum.repaired += done.repaired;
        sum.replaced += done.replaced;
        sum.doubles += done.doubles;
        sum.forgotten += done.forgotten;
    }
    println!("{count} histories: {sum:?}");
    for (seed, breach) in &failed {
        println!("seed {seed}: {breach}");
    }
    if let Some((seed, _)) = failed.first() {
        let (world, _) = history(*seed, true);
        let log = world.log.unwrap_or_default();
        let from = log.len().saturating_sub(1000);
        println!("{}", log[from..].join("\n"));
    }
    assert!(
        failed.is_empty(),
        "{} of {count} histories fail",
        failed.len()
    );
    // What a few hundred histories have to show, or they prove nothing.
    let all = [
        sum.accepted,
        sum.adopted,
        sum.repaired,
        sum.replaced,
        sum.forgotten,
    ];
    assert!(
        count < 300 || all.iter().all(|times| *times > 10),
        "{sum:?}"
    );
}
