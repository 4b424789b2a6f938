//! Which crate may import which: the code map of ARCHITECTURE.md as a table.
//!
//! A crate is worth having because of what it must not know; cargo would let anyone add a line.

use crate::{
    cargo_toml::{self, Kind, Member},
    step::Findings,
};

/// A crate of ours, what of ours it may import, and what its tests may import besides.
struct Rule {
    name: &'static str,
    product: &'static [&'static str],
    tests: &'static [&'static str],
}

const fn rule(
    name: &'static str,
    product: &'static [&'static str],
    tests: &'static [&'static str],
) -> Rule {
    Rule {
        name,
        product,
        tests,
    }
}

const RULES: &[Rule] = &[
    // Tools of tests; whoever must not import the product may import these.
    rule("whimbrel-testkit", &[], &[]),
    rule("whimbrel-crdt", &[], &[]),
    rule(
        "whimbrel-mailbox",
        &["whimbrel-crdt"],
        &["whimbrel-testkit"],
    ),
    rule("whimbrel-directory", &["whimbrel-crdt"], &[]),
    // It knows no mail; its rules are broken by the switches of `crdt`.
    rule("whimbrel-queue", &["whimbrel-crdt"], &["whimbrel-testkit"]),
    // It decides about mail to others; who sends it, and when the clock strikes, is none of its business.
    rule(
        "whimbrel-relay",
        &["whimbrel-crdt", "whimbrel-smtp"],
        &["whimbrel-mime", "whimbrel-testkit"],
    ),
    // It knows no mail either, and borrows the same switches.
    rule("whimbrel-dns", &["whimbrel-crdt"], &["whimbrel-testkit"]),
    // What is in a batch is none of its business.
    rule(
        "whimbrel-replication",
        &["whimbrel-crdt"],
        &["whimbrel-testkit"],
    ),
    // Sockets and certificates for the streams; what is in a frame is none of its business.
    rule(
        "whimbrel-cluster",
        &["whimbrel-crdt", "whimbrel-replication"],
        &[],
    ),
    rule("whimbrel-mime", &[], &[]),
    rule("whimbrel-imap", &["whimbrel-mime"], &[]),
    rule("whimbrel-pop3", &[], &[]),
    rule("whimbrel-transfer", &["whimbrel-imap"], &[]),
    rule("whimbrel-smtp", &[], &[]),
    rule("whimbrel-storage", &["whimbrel-crdt"], &[]),
    rule(
        "whimbrel-storage-embedded",
        &["whimbrel-crdt", "whimbrel-storage"],
        &["whimbrel-testkit"],
    ),
    rule(
        "whimbrel-service",
        &[
            "whimbrel-crdt",
            "whimbrel-directory",
            "whimbrel-mailbox",
            "whimbrel-mime",
            "whimbrel-queue",
            "whimbrel-replication",
            "whimbrel-storage",
        ],
        &[],
    ),
    // A session sees calls and replies, never an op or a record.
    rule(
        "whimbrel-frontend",
        &[
            "whimbrel-imap",
            "whimbrel-mime",
            "whimbrel-pop3",
            "whimbrel-service",
            "whimbrel-smtp",
        ],
        &["whimbrel-mailbox", "whimbrel-sim", "whimbrel-storage"],
    ),
    rule(
        "whimbrel-sim",
        &[
            "whimbrel-crdt",
            "whimbrel-directory",
            "whimbrel-frontend",
            "whimbrel-imap",
            "whimbrel-mailbox",
            "whimbrel-mime",
            "whimbrel-replication",
            "whimbrel-service",
            "whimbrel-smtp",
            "whimbrel-storage",
            "whimbrel-testkit",
        ],
        &[],
    ),
    rule(
        "whimbrel",
        &[
            "whimbrel-cluster",
            "whimbrel-crdt",
            "whimbrel-directory",
            "whimbrel-frontend",
            "whimbrel-imap",
            "whimbrel-mailbox",
            "whimbrel-mime",
            "whimbrel-pop3",
            "whimbrel-replication",
            "whimbrel-service",
            "whimbrel-smtp",
            "whimbrel-storage",
            "whimbrel-storage-embedded",
            "whimbrel-transfer",
        ],
        &[],
    ),
    // It measures any server, and shares the machine with it: lean clients of its own. The queue it measures as a library.
    rule(
        "whimbrel-bench",
        &["whimbrel-queue", "whimbrel-testkit"],
        &[],
    ),
    // Its models of what is right must not share a line with what they judge.
    rule("whimbrel-e2e", &["whimbrel-testkit"], &[]),
    rule("xtask", &[], &[]),
];

