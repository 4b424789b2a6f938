//! The server under test, as its clients and the kernel see it.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::ClientConfig;

use crate::{
    error::{Result, Trouble, expect_equal, io_at},
    imap::Imap,
    pop3::Pop3,
    process::Tree,
    smtp::{Kind, Smtp},
    wire,
};

/// Where in a login name or password the number of the user goes.
const NUMBER: &str = "{}";

/// Users whose mailboxes the write workload and the deliveries fill: 1 to this.
pub const WRITERS: usize = 120;

/// Users that a whole run needs.
pub const USERS: usize = 150;

/// Where the server is.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The server")]
pub struct Address {
    /// Where it listens
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub host: IpAddr,
    /// IMAP over TLS from the first byte
    #[arg(long, value_name = "PORT")]
    pub imaps: Option<u16>,
    /// IMAP in clear, used where --imaps is not given
    #[arg(long, value_name = "PORT")]
    pub imap: Option<u16>,
    /// POP3 over TLS from the first byte
    #[arg(long, value_name = "PORT")]
    pub pop3s: Option<u16>,
    /// LMTP
    #[arg(long, value_name = "PORT")]
    pub lmtp: Option<u16>,
    /// SMTP
    #[arg(long, value_name = "PORT")]
    pub smtp: Option<u16>,
    /// Login names, also the addresses mail goes to; {} is the number of the user, 1 to 150
    #[arg(long, default_value = "user{}@example.org", value_name = "PATTERN")]
    pub user: String,
    /// Passwords; {} as above
    #[arg(long, default_value = "secret{}", value_name = "PATTERN")]
    pub password: String,
    /// The server's process: it and all its descendants count as the server
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Whimbrel's metrics: syncs are taken from there
    #[arg(long, value_name = "PORT")]
    pub metrics: Option<u16>,
    /// What it is called in reports
    #[arg(long, default_value = "server", value_name = "NAME")]
    pub label: String,
}

/// A server under test.
#[derive(Clone)]
pub struct Target {
    /// Where it is.
    pub address: Address,
    tls: Arc<ClientConfig>,
}

impl Target {
    /// A server.
    #[must_use]
    pub fn new(address: Address) -> Target {
        Target {
            address,
            tls: wire::tls_config(),
        }
    }

    fn at(&self, port: Option<u16>, what: &str) -> Result<SocketAddr> {
        port.map(|port| SocketAddr::new(self.address.host, port))
            .ok_or_else(|| Trouble::Wrong(format!("no port given for {what}")))
    }

    /// The login name of a user; numbers count from 1.
    #[must_use]
    pub fn user(&self, number: usize) -> String {
        self.address.user.replace(NUMBER, &number.to_string())
    }

    /// His password.
    #[must_use]
    pub fn password(&self, number: usize) -> String {
        self.address.password.replace(NUMBER, &number.to_string())
    }

    /// An IMAP connection, before login.
    pub fn imap(&self) -> Result<Imap> {
        match self.address.imaps {
            Some(_) => Imap::connect(self.at(self.address.imaps, "IMAPS")?, Some(&self.tls)),
            None => Imap::connect(self.at(self.address.imap, "IMAP")?, None),
        }
    }

    /// An IMAP session of a user.
    pub fn login(&self, number: usize) -> Result<Imap> {
        let mut imap = self.imap()?;
        imap.login(&self.user(number), &self.password(number))?;
        Ok(imap)
    }

    /// A POP3 session of a user.
    pub fn pop3(&self, number: usize) -> Result<Pop3> {
        let address = self.at(self.address.pop3s, "POP3S")?;
        Pop3::login(
            address,
            Some(&self.tls),
            &self.user(number),
            &self.password(number),
        )
    }

    /// A POP3 connection, before login.
    pub fn pop3_stranger(&self) -> Result<Pop3> {
        Pop3::connect(self.at(self.address.pop3s, "POP3S")?, Some(&self.tls))
    }

    /// A connection that delivers.
    pub fn smtp(&self, kind: Kind) -> Result<Smtp> {
        let port = match kind {
            Kind::Smtp => self.address.smtp,
            Kind::Lmtp => self.address.lmtp,
        };
        Smtp::connect(self.at(port, &format!("{kind:?}"))?, kind)
    }

