//! UIDs are claimed again only where the network was not whole (docs/design.md#rule-5).

use whimbrel_sim::cluster::claims::{Outcome, Setting, Shape, run, table};

const PAGE: &str = include_str!("../../../docs/replication.md");

fn outcome(regions: u64, per_second: u64, broken: Shape) -> Outcome {
    outcome_at(120_000, regions, per_second, broken)
}

fn outcome_at(latency_micros: u64, regions: u64, per_second: u64, broken: Shape) -> Outcome {
    let setting = Setting {
        regions,
        per_second,
        latency_micros,
        broken,
    };
    run(&setting, 2).unwrap_or_else(|breach| panic!("{}", breach.0))
}

#[test]
fn in_a_whole_network_nothing_is_late() {
    for (regions, per_second) in [(2, 1), (2, 20), (3, 20)] {
        let outcome = outcome(regions, per_second, Shape::Whole);
        assert!(outcome.messages > 20 * regions * per_second);
        assert_eq!(outcome.again, 0, "{regions} regions, {per_second}/s");
    }
}

/// What was claimed apart is claimed again when the regions meet, and that ends.
#[test]
fn after_a_partition_claims_end() {
    for regions in [2, 3] {
        let outcome = outcome(regions, 10, Shape::Region);
        assert!(outcome.again > 0);
        assert!(outcome.claims_percent() < 200, "{outcome:?}");
    }
}

/// Both ends of the link reach a third region, which passes on.
#[test]
fn with_one_link_down_little_is_claimed_again() {
    for (regions, per_second) in [(3, 1), (3, 5), (3, 10), (4, 5)] {
        let outcome = outcome(regions, per_second, Shape::Link);
        assert!(outcome.claims_percent() <= 105, "{outcome:?}");
    }
}

/// Links on which nobody is heard as soon as it is waited for at first, and that are never silent for so long that they end. Whoever claims again
/// waits longer, and so does what is new above it: most is claimed once.
#[test]
fn on_slow_links_claims_end() {
    let mut said = String::new();
    for (regions, per_second) in [(2, 1), (2, 5), (3, 1), (3, 5)] {
        let outcome = outcome_at(2_800_000, regions, per_second, Shape::Whole);
        assert!(outcome.again > 0);
        assert!(outcome.claims_percent() < 200, "{outcome:?}");
        let Outcome {
            messages, again, ..
        } = outcome;
        match (regions, per_second) {
            (3, 1) => said = format!("make {again} claims again of {messages} messages"),
            (3, 5) => said.push_str(&format!(", with five {again} of {messages}")),
            _ => {}
        }
    }
    assert!(
        PAGE.contains(&said),
        "docs/replication.md does not say: {said}"
    );
}

/// What the page says is what comes out: `cargo run --release -p whimbrel-sim -- --claims` prints it.
#[test]
fn the_page_has_these_figures() {
    let table = table().unwrap_or_else(|breach| panic!("{}", breach.0));
    assert!(
        PAGE.contains(&table),
        "docs/replication.md has another table than\n{table}"
    );
}
