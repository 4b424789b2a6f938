//! The binary as a process: its log, its signals, its exit codes, and what happens at the end of its file descriptors.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

const BINARY: &str = env!("CARGO_BIN_EXE_whimbrel");
/// For what takes milliseconds; only a hang takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = "\
[server]\ndata_dir = 'data'\nhostname = 'localhost'\n[imap]\nlisten = ['127.0.0.1:0']\nlisten_tls = []\n[pop3]\nlisten = []\nlisten_tls = []\n[smtp]\nlisten = ['127.0.0.1:0']\n[submission]\nlisten = []\nlisten_tls = []\n\
[lmtp]\nlisten = ['127.0.0.1:0']\n[metrics]\nlisten = []\n[auth]\nargon2_memory = '1MiB'\nargon2_passes = 1\n\
[storage]\nfree_bytes_min = '1MiB'\n[log]\nlevel = 'trace'\nformat = 'json'\n";

struct World {
    directory: tempfile::TempDir,
}

struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    log: Vec<String>,
}

impl World {
    fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("whimbrel.toml"), CONFIG).unwrap();
        World { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &[&str], stdin: &str) -> Output {
        let mut child = Command::new(BINARY)
            .args(arguments)
            .arg("--config")
            .arg(self.path("whimbrel.toml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    /// Serves; `before` is put in front of the command line, in a shell.
    fn serve(&self, before: &str) -> Running {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{before} exec \"$0\" serve --config \"$1\""))
            .arg(BINARY)
            .arg(self.path("whimbrel.toml"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (to, lines) = mpsc::channel();
        std::thread::spawn(move || {
            log.lines()
                .map_while(Result::ok)
                .try_for_each(|line| to.send(line))
        });
        let mut running = Running {
            child,
            lines,
            log: Vec::new(),
        };
        running.wait_for("\"message\":\"serving\"");
        running
    }
}

impl Running {
    /// The first line of the log, old or new, that holds `text`.
    fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut seen = 0;
        loop {
            if let Some(line) = self.log[seen..].iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            seen = self.log.len();
            match self
                .lines
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.log.push(line),
                Err(_) => panic!("no {text} in\n{}", self.log.join("\n")),
            }
        }
    }

    fn address(&mut self, protocol: &str) -> SocketAddr {
        let line = self.wait_for(&format!("\"protocol\":\"{protocol}\",\"address\":\""));
        line.split("\"address\":\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn stop(mut self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        let code = self.child.wait().unwrap().code();
        self.log.extend(self.lines.iter());
        (code, self.log.join("\n"))
    }
}

/// Sends lines and reads until `last` comes; gives what came.
fn talk(stream: &mut TcpStream, lines: &str, last: &str) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(lines.as_bytes()).unwrap();
    let mut heard = Vec::new();
    let mut byte = [0; 1];
    while !heard.ends_with(last.as_bytes()) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| {
            panic!(
                "{error}, before {last:?} came: {}",
                String::from_utf8_lossy(&heard)
            );
        });
        heard.push(byte[0]);
    }
    String::from_utf8(heard).unwrap()
}

