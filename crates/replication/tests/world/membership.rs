//! Random histories of a membership: nodes join, are removed, report what they hold, and hear of each other late.

use std::collections::BTreeMap;

use whimbrel_crdt::{Dot, Incarnation, PartitionId};
use whimbrel_replication::roster::{Holding, Holdings, MergeOutcome, Roster, RosterError};

use whimbrel_testkit::Rng;

use super::scenarios::{Scenario, ensure};

pub const SCENARIOS: &[(&str, Scenario)] = &[
    (
        "who was let in later has more than those who are left",
        who_was_let_in_later_is_asked,
    ),
    (
        "what those who are lost would have given by a state",
        a_state_is_waited_for_while_somebody_is_left,
    ),
    (
        "something of a closed log comes while others are removed",
        nothing_is_said_while_something_comes,
    ),
];

/// Of each node's log, in each of some partitions, how much is here.
type Logs = BTreeMap<(Incarnation, u16), Holding>;

/// What was applied where an operation was made: the last numbers, in its partition.
type Deps = BTreeMap<(Incarnation, u16, u64), BTreeMap<Incarnation, u64>>;

#[derive(Clone)]
struct Replica {
    id: Incarnation,
    roster: Roster,
    logs: Logs,
}

const PARTITIONS: u64 = 2;

impl Replica {
    fn is_out(&self, id: Incarnation) -> bool {
        self.roster.members().is_out(id)
    }

    fn write(&mut self, partition: u16, deps: &mut Deps) {
        let others = (self.logs.iter()).filter(|((of, p), _)| *p == partition && *of != self.id);
        let applied = others.map(|((of, _), log)| (*of, log.applied)).collect();
        let log = self.logs.entry((self.id, partition)).or_default();
        deps.insert((self.id, partition, log.taken + 1), applied);
        *log = Holding {
            taken: log.taken + 1,
            stored: log.taken + 1,
            applied: log.taken + 1,
            ..Holding::default()
        };
    }

    /// A link for a moment: members first, then a few batches of some logs, which may stay under way; without `rng` all of all.
    fn link(&mut self, other: &Self, mut rng: Option<&mut Rng>) {
        match self.roster.hear(other.id, &other.roster) {
            Ok(MergeOutcome::Taken { .. }) => {}
            Ok(_) => return,
            Err(error) => unreachable!("{error}"),
        }
        if self.is_out(self.id) || self.is_out(other.id) {
            return;
        }
        for (of, theirs) in &other.logs {
            let most = match &mut rng {
                // Now and then nothing of this log.
                Some(rng) => rng.below(8).saturating_sub(4),
                None => u64::MAX,
            };
            if of.0 != self.id {
                let ours = self.logs.entry(*of).or_default();
                let last = theirs.stored.min(ours.taken.saturating_add(most));
                ours.taken = ours.taken.max(last);
            }
        }
    }

    /// The disk has what was accepted, or a crash has lost it.
    fn sync(&mut self, crash: bool, deps: &Deps) {
        for log in self.logs.values_mut() {
            if crash {
                log.taken = log.stored;
            }
            log.stored = log.taken;
        }
        // Until nothing more can be applied.
        while self.apply(deps) {}
    }

    fn apply(&mut self, deps: &Deps) -> bool {
        let before = self.logs.clone();
        for ((of, partition), log) in &mut self.logs {
            log.lacks = None;
            while log.applied < log.stored && log.lacks.is_none() {
                let rests_on = &deps[&(*of, *partition, log.applied + 1)];
                let applied = |of| before.get(&(of, *partition)).map_or(0, |log| log.applied);
                let lacks = rests_on
                    .iter()
                    .find(|(of, number)| applied(**of) < **number);
                log.lacks = lacks.map(|(of, number)| Dot::new(*of, *number));
                log.applied += u64::from(log.lacks.is_none());
            }
        }
        self.logs != before
    }