/// The crates that have no clock, randomness, socket, file or thread.
pub(crate) const PURE: &[&str] = &[
    "whimbrel-crdt",
    "whimbrel-mailbox",
    "whimbrel-directory",
    "whimbrel-replication",
    "whimbrel-queue",
    "whimbrel-relay",
    "whimbrel-dns",
    "whimbrel-mime",
    "whimbrel-imap",
    "whimbrel-pop3",
    "whimbrel-smtp",
    "whimbrel-transfer",
    "whimbrel-service",
    "whimbrel-frontend",
];

/// Crates from outside that bring what a pure crate must not have.
const IMPURE: &[&str] = &[
    "async-std",
    "chrono",
    "fastrand",
    "fjall",
    "getrandom",
    "mio",
    "rand",
    "rcgen",
    "rustls",
    "smol",
    "socket2",
    "tempfile",
    "time",
    "tokio",
    "tokio-rustls",
    "tracing-subscriber",
];

/// Checks the workspace.
pub(crate) fn check() -> Findings {
    match cargo_toml::members() {
        Ok(members) => judge(&members),
        Err(error) => Findings {
            looked_at: 0,
            wrong: vec![error],
        },
    }
}

fn judge(members: &[Member]) -> Findings {
    let mut wrong = Vec::new();
    for member in members {
        let Some(rule) = RULES.iter().find(|rule| rule.name == member.name) else {
            wrong.push(format!(
                "{} is not in the table: give it a rule here and a row in ARCHITECTURE.md",
                member.name
            ));
            continue;
        };
        for (import, kind) in &member.imports {
            let ours = import.starts_with("whimbrel") || import == "xtask";
            let allowed = rule.product.contains(&import.as_str())
                || (*kind == Kind::Tests
                    && (rule.tests.contains(&import.as_str()) || *import == member.name));
            if ours && !allowed {
                wrong.push(format!("{} must not import {import}", member.name));
            }
            if PURE.contains(&rule.name)
                && *kind == Kind::Product
                && IMPURE.contains(&import.as_str())
            {
                wrong.push(format!(
                    "{} is pure and must not import {import}",
                    member.name
                ));
            }
        }
    }
    for rule in RULES {
        if !members.iter().any(|member| member.name == rule.name) {
            wrong.push(format!(
                "{} is in the table and not in the workspace",
                rule.name
            ));
        }
    }
    Findings {
        looked_at: members.len(),
        wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace in which all is well, but for one import.
    fn check(name: &str, import: &str, kind: Kind, expected: &[&str]) {
        let members: Vec<Member> = RULES
            .iter()
            .map(|rule| Member {
                name: rule.name.to_owned(),
                directory: std::path::PathBuf::new(),
                imports: if rule.name == name {
                    vec![(import.to_owned(), kind)]
                } else {
                    Vec::new()
                },
            })
            .collect();
        assert_eq!(judge(&members).wrong, expected, "{name} {import}");
    }

    #[test]
    fn imports_are_judged() {
        check("whimbrel-mailbox", "whimbrel-crdt", Kind::Product, &[]);
        check(
            "whimbrel-mailbox",
            "whimbrel-imap",
            Kind::Product,
            &["whimbrel-mailbox must not import whimbrel-imap"],
        );
        check(
            "whimbrel-frontend",
            "whimbrel-crdt",
            Kind::Product,
            &["whimbrel-frontend must not import whimbrel-crdt"],
        );
        check(
            "whimbrel-e2e",
            "whimbrel-imap",
            Kind::Tests,
            &["whimbrel-e2e must not import whimbrel-imap"],
        );
        check(
            "whimbrel-sim",
            "whimbrel",
            Kind::Product,
            &["whimbrel-sim must not import whimbrel"],
        );
        check(
            "whimbrel-smtp",
            "tokio",
            Kind::Product,
            &["whimbrel-smtp is pure and must not import tokio"],
        );
        check("whimbrel-smtp", "tempfile", Kind::Tests, &[]);
        check("whimbrel-service", "bytes", Kind::Product, &[]);
    }

    #[test]
    fn this_workspace() {
        let findings = super::check();
        assert_eq!(findings.wrong, Vec::<String>::new());
        assert!(findings.looked_at > 10);
    }
}
