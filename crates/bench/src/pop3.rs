//! A POP3 client (RFC 1939), with and without pipelining (RFC 2449, 6.8).

use std::{net::SocketAddr, sync::Arc};

use rustls::ClientConfig;

use crate::{
    error::{Result, Trouble, expect_equal, wrong},
    wire::{Wire, shown},
};

/// Commands sent ahead of their answers.
const WINDOW: u32 = 50;

/// A connection.
pub struct Pop3 {
    wire: Wire,
    line: Vec<u8>,
}

impl Pop3 {
    /// Connects and reads the greeting.
    pub fn connect(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Result<Pop3> {
        let mut pop = Pop3 {
            wire: Wire::connect(address, tls)?,
            line: Vec::new(),
        };
        pop.ok()?;
        Ok(pop)
    }

    /// Connects and logs in.
    pub fn login(
        address: SocketAddr,
        tls: Option<&Arc<ClientConfig>>,
        user: &str,
        password: &str,
    ) -> Result<Pop3> {
        let mut pop = Pop3::connect(address, tls)?;
        pop.ask(&format!("USER {user}"))?;
        pop.ask(&format!("PASS {password}"))?;
        Ok(pop)
    }

    /// Sends bytes as they are; `false` when the server has closed the connection.
    pub fn send_unless_closed(&mut self, bytes: &[u8]) -> Result<bool> {
        self.wire.send_unless_closed(bytes)
    }

    fn ask(&mut self, command: &str) -> Result<()> {
        self.wire.send(format!("{command}\r\n").as_bytes())?;
        self.ok()
    }

    fn ok(&mut self) -> Result<()> {
        self.line.clear();
        self.wire.line(&mut self.line)?;
        if self.line.starts_with(b"+OK") {
            Ok(())
        } else {
            wrong(format!("+OK expected: {}", shown(&self.line)))
        }
    }

    /// STAT: messages and bytes.
    pub fn stat(&mut self) -> Result<(u32, u64)> {
        self.ask("STAT")?;
        let text = String::from_utf8_lossy(&self.line).into_owned();
        let mut words = text.split(' ').skip(1);
        let count = words.next().and_then(|word| word.parse().ok());
        let bytes = words.next().and_then(|word| word.parse().ok());
        count
            .zip(bytes)
            .ok_or_else(|| Trouble::Wrong(format!("STAT: {text}")))
    }

    /// RETR of messages 1 to `count`; the bytes of their texts.
    pub fn retrieve(&mut self, count: u32, pipelined: bool) -> Result<u64> {
        let window = if pipelined { WINDOW } else { 1 };
        let (mut sent, mut bytes) = (0, 0);
        for number in 1..=count {
            if sent < number {
                let until = count.min(sent + window);
                let commands: String = (sent + 1..=until)
                    .map(|number| format!("RETR {number}\r\n"))
                    .collect();
                self.wire.send(commands.as_bytes())?;
                sent = until;
            }
            bytes += self.text()?;
        }
        Ok(bytes)
    }

    /// One multi-line answer.
    fn text(&mut self) -> Result<u64> {
        self.ok()?;
        let mut bytes = 0;
        loop {
            self.line.clear();
            self.wire.line(&mut self.line)?;
            match self.line.as_slice() {
                b"." => return Ok(bytes),
                [b'.', rest @ ..] => bytes += rest.len() as u64 + 2,
                line => bytes += line.len() as u64 + 2,
            }
        }
    }

    /// QUIT.
    pub fn quit(mut self) -> Result<()> {
        self.ask("QUIT")
    }
}

/// What STAT told must be what came.
pub fn check_bytes(what: &str, told: u64, got: u64) -> Result<()> {
    expect_equal(format!("{what}: bytes of all texts"), got, told)
}