    fn holdings(&self) -> Holdings {
        let members = self.roster.members().iter();
        let of = |id| {
            let logs = self.logs.iter().filter(move |((of, _), _)| *of == id);
            logs.map(|((_, partition), log)| (PartitionId(*partition), *log))
        };
        members.map(|(id, _)| (id, of(id).collect())).collect()
    }
}

/// A node let in by one that knew of a removal need not report what it holds: it gets that from a node that reports. Unless that one is removed in
/// its turn.
fn who_was_let_in_later_is_asked() -> Result<(), String> {
    let [first, sponsor, removed, new] = [1, 2, 3, 4].map(node);
    let mut roster = Roster::found(first, "a", 0, !1);
    for (id, name) in [(sponsor, "b"), (removed, "c")] {
        let _ = roster.sponsor(first, id, name).map_err(known)?;
    }
    let _ = roster.remove(sponsor, removed, 7).map_err(known)?;
    let _ = roster.sponsor(sponsor, new, "d").map_err(known)?;
    let _ = roster.remove(first, sponsor, 8).map_err(known)?;
    let holdings = |of_removed: u64| -> Holdings {
        let logs = [(removed, of_removed), (sponsor, 2)];
        logs.map(|(id, number)| (id, log(number, number))).into()
    };
    // The newcomer has got one more from its sponsor.
    let _ = roster.settle(new, &holdings(6)).map_err(known)?;
    let _ = roster.settle(first, &holdings(5)).map_err(known)?;
    ensure(roster.members().closing().len() == 2, "more is there")?;
    let _ = roster.settle(first, &holdings(6)).map_err(known)?;
    let closed = roster.members().get(removed).and_then(|m| m.closed());
    ensure(closed.map(|end| end.sum()) == Some(6), "it is the end")
}

fn known(error: RosterError) -> String {
    error.to_string()
}

/// Three members, of whom the second and the third were removed by the first.
fn two_removed() -> Result<Roster, String> {
    let mut roster = Roster::found(node(1), "a", 0, !1);
    for (id, name) in [(2, "b"), (3, "c"), (4, "d")] {
        let _ = roster.sponsor(node(1), node(id), name).map_err(known)?;
    }
    for id in [2, 3] {
        let _ = roster.remove(node(1), node(id), 7).map_err(known)?;
    }
    Ok(roster)
}

fn log(stored: u64, applied: u64) -> BTreeMap<PartitionId, Holding> {
    let holding = Holding {
        taken: stored,
        stored,
        applied,
        ..Holding::default()
    };
    [(PartitionId(0), holding)].into()
}

/// A new node has a part of the logs of two others, which depends on what these would have sent in a snapshot. Both are lost. The missing part is
/// waited for as long as a node is left that may have it.
fn a_state_is_waited_for_while_somebody_is_left() -> Result<(), String> {
    for other_is_syncing in [false, true] {
        let mut roster = two_removed()?;
        let syncing = |applied| {
            let mut logs = log(7, applied);
            for log in logs.values_mut() {
                (log.lacks, log.syncing) = (Some(Dot::new(node(3), 4)), true);
            }
            Holdings::from([(node(2), logs), (node(3), log(0, 0))])
        };
        let other = match other_is_syncing {
            true => syncing(5),
            false => Holdings::from([(node(2), log(7, 7)), (node(3), log(0, 0))]),
        };
        for _ in 0..2 {
            let _ = roster.settle(node(1), &syncing(5)).map_err(known)?;
            let _ = roster.settle(node(4), &other).map_err(known)?;
        }
        let closed = roster.members().closing().is_empty();
        ensure(closed == other_is_syncing, "nobody has it, or somebody has")?;
    }
    Ok(())
}

/// A batch of a closed log that is on its way may bring more of a log that is being closed than others hold.
fn nothing_is_said_while_something_comes() -> Result<(), String> {
    let mut roster = two_removed()?;
    let mut of = log(2, 2);
    for log in of.values_mut() {
        log.taken = 3;
    }
    let closed = node(9);
    let holdings: Holdings = [(node(2), log(5, 5)), (node(3), log(1, 1)), (closed, of)].into();
    let said = roster.settle(node(1), &holdings).map_err(known)?;
    ensure(!said, "nothing is said before it is on disk")
}

