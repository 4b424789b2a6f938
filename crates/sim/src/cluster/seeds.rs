//! What a seed is: a cluster that lives on, and one beside it that loses a disk ([`lost`]); and what each seed keeps, however its draws fall.
//!
//! A seed has at least three nodes, 300 commands of clients that were answered, and three kinds of faults that had an effect. Where the turns that
//! were drawn do not bring that, the seed goes on until it is so; if it never is, the seed fails.

use whimbrel_service::figures::Figures;

use super::{CALLS_MIN, FAULTS_MIN, Plan, SECOND, World, lost, run};
use crate::{
    node::Speed,
    world::{Breach, Report},
};

/// What a node counts.
type Figure = fn(&Figures) -> u64;

/// What a client asked was answered while it listened.
pub(super) const ANSWERED: &str = "cluster: answered";

/// Nodes that are there at the beginning.
const NODES: &str = "cluster: nodes";
const NODES_MIN: u64 = 3;

/// So many times the turns that were drawn are taken at most. One and a half times is usual.
const LONGER_MAX: u64 = 50;

/// Beyond the turns that were drawn the network is healed once in so many.
const HEALED_EVERY_TURNS: u64 = 50;

/// Each is noted only where it had an effect: a stream that is not there cannot be cut.
const FAULTS: [&str; 15] = [
    "cluster: a node is stopped",
    "cluster: burst",
    "cluster: clock far off",
    "cluster: clock jump",
    "cluster: crash",
    "cluster: cut",
    "cluster: disk hangs",
    "cluster: disk lost",
    "cluster: disk lost under load",
    "cluster: failed sync",
    "cluster: flap",
    "cluster: full disk",
    "cluster: older disk put back",
    "cluster: one way lost",
    "cluster: two disks lost at once",
];

/// Runs all of one seed.
///
/// # Errors
/// The first breach.
pub fn run_seed(seed: u64, trace: bool) -> Result<Report, Breach> {
    let lost = lost::run(seed, trace)?;
    let mut report = run(&Plan::new(seed), trace)?;
    report.steps += lost.steps;
    report.virtual_micros += lost.virtual_micros;
    // What else is drawn there is no fault of the cluster that lives on.
    let lost = lost.coverage.into_iter();
    let lost = lost.filter(|(what, _)| what.starts_with("lost: "));
    report.coverage.extend(lost);
    Ok(report)
}

/// Whether a seed has what each must have.
pub(super) fn is_kept(report: &Report) -> Result<(), String> {
    let count = |what: &str| report.coverage.get(what).copied().unwrap_or(0);
    let faults = FAULTS.iter().filter(|what| count(what) > 0).count() as u64;
    let all = [
        ("nodes", count(NODES), NODES_MIN),
        ("answered commands", count(ANSWERED), CALLS_MIN),
        ("kinds of faults", faults, FAULTS_MIN),
    ];
    match all.iter().find(|(_, count, least)| count < least) {
        Some((what, count, least)) => Err(format!("{count} {what}, not {least}")),
        None => Ok(()),
    }
}

impl World {
    pub(super) fn note_if(&mut self, is_so: bool, what: &'static str) {
        if is_so {
            self.note(what);
        }
    }

    /// What a seed has from its beginning.
    pub(super) fn note_what_holds(&mut self) {
        for index in 0..self.members.len() {
            self.note(NODES);
            let is_slow = self.members[index].node.speed != Speed::default();
            self.note_if(is_slow, "cluster: slow disk");
        }
        self.note_if(self.plan.skewed, "cluster: clocks skewed");
        let of_regions = self.plan.latency_micros.is_none();
        self.note_if(of_regions, "cluster: latencies of regions");
    }

    /// After so many turns: whether the seed has what it must have. If not, streams are there again from time to time: where clients hardly pause, cuts come
    /// faster than they end.
    pub(super) fn has_kept(&mut self, turns: u64) -> Result<bool, String> {
        match is_kept(&self.report) {
            Ok(()) => return Ok(true),
            Err(cause) if turns > LONGER_MAX * self.plan.calls => {
                return Err(format!("after {turns} turns the seed had {cause}"));
            }
            Err(_) => {}
        }
        if turns.is_multiple_of(HEALED_EVERY_TURNS) {
            self.network.heal(self.now);
            self.run_until(self.now + 3 * SECOND)?;
        }
        Ok(false)
    }

    /// What nodes have counted goes into the report.
    pub(super) fn sum_up(&mut self) {
        let steps = self.members.iter().map(|member| member.node.steps);
        self.report.steps = steps.sum();
        self.report.virtual_micros = self.now;
        let figures: [(&str, Figure); 7] = [
            ("cluster: accounts joined", |all| all.accounts_joined),
            ("cluster: claims made again", |all| all.uids_reassigned),
            ("cluster: claims made by takeovers", |all| all.takeover_uids),
            ("cluster: delivery made by another node", |all| {
                all.deliveries_forwarded
            }),
            ("cluster: states given", |all| all.snapshots_sent),
            ("cluster: states taken", |all| all.snapshots_received),
            ("cluster: takeovers", |all| all.takeovers),
        ];
        for (what, figure) in figures {
            let members = self.members.iter();
            let sum = members.map(|member| figure(&member.node.figures())).sum();
            self.report.coverage.insert(what, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nodes: u64, answered: u64, faults: &[&'static str], wrong: Option<&str>) {
        let mut report = Report::default();
        report.coverage.insert(NODES, nodes);
        report.coverage.insert(ANSWERED, answered);
        let faults = faults.iter().map(|what| (*what, 1));
        report.coverage.extend(faults);
        // Was never drawn.
        report.coverage.insert("cluster: full disk", 0);
        assert_eq!(is_kept(&report).err().as_deref(), wrong);
    }

    #[test]
    fn each_seed_has_enough() {
        let faults = ["cluster: crash", "cluster: cut", "cluster: flap"];
        check(3, 300, &faults, None);
        check(2, 300, &faults, Some("2 nodes, not 3"));
        check(3, 299, &faults, Some("299 answered commands, not 300"));
        check(3, 300, &faults[..2], Some("2 kinds of faults, not 3"));
        let others = ["cluster: cut", "cluster: cut, a group", "cluster: APPEND"];
        check(3, 300, &others, Some("1 kinds of faults, not 3"));
    }
}
