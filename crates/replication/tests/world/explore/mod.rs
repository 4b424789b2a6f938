//! Every order of events, within bounds: not some random histories, but all that there can be, of few nodes and few batches.
//!
//! The machine itself is explored, not a model of it. From one state of the whole world, each possible next event is tried on a copy; a state that
//! was seen before, by its fingerprint of 64 bits, is not followed again. What must hold is checked at each step (`checks`). Whenever nothing is
//! under way any more, all nodes must become alike if nothing else breaks.
//!
//! Reading order: this file (the search and its bounds), `space` (a state, and its next events), `outputs` (what a driver does), `leaving` (nodes
//! that leave and come back), `removing` (a removed member).

mod leaving;
mod outputs;
mod removing;
mod space;

use std::collections::HashSet;

use space::Space;
pub use space::Step;

/// What may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// For who reads the figures.
    pub name: &'static str,
    /// Nodes that are there from the beginning.
    pub founders: usize,
    /// Whether another one is let in by the first.
    pub newcomer: bool,
    /// Batches of each node; of the newcomer the last.
    pub writes: &'static [u8],
    /// Not how links begin, but what comes after.
    pub greeted: bool,
    /// Frames that may be on the way from one node to another.
    pub frames: usize,
    /// Frames are made at any moment, and not as soon as there is room.
    pub lazy: bool,
    /// What is read comes at any moment, and not at once.
    pub slow_reads: bool,
    /// A frame is lost, and what follows is not.
    pub losses: u8,
    /// A frame comes twice.
    pub doubles: u8,
    /// A link breaks, with all that is on the way.
    pub cuts: u8,
    /// A node dies, and loses what is not durable, but for a first part.
    pub crashes: u8,
    /// A time passes that is longer than all of the machine's, up to giving up a donor.
    pub ticks: u8,
    /// A node gives up what it keeps for others that are away.
    pub give_ups: u8,
    /// How often each node begins to leave; none: it never does. Who has left may come back at any moment.
    pub leaves: &'static [u8],
    /// The first node may remove the last.
    pub removes: bool,
}

/// Nothing but two nodes.
const TWO: Bounds = Bounds {
    name: "",
    founders: 2,
    newcomer: false,
    writes: &[2, 2],
    greeted: false,
    frames: 1,
    lazy: false,
    slow_reads: false,
    losses: 0,
    doubles: 0,
    cuts: 0,
    crashes: 0,
    ticks: 0,
    give_ups: 0,
    leaves: &[],
    removes: false,
};

/// Looked at by `cargo test`.
pub const SMALL: &[Bounds] = &[
    Bounds {
        name: "two nodes",
        writes: &[2, 1],
        ..TWO
    },
    Bounds {
        name: "a crash",
        writes: &[1, 1],
        crashes: 1,
        ..TWO
    },
    Bounds {
        name: "a break",
        writes: &[1, 1],
        cuts: 1,
        ..TWO
    },
    Bounds {
        name: "a loss and a time",
        writes: &[2, 0],
        losses: 1,
        ticks: 1,
        ..TWO
    },
    Bounds {
        name: "three nodes",
        founders: 3,
        writes: &[1, 1, 0],
        greeted: true,
        ..TWO
    },
    Bounds {
        name: "a state",
        writes: &[1, 0],
        losses: 1,
        cuts: 1,
        give_ups: 1,
        ..TWO
    },
    Bounds {
        name: "a newcomer",
        newcomer: true,
        founders: 1,
        writes: &[1, 1],
        ..TWO
    },
    Bounds {
        name: "one leaves",
        writes: &[1, 0],
        greeted: true,
        leaves: &[1, 0],
        ..TWO
    },
    Bounds {
        name: "one is removed",
        founders: 3,
        writes: &[0, 0, 1],
        greeted: true,
        removes: true,
        ..TWO
    },
];