fn node(id: u64) -> Incarnation {
    Incarnation::new(id).expect("not zero")
}

/// Whether somebody may take it for none of the cluster.
fn may_be_out(replicas: &[Replica], id: Incarnation) -> bool {
    let removed = |id: Incarnation| {
        let mut known = replicas
            .iter()
            .filter_map(|replica| replica.roster.members().get(id));
        known.any(|member| member.removals().next().is_some())
    };
    let above = |id: &Incarnation| {
        let mut known = replicas
            .iter()
            .filter_map(|replica| replica.roster.members().get(*id));
        Some(known.next()?.sponsor()?.origin)
    };
    std::iter::successors(Some(id), above).any(removed)
}

/// Those that belong to it, by all that anybody knows.
fn valid(replicas: &[Replica]) -> Vec<&Replica> {
    let mut all = replicas[0].roster.clone();
    for replica in replicas {
        all.join(&replica.roster).expect("it is short");
    }
    let out = |id| all.members().is_out(id);
    replicas.iter().filter(|r| !out(r.id)).collect()
}

/// Slots in use are different, what members may give away is nobody else's, and a closed log is the same everywhere.
fn check(replicas: &[Replica]) -> Result<(), String> {
    let mut taken: BTreeMap<u8, Incarnation> = BTreeMap::new();
    let valid = valid(replicas);
    for replica in &valid {
        let Some(member) = replica.roster.members().get(replica.id) else {
            return Err("a node does not know itself".into());
        };
        if let Some(other) = taken.insert(member.slot, replica.id) {
            let slot = member.slot;
            return Err(format!("{other:?} and {:?} have slot {slot}", replica.id));
        }
    }
    let mut given = 0u64;
    for replica in &valid {
        let free = replica.roster.members().free(replica.id);
        if free & given != 0 {
            return Err(format!("two may give away {:b}", free & given));
        }
        given |= free;
        if let Some((slot, who)) = taken.iter().find(|(slot, _)| free >> **slot & 1 == 1) {
            return Err(format!("{:?} may give slot {slot} of {who:?}", replica.id));
        }
    }
    let mut ends: BTreeMap<Incarnation, _> = BTreeMap::new();
    for replica in &valid {
        for (id, member) in replica.roster.members().iter() {
            let Some(closed) = member.closed() else {
                continue;
            };
            if *ends.entry(id).or_insert(closed) != closed {
                return Err(format!("the logs of {id:?} have two ends"));
            }
        }
    }
    // An end that is counted is final: no node has more.
    for (id, closed) in ends {
        for replica in &valid {
            let of = replica.logs.iter().filter(|((of, _), _)| *of == id);
            let held: u64 = of.map(|(_, log)| log.applied).sum();
            let all = held + replica.roster.members().sponsored(id);
            if all > closed.sum() {
                return Err(format!(
                    "{:?} has applied more of {id:?} than its end",
                    replica.id
                ));
            }
        }
    }
    Ok(())
}

