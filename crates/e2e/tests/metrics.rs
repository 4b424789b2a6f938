//! The figures of a running server: those of `docs/metrics.md` and no others, right, bounded, and of nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use whimbrel_e2e::{
    mail::Mail,
    message,
    pop3::Pop3,
    process::{signal, wait_for},
    server::{ACCOUNTS, Builder, Server},
};

/// What a page shows: types of families, and values of series.
#[derive(Default)]
struct Figures {
    types: BTreeMap<String, String>,
    /// Name (of a histogram: with its suffix) and labels, as written.
    series: BTreeMap<String, f64>,
}

fn figures(server: &Server) -> Figures {
    let page = server.http("/metrics");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut figures = Figures::default();
    for line in body.lines() {
        if let Some(line) = line.strip_prefix("# TYPE ") {
            let (name, kind) = line.split_once(' ').unwrap();
            figures.types.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let before = figures
                .series
                .insert(series.to_owned(), value.parse().unwrap());
            assert!(before.is_none(), "{series} twice");
        }
    }
    figures
}

impl Figures {
    fn of(&self, series: &str) -> f64 {
        *self
            .series
            .get(series)
            .unwrap_or_else(|| panic!("no {series}"))
    }

    fn command(&self, protocol: &str, name: &str) -> f64 {
        self.of(&format!(
            "whimbrel_command_seconds_count{{protocol=\"{protocol}\",command=\"{name}\"}}"
        ))
    }

    /// Names of the labels of each family.
    fn labels(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for series in self.series.keys() {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix))
                .find(|name| {
                    self.types
                        .get(*name)
                        .is_some_and(|kind| kind == "histogram")
                })
                .unwrap_or(name);
            assert!(self.types.contains_key(family), "{family} has no type");
            let names = labels
                .trim_end_matches('}')
                .split("\",")
                .filter_map(|label| label.split_once('='))
                .map(|(label, _)| label.to_owned())
                .filter(|label| label != "le");
            all.entry(family.to_owned()).or_default().extend(names);
        }
        all
    }
}

/// Name, type and labels of each item of the page.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    // An item may have several lines.
    let text = std::fs::read_to_string(path).unwrap().replace("\n  ", " ");
    let items = text.lines().filter_map(|line| line.strip_prefix("- `"));
    let item = |line: &str| {
        let parts = line.split_once("` (").and_then(|(name, rest)| {
            let (about, meaning) = rest.split_once("): ")?;
            Some((name, about, meaning))
        });
        let (name, about, meaning) = parts.unwrap_or_else(|| panic!("{line}"));
        let about: Vec<&str> = about.split("; ").collect();
        let (kind, labels, unit) = match about[..] {
            [kind, unit] => (kind, "", unit),
            [kind, labels, unit] => (kind, labels, unit),
            _ => panic!("{line}"),
        };
        assert!(!unit.is_empty() && !meaning.is_empty(), "{line}");
        // Every second part is between two marks.
        let labels = labels.split('`').skip(1).step_by(2);
        (
            name.to_owned(),
            (kind.to_owned(), labels.map(str::to_owned).collect()),
        )
    };
    items.map(item).collect()
}

