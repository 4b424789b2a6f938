//! Random histories on a simulated network and disk.

use crate::world;

#[test]
fn seeds() {
    let first = std::env::var("WHIMBREL_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let count = std::env::var("WHIMBREL_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok());
    let first: u64 = first.unwrap_or(1);
    let failed: Vec<String> = (first..first + count.unwrap_or(200))
        .filter_map(|seed| world::run(seed).err())
        .collect();
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed[..failed.len().min(10)].join("\n")
    );
}

#[test]
fn scenarios() {
    for (name, scenario) in world::named() {
        assert_eq!(scenario(), Ok(()), "{name}");
    }
}

#[test]
fn memberships() {
    let failed: Vec<String> = (1..=400)
        .filter_map(|seed| world::membership::run(seed).err())
        .collect();
    assert_eq!(failed, Vec::<String>::new());
}

#[test]
fn states_are_taken() {
    assert_eq!(world::transfer::states_are_taken(), Ok(()));
}

#[test]
fn readers() {
    let failed: Vec<String> = (1..=300)
        .filter_map(|seed| world::readers::run(seed).err())
        .collect();
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed[..failed.len().min(10)].join("\n")
    );
}
