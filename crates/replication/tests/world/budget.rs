//! Histories of a budget over windows.

use std::collections::BTreeMap;

use whimbrel_replication::budget::{Budget, Config};

use super::scenarios::{Scenario, ensure};
use whimbrel_testkit::Rng;

pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("a budget and its windows", random),
    ("one that is busy among many", one_busy),
    ("windows that were busy", were_busy),
];

const CONFIG: Config = Config {
    total_bytes_max: 10_000,
    window_bytes_min: 100,
    window_bytes_max: 3000,
};

/// Opens, closes, uses: never more than the budget, never less than the least.
fn random() -> Result<(), String> {
    for seed in 1..=50 {
        let mut rng = Rng::new(seed);
        let mut budget = Budget::new(CONFIG);
        let mut told: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..400 {
            let key = rng.below(120);
            let changes = match rng.below(4) {
                0 if !told.contains_key(&key) => budget.open([key]),
                1 if rng.one_in(3) => {
                    told.remove(&key);
                    budget.retain(|other| *other != key);
                    Vec::new()
                }
                2 => {
                    for (key, bytes) in &told {
                        budget.used(*key, rng.below(bytes + 1));
                    }
                    Vec::new()
                }
                _ => budget.divide(),
            };
            told.extend(changes);
            ensure(
                !budget.is_idle() || told.values().all(|bytes| *bytes == 100),
                "an idle one keeps nothing back",
            )?;
            let total: u64 = told.values().sum();
            let most = CONFIG.total_bytes_max.max(told.len() as u64 * 100);
            ensure(total <= most, &format!("{total} bytes, seed {seed}"))?;
            let bounds = 100..=3000;
            let outside = told.values().find(|bytes| !bounds.contains(*bytes));
            ensure(outside.is_none(), &format!("a window of {outside:?}"))?;
        }
    }
    Ok(())
}

fn one_busy() -> Result<(), String> {
    let mut budget = Budget::new(CONFIG);
    let mut bytes = 0;
    budget.open(0..50);
    for _ in 0..10 {
        budget.used(7, bytes);
        for (key, now) in budget.divide() {
            ensure(key == 7, "the others stay as they are")?;
            bytes = now;
        }
        bytes = bytes.max(100);
    }
    ensure(bytes == 3000, "it gets all that it can use")
}

fn were_busy() -> Result<(), String> {
    let mut budget = Budget::new(CONFIG);
    let mut windows = BTreeMap::new();
    let mut round = |budget: &mut Budget<u64>, busy: std::ops::Range<u64>| {
        for key in busy {
            budget.used(key, windows.get(&key).copied().unwrap_or(100));
        }
        windows.extend(budget.divide());
        windows.clone()
    };
    budget.open(0..20);
    let mut now = BTreeMap::new();
    for _ in 0..10 {
        now = round(&mut budget, 0..10);
    }
    ensure(now[&0] >= 600, "ten share it")?;
    for _ in 0..10 {
        now = round(&mut budget, 10..20);
    }
    ensure(now[&0] == 100, "who is idle gives it back")?;
    ensure(now[&10] >= 600, "to the others")
}
