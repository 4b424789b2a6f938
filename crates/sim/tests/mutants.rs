//! Breaks one rule after the other on purpose and sees whether the simulated clusters object, and by which checker.
//!
//! `cargo xtask mutants whimbrel-sim [NAME...]`: each must be found by one of the checkers that are named beside it, within [`SEEDS_MAX`] seeds
//! (`WHIMBREL_SEEDS`: another number). A seed is regions that write to one account (some of the first), a cluster that loses a disk, and the cluster
//! that lives on. Where a rule was found last is tried first, and what it takes is told; if it is not found there any more, all seeds are tried in
//! their order. `WHIMBREL_SEARCH=1` tries them all in any case: so the places are found.

#[path = "../../crdt/mutants/harness.rs"]
mod harness;

use std::panic::catch_unwind;

use whimbrel_crdt::mutants::{break_rule, broken};
use whimbrel_sim::cluster::{self, Plan, claims, claims::Shape};

use crate::cluster::{a_removed_account_does_not_come_back, queued, syncing};

/// So many seeds a rule that is broken may survive.
const SEEDS_MAX: u64 = 1_500;

/// Where a rule that is broken was found last.
#[derive(Clone, Copy)]
enum At {
    /// In this setting of regions.
    Regions(usize),
    /// Where a disk is lost.
    Lost(u64),
    /// In a cluster that lives on.
    Cluster(u64),
    /// In a test of this crate, which makes the situation.
    Test(fn()),
    /// It has to be searched.
    Anywhere,
}

use At::{Anywhere, Cluster, Lost, Regions, Test};

/// Names of switches in `service`, `mailbox`, `directory` or `replication`, what must object, as a part of its text, and where that was.
///
/// Rules that show only where streams lose frames are broken by `replication`'s own tests. So are `announced-without-number`, `closed-log-goes-on`,
/// `excepted-counts`, `removed-ones-heard`, `said-before-stored` and `slot-given-twice`: clusters survive them, since members are removed one after the
/// other here, and slots that nobody ever had are given first. Rules that need one situation are broken by `service/tests/mutants.rs`, and those of
/// leaving by `sim/tests/cluster/leaving.rs`.
const MUTANTS: &[(&str, &[&str], At)] = &[
    ("all-was-shown", &["overlooks"], Cluster(18)),
    ("announce-forgotten", &["U2", "overlooks"], Regions(2)),
    ("answered-before-sync", &["D1/D2"], Cluster(61)),
    ("applied-early", &["causal_delivery"], Regions(2)),
    ("bodies-are-not-given-later", &["claims:"], Regions(4)),
    ("body-held-by-another", &["D1"], Lost(2)),
    ("body-not-awaited", &["D1"], Lost(27)),
    ("body-said-before-it-came", &["D1/D2"], Lost(189)),
    ("claim-for-any-placement", &["U3"], Cluster(28)),
    ("claim-last-wins", &["U3"], Regions(2)),
    (
        "collects-unstable",
        &["U3", "D1", "causal_delivery", "stopped"],
        Cluster(53),
    ),
    ("confirmed-without-bodies", &["D1/D2"], Lost(27)),
    ("counter-ignores-claims", &["stopped"], Cluster(112)),
    ("counter-not-told", &["claims:", "told UID"], Regions(1)),
    ("credential-by-arrival", &["U3"], Cluster(58)),
    ("cut-at-own-pace", &["stability"], Lost(1)),
    ("directory-replaced-by-state", &["U3"], Cluster(22)),
    ("duplicate-taken", &["stopped", "axiom"], Regions(3)),
    (
        "expunge-forgets-a-dot",
        &["told to come back", "expunged"],
        Lost(2),
    ),
    ("expunge-removes-unseen", &["U3", "D1"], Cluster(89)),
    ("expunge-spares-delivery", &["expunged"], Cluster(23)),
    ("first-import-stays", &["U3"], Cluster(7)),
    ("first-spelling-stays", &["U3", "stored"], Cluster(2)),
    ("flags-keep-modseq", &["MODSEQ"], Lost(17)),
    ("foreign-not-applied", &["U3"], Regions(0)),
    (
        "forgets-before-a-sweep",
        &[],
        Test(queued::removed_mail_is_not_delivered_again_elsewhere),
    ),
    ("forwarded-is-done", &["D1/D2"], Cluster(36)),
    ("heard-not-released", &["answers:"], Regions(1)),
    ("heard-without-number", &["told UID", "claims:"], Regions(0)),
    ("joined-rows-not-written", &["U3"], Cluster(1)),
    (
        "joined-without-position",
        &["causal_delivery", "U3"],
        Lost(153),
    ),
    ("late-is-shown", &["U2"], Regions(2)),
    ("late-not-claimed", &["U3"], Regions(2)),
    ("latest-decoy", &["U3"], Cluster(2)),
    ("mark-goes-with-name", &["U2"], Cluster(43)),
    ("move-last-arrival-wins", &["U3"], Cluster(7)),
    ("nobody-comes-from-elsewhere", &["overlooks"], Cluster(18)),
    ("nobody-comes-back", &["is not back"], Cluster(15)),
    ("older-disks-go-on", &["of which peers have"], Cluster(2)),
    ("nobody-waits", &["told UID", "claims:"], Regions(0)),
    (
        "nobody-waits-for-bodies",
        &["told UID", "claims:"],
        Regions(0),
    ),
    ("nothing-is-cut", &["numbers of the log"], Cluster(5)),
    (
        "removed-comes-back",
        &[],
        Test(a_removed_account_does_not_come_back),
    ),
    ("removed-are-not-closed", &["does not close"], Cluster(1)),
    ("rest-is-lost", &["U3", "D1", "stored"], Lost(89)),
    (
        "resume-skips-unapplied",
        &["U3", "never answered", "causal_delivery"],
        Cluster(3),
    ),
    ("sends-beyond-the-window", &["memory"], Cluster(16)),
    ("takeover-claims-nothing", &["overlooks"], Cluster(18)),
    ("uids-told-at-once", &["told UID", "claims:"], Regions(0)),
    ("unconfirmed-stays", &["told to come back"], Lost(2)),
    ("vanishing-keeps-highest", &["MODSEQ"], Regions(3)),
    ("wait-without-blobs", &["D1/D2"], Lost(27)),
    ("waits-alike", &["claims:"], Regions(3)),
    (
        "syncing-answers",
        &["causal_delivery", "overlooks", "came for a lost disk"],
        Cluster(90),
    ),
    (
        "syncing-claims",
        &[],
        Test(syncing::a_node_with_an_older_disk_claims_nothing_until_it_has_what_removes_it),
    ),
    (
        "syncing-without-bodies",
        &["came for a lost disk"],
        Cluster(19),
    ),
];