pub fn run(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let founder = node(1000 - rng.below(900));
    let mut replicas = vec![Replica {
        id: founder,
        roster: Roster::found(founder, "founder", 0, !1),
        logs: Logs::new(),
    }];
    let mut deps = Deps::new();
    for step in 0..400u64 {
        let at = rng.below(replicas.len() as u64) as usize;
        let id = replicas[at].id;
        match rng.below(14) {
            0 if replicas.len() < 24 => {
                let new = node(1 + rng.below(1 << 40));
                if replicas[at].roster.sponsor(id, new, "new") == Ok(true) {
                    let (roster, logs) = (replicas[at].roster.clone(), Logs::new());
                    let id = new;
                    replicas.push(Replica { id, roster, logs });
                }
            }
            1 if rng.one_in(3) => {
                let known: Vec<Incarnation> = replicas[at].roster.slots().into_keys().collect();
                let member = known[rng.below(known.len() as u64) as usize];
                // Two sides that remove each other are two clusters from then on: who was removed anywhere removes nobody, nor who came by one that was, of
                // whom others may never hear.
                if member != id && !may_be_out(&replicas, id) {
                    let removed = replicas[at].roster.remove(id, member, step);
                    let _ = removed.map_err(|error| error.to_string())?;
                }
            }
            2 | 13 => {
                let holdings = replicas[at].holdings();
                let settled = replicas[at].roster.settle(id, &holdings);
                let _ = settled.map_err(|error| error.to_string())?;
            }
            3 => {
                // To those of whom it has heard, whether they hear of it or not.
                let others = replicas.iter().map(|replica| replica.id).collect();
                let given = replicas[at].roster.share_out(id, &others);
                let _ = given.map_err(|error| error.to_string())?;
            }
            4 => replicas[at].write(rng.below(PARTITIONS) as u16, &mut deps),
            5 | 6 => {
                let crash = rng.one_in(4);
                replicas[at].sync(crash, &deps);
            }
            _ => {
                let other = rng.below(replicas.len() as u64) as usize;
                if other != at {
                    let from = replicas[other].clone();
                    replicas[at].link(&from, Some(&mut rng));
                }
            }
        }
        check(&replicas)
            .map_err(|error| format!("membership seed {seed}, step {step}: {error}"))?;
    }
    if rng.one_in(4) {
        lose_most(&mut replicas, &mut rng);
    }
    settles(replicas, &deps).map_err(|error| format!("membership seed {seed}: {error}"))
}

/// One or two of those who came last are left, know of each other, and remove all others, which are gone with all that they alone had: of closed logs, too.
fn lose_most(replicas: &mut Vec<Replica>, rng: &mut Rng) {
    let sound = valid(replicas).into_iter().map(|replica| replica.id);
    let sound: Vec<Incarnation> = sound.filter(|id| !may_be_out(replicas, *id)).collect();
    let stays = sound.len().min(rng.between(1, 2) as usize);
    let last = &sound[sound.len() - stays..];
    let Some(me) = last.first() else {
        return;
    };
    replicas.retain(|replica| last.contains(&replica.id));
    let mut roster = replicas[0].roster.clone();
    for replica in replicas.iter() {
        roster.join(&replica.roster).expect("it is short");
    }
    for member in roster.slots().into_keys() {
        if !last.contains(&member) {
            let _ = roster.remove(*me, member, 400);
        }
    }
    for replica in replicas {
        replica.roster = roster.clone();
    }
}

/// When all that are members meet often enough, all logs of others are closed, and all know the same.
fn settles(mut replicas: Vec<Replica>, deps: &Deps) -> Result<(), String> {
    for _ in 0..16 {
        for at in 0..replicas.len() {
            for other in 0..replicas.len() {
                if other != at {
                    let from = replicas[other].clone();
                    replicas[at].link(&from, None);
                }
            }
            replicas[at].sync(false, deps);
            let (id, holdings) = (replicas[at].id, replicas[at].holdings());
            let settled = replicas[at].roster.settle(id, &holdings);
            let _ = settled.map_err(|error| error.to_string())?;
        }
    }
    let valid = valid(&replicas);
    for replica in &valid {
        let open = replica.roster.members().closing();
        if !open.is_empty() {
            return Err(format!("{:?} does not close {open:?}", replica.id));
        }
        if replica.roster != valid[0].roster {
            return Err(format!("{:?} and {:?} differ", replica.id, valid[0].id));
        }
        // Nobody has what removed nodes took with them.
        let whole = |of: &Replica| of.roster.complete(&of.holdings());
        if whole(replica) != whole(valid[0]) {
            return Err(format!("{:?} lacks what {:?} has", replica.id, valid[0].id));
        }
    }
    Ok(())
}
