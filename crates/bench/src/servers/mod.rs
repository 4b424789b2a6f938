//! Servers that a comparison starts by itself, each in a directory of its own, on ports of loopback that are free.

pub mod dovecot;
pub mod whimbrel;

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use crate::{
    error::{Result, Trouble, io_at, wrong},
    target::{Address, USERS},
};

/// A server must greet within this.
const START_MAX: Duration = Duration::from_secs(60);

/// And end within this when asked to.
const STOP_MAX: Duration = Duration::from_secs(60);

/// A server that runs.
pub struct Running {
    child: Child,
    /// Where it is.
    pub address: Address,
    /// What of its configuration matters.
    pub configuration: String,
}

impl Running {
    fn start(mut command: Command, address: Address, configuration: String) -> Result<Running> {
        let child = command.spawn().map_err(io_at(format!("{command:?}")))?;
        let mut running = Running {
            child,
            address,
            configuration,
        };
        running.address.pid = Some(running.child.id());
        let started = Instant::now();
        let ports = [
            running.address.imaps,
            running.address.lmtp,
            running.address.pop3s,
        ];
        for port in ports.into_iter().flatten() {
            let address = SocketAddr::new(running.address.host, port);
            while TcpStream::connect_timeout(&address, START_MAX).is_err() {
                if let Ok(Some(status)) = running.child.try_wait() {
                    return wrong(format!("{} ended: {status}", running.address.label));
                }
                if started.elapsed() > START_MAX {
                    return wrong(format!("{} does not answer", running.address.label));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(running)
    }

    /// Asks it to end, and waits for that.
    pub fn stop(mut self) -> Result<()> {
        self.signal(rustix::process::Signal::TERM)?;
        let started = Instant::now();
        while started.elapsed() < STOP_MAX {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        wrong(format!("{} does not end", self.address.label))
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal)
            .map_err(|error| Trouble::Wrong(format!("kill: {error}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `stop` there is nothing left; after a failure the whole tree goes with its head.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.signal(rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// A port that nobody uses now.
pub(crate) fn free_port() -> Result<u16> {
    // Below those that the kernel gives to connections: the clients of another load could take one before the server does.
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let mut last = None;
    for _ in 0..COUNT {
        let next = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + std::process::id().wrapping_add(next) % COUNT;
        let port = u16::try_from(port).unwrap_or(0);
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(io_at("a free port")(
        last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()),
    ))
}

fn address(label: &str) -> Result<Address> {
    Ok(Address {
        host: [127, 0, 0, 1].into(),
        imaps: Some(free_port()?),
        imap: None,
        pop3s: None,
        lmtp: Some(free_port()?),
        smtp: None,
        user: "user{}@example.org".to_owned(),
        password: "secret{}".to_owned(),
        pid: None,
        metrics: None,
        label: label.to_owned(),
    })
}

/// Names and passwords of all users.
fn users(address: &Address) -> Vec<(String, String)> {
    (1..=USERS)
        .map(|number| {
            let fill = |pattern: &str| pattern.replace("{}", &number.to_string());
            (fill(&address.user), fill(&address.password))
        })
        .collect()
}

/// A certificate for localhost (ECDSA, P-256) and its key, the same for all servers: `certificate.pem` and `key.pem`.
pub fn certificate(directory: &Path) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
        .map_err(|error| Trouble::Wrong(format!("certificate: {error}")))?;
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(io_at(path.display()))
    };
    write("certificate.pem", made.cert.pem())?;
    write("key.pem", made.signing_key.serialize_pem())
}