/// Regions that write to one account: messages a second in each, what is broken, one way in microseconds.
const REGIONS: [(u64, Shape, u64); 5] = [
    (5, Shape::Whole, FAST),
    (1, Shape::Whole, FAST),
    (5, Shape::Region, FAST),
    (5, Shape::Whole, 2_800_000),
    (5, Shape::Link, FAST),
];
const FAST: u64 = 120_000;

#[test]
#[ignore = "long: cargo xtask mutants"]
fn broken_rules_are_noticed() {
    let names: Vec<&str> = MUTANTS.iter().map(|(name, ..)| *name).collect();
    assert!(harness::run(&names, SEEDS_MAX, object));
}

/// What objects first; without a name no rule is broken, and nothing must.
fn object(seeds: u64) -> Option<String> {
    let broken = MUTANTS.iter().find(|(name, ..)| broken(name));
    let (checkers, at) = broken.map_or((&[""][..], Anywhere), |(_, by, at)| (*by, *at));
    let search = matches!(at, Anywhere) || std::env::var_os("WHIMBREL_SEARCH").is_some();
    if let Test(test) = at {
        return catch_unwind(test).is_err().then(|| "by its test".into());
    }
    let first = (!search).then(|| try_at(at, checkers)).flatten();
    first.or_else(|| {
        let regions = (0..REGIONS.len()).map(Regions);
        let lost = (1..=seeds).map(Lost);
        let clusters = (1..=seeds).map(Cluster);
        // What takes least time first.
        let mut all = regions.chain(lost.take(500)).chain(clusters);
        all.find_map(|at| try_at(at, checkers))
    })
}

fn try_at(at: At, checkers: &[&str]) -> Option<String> {
    let objection = objection(at)?;
    let by = checkers
        .iter()
        .find(|checker| objection.contains(**checker))?;
    if let Some((name, ..)) = MUTANTS.iter().find(|(name, ..)| broken(name)) {
        // A place that has a fault of its own shows nothing.
        break_rule(None);
        let is_sound = self::objection(at).is_none();
        break_rule(Some(name));
        if !is_sound {
            return None;
        }
    }
    let (seed, place) = match at {
        Regions(index) => (1, format!("regions {index}")),
        Lost(seed) => (seed, "a disk lost".to_owned()),
        Cluster(seed) => (seed, "a cluster".to_owned()),
        Test(_) | Anywhere => return None,
    };
    let line = objection.lines().next().unwrap_or_default();
    let line: String = line.chars().take(110).collect();
    Some(format!("at seed {seed}, {place}, by '{by}' ({line})"))
}

/// What objects to a run at this place.
fn objection(at: At) -> Option<String> {
    match at {
        Regions(index) => regions(index),
        Lost(seed) => cause(catch_unwind(|| cluster::lost::run(seed, false))),
        Cluster(seed) => cause(catch_unwind(|| cluster::run(&Plan::new(seed), false))),
        Test(_) | Anywhere => None,
    }
}

/// What a run objected to. A panic is an objection like any other.
fn cause<T>(run: std::thread::Result<Result<T, whimbrel_sim::world::Breach>>) -> Option<String> {
    match run {
        Ok(Ok(_)) => None,
        Ok(Err(breach)) => Some(breach.0),
        Err(_) => Some("panic".into()),
    }
}

fn regions(index: usize) -> Option<String> {
    let (per_second, broken, latency_micros) = REGIONS[index];
    let setting = claims::Setting {
        regions: 3,
        per_second,
        latency_micros,
        broken,
    };
    let outcome = match catch_unwind(|| claims::run(&setting, 1)) {
        Ok(Ok(outcome)) => outcome,
        run => return cause(run),
    };
    let again = outcome.again;
    if again > 0 && broken == Shape::Whole && latency_micros == FAST {
        return Some(format!("claims: {again} made again in a whole network"));
    }
    if broken == Shape::Link && outcome.claims_percent() > 105 {
        return Some(format!("claims: {again} made again with one link down"));
    }
    // Nobody is heard as soon as it is waited for at first.
    let percent = outcome.claims_percent();
    if latency_micros > FAST && percent > 250 {
        return Some(format!("claims: {percent} of 100 messages on slow links"));
    }
    // With little to do two ways and some syncs are enough; the patience is 720 ms, and some syncs are slow.
    let (_, most) = outcome.answered_micros;
    (per_second == 1 && most > 900_000).then(|| format!("answers: APPEND after {most} us"))
}
