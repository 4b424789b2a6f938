//! The queue's benchmark, small: that it runs, that no message is lost, and what a message costs.

use whimbrel_bench::{
    progress::Progress,
    scenario::queue::{self, Contestant, Experiment, Network, Options},
};

fn options() -> Options {
    Options {
        nodes: vec![2, 3],
        producers: vec![4],
        copies: vec![0, 1, 2],
        networks: vec![Network::Local],
        round_trips: Vec::new(),
        virtual_nodes: Vec::new(),
        virtual_producers: 1,
        payload: 256,
        seconds: 1,
        runs: 1,
        contestants: vec![Contestant::Queue],
        etcd: None,
        nats: None,
        full: false,
        quick: false,
        seed: 1,
    }
}

fn run(options: Options) -> Vec<Experiment> {
    let directory = tempfile::tempdir().unwrap();
    let kept = std::cell::Cell::new(0);
    let keep = |report: &queue::QueueReport| {
        kept.set(report.experiments.len());
        Ok(())
    };
    let report = queue::run(options, directory.path(), &Progress::hidden(), &keep).unwrap();
    assert_eq!(kept.get(), report.experiments.len());
    report.experiments
}

#[test]
fn a_message_costs_as_many_writes_and_bodies_as_it_should() {
    let made = run(options());
    // Two nodes have no f of 2. Each has one producer in all, and four at each node.
    assert_eq!(made.len(), 2 * (2 + 3));
    for of in made {
        let copies = of.copies as f64;
        assert!(of.messages > 0 && of.accept_ms.is_some(), "{of:?}");
        // A message that is late is entrusted to one more, on a slow machine.
        if of.each["owners replaced"] == 0.0 && of.each["tombstones written"] == 0.0 {
            assert_eq!(of.each["writes before the answer"], 1.0 + copies, "{of:?}");
            assert_eq!(of.each["writes"], 2.0 + 2.0 * copies, "{of:?}");
            assert_eq!(of.each["bodies sent"], copies, "{of:?}");
        }
    }
}

#[test]
fn delays_are_those_of_the_cities_and_the_nearest_far_ones_are_chosen() {
    let options = Options {
        nodes: vec![3],
        copies: vec![1],
        networks: vec![Network::Cities],
        round_trips: vec![1, 100],
        ..options()
    };
    for of in run(options) {
        // From Amsterdam: New York is at 84 ms, San Francisco at 152.
        let least = if of.round_trip_min_ms == Some(100) {
            152.0
        } else {
            78.0
        };
        let (median, _) = of.accept_ms.unwrap();
        assert!(of.one_node || of.round_trip_min_ms == Some(1) || median >= 84.0);
        assert!(!of.one_node || median >= least, "{of:?}");
        assert!(of.wire_bytes.unwrap() >= 256.0, "{of:?}");
    }
}
