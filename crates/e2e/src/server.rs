//! Starting, stopping and killing the product.
//!
//! A [`Server`] is one data directory with its configuration; the process that serves it may come and go. Everything lies below one
//! temporary directory, which is kept, with its log, when a test fails.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU16, Ordering},
    },
};

use rustls::ClientConfig;
use tempfile::TempDir;

use crate::{
    certificates::Authority,
    imap::Imap,
    mail::Mail,
    pop3::Pop3,
    process::{self, Done, wait_for},
    strict,
    wire::{Result, Trouble, Wire},
};

/// The accounts that every server of a test has, with their passwords.
pub const ACCOUNTS: &[(&str, &str)] = &[
    ("anne@example.org", "anne's secret"),
    ("bob@example.org", "bob's \"secret\""),
];

/// Ports are taken from below the range that the kernel gives to clients, so that no connection of a test sits on one.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// The binary under test: `WHIMBREL_BIN`, or that of the profile and target directory these tests were built in, made now.
///
/// # Panics
/// When it cannot be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("WHIMBREL_BIN") {
            return PathBuf::from(path);
        }
        // TARGET/PROFILE/deps/this
        let own = std::env::current_exe().expect("a test has a path");
        let directory = own
            .parent()
            .and_then(Path::parent)
            .expect("TARGET/PROFILE")
            .to_path_buf();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["build", "--quiet", "--package", "whimbrel"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.env("CARGO_TARGET_DIR", directory.parent().expect("TARGET"));
        // What cargo says of this package: ring's build script reads it, and would be run again, with all that rests on it.
        for (name, _) in std::env::vars_os() {
            let told = name.to_string_lossy();
            if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&name);
            }
        }
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        // No deadline: a first build takes its time.
        let status = cargo.stdin(Stdio::null()).status().expect("cargo runs");
        assert!(status.success(), "the server could not be built");
        directory.join("whimbrel")
    })
}

/// The ports of one server.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// IMAP over TLS.
    pub imaps: u16,
    /// IMAP with STARTTLS.
    pub imap: u16,
    /// POP3 over TLS.
    pub pop3s: u16,
    /// POP3 with STLS.
    pub pop3: u16,
    /// SMTP with STARTTLS.
    pub smtp: u16,
    /// Submission over TLS.
    pub submissions: u16,
    /// Submission with STARTTLS.
    pub submission: u16,
    /// LMTP.
    pub lmtp: u16,
    /// Metrics, by HTTP.
    pub metrics: u16,
}

impl Ports {
    fn free() -> Ports {
        Ports {
            imaps: free_port(),
            imap: free_port(),
            pop3s: free_port(),
            pop3: free_port(),
            smtp: free_port(),
            submissions: free_port(),
            submission: free_port(),
            lmtp: free_port(),
            metrics: free_port(),
        }
    }
}

