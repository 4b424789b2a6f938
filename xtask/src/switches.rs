//! Each rule that can be broken at run time (`crdt::mutants`) is broken by some test: a switch that no test turns proves nothing.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{cargo_toml, tidy};

/// How a rule asks whether it is broken, put together here so that this file is not its own finding.
const SWITCH: &str = concat!("broken", "(\"");

/// A line for each switch in the crates' sources that no test names.
pub(crate) fn check() -> Vec<String> {
    let crates = cargo_toml::root().join("crates");
    let (mut switches, mut named) = (BTreeSet::new(), BTreeSet::new());
    for path in tidy::files(&crates) {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        if is_test(path.strip_prefix(&crates).unwrap_or(&path)) {
            named.extend(literals(&text).map(str::to_owned));
        } else {
            switches.extend(asked(&text).map(str::to_owned));
        }
    }
    let unnamed = switches.difference(&named);
    unnamed
        .map(|name| format!("no test breaks the rule {name:?}"))
        .collect()
}

/// `CRATE/tests/...` and `CRATE/examples/...`.
fn is_test(path: &Path) -> bool {
    let mut parts = path.iter().skip(1);
    parts
        .next()
        .is_some_and(|part| part == "tests" || part == "examples")
}

/// The rules that a source asks for.
fn asked(text: &str) -> impl Iterator<Item = &str> {
    let mut parts = text.split(SWITCH);
    parts.next();
    let names = parts.filter_map(|part| part.split('"').next());
    // Other functions of that name are given sentences.
    names.filter(|name| !name.contains(' '))
}

/// All that stands between two quotation marks of one line. More than the literals, which does no harm.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_and_names_are_found() {
        let source = format!("if {SWITCH}one\") && !mutants::{SWITCH}two\") {{");
        assert_eq!(asked(&source).collect::<Vec<_>>(), ["one", "two"]);
        assert!(literals("(\"one\", &[\"U3\"]),").any(|name| name == "one"));
        assert!(is_test(Path::new("sim/tests/mutants.rs")));
        assert!(!is_test(Path::new("service/src/tests/a.rs")));
    }
}
