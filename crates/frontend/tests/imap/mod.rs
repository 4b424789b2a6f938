//! IMAP sessions against a fake store: scripts, and what scripts cannot say.
mod appenduid;
mod binary;
mod capability;
mod compress;
mod fake;
mod imports;
mod layer;
mod limits;
mod model;
mod named;
mod noise;
mod qresync;
mod quota;
mod real;
mod script;
mod slices;
mod streams;
mod unions;
mod validity;
mod world;

use std::path::Path;

use proptest::prelude::*;
use world::{Cut, World};

fn scripts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/imap/scripts");
    let mut scripts: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read_to_string(path).unwrap(),
            )
        })
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 10);
    scripts
}

#[test]
fn all_scripts_hold() {
    for (file, text) in scripts() {
        script::run(&file, &text, &Cut::AtOnce);
    }
}

#[test]
fn and_on_the_real_owner() {
    for (file, text) in scripts() {
        script::run_in(World::real(Cut::AtOnce), &file, &text, &Cut::AtOnce);
    }
}

#[test]
fn and_when_what_was_read_is_dropped() {
    for (file, text) in scripts() {
        for mut world in [World::new(Cut::AtOnce), World::real(Cut::AtOnce)] {
            world.sheds = true;
            script::run_in(world, &file, &text, &Cut::AtOnce);
        }
    }
}

#[test]
fn compressed_too() {
    for (file, text) in scripts() {
        for cut in [Cut::AtOnce, Cut::Sizes(vec![1, 5, 3])] {
            let mut world = World::new(cut.clone());
            world.compresses = true;
            script::run_in(world, &file, &text, &cut);
        }
    }
}

#[test]
fn byte_by_byte_too() {
    for (file, text) in scripts() {
        script::run(&file, &text, &Cut::Sizes(vec![1]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn and_however_the_bytes_are_cut(sizes in proptest::collection::vec(1usize..90, 1..9)) {
        for (file, text) in scripts() {
            script::run(&file, &text, &Cut::Sizes(sizes.clone()));
        }
    }
}
