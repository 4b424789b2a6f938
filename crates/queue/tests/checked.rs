//! The same events as in [`crate::explore`], in the hands of another checker: [`stateright`], breadth first, with its own notion of what was seen. What
//! must hold is said of the states here, beside what the world itself checks.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use stateright::{Checker, Model, Property};
use whimbrel_queue::{Id, Queue};

use crate::{
    explore::{self, Left, Step},
    world::{World, node},
};

#[derive(Clone)]
struct State {
    world: World,
    left: Left,
}

impl State {
    fn digest(&self) -> u64 {
        explore::digest(&self.world, &self.left)
    }

    fn queue(&self, at: usize) -> Option<&Queue> {
        self.world.sites[at].queue.as_ref()
    }

    /// Nodes that act on a tuple.
    fn acting(&self, id: Id) -> impl Iterator<Item = (usize, &Queue)> {
        let nodes = 0..self.world.sites.len();
        let up = nodes.filter_map(|at| Some((at, self.queue(at)?)));
        up.filter(move |(_, queue)| queue.acts_on(id))
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.world.hash(state);
        self.left.hash(state);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.digest() == other.digest()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.world.breach, self.left)
    }
}

/// A cluster with f = 1 and one tuple.
struct Cluster {
    nodes: usize,
    left: Left,
}

impl Model for Cluster {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let world = explore::whole(self.nodes, 1);
        let left = self.left;
        vec![State { world, left }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        actions.extend(explore::steps(&state.world, &state.left));
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        explore::take(&mut next.world, &mut next.left, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Cluster>> {
        vec![
            Property::always(
                "nothing accepted is lost with at most f lost disks",
                |_, state: &State| {
                    let world = &state.world;
                    let waits = world
                        .tuples
                        .iter()
                        .filter(|(_, tuple)| tuple.accepted && tuple.forwarded == 0);
                    let mut waits = waits.map(|(id, _)| id);
                    waits.all(|id| {
                        let sites = world.sites.iter();
                        let holds = sites.filter(|site| site.disk.payloads.contains_key(id));
                        holds.count() + world.losses > world.config.copies
                    })
                },
            ),
            Property::always(
                "nobody adopts while an earlier owner is heard and acts",
                |_, state: &State| {
                    let breach = state.world.breach.as_ref();
                    breach.is_none_or(|breach| !breach.starts_with("N1"))
                },
            ),
            Property::always(
                "of two that act one gives way when they have met",
                |_, state: &State| {
                    let world = &state.world;
                    let both = |id: &Id| {
                        state.acting(*id).any(|(one, queue)| {
                            let met = |other| {
                                queue.compared().contains(node(other)) && !world.apart(one, other)
                            };
                            let mut others = state.acting(*id);
                            others.any(|(other, _)| one != other && met(other))
                        })
                    };
                    !explore::is_idle(world) || !world.tuples.keys().any(both)
                },
            ),
            Property::always("every other rule holds", |_, state: &State| {
                let breach = state.world.breach.as_ref();
                breach.is_none_or(|breach| breach.starts_with("N1"))
            }),
            Property::always("a quiet system is empty", |_, state: &State| {
                !explore::is_idle(&state.world) || explore::mend(&state.world).is_none()
            }),
            Property::sometimes("a tuple is adopted", |_, state: &State| {
                let mut queues = (0..state.world.sites.len()).filter_map(|at| state.queue(at));
                queues.any(|queue| queue.counters().adopted > 0)
            }),
        ]
    }
}

/// Looks at all states, up to so many; and tells how many there were.
fn check(name: &str, cluster: Cluster, states_max: usize) {
    let checker = cluster.checker().target_state_count(states_max);
    let checker = checker.spawn_bfs().join();
    println!(
        "{name}: {} states, of them {} different ones, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}

#[test]
fn two_nodes() {
    let left = Left {
        puts: 1,
        cuts: 1,
        crashes: 1,
        ticks: 2,
        ..Left::default()
    };
    check("two nodes", Cluster { nodes: 2, left }, 120_000);
}

#[test]
fn two_nodes_and_a_lost_disk() {
    let left = Left {
        puts: 1,
        crashes: 1,
        losses: 1,
        ticks: 2,
        ..Left::default()
    };
    check("two nodes, a lost disk", Cluster { nodes: 2, left }, 80_000);
}

#[test]
fn three_nodes() {
    let left = Left {
        puts: 1,
        cuts: 1,
        crashes: 1,
        ticks: 2,
        ..Left::default()
    };
    check("three nodes", Cluster { nodes: 3, left }, 100_000);
}
