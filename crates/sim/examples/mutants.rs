//! Breaks one rule after the other on purpose and sees whether the simulated clusters object.
//!
//! `cargo xtask sim --mutants [NAME...]`; `WHIMBREL_SEEDS` is how many clusters each may survive, and half as many in which a disk is lost.

#[cfg(feature = "mutants")]
#[path = "../../crdt/mutants/harness.rs"]
mod harness;

/// Every name is that of a switch in `service`, `mailbox`, `directory` or `replication`. Those of rules that show only where streams lose frames or logs are cut
/// are seen by `replication`'s own histories; so are
/// `announced-without-number`, `closed-log-goes-on`, `excepted-counts`, `removed-ones-heard`, `said-before-stored` and `slot-given-twice`, which clusters survive: members are removed one after the
/// other here, and slots that nobody ever had are given first. Of leaving, `answers-without-all` and `left-in-part` are seen by `service/tests/owner/leaving.rs` alone.
#[cfg(feature = "mutants")]
const MUTANTS: &[&str] = &[
    "abort-not-heard",
    "abort-not-logged",
    "accepted-before-enough",
    "all-was-shown",
    "announce-forgotten",
    "applied-early",
    "body-held-by-another",
    "body-not-awaited",
    "body-said-before-it-came",
    "claim-for-any-placement",
    "claim-last-wins",
    "confirmed-without-bodies",
    "counter-ignores-claims",
    "counter-not-told",
    "credential-by-arrival",
    "directory-replaced-by-state",
    "duplicate-taken",
    "expunge-forgets-a-dot",
    "expunge-removes-unseen",
    "expunge-spares-delivery",
    "finished-entry-stays",
    "foreign-not-applied",
    "handed-is-done",
    "heard-not-released",
    "heard-without-number",
    "joined-rows-not-written",
    "joined-without-position",
    "late-is-shown",
    "late-not-claimed",
    "latest-decoy",
    "left-before-told-is-stable",
    "left-unasked",
    "mark-goes-with-name",
    "move-last-arrival-wins",
    "nobody-comes-from-elsewhere",
    "nobody-waits",
    "nobody-waits-for-bodies",
    "provisional-delivered",
    "removed-comes-back",
    "resume-skips-unapplied",
    "takeover-claims-nothing",
    "uids-told-at-once",
    "unconfirmed-stays",
    "wait-without-blobs",
    "waits-alike",
    "young-answers",
    "young-without-bodies",
];

#[cfg(feature = "mutants")]
fn main() -> std::process::ExitCode {
    harness::run(MUTANTS, 1_000, object)
}

/// The first cluster that objects: regions that write to one account, then whatever comes.
#[cfg(feature = "mutants")]
fn object(seeds: u64) -> Option<String> {
    use whimbrel_sim::cluster::{self, Plan, claims};

    let short = |cause: &str| {
        let line = cause.lines().next().unwrap_or_default();
        line.chars().take(110).collect::<String>()
    };
    let fast = 120_000;
    let settings = [
        (5, false, fast),
        (1, false, fast),
        (5, true, fast),
        (5, false, 2_800_000),
    ];
    for (per_second, cut, latency_micros) in settings {
        let setting = claims::Setting {
            regions: 3,
            per_second,
            latency_micros,
            cut,
        };
        match std::panic::catch_unwind(|| claims::run(&setting, 1)) {
            Ok(Ok(outcome)) if outcome.again > 0 && !cut && latency_micros == fast => {
                let again = outcome.again;
                return Some(format!("in a whole network ({again} claims made again)"));
            }
            // Nobody is heard as soon as it is waited for at first.
            Ok(Ok(outcome)) if latency_micros > fast && outcome.claims_percent() > 250 => {
                let percent = outcome.claims_percent();
                return Some(format!("on slow links ({percent} claims of 100 messages)"));
            }
            // With little to do two ways and some syncs are enough; the patience is 720 ms, and some syncs are slow.
            Ok(Ok(outcome)) if per_second == 1 && outcome.answered_micros.1 > 900_000 => {
                let (_, most) = outcome.answered_micros;
                return Some(format!("in regions (APPEND answered after {most} us)"));
            }
            Ok(Ok(_)) => {}
            Ok(Err(breach)) => {
                return Some(format!("in regions ({})", short(&breach.0)));
            }
            Err(_) => return Some("in regions (panic)".into()),
        }
    }

    let lost = (1..=seeds / 2).find_map(|seed| {
        match std::panic::catch_unwind(|| cluster::lost::run(seed, false)) {
            Ok(Ok(_)) => None,
            Ok(Err(breach)) => Some(format!(
                "at seed {seed}, a disk lost ({})",
                short(&breach.0)
            )),
            Err(_) => Some(format!("at seed {seed}, a disk lost (panic)")),
        }
    });
    if lost.is_some() {
        return lost;
    }
    // A client of an earlier life, which few meet.
    [1403].into_iter().chain(1..=seeds).find_map(|seed| {
        match std::panic::catch_unwind(|| cluster::run(&Plan::new(seed), false)) {
            Ok(Ok(_)) => None,
            Ok(Err(breach)) => Some(format!("at seed {seed} ({})", short(&breach.0))),
            Err(_) => Some(format!("at seed {seed} (panic)")),
        }
    })
}
