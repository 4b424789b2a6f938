//! Replicas that make, exchange, join and store.

#![allow(dead_code)] // Each of those who use it takes what it needs.

pub(crate) mod laws;
mod oracle;

use std::collections::{BTreeMap, BTreeSet};

use oracle::{expected, shown};
use proptest::prelude::*;
use whimbrel_crdt::{Context, Dot, Incarnation, Stamp, VersionVector};
use whimbrel_directory::{AccountKey, DecoySecret, Directory, Op, OwnQuota, state::Row};

const DOMAINS: [&str; 2] = ["x.example", "y.example"];
const ADDRESSES: [&str; 3] = ["anne@x.example", "bob@x.example", "anne@y.example"];
const ALIASES: [&str; 3] = ["info@x.example", "anne@x.example", "@y.example"];

/// One thing that happens. Numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A replica makes an operation at this time of its wall clock.
    Make {
        at: usize,
        kind: u8,
        a: usize,
        b: usize,
        wall: u64,
    },
    /// The next operation of an origin reaches a replica, if it has what that depends on.
    Deliver { to: usize, origin: usize },
    /// A replica joins another's state.
    Join { to: usize, from: usize },
    /// The state of a replica is kept for later.
    Keep { at: usize },
}

pub(crate) fn steps(len: usize) -> impl Strategy<Value = Vec<Step>> {
    let make = (0..4usize, 0..10u8, 0..6usize, 0..6usize, 0..40u64);
    let step = prop_oneof![
        6 => make.prop_map(|(at, kind, a, b, wall)| Step::Make { at, kind, a, b, wall }),
        6 => (0..4usize, 0..4usize).prop_map(|(to, origin)| Step::Deliver { to, origin }),
        1 => (0..4usize, 0..4usize).prop_map(|(to, from)| Step::Join { to, from }),
        1 => (0..4usize).prop_map(|at| Step::Keep { at }),
    ];
    proptest::collection::vec(step, 1..len)
}

/// An operation, and the numbers of those its maker had applied.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    origin: usize,
    dot: Dot,
    stamp: Stamp,
    deps: VersionVector,
    op: Op,
    past: BTreeSet<usize>,
}

/// A state, and the operations in it by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    pub(crate) directory: Directory,
    pub(crate) vector: VersionVector,
    pub(crate) applied: BTreeSet<usize>,
    clock: u64,
    /// What the owner of the directory would have on disk.
    store: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(crate) struct World {
    pub(crate) made: Vec<Made>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) kept: Vec<Replica>,
}

impl World {
    pub(crate) fn new(replicas: usize) -> World {
        World {
            made: Vec::new(),
            replicas: vec![Replica::default(); replicas],
            kept: Vec::new(),
        }
    }

    /// Runs a history; every replica that was touched is compared with the oracle.
    pub(crate) fn run(&mut self, steps: &[Step]) {
        let count = self.replicas.len();
        for step in steps {
            let touched = match *step {
                Step::Make {
                    at,
                    kind,
                    a,
                    b,
                    wall,
                } => {
                    self.make(at % count, kind, a, b, wall);
                    at % count
                }
                Step::Deliver { to, origin } => {
                    self.deliver(to % count, origin % count);
                    to % count
                }
                Step::Join { to, from } => {
                    let other = self.replicas[from % count].clone();
                    join(&mut self.replicas[to % count], &other);
                    self.save_all(to % count);
                    to % count
                }
                Step::Keep { at } => {
                    self.kept.push(self.replicas[at % count].clone());
                    at % count
                }
            };
            self.check(touched);
        }
    }

    /// No two accounts were ever given one address and one UIDVALIDITY, wherever and however they were.
    pub(crate) fn validities_differ(&self) {
        let mut given: BTreeMap<(String, u32), AccountKey> = BTreeMap::new();
        let mut addresses: BTreeMap<AccountKey, String> = BTreeMap::new();
        for made in &self.made {
            let (account, uid_validity) = match &made.op {
                Op::AddAccount {
                    account,
                    address,
                    uid_validity,
                    ..
                } => {
                    addresses.insert(*account, address.clone());
                    (*account, *uid_validity)
                }
                Op::RaiseUidValidity {
                    account,
                    uid_validity,
                } => (*account, *uid_validity),
                _ => continue,
            };
            let place = (addresses[&account].clone(), uid_validity);
            let before = given.insert(place.clone(), account);
            assert!(
                before.is_none_or(|before| before == account),
                "{place:?} is two accounts'"
            );
        }
    }

    /// Until everyone has everything.
    pub(crate) fn settle(&mut self) {
        for to in 0..self.replicas.len() {
            while (0..self.replicas.len()).any(|origin| self.deliver(to, origin)) {}
            assert_eq!(self.replicas[to].applied.len(), self.made.len());
            self.check(to);
        }
    }

    fn make(&mut self, at: usize, kind: u8, a: usize, b: usize, wall: u64) {
        let number = self.made.len();
        let replica = &mut self.replicas[at];
        let slot = u8::try_from(at).expect("four replicas at most");
        let Some(op) = op(&replica.directory, slot, number, kind, a, b, wall) else {
            return;
        };
        replica.clock = (replica.clock + 1).max(wall);
        let origin = Incarnation::from_hash(at as u64 + 1);
        let made = Made {
            origin: at,
            dot: Dot::new(origin, replica.vector.get(origin) + 1),
            stamp: Stamp {
                hlc: replica.clock,
                origin,
            },
            deps: replica.vector.clone(),
            op,
            past: replica.applied.clone(),
        };
        self.made.push(made);
        self.apply(at, number);
    }

