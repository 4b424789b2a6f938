//! Licences, bans and sources of everything that is linked, by the lists of `deny.toml`.
//!
//! `cargo deny check bans licenses sources` says the same and more, but it takes minutes to compile: this needs nothing installed, so the default
//! tests can run it everywhere.

use std::fs;

use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

use crate::{
    cargo_toml::{self, elements},
    step::Findings,
};

/// Where crates may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What of `deny.toml` is read.
#[derive(Debug, PartialEq, Eq)]
struct Lists {
    allowed: Vec<Licensee>,
    banned: Vec<String>,
}

/// Checks all that is linked.
pub(crate) fn check() -> Findings {
    checked().unwrap_or_else(|error| Findings {
        looked_at: 0,
        wrong: vec![error],
    })
}

fn checked() -> Result<Findings, String> {
    let text = fs::read_to_string(cargo_toml::root().join("deny.toml"))
        .map_err(|error| format!("deny.toml: {error}"))?;
    let lists = lists(&text)?;
    let metadata = cargo_toml::metadata(true)?;
    // Packages lists everything the lock file names; linked is what was resolved for this platform.
    let resolved: Vec<&Value> = elements(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| &node["id"])
        .collect();
    let packages: Vec<&Value> = elements(&metadata["packages"])
        .iter()
        .filter(|package| resolved.contains(&&package["id"]))
        .collect();
    Ok(judge(&lists, &packages))
}

fn judge(lists: &Lists, packages: &[&Value]) -> Findings {
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let license = package["license"].as_str().unwrap_or_default();
        if !allowed(license, &lists.allowed) {
            wrong.push(format!(
                "{name}: licence `{license}` is not allowed by deny.toml"
            ));
        }
        if lists.banned.iter().any(|banned| banned == name) {
            wrong.push(format!("{name}: banned by deny.toml"));
        }
        if let Some(source) = package["source"].as_str()
            && source != REGISTRY
        {
            wrong.push(format!("{name}: comes from {source}"));
        }
    }
    if lists.allowed.is_empty() {
        wrong.push("deny.toml allows no licence".to_owned());
    }
    Findings {
        looked_at: packages.len(),
        wrong,
    }
}

/// Reads the two lists.
fn lists(text: &str) -> Result<Lists, String> {
    let document: Value = toml::from_str(text).map_err(|error| format!("deny.toml: {error}"))?;
    let allowed = elements(&document["licenses"]["allow"]).iter();
    let banned = elements(&document["bans"]["deny"]).iter();
    Ok(Lists {
        allowed: allowed
            .map(|license| Licensee::parse(license.as_str().unwrap_or_default()))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("deny.toml: {error}"))?,
        banned: banned
            .map(|ban| ban["crate"].as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or("deny.toml: a ban without `crate`")?,
    })
}

/// Whether an SPDX expression can be met with licences of the list. As in the registry, `/` may stand for OR.
fn allowed(expression: &str, list: &[Licensee]) -> bool {
    Expression::parse_mode(expression, ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|needed| list.iter().any(|license| license.satisfies(needed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, expected: bool) {
        let list = [
            "MIT",
            "Apache-2.0",
            "Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ]
        .map(|name| Licensee::parse(name).expect("a licence"));
        assert_eq!(allowed(expression, &list), expected, "{expression}");
    }

    #[test]
    fn expressions() {
        check("MIT", true);
        check("GPL-3.0", false);
        check("GPL-3.0 OR MIT", true);
        check("GPL-3.0/MIT", true);
        check("GPL-3.0 AND MIT", false);
        check("(MIT OR GPL-3.0) AND Unicode-3.0", true);
        check("(MIT OR Apache-2.0) AND GPL-3.0", false);
        check("Apache-2.0 WITH LLVM-exception", true);
        check("GPL-2.0 WITH LLVM-exception", false);
        check("", false);
        check("Someone's own", false);
    }

    #[test]
    fn packages_are_judged() {
        let lists = lists(
            "[licenses]\nallow = [\n  \"MIT\", # yes\n]\n[bans]\ndeny = [\n  { crate = \"bad\", reason = \"x\" },\n]\n",
        )
        .expect("lists");
        assert_eq!(
            lists,
            Lists {
                allowed: vec![Licensee::parse("MIT").expect("a licence")],
                banned: vec!["bad".to_owned()]
            }
        );
        let package = |name: &str, license: &str, source: &str| serde_json::json!({ "name": name, "license": license, "source": source });
        let (good, banned) = (
            package("good", "MIT", REGISTRY),
            package("bad", "MIT", REGISTRY),
        );
        let (strict, stray) = (
            package("strict", "GPL-3.0", REGISTRY),
            package("stray", "MIT", "git+https://example.org/x"),
        );
        assert_eq!(
            judge(&lists, &[&good, &banned, &strict, &stray]).wrong,
            [
                "bad: banned by deny.toml",
                "strict: licence `GPL-3.0` is not allowed by deny.toml",
                "stray: comes from git+https://example.org/x"
            ]
        );
    }
}
