//! Random histories of a membership: nodes join, are evicted, close logs, and know of each other late.

use std::collections::BTreeMap;

use whimbrel_crdt::{Context, Dot, Incarnation, Stamp, VersionVector};
use whimbrel_replication::members::{MemberOp, Members};

use super::rng::Rng;

#[derive(Clone)]
struct Logged {
    dot: Dot,
    deps: VersionVector,
    op: MemberOp,
}

#[derive(Clone)]
struct Replica {
    id: Incarnation,
    members: Members,
    applied: VersionVector,
    logs: BTreeMap<Incarnation, Vec<Logged>>,
}

impl Replica {
    fn apply(&mut self, logged: &Logged) {
        let context = Context {
            dot: logged.dot,
            stamp: Stamp {
                hlc: 1,
                origin: logged.dot.origin,
            },
            deps: &logged.deps,
        };
        self.members.apply(&context, &logged.op);
        self.applied.advance(logged.dot.origin, logged.dot.seq);
        self.logs
            .entry(logged.dot.origin)
            .or_default()
            .push(logged.clone());
    }

    fn write(&mut self, op: MemberOp) {
        let dot = Dot::new(self.id, self.applied.get(self.id) + 1);
        let deps = self.applied.clone();
        self.apply(&Logged { dot, deps, op });
    }

    /// Takes up to `most` operations from another, in an order that respects what they depend on.
    fn pull(&mut self, other: &Self, most: u64) {
        for _ in 0..most {
            let mut all = other.logs.values().flatten();
            let next = all.find(|logged| {
                let origin = logged.dot.origin;
                let closed = self.members.closed(origin);
                logged.dot.seq == self.applied.get(origin) + 1
                    && self.applied.covers_all(&logged.deps)
                    && closed.is_none_or(|last| logged.dot.seq <= last)
                    // From itself nothing of an evicted one is taken.
                    && (origin != other.id || !self.members.is_evicted(origin))
            });
            let Some(next) = next.cloned() else { return };
            self.apply(&next);
        }
        self.members.close(&self.applied);
    }
}

fn node(id: u64) -> Incarnation {
    Incarnation::new(id).expect("not zero")
}

/// Nodes of which somebody knows that they belong: those that were sponsored by one whose log was closed before that are forgotten.
fn valid(replicas: &[Replica]) -> Vec<&Replica> {
    let closed = |id| replicas.iter().find_map(|r| r.members.closed(id));
    let mut valid: Vec<&Replica> = Vec::new();
    for replica in replicas {
        let join = replica
            .logs
            .values()
            .flatten()
            .find(|l| matches!(&l.op, MemberOp::Join { member, .. } if *member == replica.id));
        let orphan = join.is_some_and(|l| {
            !valid.iter().any(|v| v.id == l.dot.origin) && closed(l.dot.origin).is_none()
                || closed(l.dot.origin).is_some_and(|last| l.dot.seq > last)
        });
        if !orphan && closed(replica.id).is_none() {
            valid.push(replica);
        }
    }
    valid
}

/// Slots in use are different, and what members may give away is nobody else's.
fn check(replicas: &[Replica]) -> Result<(), String> {
    let mut taken: BTreeMap<u8, Incarnation> = BTreeMap::new();
    let valid = valid(replicas);
    for replica in &valid {
        let Some(member) = replica.members.get(replica.id) else {
            return Err("a node does not know itself".into());
        };
        if let Some(other) = taken.insert(member.slot, replica.id) {
            return Err(format!(
                "{other:?} and {:?} have slot {}",
                replica.id, member.slot
            ));
        }
    }
    let mut given = 0u64;
    for replica in valid.iter().filter(|r| !r.members.is_evicted(r.id)) {
        let free = replica.members.free(replica.id);
        if free & given != 0 {
            return Err(format!("two may give away {:b}", free & given));
        }
        given |= free;
        if let Some((slot, who)) = taken.iter().find(|(slot, _)| free >> **slot & 1 == 1) {
            return Err(format!("{:?} may give slot {slot} of {who:?}", replica.id));
        }
    }
    Ok(())
}

pub fn run(seed: u64) -> Result<(), String> {
    let mut rng = Rng(seed);
    let mut replicas = vec![Replica {
        id: node(1000 - rng.below(900)),
        members: Members::found(node(1), "founder"),
        applied: VersionVector::new(),
        logs: BTreeMap::new(),
    }];
    replicas[0].members = Members::found(replicas[0].id, "founder");
    for step in 0..400u64 {
        let at = rng.below(replicas.len() as u64) as usize;
        let id = replicas[at].id;
        match rng.below(12) {
            0 if replicas.len() < 24 => {
                let new = node(1 + rng.below(1 << 40));
                if let Some(op) = replicas[at].members.plan_join(id, new, "new") {
                    replicas[at].write(op);
                    let mut state = replicas[at].clone();
                    state.id = new;
                    replicas.push(state);
                }
            }
            1 if rng.one_in(3) => {
                let known: Vec<Incarnation> = replicas[at].members.open().into_iter().collect();
                let member = known[rng.below(known.len() as u64) as usize];
                if member != id && !replicas[at].members.is_evicted(id) {
                    replicas[at].write(MemberOp::Evict { member });
                }
            }
            2 | 3 => {
                let replica = &mut replicas[at];
                for op in replica.members.plan_close(id, &replica.applied.clone()) {
                    replica.write(op);
                }
                let applied = replica.applied.clone();
                replica.members.close(&applied);
            }
            _ => {
                let other = rng.below(replicas.len() as u64) as usize;
                if other != at {
                    let from = replicas[other].clone();
                    replicas[at].pull(&from, 1 + rng.below(20));
                }
            }
        }
        check(&replicas)
            .map_err(|error| format!("membership seed {seed}, step {step}: {error}"))?;
    }
    laws(&replicas).map_err(|error| format!("membership seed {seed}: {error}"))
}

/// Joining two states is applying what is missing.
fn laws(replicas: &[Replica]) -> Result<(), String> {
    for a in replicas {
        for b in replicas {
            let mut joined = a.members.clone();
            joined.join(&b.members);
            let mut applied = a.clone();
            let count = b.logs.values().map(Vec::len).sum::<usize>() as u64;
            applied.pull(b, count + 1);
            if !applied.applied.covers_all(&b.applied) {
                // One of them is out, and its operations are not taken.
                continue;
            }
            applied.members.join(&b.members);
            joined.close(&applied.applied);
            applied.members.close(&applied.applied);
            if joined != applied.members {
                return Err(format!("joined {joined:?}, applied {:?}", applied.members));
            }
        }
    }
    Ok(())
}