/// The queue is shown by a running server only: to open the store would deliver.
#[test]
fn the_queue_is_shown_while_the_server_runs() {
    let world = World::new();
    let added = world.run(&["account", "add", "anne@example.org"], "");
    assert!(added.status.success(), "{added:?}");
    let unknown = "0123456789abcdef0123456789abcdef";
    let list = ["queue", "list", "--json"];
    let show = ["queue", "show", unknown];
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let output = world.run(arguments, "");
        let text = [&output.stdout[..], &output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(expected), "{text}");
    };
    check(&list, 1, "no server runs here: start it");
    check(&show, 1, "no server runs here: start it");
    let server = world.serve("");
    check(&list, 0, "\"complete\": true");
    check(&["queue", "list", "--older-than", "1h"], 0, "no entries");
    check(&show, 1, "this node has no queue entry 0123");
    check(&["queue", "show", "1"], 2, "32 hexadecimal digits");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn the_log_holds_events_and_no_secrets() {
    let world = World::new();
    let password = "Pa55-w0rd-that-must-not-appear";
    let added = world.run(
        &["account", "add", "anne@example.org", "--password-stdin"],
        password,
    );
    assert!(added.status.success(), "{added:?}");

    let mut server = world.serve("");
    let mut lmtp = TcpStream::connect(server.address("LMTP")).unwrap();
    talk(
        &mut lmtp,
        "LHLO x.example.net\r\nMAIL FROM:<>\r\nRCPT TO:<anne@example.org>\r\nDATA\r\n",
        "354 ",
    );
    let message = "Subject: subject-that-must-not-appear\r\n\r\nbody-that-must-not-appear\r\n.\r\n";
    talk(&mut lmtp, message, "\r\n250 ");
    server.wait_for("\"message\":\"delivered\"");

    // Login over TLS, by the project's own client; once right, once wrong.
    let address = server.address("IMAP");
    let log_in = |word: &str| imap_login(address, &world.path("data/tls/cert.pem"), word);
    assert!(log_in(password));
    assert!(!log_in("wr0ng-that-must-not-appear"));
    server.wait_for("login refused");

    // What administrators do while it runs.
    let changed = world.run(
        &["account", "passwd", "anne@example.org", "--password-stdin"],
        "another-that-must-not-appear",
    );
    assert!(changed.status.success(), "{changed:?}");
    assert!(log_in("another-that-must-not-appear"));

    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    for line in log.lines() {
        assert!(
            line.starts_with('{') && line.ends_with('}'),
            "not JSON: {line}"
        );
    }
    for event in [
        "accepted",
        "delivered",
        "logged in",
        "login refused",
        "closed",
        "stopping",
        "stopped",
    ] {
        assert!(
            log.contains(&format!("\"message\":\"{event}\"")),
            "{event} is not in {log}"
        );
    }
    let plain = |word: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("\0anne@example.org\0{word}"))
    };
    assert!(
        !log.contains("must-not-appear") && !log.contains(&plain(password)[8..]),
        "{log}"
    );
}

/// LOGIN after STARTTLS, spoken by hand so that the test sees what goes in.
fn imap_login(address: SocketAddr, certificate: &Path, password: &str) -> bool {
    use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};
    let tls = whimbrel_server::client::trusting(certificate).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    talk(&mut stream, "a STARTTLS\r\n", "a OK");
    talk(&mut stream, "", "\r\n");
    let connection = ClientConnection::new(tls, ServerName::from(address.ip())).unwrap();
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    write!(
        stream.get_mut(),
        "b LOGIN anne@example.org {password}\r\nc LOGOUT\r\n"
    )
    .unwrap();
    let mut ok = false;
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
        ok |= line.starts_with("b OK");
        line.clear();
    }
    ok
}

#[test]
fn hangup_takes_a_new_certificate() {
    let world = World::new();
    let mut server = world.serve("");
    server.signal(Signal::HUP);
    server.wait_for("the certificate has not changed");
    // Another server's certificate, put in place whole.
    let other = World::new();
    other.serve("").stop();
    for name in ["key.pem", "cert.pem"] {
        fs::copy(
            other.path("data/tls").join(name),
            world.path("data/tls").join(name),
        )
        .unwrap();
    }
    server.signal(Signal::HUP);
    server.wait_for("a new certificate is in use");
    fs::write(world.path("data/tls/cert.pem"), "garbage").unwrap();
    server.signal(Signal::HUP);
    server.wait_for("the new certificate cannot be used");
    let (code, _) = server.stop();
    assert_eq!(code, Some(0));
}

/// A page of 2 MiB stays whole as long as anything in it is used: with them the memory of the process says little of what it holds.
#[test]
fn huge_pages_are_for_those_who_ask() {
    let check = |config: &str, expected: &str| {
        let world = World::new();
        let config = CONFIG.replace("[server]\n", &format!("[server]\n{config}"));
        fs::write(world.path("whimbrel.toml"), config).unwrap();
        let running = world.serve("");
        let status = fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("THP_enabled:"));
        assert_eq!(line, Some(expected), "{status}");
        running.stop();
    };
    check("", "THP_enabled:\t0");
    // What the process was started with, which is what the system has.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("THP_enabled:"));
    check("huge_pages = true\n", own.unwrap());
}

