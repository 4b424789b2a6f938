//! `whimbrel demo --regions`: what it shows is so, its ports are the users', and it goes without a trace.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tempfile::NamedTempFile;
use whimbrel_e2e::{
    imap::Imap,
    process::{Done, ended, run, signal, wait_for},
    server::binary,
};

/// Where the first region's ports may begin: one of them is free, whatever else runs on this machine.
const FIRST_PORTS: std::ops::Range<u16> = 10_001..10_020;

fn demo(temporary: &Path, first_port: u16, more: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(["demo", "--first-port", &first_port.to_string()])
        .args(more)
        .env("TMPDIR", temporary);
    command
}

fn port_is_taken(done: &Done) -> bool {
    done.stderr.contains("cannot listen on 127.0.0.1:")
}

#[test]
fn three_regions_agree() {
    let temporary = tempfile::tempdir().unwrap();
    let mut all = FIRST_PORTS.map(|first| {
        let mut command = demo(temporary.path(), first, &["--regions", "3", "--exit"]);
        (first, run(&mut command, b""))
    });
    let (first_port, done) = all.find(|(_, done)| !port_is_taken(done)).unwrap();
    let shown = done.expect("demo --regions 3 --exit");
    judge_ports(&shown, first_port);
    for text in [
        "docs/cluster.md",
        "6 messages for anne delivered in europe",
        "asia is cut off",
        "all 3 regions show this:\n  Archive  UIDVALIDITY ",
        "looked at in europe, america, asia: the same mailboxes, UIDVALIDITY, UIDs and flags",
    ] {
        assert!(shown.contains(text), "{text:?} is not in {shown}");
    }
    let end = shown.rsplit("show this:").next().unwrap();
    let words: Vec<&str> = end.split_whitespace().collect();
    for text in [
        // Set on different sides.
        "\\Flagged \\Seen Welcome to Whimbrel",
        "\\Answered Re: Counting birds",
        "Look out of the window",
        "The cable is cut",
    ] {
        let there = words.join(" ").contains(text);
        assert!(there, "{text:?} is not at the end of {shown}");
    }
    assert!(shown.ends_with("demo: ready\n"));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

/// Those of each region are all there, and each is 1,000 above that of the region before; so is what a client is told to use.
fn judge_ports(shown: &str, first_port: u16) {
    // From the default configuration, whose ports begin at 10,000.
    const BASE: [(&str, u16); 9] = [
        ("peers", 700),
        ("IMAP", 143),
        ("IMAPS", 993),
        ("LMTP", 24),
        ("POP3", 110),
        ("POP3S", 995),
        ("SMTP", 25),
        ("SUBMISSION", 587),
        ("SUBMISSIONS", 465),
    ];
    for (index, region) in ["europe", "america", "asia"].into_iter().enumerate() {
        let shift = first_port + 1000 * index as u16;
        let line = |prefix: &str| -> String {
            let mut lines = shown.lines().map(str::trim_start);
            let line = lines.find_map(|line| line.strip_prefix(prefix));
            line.unwrap_or_else(|| panic!("{prefix:?} is not in {shown}"))
                .to_owned()
        };
        // Where it listens: names of protocols, and their ports.
        let listens = line(&format!("{region} "));
        let found: BTreeMap<&str, u16> = listens
            .split(',')
            .map(|one| {
                let (name, port) = one.trim().rsplit_once(' ').unwrap();
                (name, port.parse().unwrap())
            })
            .collect();
        let expected = BASE.map(|(name, port)| (name, port + shift));
        assert_eq!(found, expected.into(), "{region}");
        // What to tell one's own client.
        let (imaps, submissions) = (993 + shift, 465 + shift);
        assert_eq!(
            line(&format!("{region}: host ")),
            format!(
                "127.0.0.1, port {imaps} (IMAP, SSL/TLS), to send {submissions} (SMTP, SSL/TLS)"
            )
        );
        assert!(
            shown.contains(&format!("'imaps://127.0.0.1:{imaps}/INBOX'")),
            "{shown}"
        );
    }
}

/// Runs until it is ended. A test that fails shows what it wrote.
struct Running {
    child: Child,
    first_port: u16,
    shown: String,
    /// What it complains of.
    stderr: NamedTempFile,
}

impl Drop for Running {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let stderr = fs::read_to_string(self.stderr.path()).unwrap_or_default();
            eprintln!("the demo showed:\n{}\nand said:\n{stderr}", self.shown);
        }
    }
}

impl Running {
    fn start(temporary: &Path) -> Running {
        let mut started = FIRST_PORTS.map(|first_port| {
            let mut command = demo(temporary, first_port, &["--regions", "2"]);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            // Outside of the directory that it must leave empty.
            let stderr = NamedTempFile::new().unwrap();
            command.stderr(stderr.reopen().unwrap());
            let mut child = command.spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap());
            let mut shown = String::new();
            while !shown.ends_with("demo: ready\n") && lines.read_line(&mut shown).unwrap() > 0 {}
            Running {
                child,
                first_port,
                shown,
                stderr,
            }
        });
        started
            .find_map(|mut running| match running.shown.is_empty() {
                false => Some(running),
                true => {
                    ended(&mut running.child, "a demo without its ports");
                    None
                }
            })
            .expect("one of so many ports is free")
    }
}

/// Trusts what the demo made for a region.
fn tls(temporary: &Path, region: &str) -> Arc<ClientConfig> {
    let demo = fs::read_dir(temporary).unwrap().next().unwrap().unwrap();
    let pem = demo.path().join(region).join("tls/cert.pem");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(pem).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

#[test]
fn the_users_own_client_reaches_each_region() {
    let temporary = tempfile::tempdir().unwrap();
    let mut running = Running::start(temporary.path());
    assert!(running.shown.ends_with("demo: ready\n"), "it ended");
    let (_, password) = running
        .shown
        .split_once("anne@example.org  password ")
        .unwrap();
    let password = password.lines().next().unwrap().to_owned();
    let login = |index: u16, region: &str| {
        let port = running.first_port + 993 + 1000 * index;
        let shown = format!("{region}: host 127.0.0.1, port {port} ");
        assert!(running.shown.contains(&shown), "{shown}");
        let tls = tls(temporary.path(), region);
        Imap::login(port, &tls, "anne@example.org", &password).unwrap()
    };
    let mut europe = login(0, "europe");
    let mut america = login(1, "america");
    let _ = europe.command("CREATE Letters").unwrap().ok("CREATE");
    wait_for("the mailbox in the other region", || {
        let selected = america.command("SELECT Letters").unwrap();
        (selected.status == whimbrel_e2e::imap::Status::Ok).then_some(())
    });

    let mut second = demo(temporary.path(), running.first_port, &["--regions", "2"]);
    let refused = run(&mut second, b"");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        port_is_taken(&refused) && refused.stderr.contains("--first-port"),
        "{refused:?}"
    );
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);

    signal(running.child.id(), "INT");
    assert_eq!(ended(&mut running.child, "the demo"), 0);
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}
