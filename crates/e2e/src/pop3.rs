//! A small blocking client of POP3 (RFC 1939) for tests.

use std::sync::Arc;

use rustls::ClientConfig;

use crate::wire::{Result, Trouble, Wire};

/// A session.
pub struct Pop3 {
    /// The connection, for tests that speak raw.
    pub wire: Wire,
}

/// A status line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// `+OK`
    pub ok: bool,
    /// What follows.
    pub text: String,
}

impl Pop3 {
    /// Connects by TLS and reads the greeting.
    pub fn connect(port: u16, tls: &Arc<ClientConfig>) -> Result<Pop3> {
        let mut pop3 = Pop3 {
            wire: Wire::tls(port, tls)?,
        };
        pop3.greeting()?;
        Ok(pop3)
    }

    /// Connects in clear and reads the greeting.
    pub fn connect_clear(port: u16) -> Result<Pop3> {
        let mut pop3 = Pop3 {
            wire: Wire::clear(port)?,
        };
        pop3.greeting()?;
        Ok(pop3)
    }

    /// A server that cannot serve us says so here.
    fn greeting(&mut self) -> Result<()> {
        match self.status()? {
            Status { ok: true, .. } => Ok(()),
            refused => Err(Trouble::Protocol(format!("the greeting: {refused:?}"))),
        }
    }

    /// Connects by TLS and logs in.
    pub fn login(port: u16, tls: &Arc<ClientConfig>, user: &str, password: &str) -> Result<Pop3> {
        let mut pop3 = Pop3::connect(port, tls)?;
        pop3.command(&format!("USER {user}"))?.expect("USER");
        let status = pop3.command(&format!("PASS {password}"))?;
        if status.ok {
            Ok(pop3)
        } else {
            Err(Trouble::Protocol(format!("login: {status:?}")))
        }
    }

    /// Sends a line and reads its status.
    pub fn command(&mut self, line: &str) -> Result<Status> {
        self.wire.send(format!("{line}\r\n").as_bytes())?;
        self.status()
    }

    /// Sends a line that is answered by a list or a message; its octets.
    pub fn fetch(&mut self, line: &str) -> Result<Vec<u8>> {
        self.command(line)?.expect(line);
        self.list()
    }

    /// Sends a line that is answered by a list; its lines.
    pub fn lines(&mut self, line: &str) -> Result<Vec<String>> {
        let list = String::from_utf8(self.fetch(line)?);
        let list = list.map_err(|_| Trouble::Protocol("a list that is not UTF-8".to_owned()))?;
        Ok(list.lines().map(str::to_owned).collect())
    }

    /// A status line.
    pub fn status(&mut self) -> Result<Status> {
        let line = self.wire.line()?;
        let text = String::from_utf8(line)
            .map_err(|_| Trouble::Protocol("status that is not UTF-8".to_owned()))?;
        for (start, ok) in [("+OK ", true), ("-ERR ", false)] {
            if let Some(text) = text.strip_prefix(start) {
                let text = text.to_owned();
                return Ok(Status { ok, text });
            }
        }
        Err(Trouble::Protocol(format!("no status: {text}")))
    }

    /// What follows a status line, up to the dot.
    pub fn list(&mut self) -> Result<Vec<u8>> {
        let mut list = Vec::new();
        loop {
            let line = self.wire.line()?;
            match line.as_slice() {
                b"." => return Ok(list),
                [b'.', line @ ..] | line => list.extend_from_slice(line),
            }
            list.extend_from_slice(b"\r\n");
        }
    }
}

impl Status {
    /// The text of a status that must be `+OK`.
    pub fn expect(self, what: &str) -> String {
        assert!(self.ok, "{what}: {self:?}");
        self.text
    }
}
