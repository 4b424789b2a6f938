//! Rows 16 and 17: login names that mean something to whoever expands them, and a cache of logins that answers for another.

use std::{collections::BTreeSet, fs, path::Path};

use whimbrel_e2e::{
    imap::{Imap, Reply},
    server::{ACCOUNTS, Server},
};

use super::{Watch, lean, unless_closed};

const NAMES: &[&str] = &[
    "%u",
    "%n%u%d",
    "%s%s%s%s%n",
    "%{home}/%{uid}",
    "${HOME}",
    "$(id)",
    "`id`",
    "{}",
    "{0:?}",
    "../../../etc/passwd",
    "anne@example.org/../bob@example.org",
    "anne@../../example.org",
    "/etc/passwd",
    "anne@example.org%",
    "anne@example.org*",
    "anne*bob@example.org",
    "*@example.org",
    "@example.org",
    "anne@example.org@example.org",
    "anne@example.org\u{202e}",
    "\u{feff}anne@example.org",
    "anne@example.org anne@example.org",
    "anne@example.org\r\n2026-11-02T10:00:00.000000Z  INFO forged login=\"anne@example.org\"",
    "\u{1b}[2J\u{1b}]0;title\u{7}",
];

/// LOGIN with literals, which carry anything; a connection for each, as failures end them.
fn login(server: &Server, user: &[u8], password: &[u8]) -> Option<Reply> {
    let mut imap = Imap::connect(server.ports.imaps, &server.tls).unwrap();
    let mut command = format!("LOGIN {{{}+}}\r\n", user.len()).into_bytes();
    command.extend_from_slice(user);
    command.extend_from_slice(format!(" {{{}+}}\r\n", password.len()).as_bytes());
    command.extend_from_slice(password);
    unless_closed(imap.raw_command(&command))
}

fn plain(server: &Server, message: &[u8]) -> Option<Reply> {
    let mut imap = Imap::connect(server.ports.imaps, &server.tls).unwrap();
    let command = format!("AUTHENTICATE PLAIN {}", base64(message));
    unless_closed(imap.raw_command(command.as_bytes()))
}

/// RFC 4648, 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0u32, |sum, byte| sum << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize] as char;
            out.push(if at <= three.len() { letter } else { '=' });
        }
    }
    out
}

/// All files and directories below.
fn tree(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        found.insert(entry.path().display().to_string());
        if entry.path().is_dir() && !entry.path().ends_with("store") {
            tree(&entry.path(), found);
        }
    }
}

fn files(server: &Server) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    tree(&server.path(""), &mut found);
    found
}

fn is_refused(what: &str, reply: Option<Reply>) {
    if let Some(reply) = reply {
        assert_ne!(reply.status.name(), "OK", "{what:?}: {reply:?}");
        let said = format!("{} {}", reply.code, reply.text);
        assert!(
            said.len() < 200 && !said.contains("root"),
            "{what:?}: {said}"
        );
    }
}