    /// Whether there was one that could be.
    fn deliver(&mut self, to: usize, origin: usize) -> bool {
        let next = self.made.iter().enumerate().find(|(number, made)| {
            made.origin == origin && !self.replicas[to].applied.contains(number)
        });
        let Some((number, made)) = next else {
            return false;
        };
        if !made.past.is_subset(&self.replicas[to].applied) {
            return false;
        }
        self.apply(to, number);
        true
    }

    fn apply(&mut self, at: usize, number: usize) {
        let rows = apply(&mut self.replicas[at], &self.made, number);
        let replica = &mut self.replicas[at];
        for row in rows {
            match replica.directory.row(&row) {
                Some(value) => replica.store.insert(row.key(), value),
                None => replica.store.remove(&row.key()),
            };
        }
    }

    fn save_all(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        let directory = &replica.directory;
        let rows = directory
            .domains()
            .map(|(domain, _)| Row::Domain(domain.clone()))
            .chain(directory.accounts().map(|(key, _, _)| Row::Account(key)))
            .chain(directory.removed().map(Row::Account))
            .chain(
                directory
                    .aliases()
                    .map(|(from, to, _)| Row::Alias(from.into(), to.into())),
            )
            .chain(ADDRESSES.map(|address| Row::Floor(address.into())))
            .chain([Row::Decoy]);
        replica.store = rows
            .filter_map(|row| Some((row.key(), directory.row(&row)?)))
            .collect();
    }

    fn check(&self, at: usize) {
        let replica = &self.replicas[at];
        assert_eq!(
            shown(&replica.directory),
            expected(&self.made, &replica.applied)
        );
        let mut loaded = Directory::default();
        for (key, value) in &replica.store {
            loaded.load(key, value).expect("its own row");
        }
        assert_eq!(loaded, replica.directory, "rows hold all of it");
    }

    /// Applies these operations to nothing, in an order that keeps causes before effects and is otherwise up to `choose`.
    pub(crate) fn replay(&self, numbers: &BTreeSet<usize>, mut choose: u64) -> Directory {
        let mut replica = Replica::default();
        while replica.applied.len() < numbers.len() {
            let ready: Vec<usize> = numbers
                .iter()
                .copied()
                .filter(|number| !replica.applied.contains(number))
                .filter(|&number| self.made[number].past.is_subset(&replica.applied))
                .collect();
            choose = choose
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = ready[(choose >> 33) as usize % ready.len()];
            apply(&mut replica, &self.made, number);
        }
        replica.directory
    }
}

fn apply(replica: &mut Replica, all: &[Made], number: usize) -> Vec<Row> {
    let made = &all[number];
    let context = Context {
        dot: made.dot,
        stamp: made.stamp,
        deps: &made.deps,
    };
    replica.clock = replica.clock.max(made.stamp.hlc);
    replica.vector.advance(made.dot.origin, made.dot.seq);
    replica.applied.insert(number);
    replica.directory.apply(&context, &made.op)
}

pub(crate) fn join(into: &mut Replica, other: &Replica) {
    into.directory
        .join(&into.vector, &other.directory, &other.vector);
    into.vector.merge(&other.vector);
    into.applied.extend(&other.applied);
    into.clock = into.clock.max(other.clock);
}

/// An operation that could be planned on what this replica sees.
fn op(
    directory: &Directory,
    slot: u8,
    number: usize,
    kind: u8,
    a: usize,
    b: usize,
    wall: u64,
) -> Option<Op> {
    let domain = DOMAINS[a % DOMAINS.len()];
    let from = ALIASES[a % ALIASES.len()];
    let to = ADDRESSES[b % ADDRESSES.len()];
    let living: Vec<_> = directory.accounts().collect();
    Some(match kind {
        0 => Op::AddDomain {
            domain: domain.into(),
        },
        1 => Op::RemoveDomain {
            domain: domain.into(),
            seen: directory
                .domains()
                .find(|(name, _)| *name == domain)?
                .1
                .as_slice()
                .to_vec(),
        },
        2 => {
            // Keys in no order, so that nothing can hang on it.
            let key = ((number as u128 + 1).wrapping_mul(0xC2B2_AE3D_27D4_EB4F)).to_le_bytes();
            let credential = format!("first {number}");
            // Few different seconds, so that two nodes often have the same.
            let planned = directory.plan_add_account(to, key, wall / 16, slot, credential);
            planned.ok()?.pop()?
        }
        3 => {
            let (account, entry, _) = living.get(a % living.len().max(1))?;
            Op::RemoveAccount {
                account: *account,
                seen: entry.exists.as_slice().to_vec(),
            }
        }
        4 => Op::SetCredential {
            account: living.get(a % living.len().max(1))?.0,
            credential: format!("new {number}").into(),
            keeps_sessions: None,
        },
        7 => Op::SetDecoy {
            secret: DecoySecret([number as u8; 32]),
        },
        9 => Op::SetQuota {
            account: living.get(a % living.len().max(1))?.0,
            quota: OwnQuota {
                bytes: (b > 0).then_some(b as u64),
                ..OwnQuota::default()
            },
        },
        8 => {
            let (account, entry, _) = living.get(a % living.len().max(1))?;
            let least = entry.uid_validity + b as u32;
            Op::RaiseUidValidity {
                account: *account,
                uid_validity: directory.next_uid_validity(&entry.address, slot, least),
            }
        }
        5 => Op::AddAlias {
            from: from.into(),
            to: to.into(),
        },
        _ => {
            let aliases: Vec<_> = directory.aliases().collect();
            let (from, to, dots) = aliases.get(a % aliases.len().max(1))?;
            Op::RemoveAlias {
                from: (*from).into(),
                to: (*to).into(),
                seen: dots.as_slice().to_vec(),
            }
        }
    })
}