#[test]
fn what_is_shown_is_documented_and_right() {
    let server = Builder::default().unwatched().start();
    let names: Vec<String> = (0..3).map(|n| format!("m-{n}")).collect();
    let before = figures(&server);
    server.deliver(&names, 5000);
    let mut smtp = Mail::smtp(server.ports.smtp).unwrap();
    let replies = smtp.deliver(
        "carl@example.net",
        &[ACCOUNTS[0].0, ACCOUNTS[1].0],
        &message::bytes("m-3", 5000),
        false,
    );
    assert!(replies.unwrap()[0].is(2));
    let mut imap = server.anne();
    server.wait_count(&mut imap, "INBOX", 4);
    let _ = imap.command("SELECT INBOX").unwrap().ok("SELECT");
    let _ = imap.command("FETCH 1:* (FLAGS)").unwrap().ok("FETCH");
    assert!(server.login((ACCOUNTS[1].0, "wrong")).is_err());
    let mut pop3 = server.anne_pop3();
    for n in 1..=2 {
        let text = pop3.fetch(&format!("RETR {n}")).unwrap();
        assert!(text.len() > 5000);
    }
    assert!(!pop3.command("XTND").unwrap().ok);
    assert!(Pop3::login(server.ports.pop3s, &server.tls, "anne", "wrong").is_err());
    // The second recipient's mailbox, too.
    wait_for("all deliveries", || {
        (figures(&server).of("whimbrel_deliveries_total") >= 5.0).then_some(())
    });

    let shown = figures(&server);
    let documented = documented();
    let types = |name: &String, (kind, _): &(String, _)| (name.clone(), kind.clone());
    let expected: BTreeMap<String, String> = documented.iter().map(|(n, d)| types(n, d)).collect();
    assert_eq!(shown.types, expected, "docs/metrics.md is another list");
    for (family, labels) in shown.labels() {
        assert_eq!(documented[&family].1, labels, "labels of {family}");
    }

    assert_eq!(shown.command("pop3", "RETR"), 2.0);
    assert_eq!(shown.command("imap", "FETCH"), 1.0);
    assert_eq!(shown.command("lmtp", "DATA"), 3.0);
    assert_eq!(shown.command("smtp", "RCPT"), 2.0);
    assert_eq!(
        shown.of("whimbrel_sessions{protocol=\"pop3\",state=\"authenticated\"}"),
        1.0
    );
    assert!(shown.of("whimbrel_sessions{protocol=\"smtp\",state=\"unauthenticated\"}") >= 1.0);
    let login = |protocol: &str, result: &str| {
        shown.of(&format!(
            "whimbrel_logins_total{{protocol=\"{protocol}\",mechanism=\"PASSWORD\",result=\"{result}\"}}"
        ))
    };
    assert_eq!(login("pop3", "ok"), 1.0);
    assert_eq!(login("pop3", "credentials"), 1.0);
    assert_eq!(login("imap", "credentials"), 1.0);
    assert!(shown.of("whimbrel_sent_bytes_total{protocol=\"pop3\"}") > 10_000.0);
    assert!(shown.of("whimbrel_received_bytes_total{protocol=\"lmtp\"}") > 15_000.0);
    assert_eq!(
        shown.of("whimbrel_transactions_total{protocol=\"lmtp\"}"),
        3.0
    );
    assert_eq!(shown.of("whimbrel_deliveries_total"), 5.0);
    assert_eq!(shown.of("whimbrel_delivery_seconds_count"), 5.0);
    assert_eq!(shown.of("whimbrel_accounts"), 2.0);
    assert_eq!(shown.of("whimbrel_domains"), 1.0);
    assert_eq!(shown.of("whimbrel_accounts_loaded"), 2.0);
    assert!(shown.of("whimbrel_watchers") >= 1.0);
    assert_eq!(shown.of("whimbrel_uidvalidities_total"), 0.0);
    assert_eq!(shown.of("whimbrel_errors_total{kind=\"commit\"}"), 0.0);
    let errors = "whimbrel_protocol_errors_total{protocol=\"pop3\",kind=\"Unknown command\"}";
    assert_eq!(shown.of(errors), 1.0);
    for grown in [
        "whimbrel_store_syncs_total",
        "whimbrel_store_commits_total",
        "whimbrel_log_operations",
        "whimbrel_commit_seconds_count{machine=\"owner\"}",
        "whimbrel_commit_seconds_count{machine=\"queue\"}",
    ] {
        let before = before.series.get(grown).copied().unwrap_or(0.0);
        assert!(shown.of(grown) > before, "{grown}");
    }
    for there in [
        "whimbrel_store_bytes",
        "whimbrel_store_free_bytes",
        "whimbrel_resident_bytes",
        "whimbrel_open_descriptors",
        "whimbrel_start_time_seconds",
        "whimbrel_accounts_loaded_bytes",
    ] {
        assert!(shown.of(there) > 0.0, "{there}");
    }
    wait_for("the queue to be empty", || {
        (figures(&server).of("whimbrel_queue_entries") == 0.0).then_some(())
    });
    server.assert_no_panic();
}

/// However many clients there are and whatever they say: the same series, and nothing of what they said.
#[test]
fn clients_add_no_series() {
    let server = Builder::default()
        .set("auth", "failures_max = 1000")
        .start();
    let work = |n: u32| {
        let mut imap = server.anne();
        for word in ["NOOP", "BOGUS", "LOGIN x y", "CREATE box", "SELECT nowhere"] {
            let _ = imap.command(&format!("{word}{n}"));
        }
        let mut pop3 = server.anne_pop3();
        let _ = pop3.command(&format!("WHAT{n}"));
        let _ = Pop3::login(
            server.ports.pop3s,
            &server.tls,
            &format!("someone{n}@example.org"),
            "x",
        );
        let mut mail = Mail::smtp(server.ports.smtp).unwrap();
        for line in ["MAIL FROM:<a", "RCPT TO:<nobody@example.org", "ODD"] {
            let _ = mail.command(&format!("{line}{n}>"));
        }
    };
    work(0);
    let names = |figures: Figures| figures.series.into_keys().collect::<BTreeSet<_>>();
    let first = names(figures(&server));
    for n in 1..20 {
        work(n);
    }
    let last = names(figures(&server));
    assert_eq!(last, first);
    assert!(last.len() < 5000);
    let page = server.http("/metrics");
    for personal in [
        "anne", "bob", "carl", "someone", "nobody", "example", "127.0.0",
    ] {
        assert!(!page.contains(personal), "{personal} in the figures");
    }
}

#[test]
fn health_and_readiness() {
    let mut server = Builder::default()
        .set("server", "shutdown_wait = \"1m\"")
        .start();
    let status = |server: &Server, path: &str| {
        let page = server.http(path);
        page.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(&server, "/healthz"), "200");
    // It listens a moment before it is ready.
    wait_for("it to be ready", || {
        (status(&server, "/readyz") == "200").then_some(())
    });
    // A client in the middle of an answer that it does not take holds the end up.
    server.deliver(&["large".to_owned()], 4 << 20);
    let mut deaf = server.anne_pop3();
    deaf.wire.send("RETR 1\r\n".repeat(20).as_bytes()).unwrap();
    wait_for("the answer to begin", || {
        let figures = figures(&server);
        (figures.of("whimbrel_sent_bytes_total{protocol=\"pop3\"}") > 65536.0).then_some(())
    });
    signal(server.pid(), "TERM");
    wait_for("it to be no more ready", || {
        (status(&server, "/readyz") == "503").then_some(())
    });
    assert_eq!(status(&server, "/healthz"), "200");
    drop(deaf);
    assert_eq!(server.wait_end(), 0);
}