/// The allocator hears of it by the environment alone, and what somebody has set there is theirs.
#[test]
fn memory_is_returned_soon() {
    let check = |before: &str, expected: &str| {
        let world = World::new();
        let running = world.serve(before);
        let environment = fs::read(format!("/proc/{}/environ", running.child.id())).unwrap();
        let found: Vec<_> = environment
            .split(|byte| *byte == 0)
            .filter(|variable| variable.starts_with(b"MIMALLOC_PURGE_DELAY="))
            .map(String::from_utf8_lossy)
            .collect();
        assert_eq!(found, [expected]);
        assert_eq!(running.stop().0, Some(0));
    };
    check("unset MIMALLOC_PURGE_DELAY;", "MIMALLOC_PURGE_DELAY=10");
    let own = "MIMALLOC_PURGE_DELAY=500";
    check(&format!("export {own};"), own);
}

/// Half of few descriptors are for connections. Clients that take them all keep others out only as long as they stay.
#[test]
fn clients_leave_descriptors() {
    let world = World::new();
    let mut server = world.serve("ulimit -n 100;");
    let address = server.address("IMAP");
    let held: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    server.wait_for("refused: no place");
    drop(held);
    // Their places are free when the server has read that they are gone.
    let until = Instant::now() + PATIENCE;
    let mut stream = loop {
        let mut stream = TcpStream::connect(address).unwrap();
        let greeting = talk(&mut stream, "", " ");
        let status = talk(&mut stream, "", " ");
        match (greeting.as_str(), status.as_str()) {
            ("* ", "OK ") => break stream,
            ("* ", "BYE ") => assert!(Instant::now() < until, "there is no room"),
            other => panic!("greeted with {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    talk(&mut stream, "a NOOP\r\n", "a OK");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn commands_answer_with_text_and_exit_codes() {
    let world = World::new();
    let check = |arguments: &[&str], stdin: &str, code: i32, text: &str| {
        let done = world.run(arguments, stdin);
        let out = format!(
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        assert!(
            done.status.code() == Some(code) && out.contains(text),
            "{arguments:?}: {:?} {out}",
            done.status
        );
        out
    };
    let both = || {
        check(
            &["account", "add", "anne@example.org", "--password-stdin"],
            "secret\n",
            1,
            "whimbrel: ",
        );
        check(&["account", "list"], "", 0, "anne@example.org  ");
        check(
            &["alias", "add", "info@example.org", "anne@example.org"],
            "",
            0,
            "",
        );
        check(
            &["alias", "list"],
            "",
            0,
            "info@example.org  anne@example.org",
        );
        check(
            &["alias", "remove", "info@example.org"],
            "",
            0,
            "alias info@example.org removed",
        );
        check(
            &["account", "remove", "anne@example.org"],
            "",
            1,
            "add --yes",
        );
    };
    // Made passwords are printed, what was done, and that there is a new data directory.
    let made = check(&["account", "add", "anne@example.org"], "", 0, "password: ");
    assert!(made.contains("made a new data directory"), "{made}");
    assert!(made.contains("account anne@example.org added"), "{made}");
    assert_eq!(made.lines().count(), 3, "{made}");
    check(
        &["account", "passwd", "bob@example.org", "--password-stdin"],
        "x",
        1,
        "bob@example.org",
    );
    check(
        &["account", "add", "carol@example.org", "--password-stdin"],
        "\n",
        1,
        "the password is empty",
    );
    both();
    let server = world.serve("");
    both();
    check(
        &["account", "remove", "anne@example.org", "--yes"],
        "",
        0,
        "",
    );
    let second = world.run(&["serve"], "");
    assert_eq!(second.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("is in use by another process"),
        "{second:?}"
    );
    server.stop();
    assert_eq!(check(&["account", "list"], "", 0, ""), "");

    fs::write(world.path("whimbrel.toml"), "[imap]\nlisten_tsl = []\n").unwrap();
    check(
        &["serve"],
        "",
        1,
        "line 2: unknown key `imap.listen_tsl`, did you mean `imap.listen_tls`?",
    );
}

/// Two at a time, so that at least one finds the usual ports taken.
#[test]
fn the_demo_shows_mail_and_cleans_up() {
    let temporary = tempfile::tempdir().unwrap();
    let demo = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command
            .arg("demo")
            .args(arguments)
            .env("TMPDIR", temporary.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut running = demo(&[]);
    let mut shown = String::new();
    let mut lines = BufReader::new(running.stdout.take().unwrap());
    while !shown.ends_with("demo: ready\n") {
        assert!(
            lines.read_line(&mut shown).unwrap() > 0,
            "it ended: {shown}"
        );
    }
    for text in [
        "  IMAPS       127.0.0.1:",
        "  SUBMISSIONS 127.0.0.1:",
        "  SUBMISSION  127.0.0.1:",
        "account  anne@example.org  password ",
        "Grüße aus Malmö",
        "Look out of the window",
        "| Bob",
        "anne's copy is in Sent:\n    1   Anne ",
    ] {
        assert!(shown.contains(text), "{text} is not in {shown}");
    }
    let second = demo(&["--exit"]).wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(0), "{second:?}");
    assert!(second.stdout.ends_with(b"demo: ready\n"));
    assert_eq!(
        fs::read_dir(temporary.path()).unwrap().count(),
        1,
        "one removed, one in use"
    );

    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

/// Whatever the umask it was started with: nobody else reads mail.
#[test]
fn files_are_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let added = world.run(
        &["account", "add", "anne@example.org", "--password-stdin"],
        "correct horse\n",
    );
    assert!(added.status.success(), "{added:?}");
    let mut open = vec![world.path("data")];
    let mut seen = 0;
    while let Some(path) = open.pop() {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
        seen += 1;
        if path.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    assert!(seen > 10, "only {seen} files");
}

/// A command that was run in the wrong directory made a data directory there, and worked on it.
#[test]
fn only_some_commands_make_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_whimbrel"));
        command.args(arguments).current_dir(directory.path());
        command.env_remove("WHIMBREL_CONFIG");
        command.envs(environment.iter().copied());
        command.stdin(std::process::Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let is_empty = || std::fs::read_dir(directory.path()).unwrap().count() == 0;
    for arguments in [
        &["account", "list"][..],
        &["account", "add", "anne@example.org"],
        &["account", "passwd", "anne@example.org"],
        &["account", "remove", "anne@example.org", "--yes"],
        &["alias", "add", "info@example.org", "anne@example.org"],
        &["alias", "list"],
        &["export", "anne@example.org", "maildir", "/nowhere"],
        &["node", "renew"],
        &["cluster", "token"],
    ] {
        let (code, said, refused) = run(arguments, &[]);
        assert_eq!(code, Some(1), "{arguments:?}: {said}{refused}");
        assert!(is_empty(), "{arguments:?}");
        if arguments[0] == "account" || arguments[0] == "alias" {
            assert!(
                refused.contains("there is no data directory") && refused.contains("--config"),
                "{arguments:?}: {refused}"
            );
        }
    }
    let file = directory.path().join("whimbrel.toml");
    std::fs::write(
        &file,
        "[server]\ndata_dir = 'mail'\n[auth]\nargon2_memory = '1MiB'\nargon2_passes = 1\n",
    )
    .unwrap();
    let given = [("WHIMBREL_CONFIG", file.to_str().unwrap())];
    let (code, _, refused) = run(&["account", "list"], &given);
    assert!(
        code == Some(1) && refused.contains("there is no data directory"),
        "{refused}"
    );
    let (code, said, refused) = run(&["account", "add", "anne@example.org"], &given);
    assert!(
        code == Some(0) && refused.contains("made a new data directory"),
        "{said}{refused}"
    );
    let (_, _, told) = run(&["account", "add", "bob@example.org"], &given);
    assert!(!told.contains("directory"), "{told}");
    let alias = ["alias", "add", "bob@example.org", "anne@example.org"];
    let (code, _, refused) = run(&alias, &given);
    assert!(
        code == Some(1) && refused.contains("--instead"),
        "{refused}"
    );
    let instead = [&alias[..], &["--instead"]].concat();
    let (code, said, refused) = run(&instead, &given);
    assert_eq!(code, Some(0), "{refused}");
    assert_eq!(
        said,
        "mail for bob@example.org goes to anne@example.org, and no longer to the account bob@example.org\n"
    );
}