    /// Its processes, if known.
    #[must_use]
    pub fn tree(&self) -> Option<Tree> {
        self.address.pid.map(Tree::new)
    }

    /// Syncs of its log so far, as it counts them itself.
    #[must_use]
    pub fn syncs(&self) -> Option<u64> {
        let page = self.metrics_page()?;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix("whimbrel_store_syncs_total "))?;
        line.trim().parse::<f64>().ok().map(|syncs| syncs as u64)
    }

    fn metrics_page(&self) -> Option<String> {
        let address = SocketAddr::new(self.address.host, self.address.metrics?);
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut page = String::new();
        let _ = stream.read_to_string(&mut page);
        Some(page)
    }

    /// Makes sure that a mailbox has exactly `count` messages, the `n`th made by `make(n)`, and tells whether it had them before.
    ///
    /// It is filled by several connections at once; what `make` gives must not depend on the order.
    pub fn fill(
        &self,
        user: usize,
        mailbox: &str,
        count: usize,
        make: &(impl Fn(usize) -> Vec<u8> + Sync),
        step: &(impl Fn(usize) + Sync),
    ) -> Result<bool> {
        /// Connections.
        const AT_ONCE: usize = 8;
        /// APPENDs sent ahead of their answers, and their bytes.
        const AHEAD: usize = 16;
        const AHEAD_BYTES: usize = 256 << 10;
        let mut imap = self.login(user)?;
        let there = match imap.messages(mailbox)? {
            Some(there) => there as usize,
            None => {
                imap.run(&format!("CREATE \"{mailbox}\""))?;
                0
            }
        };
        if there == count {
            imap.logout()?;
            return Ok(true);
        }
        if there > count {
            imap.select(mailbox)?;
            imap.run("STORE 1:* +FLAGS.SILENT (\\Deleted)")?;
            imap.run("EXPUNGE")?;
        }
        let from = if there > count { 0 } else { there };
        let pipelined = {
            let capabilities = imap.capabilities()?;
            capabilities.contains(" LITERAL+ ")
        };
        threads(AT_ONCE.min(count - from), |thread, threads| {
            let mut imap = self.login(user)?;
            let mut tags = std::collections::VecDeque::new();
            let mut ahead = 0;
            let mut numbers = (from + thread..count).step_by(threads);
            loop {
                let next = numbers.next();
                if let Some(number) = next {
                    let message = make(number);
                    if !pipelined {
                        imap.append(mailbox, &message)?;
                        step(1);
                        continue;
                    }
                    ahead += message.len();
                    tags.push_back((imap.send_append(mailbox, &message)?, message.len()));
                }
                while !tags.is_empty()
                    && (next.is_none() || tags.len() > AHEAD || ahead > AHEAD_BYTES)
                {
                    let Some((tag, bytes)) = tags.pop_front() else {
                        break;
                    };
                    let answer = imap.finish(tag, |_| Ok(()))?;
                    if !answer.status.starts_with("OK") {
                        return Err(Trouble::Wrong(format!("APPEND: {}", answer.status)));
                    }
                    ahead -= bytes;
                    step(1);
                }
                if next.is_none() {
                    return imap.logout();
                }
            }
        })?;
        let there = imap.select(mailbox)?;
        expect_equal(
            format!("{mailbox} after it was filled"),
            there as usize,
            count,
        )?;
        imap.logout()?;
        Ok(false)
    }
}

/// Runs the same on several threads, `work(thread, threads)`, and collects what each gives; the first trouble of any is told.
pub fn threads<T: Send>(
    count: usize,
    work: impl Fn(usize, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let started: Result<Vec<_>> = (0..count)
            .map(|thread| {
                std::thread::Builder::new()
                    .stack_size(512 << 10)
                    .spawn_scoped(scope, move || work(thread, count))
                    .map_err(io_at("a thread"))
            })
            .collect();
        let mut all = Vec::with_capacity(count);
        let mut trouble = None;
        for handle in started? {
            match handle.join() {
                Ok(Ok(one)) => all.push(one),
                Ok(Err(error)) => trouble = trouble.or(Some(error)),
                Err(_) => trouble = trouble.or(Some(Trouble::Wrong("a thread panicked".into()))),
            }
        }
        trouble.map_or(Ok(all), Err)
    })
}