#[test]
#[ignore = "long: hostile clients"]
fn row_16_login_names_that_expand() {
    // An account of such a name is one like others.
    let odd = ("%n%u@example.org", "odd secret");
    let server = lean().set("auth", "failures_max = 100000").start();
    let added = server.admin(&["account", "add", odd.0, "--password-stdin"], odd.1);
    let _ = added.expect("account add");
    let watch = Watch::start(&server);
    let before = files(&server);
    let secret = ACCOUNTS[0].1.as_bytes();
    for name in NAMES {
        is_refused(name, login(&server, name.as_bytes(), secret));
        is_refused(
            name,
            plain(&server, &[b"\0", name.as_bytes(), b"\0", secret].concat()),
        );
        // As who is acted for.
        let acting = [name.as_bytes(), b"\0anne@example.org\0", secret].concat();
        is_refused(name, plain(&server, &acting));
    }
    for name in [
        &b"anne@example.org\0"[..],
        b"\0anne@example.org",
        b"\xff\xfe",
        b"",
    ] {
        is_refused(&String::from_utf8_lossy(name), login(&server, name, secret));
        let message = [b"\0", name, b"\0", secret].concat();
        is_refused(&String::from_utf8_lossy(name), plain(&server, &message));
    }
    for size in [1 << 10, 4 << 10, 64 << 10, 1 << 20] {
        let name = vec![b'%'; size];
        is_refused("a long name", login(&server, &name, secret));
        is_refused(
            "a long name",
            plain(&server, &[b"\0", &name[..], b"\0", secret].concat()),
        );
        is_refused(
            "a long password",
            login(&server, b"anne@example.org", &name),
        );
    }
    assert_eq!(files(&server), before, "no name became a file");
    let log = server.log();
    assert!(
        log.lines().all(
            |line| !line.starts_with("2026-11-02T10:00:00") && !line.starts_with("INFO forged")
        ),
        "a line of the log was forged"
    );
    assert!(!log.contains('\u{1b}'), "a terminal would obey");
    assert!(
        log.lines().all(|line| line.len() < 4096),
        "a name fills the log"
    );
    assert!(log.contains("%s%s%s%s%n"), "names are shown as they are");

    // Its own mailbox, and nobody else's.
    let mut imap = server.login(odd).unwrap();
    let _ = imap
        .append("INBOX", &[], b"Subject: odd\r\n\r\nx")
        .unwrap()
        .ok("APPEND");
    assert!(server.login((odd.0, ACCOUNTS[0].1)).is_err());
    assert!(server.login((ACCOUNTS[0].0, odd.1)).is_err());
    assert_eq!(
        server.contents(&mut imap, "INBOX").unwrap().messages.len(),
        1
    );
    assert_eq!(
        server
            .contents(&mut server.anne(), "INBOX")
            .unwrap()
            .messages
            .len(),
        0
    );
    watch.end();
}

/// A log as JSON shows characters as they are: none may turn a line round, or hide in it.
#[test]
#[ignore = "long: hostile clients"]
fn row_16_names_that_turn_the_log_round() {
    let server = lean()
        .set("auth", "failures_max = 100000")
        .set("log", "format = \"json\"")
        .start();
    let watch = Watch::start(&server);
    let unseen: Vec<char> = ('\u{202a}'..='\u{202e}')
        .chain('\u{2066}'..='\u{2069}')
        .chain(['\u{85}', '\u{9b}', '\u{ad}', '\u{61c}', '\u{200b}'])
        .chain(['\u{200f}', '\u{2028}', '\u{2029}', '\u{feff}', '\u{e0041}'])
        .collect();
    for c in &unseen {
        let name = format!("mallory{c}@example.org");
        is_refused(&name, login(&server, name.as_bytes(), b"x"));
        let message = format!("\0{name}\0x");
        is_refused(&name, plain(&server, message.as_bytes()));
    }
    let log = server.log();
    let of_them = log.lines().filter(|line| line.contains("mallory")).count();
    assert!(of_them >= unseen.len(), "{of_them} of them are in the log");
    for c in unseen {
        assert!(!log.contains(c), "{} in the log", c.escape_unicode());
    }
    watch.end();
}

#[test]
#[ignore = "long: hostile clients"]
fn row_17_a_cached_login_is_nobody_elses() {
    let server = lean().set("auth", "failures_max = 100000").start();
    for (name, password) in [
        ("ann@example.org", "x"),
        ("anne@example.or", "y"),
        ("a@example.org", "z"),
    ] {
        let added = server.admin(&["account", "add", name, "--password-stdin"], password);
        let _ = added.expect("account add");
    }
    let watch = Watch::start(&server);
    let (anne, secret) = ACCOUNTS[0];
    for _ in 0..3 {
        let _ = server.anne();
        let joined = format!("{anne}{secret}");
        // The same octets in a row, cut elsewhere.
        for at in 0..=joined.len() {
            if at != anne.len() {
                let (user, password) = joined.split_at(at);
                is_refused(user, login(&server, user.as_bytes(), password.as_bytes()));
            }
        }
        for (user, password) in [
            ("bob@example.org", secret),
            ("ann@example.org", secret),
            ("anne@example.or", secret),
            (anne, ""),
            (anne, "anne's secre"),
            (anne, "anne's secret "),
            (anne, "Anne's secret"),
            (anne, "x"),
        ] {
            is_refused(user, login(&server, user.as_bytes(), password.as_bytes()));
        }
    }
    let page = server.http("/metrics");
    assert!(
        page.contains("whimbrel_login_checks_total{source=\"cache\"}"),
        "the cache was asked"
    );
    watch.end();
}
