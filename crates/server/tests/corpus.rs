//! The seeds of the fuzzers, each an input that once reached something: none may break a law. `cargo xtask fuzz` looks for more.

use std::{fs, path::Path};

#[allow(unreachable_pub, clippy::unwrap_used, missing_docs)]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

fn check(name: &str) {
    let (_, run) = targets::TARGETS
        .iter()
        .find(|(target, _)| *target == name)
        .unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut tried = 0;
    for entry in fs::read_dir(corpus.join(name)).unwrap() {
        let path = entry.unwrap().path();
        // Shown when it fails.
        println!("{}", path.display());
        run(&fs::read(&path).unwrap());
        tried += 1;
    }
    assert!(tried > 0, "no seeds of {name}");
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn all_are_tried() {
            let names = [$(stringify!($name)),*];
            let listed: Vec<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.as_slice(), listed.as_slice());
        }
    };
}

targets! {
    control
    encodings
    imap_client
    imap_decoder
    imap_session
    mime
    pop3
    sasl
    smtp_session
    transfer
}
