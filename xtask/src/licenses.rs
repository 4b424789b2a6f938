//! Licences, bans and sources of everything that is linked, by the lists of `deny.toml`.
//!
//! `cargo deny check bans licenses sources` says the same and more; this needs nothing installed, and so it can run everywhere CI does.

use std::fs;

use serde_json::Value;

use crate::{
    cargo_toml::{self, elements},
    step::Findings,
};

/// Where crates may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What of `deny.toml` is read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lists {
    allowed: Vec<String>,
    banned: Vec<String>,
}

/// Checks all that is linked.
pub(crate) fn check() -> Findings {
    let text = fs::read_to_string(cargo_toml::root().join("deny.toml")).unwrap_or_default();
    let metadata = match cargo_toml::metadata(true) {
        Ok(metadata) => metadata,
        Err(error) => {
            return Findings {
                looked_at: 0,
                wrong: vec![error],
            };
        }
    };
    // Packages lists everything the lock file names; linked is what was resolved for this platform.
    let resolved: Vec<&Value> = elements(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| &node["id"])
        .collect();
    let packages: Vec<&Value> = elements(&metadata["packages"])
        .iter()
        .filter(|package| resolved.contains(&&package["id"]))
        .collect();
    judge(&lists(&text), &packages)
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

/// Reads the two lists: the quoted words of `allow = [...]`, and those after `crate =`.
fn lists(text: &str) -> Lists {
    let mut lists = Lists::default();
    let mut within = false;
    for line in text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
    {
        within |= line.starts_with("allow = [");
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        if within {
            lists
                .allowed
                .extend(words.iter().map(|word| (*word).to_owned()));
        } else if line.contains("crate =") {
            lists
                .banned
                .extend(words.first().map(|word| (*word).to_owned()));
        }
        within &= !line.ends_with(']');
    }
    lists
}

/// Whether an SPDX expression can be met with licences of the list. `/` is the old way to write OR.
fn allowed(expression: &str, list: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_ascii_whitespace().collect();
    let mut at = 0;
    !words.is_empty() && either(&words, &mut at, list) && at == words.len()
}

fn either(words: &[&str], at: &mut usize, list: &[String]) -> bool {
    let mut met = both(words, at, list);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(words, at, list);
    }
    met
}

fn both(words: &[&str], at: &mut usize, list: &[String]) -> bool {
    let mut met = single(words, at, list);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= single(words, at, list);
    }
    met
}

fn single(words: &[&str], at: &mut usize, list: &[String]) -> bool {
    let Some(word) = words.get(*at) else {
        return false;
    };
    *at += 1;
    if *word == "(" {
        let met = either(words, at, list);
        *at += 1;
        return met;
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    list.contains(&name)
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
        .map(str::to_owned);
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
    }

    #[test]
    fn packages_are_judged() {
        let lists = lists(
            "allow = [\n  \"MIT\", # yes\n]\ndeny = [\n  { crate = \"bad\", reason = \"x\" },\n]\n",
        );
        assert_eq!(
            lists,
            Lists {
                allowed: vec!["MIT".to_owned()],
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