/// Looked at by the example `explore`: about three minutes on two cores.
pub const LARGE: &[Bounds] = &[
    Bounds {
        name: "two nodes",
        ..TWO
    },
    Bounds {
        name: "three batches",
        writes: &[3, 1],
        greeted: true,
        ..TWO
    },
    Bounds {
        name: "two frames",
        frames: 2,
        ..TWO
    },
    Bounds {
        name: "lazy",
        writes: &[2, 1],
        lazy: true,
        ..TWO
    },
    Bounds {
        name: "slow reads",
        writes: &[2, 1],
        slow_reads: true,
        cuts: 1,
        ..TWO
    },
    Bounds {
        name: "crashes",
        writes: &[2, 1],
        crashes: 2,
        ..TWO
    },
    Bounds {
        name: "breaks",
        writes: &[2, 1],
        cuts: 2,
        ..TWO
    },
    Bounds {
        name: "lost and doubled",
        writes: &[1, 1],
        losses: 1,
        doubles: 1,
        ticks: 1,
        ..TWO
    },
    Bounds {
        name: "a break and a crash",
        writes: &[1, 1],
        crashes: 1,
        cuts: 1,
        ..TWO
    },
    Bounds {
        name: "three nodes, a crash",
        founders: 3,
        writes: &[1, 0, 0],
        greeted: true,
        crashes: 1,
        ..TWO
    },
    Bounds {
        name: "states",
        writes: &[2, 1],
        cuts: 1,
        give_ups: 1,
        ..TWO
    },
    Bounds {
        name: "states and a crash",
        writes: &[1, 0],
        cuts: 1,
        give_ups: 1,
        crashes: 1,
        ..TWO
    },
    Bounds {
        name: "three nodes, a break",
        founders: 3,
        writes: &[1, 0, 0],
        greeted: true,
        cuts: 1,
        ticks: 1,
        ..TWO
    },
    Bounds {
        name: "states among three",
        founders: 3,
        writes: &[1, 0, 0],
        greeted: true,
        cuts: 2,
        give_ups: 1,
        ..TWO
    },
    Bounds {
        name: "a newcomer to two",
        newcomer: true,
        founders: 2,
        writes: &[1, 0, 0],
        greeted: true,
        ..TWO
    },
    Bounds {
        name: "one of two leaves twice",
        writes: &[0, 1],
        greeted: true,
        leaves: &[2, 0],
        ..TWO
    },
    Bounds {
        name: "each of two leaves",
        writes: &[1, 0],
        greeted: true,
        leaves: &[1, 1],
        ..TWO
    },
    Bounds {
        name: "one of two leaves, a break",
        writes: &[1, 1],
        greeted: true,
        leaves: &[1, 0],
        cuts: 1,
        ..TWO
    },
    Bounds {
        name: "one of two leaves, a crash",
        writes: &[1, 0],
        greeted: true,
        leaves: &[1, 0],
        crashes: 1,
        ..TWO
    },
    Bounds {
        name: "one of three is removed, another writes",
        founders: 3,
        writes: &[0, 1, 1],
        greeted: true,
        removes: true,
        ..TWO
    },
    Bounds {
        name: "one of three is removed, a break",
        founders: 3,
        writes: &[0, 0, 1],
        greeted: true,
        removes: true,
        cuts: 1,
        ..TWO
    },
    Bounds {
        name: "one of three is removed, a crash",
        founders: 3,
        writes: &[0, 0, 1],
        greeted: true,
        removes: true,
        crashes: 1,
        ..TWO
    },
];

/// Rules of the machine that can be broken at run time, and that some order of events shows to be.
pub const BROKEN: &[&str] = &[
    "absent-not-asked",
    "any-life",
    "acks-before-sync",
    "applied-before-sync",
    "applied-early",
    "behind-unnoticed",
    "cut-at-own-pace",
    "duplicate-taken",
    "gap-taken",
    "handed-again-after-join",
    "joined-too-early",
    "said-before-stored",
];

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Different states.
    pub states: u64,
    /// Events tried.
    pub steps: u64,
    /// The most events one after the other.
    pub depth: usize,
    /// States in which nothing was under way, from which all came to be alike.
    pub ends: u64,
    /// Events in which a state was joined, and in which a log was cut.
    pub joins: u64,
    pub log_cuts: u64,
    /// Whether that was all.
    pub whole: bool,
}

/// What does not hold.
#[derive(Debug)]
pub struct Found {
    /// What.
    pub what: String,
    /// After so many states.
    pub states: u64,
    /// A shortest part of what happened before that shows it, too.
    pub trail: Vec<Step>,
}

/// Looks at all states within the bounds, or at so many.
pub fn search(bounds: &Bounds, states_max: u64) -> Result<Figures, Found> {
    let mut figures = Figures::default();
    let mut trail = Vec::new();
    seek(bounds, states_max, &mut figures, &mut trail).map_err(|what| {
        let (what, trail) = shortened(bounds, trail).unwrap_or((what, Vec::new()));
        Found {
            what,
            states: figures.states,
            trail,
        }
    })?;
    Ok(figures)
}

fn seek(
    bounds: &Bounds,
    states_max: u64,
    figures: &mut Figures,
    trail: &mut Vec<Step>,
) -> Result<(), String> {
    let first = Space::new(bounds)?;
    let mut seen = HashSet::from([first.digest()]);
    let todo = first.enabled();
    // Depth first: what is kept of a state that is done is its fingerprint.
    let mut stack = vec![(first, todo)];
    while let Some((state, todo)) = stack.last_mut() {
        let Some(step) = todo.pop() else {
            stack.pop();
            trail.pop();
            continue;
        };
        let mut next = state.clone();
        trail.push(step);
        next.step(step)?;
        figures.steps += 1;
        figures.joins += next.joins - state.joins;
        figures.log_cuts += next.log_cuts - state.log_cuts;
        if !seen.insert(next.digest()) {
            trail.pop();
            continue;
        }
        figures.states = seen.len() as u64;
        if figures.states >= states_max {
            return Ok(());
        }
        if next.is_quiet() {
            figures.ends += 1;
            next.clone().heal()?;
        }
        let todo = next.enabled();
        stack.push((next, todo));
        figures.depth = figures.depth.max(stack.len());
    }
    figures.whole = true;
    Ok(())
}

/// Leaves out what is not needed for something to be wrong.
fn shortened(bounds: &Bounds, mut trail: Vec<Step>) -> Option<(String, Vec<Step>)> {
    let mut what = wrong(bounds, &trail)?;
    loop {
        let before = trail.len();
        let mut at = 0;
        while at < trail.len() {
            let mut shorter = trail.clone();
            shorter.remove(at);
            match wrong(bounds, &shorter) {
                Some(error) => (what, trail) = (error, shorter),
                None => at += 1,
            }
        }
        if trail.len() == before {
            return Some((what, trail));
        }
    }
}

/// What is wrong when this happens, as far as it can.
fn wrong(bounds: &Bounds, trail: &[Step]) -> Option<String> {
    let mut state = Space::new(bounds).ok()?;
    for step in trail {
        if state.enabled().contains(step)
            && let Err(error) = state.step(*step)
        {
            return Some(error);
        }
    }
    state.heal().err()
}