/// A port that nobody uses now.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time begin at different places.
    let start = u16::try_from(std::process::id() % 400).unwrap_or(0) * 50;
    for _ in 0..PORTS.len() {
        let port = PORTS.start
            + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
        if TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// What a server is to be like.
#[derive(Default)]
pub struct Builder {
    /// Section and lines, added to what the tests need.
    config: Vec<(String, String)>,
    empty: bool,
    unwatched: bool,
}

impl Builder {
    /// Sets a key of the configuration: `set("imap", "literal_count_max = 10")`.
    #[must_use]
    pub fn set(mut self, section: &str, line: &str) -> Builder {
        self.config.push((section.to_owned(), line.to_owned()));
        self
    }

    /// Without accounts: nothing lies in the data directory yet.
    #[must_use]
    pub fn empty(mut self) -> Builder {
        self.empty = true;
        self
    }

    /// Its clients are no strict ones ([`strict`]): what they ask is counted, or what is there is put back as it was.
    #[must_use]
    pub fn unwatched(mut self) -> Builder {
        self.unwatched = true;
        self
    }

    /// Makes directory, configuration, certificate and accounts; nothing serves yet.
    #[must_use]
    pub fn build(self) -> Server {
        let directory = tempfile::Builder::new()
            .prefix("whimbrel-e2e-")
            .tempdir()
            .expect("a temporary directory");
        let ports = Ports::free();
        let authority = Authority::new();
        authority.write_leaf(directory.path(), "first");
        let tls = authority.client();
        if !self.unwatched {
            let strict = Arc::default();
            for port in [ports.imaps, ports.imap] {
                strict::watch(port, &strict);
            }
        }
        let server = Server {
            ports,
            tls,
            authority,
            environment: Vec::new(),
            program: binary().to_owned(),
            directory: Some(directory),
            child: None,
            starts: 0,
        };
        fs::write(server.path("whimbrel.toml"), self.toml(ports)).expect("configuration written");
        let accounts = if self.empty { &[] } else { ACCOUNTS };
        for (address, password) in accounts {
            let _ = server
                .admin(&["account", "add", address, "--password-stdin"], password)
                .expect("account add");
        }
        server
    }

    /// Builds, and serves.
    #[must_use]
    pub fn start(self) -> Server {
        let mut server = self.build();
        server.start(&[]);
        server
    }

    fn toml(&self, ports: Ports) -> String {
        let address = |port: u16| format!("[\"127.0.0.1:{port}\"]");
        let mut lines: Vec<(&str, String)> = vec![
            ("server", "data_dir = \"data\"".to_owned()),
            ("server", "hostname = \"mail.example.org\"".to_owned()),
            ("tls", "cert = \"certificate.pem\"".to_owned()),
            ("tls", "key = \"key.pem\"".to_owned()),
            ("imap", format!("listen = {}", address(ports.imap))),
            ("imap", format!("listen_tls = {}", address(ports.imaps))),
            ("pop3", format!("listen = {}", address(ports.pop3))),
            ("pop3", format!("listen_tls = {}", address(ports.pop3s))),
            ("smtp", format!("listen = {}", address(ports.smtp))),
            (
                "submission",
                format!("listen = {}", address(ports.submission)),
            ),
            (
                "submission",
                format!("listen_tls = {}", address(ports.submissions)),
            ),
            ("lmtp", format!("listen = {}", address(ports.lmtp))),
            ("metrics", format!("listen = {}", address(ports.metrics))),
            // Guessing is not what these tests are about, and they log in often.
            ("auth", "argon2_memory = \"1MiB\"".to_owned()),
            ("auth", "scram_iterations = 4096".to_owned()),
        ];
        for (section, line) in &self.config {
            let key = line.split('=').next().unwrap_or_default().trim();
            // What the test says replaces what all tests say.
            lines.retain(|(of, line)| {
                of != section || line.split('=').next().map(str::trim) != Some(key)
            });
            lines.push((section, line.clone()));
        }
        lines.sort_by_key(|(section, _)| *section);
        let mut text = String::new();
        let mut current = "";
        for (section, line) in &lines {
            if *section != current {
                text.push_str(&format!("[{section}]\n"));
                current = section;
            }
            text.push_str(&format!("{line}\n"));
        }
        text
    }
}

/// A data directory, and the process that serves it.
pub struct Server {
    /// Where it listens.
    pub ports: Ports,
    /// What a client needs to trust it.
    pub tls: Arc<ClientConfig>,
    /// Who signed its certificate.
    pub authority: Authority,
    /// Variables of its environment.
    pub environment: Vec<(&'static str, String)>,
    /// What is run: this version of it, unless a test says otherwise.
    pub program: PathBuf,
    directory: Option<TempDir>,
    child: Option<Child>,
    starts: u32,
}

impl Server {
    /// A server as most tests want it, serving.
    #[must_use]
    pub fn start_plain() -> Server {
        Builder::default().start()
    }

    /// A path in its directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory
            .as_ref()
            .expect("not dropped")
            .path()
            .join(name)
    }

    /// The log of all its processes so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.path("log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Runs one of the administrator's commands.
    pub fn admin(&self, arguments: &[&str], stdin: &str) -> Done {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .arg("--config")
            .arg(self.path("whimbrel.toml"))
            .current_dir(self.path(""));
        process::run(&mut command, stdin.as_bytes())
    }

    /// From its next start on a library is loaded into it, `scripts/{script}.c`. It looks at a file, of which this variable tells it and in which
    /// [`Server::tell_preloaded`] writes; at first 0.
    pub fn preload(&mut self, script: &str, variable: &'static str) {
        let library = self.path("preloaded.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
        compiler.arg(format!("{}/scripts/{script}.c", env!("CARGO_MANIFEST_DIR")));
        let _ = process::run(&mut compiler, b"").expect("cc");
        let text = |path: PathBuf| path.to_str().expect("a path of ours").to_owned();
        let told = self.path("told");
        self.environment.push(("LD_PRELOAD", text(library)));
        self.environment.push((variable, text(told)));
        self.tell_preloaded(0);
    }

    /// From now on the library finds this in its file.
    pub fn tell_preloaded(&self, number: i64) {
        let new = self.path("told.new");
        fs::write(&new, number.to_string()).expect("told");
        fs::rename(new, self.path("told")).expect("told");
    }

    /// Starts serving, by way of a wrapper such as strace, and waits until all ports answer.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn start(&mut self, wrapper: &[&str]) {
        self.launch(wrapper);
        self.wait_until_it_serves();
    }

    /// Waits until it serves.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn wait_until_it_serves(&mut self) {
        wait_for("the server to serve", || {
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                panic!("the server ended ({status}):\n{}", self.tail());
            }
            self.answers().then_some(())
        });
    }

    /// Starts serving and waits for nothing.
    pub fn launch(&mut self, wrapper: &[&str]) {
        assert!(self.child.is_none(), "one process a data directory");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .expect("log");
        let binary = self.program.to_string_lossy().into_owned();
        let mut words: Vec<&str> = wrapper.to_vec();
        words.push(&binary);
        let (program, arguments) = words.split_first().expect("the binary at least");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg("serve")
            .arg("--config")
            .arg(self.path("whimbrel.toml"));
        command
            .current_dir(self.path(""))
            .env("RUST_BACKTRACE", "1")
            .envs(self.environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null());
        command.stdout(log.try_clone().expect("log")).stderr(log);
        self.child = Some(command.spawn().expect("the server starts"));
        self.starts += 1;
    }

    /// Whether every port greets. A port of another process would not do so in our name.
    #[must_use]
    pub fn answers(&self) -> bool {
        Imap::connect(self.ports.imaps, &self.tls).is_ok()
            && Pop3::connect_clear(self.ports.pop3).is_ok()
            && Mail::connect(self.ports.smtp).is_ok()
            && Mail::connect(self.ports.lmtp).is_ok()
    }

    /// The process id of the server itself, not of a wrapper.
    #[must_use]
    pub fn pid(&self) -> u32 {
        let own = self.child.as_ref().expect("serving").id();
        let is_server = |pid: u32| {
            fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|path| Some(path) == self.program.canonicalize().ok())
        };
        if is_server(own) {
            return own;
        }
        let children =
            fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        children
            .split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .find(|pid| is_server(*pid))
            .unwrap_or(own)
    }

    /// Kills it as a power switch would, short of losing what the kernel holds.
    pub fn kill(&mut self) {
        let pid = self.pid();
        process::signal(pid, "KILL");
        if let Some(mut child) = self.child.take() {
            process::ended(&mut child, "a killed server");
        }
    }

    /// Stops it as an administrator would; it must end with 0.
    pub fn stop(&mut self) {
        process::signal(self.pid(), "TERM");
        if let Some(mut child) = self.child.take() {
            let code = process::ended(&mut child, "a server asked to stop");
            assert_eq!(code, 0, "the server's exit code:\n{}", self.tail());
        }
        self.assert_no_panic();
    }

    /// Waits until it has ended by itself; its exit code, -1 for a signal.
    pub fn wait_end(&mut self) -> i32 {
        let mut child = self.child.take().expect("serving");
        process::ended(&mut child, "a server that should end")
    }

    /// Nobody may have seen a panic, nor an invariant that does not hold.
    pub fn assert_no_panic(&self) {
        let log = self.log();
        assert!(
            !log.contains("panicked at"),
            "a panic in the log:\n{}",
            self.tail()
        );
    }

    /// The end of the log.
    #[must_use]
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// An IMAP session of the first account.
    pub fn anne(&self) -> Imap {
        self.login(ACCOUNTS[0]).expect("login")
    }

    /// An IMAP session of an account.
    pub fn login(&self, (user, password): (&str, &str)) -> Result<Imap> {
        Imap::login(self.ports.imaps, &self.tls, user, password)
    }

    /// A POP3 session of the first account.
    pub fn anne_pop3(&self) -> Pop3 {
        Pop3::login(self.ports.pop3s, &self.tls, ACCOUNTS[0].0, ACCOUNTS[0].1).expect("login")
    }

    /// Puts messages of these names and about this size into the first account's INBOX, by LMTP, and waits for them.
    pub fn deliver(&self, names: &[String], size: usize) {
        let mut imap = self.anne();
        let status = imap.command("STATUS INBOX (MESSAGES)").expect("STATUS");
        let before = status
            .status_figures()
            .get("MESSAGES")
            .copied()
            .unwrap_or(0);
        let mut mail = Mail::lmtp(self.ports.lmtp).expect("LMTP");
        for name in names {
            let text = crate::message::bytes(name, size);
            let replies = mail
                .deliver("carl@example.net", &[ACCOUNTS[0].0], &text, true)
                .expect("delivery");
            assert!(replies[0].is(2), "{replies:?}");
        }
        self.wait_count(&mut imap, "INBOX", before + names.len() as u64);
    }

    /// Everything of a mailbox: UIDVALIDITY, UIDNEXT, and UID, flags and bytes of each message.
    pub fn contents(&self, imap: &mut Imap, mailbox: &str) -> Result<Contents> {
        let examined = imap.command(&format!("EXAMINE {}", crate::imap::quoted(mailbox)))?;
        if examined.status != crate::imap::Status::Ok {
            return Err(Trouble::Protocol(format!(
                "EXAMINE {mailbox}: {examined:?}"
            )));
        }
        let number = |name: &str| {
            examined
                .code_number(name)
                .ok_or_else(|| Trouble::Protocol(format!("no {name} in {examined:?}")))
        };
        let (validity, next) = (number("UIDVALIDITY")?, number("UIDNEXT")?);
        let mut messages = Vec::new();
        let count = examined
            .exists()
            .ok_or_else(|| Trouble::Protocol(format!("no EXISTS in {examined:?}")))?;
        if count > 0 {
            let fetched = imap.command("FETCH 1:* (UID FLAGS BODY.PEEK[])")?;
            // Somebody removed some of them meanwhile: whoever looks has to look again.
            if fetched.code == "EXPUNGEISSUED" {
                return Err(Trouble::Protocol("expunged meanwhile".to_owned()));
            }
            let fetched = fetched.ok("FETCH of everything");
            for (number, items) in fetched.fetched() {
                // What came meanwhile is of the next look, and flags that others set come without a body.
                let Some(bytes) = items.bytes("BODY[]").filter(|_| number <= count) else {
                    continue;
                };
                messages.push(Message {
                    uid: items.uid().unwrap_or(0),
                    flags: items.flags().unwrap_or_default(),
                    bytes: bytes.to_vec(),
                });
            }
        }
        if usize::try_from(count).ok() != Some(messages.len()) {
            return Err(Trouble::Protocol(format!(
                "{} messages of {count}",
                messages.len()
            )));
        }
        Ok(Contents {
            validity,
            next,
            messages,
        })
    }

    /// Waits until that many messages are in a mailbox: what SMTP and LMTP accepted is delivered a moment later.
    pub fn wait_count(&self, imap: &mut Imap, mailbox: &str, count: u64) {
        wait_for(&format!("{count} messages in {mailbox}"), || {
            let status = imap
                .command(&format!(
                    "STATUS {} (MESSAGES)",
                    crate::imap::quoted(mailbox)
                ))
                .expect("STATUS");
            let messages = status.status_figures().get("MESSAGES").copied();
            assert!(
                messages.is_some_and(|messages| messages <= count),
                "{messages:?} messages in {mailbox}, {count} were sent"
            );
            (messages == Some(count)).then_some(())
        });
    }

    /// A page of the metrics port.
    #[must_use]
    pub fn http(&self, path: &str) -> String {
        let fetch = || -> Result<Vec<u8>> {
            let mut wire = Wire::clear(self.ports.metrics)?;
            wire.send(
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    .as_bytes(),
            )?;
            wire.drain()
        };
        String::from_utf8_lossy(&fetch().expect("HTTP")).into_owned()
    }
}

/// What is in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// UIDVALIDITY
    pub validity: u32,
    /// UIDNEXT
    pub next: u32,
    /// Messages, by sequence number.
    pub messages: Vec<Message>,
}

/// One message of a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its UID.
    pub uid: u32,
    /// Its flags, sorted.
    pub flags: Vec<String>,
    /// All of its bytes.
    pub bytes: Vec<u8>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            let pid = self.pid();
            let _ = Command::new("kill")
                .arg("-KILL")
                .arg(pid.to_string())
                .status();
            if let Some(mut child) = self.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::thread::panicking() {
            let tail = self.tail();
            if let Some(directory) = self.directory.take() {
                eprintln!(
                    "kept: {}\nend of the log:\n{tail}",
                    directory.keep().display()
                );
            }
        }
    }
}
