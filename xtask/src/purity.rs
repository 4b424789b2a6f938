//! No clock, randomness, socket, file, thread or hash order in the pure crates.
//!
//! Their machines must do the same on virtual time as on a real machine, and the same again from the same seed.

use std::{fs, path::Path};

use crate::{cargo_toml, imports, source, step::Findings, tidy};

/// Words of code, and why they may not stand there.
const FORBIDDEN: &[(&str, &str)] = &[
    ("SystemTime", "a clock"),
    ("Instant", "a clock"),
    ("UNIX_EPOCH", "a clock"),
    ("TcpStream", "a socket"),
    ("TcpListener", "a socket"),
    ("UdpSocket", "a socket"),
    ("UnixStream", "a socket"),
    ("ToSocketAddrs", "the resolver"),
    ("std::fs", "a file"),
    ("std::thread", "a thread"),
    ("std::process", "a process"),
    ("std::env", "the environment"),
    ("thread_local", "a thread"),
    ("tokio", "a runtime"),
    ("getrandom", "randomness"),
    ("rand", "randomness"),
    ("RandomState", "randomness"),
    ("DefaultHasher", "hash order"),
    ("println", "the terminal"),
    ("eprintln", "the terminal"),
];

/// What says of a hash map that its order is nobody's business; on the line of its type or the one above.
const NEVER_ITERATED: &str = "never iterated";

/// Checks the sources of the pure crates.
pub(crate) fn check() -> Findings {
    let members = match cargo_toml::members() {
        Ok(members) => members,
        Err(error) => {
            return Findings {
                looked_at: 0,
                wrong: vec![error],
            };
        }
    };
    let mut findings = Findings {
        looked_at: 0,
        wrong: Vec::new(),
    };
    for member in members
        .iter()
        .filter(|member| imports::PURE.contains(&member.name.as_str()))
    {
        for path in tidy::files(&member.directory.join("src")) {
            let tests_only = path.file_stem().is_some_and(|stem| stem == "tests")
                || path.components().any(|part| part.as_os_str() == "tests");
            if path.extension().is_some_and(|extension| extension == "rs") && !tests_only {
                findings.looked_at += 1;
                let text = fs::read_to_string(&path).unwrap_or_default();
                findings.wrong.extend(judge(&path, &text));
            }
        }
    }
    findings
}

fn judge(path: &Path, text: &str) -> Vec<String> {
    let shown = path
        .strip_prefix(cargo_toml::root())
        .unwrap_or(path)
        .display();
    let lines: Vec<&str> = text.lines().collect();
    let mut wrong = Vec::new();
    for (at, line) in source::product(text).lines().enumerate() {
        for (word, what) in FORBIDDEN {
            if has_word(line, word) {
                wrong.push(format!("{shown}:{}: {word} is {what}", at + 1));
            }
        }
        let excused = |at: usize| {
            lines.get(at).is_some_and(|line| {
                line.split_once("//")
                    .is_some_and(|(_, comment)| comment.to_lowercase().contains(NEVER_ITERATED))
            })
        };
        let hashed = ["HashMap<", "HashSet<"]
            .iter()
            .any(|word| line.contains(word));
        if hashed && !excused(at) && !at.checked_sub(1).is_some_and(excused) {
            wrong.push(format!(
                "{shown}:{}: a hash map without `// {NEVER_ITERATED}`",
                at + 1
            ));
        }
    }
    wrong
}

/// Whether the word stands in the line, not within a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        let after = line
            .get(at + word.len()..)
            .and_then(|after| after.chars().next());
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(judge(Path::new("a.rs"), text), expected, "{text}");
    }

    #[test]
    fn sources_are_judged() {
        check("use std::time::Duration;\nuse std::net::IpAddr;", &[]);
        check(
            "use std::time::{Duration, Instant};",
            &["a.rs:1: Instant is a clock"],
        );
        check(
            "let now = SystemTime::now();",
            &["a.rs:1: SystemTime is a clock"],
        );
        check("// Instant\nlet a = \"std::fs\";", &[]);
        check("struct InstantReply;\nlet operand = 1;", &[]);
        check(
            "a\n\nstd::thread::spawn(f)",
            &["a.rs:3: std::thread is a thread"],
        );
        check("#[cfg(test)]\nmod tests { use std::fs; }", &[]);
        check(
            "use std::collections::HashMap;\na: HashMap<u8, u8>,",
            &["a.rs:2: a hash map without `// never iterated`"],
        );
        check("a: HashMap<u8, u8>, // never iterated", &[]);
        check("// never iterated\na: HashSet<u8>,", &[]);
    }
}
