//! A bounded number of seeds with every run of the tests; `cargo xtask sim` runs more.

use whimbrel_sim::{
    cluster,
    world::{self, Plan},
};

#[test]
fn seeds_hold() {
    for seed in 1..=150 {
        if let Err(breach) = world::run(&Plan::new(seed), false) {
            panic!(
                "seed {seed}: {}\nreplay with: cargo xtask sim --seed {seed}",
                breach.0
            );
        }
    }
}

#[test]
fn clusters_hold() {
    for seed in 1..=30 {
        let lost = cluster::lost::run(seed, false);
        if let Err(breach) = lost.and_then(|_| cluster::run(&cluster::Plan::new(seed), false)) {
            panic!(
                "seed {seed}: {}\nreplay with: cargo xtask sim --cluster-seed {seed}",
                breach.0
            );
        }
    }
}
