//! An SMTP and LMTP client: one message after another, each reply checked.

use std::net::SocketAddr;

use crate::{
    error::{Result, wrong},
    wire::{Wire, shown},
};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RFC 5321.
    Smtp,
    /// RFC 2033.
    Lmtp,
}

/// A connection.
pub struct Smtp {
    wire: Wire,
    line: Vec<u8>,
    pipelining: bool,
}

impl Smtp {
    /// Connects and says hello.
    pub fn connect(address: SocketAddr, kind: Kind) -> Result<Smtp> {
        let mut smtp = Smtp {
            wire: Wire::connect(address, None)?,
            line: Vec::new(),
            pipelining: false,
        };
        smtp.reply("220")?;
        smtp.wire.send(match kind {
            Kind::Smtp => b"EHLO bench.example\r\n",
            Kind::Lmtp => b"LHLO bench.example\r\n",
        })?;
        smtp.reply("250")?;
        Ok(smtp)
    }

    /// Sends a message to one recipient.
    ///
    /// The message has CRLF line ends, no line that begins with a dot, and a line end at its end.
    pub fn deliver(&mut self, recipient: &str, message: &[u8]) -> Result<()> {
        if self.pipelining {
            let [from, to, data] = begin(recipient);
            self.wire.send(format!("{from}{to}{data}").as_bytes())?;
            self.reply("250")?;
            self.reply("250")?;
            self.reply("354")?;
        } else {
            self.begin_message(recipient)?;
        }
        self.wire.send(message)?;
        self.wire.send(b".\r\n")?;
        self.reply("250")
    }

    /// Begins a message to one recipient, up to where its text begins.
    pub fn begin_message(&mut self, recipient: &str) -> Result<()> {
        for (command, code) in begin(recipient).into_iter().zip(["250", "250", "354"]) {
            self.wire.send(command.as_bytes())?;
            self.reply(code)?;
        }
        Ok(())
    }

    /// Sends bytes as they are; `false` when the server has closed the connection.
    pub fn send_unless_closed(&mut self, bytes: &[u8]) -> Result<bool> {
        self.wire.send_unless_closed(bytes)
    }

    /// QUIT.
    pub fn quit(mut self) -> Result<()> {
        self.wire.send(b"QUIT\r\n")?;
        self.reply("221")
    }

    /// Reads a reply, all of its lines, which must have this code.
    fn reply(&mut self, code: &str) -> Result<()> {
        loop {
            self.line.clear();
            self.wire.line(&mut self.line)?;
            if !self.line.starts_with(code.as_bytes()) {
                return wrong(format!("{code} expected: {}", shown(&self.line)));
            }
            self.pipelining |= self.line.ends_with(b"PIPELINING");
            if self.line.get(3) != Some(&b'-') {
                return Ok(());
            }
        }
    }
}

/// The commands before a message.
fn begin(recipient: &str) -> [String; 3] {
    [
        "MAIL FROM:<sender@sender.example>\r\n".to_owned(),
        format!("RCPT TO:<{recipient}>\r\n"),
        "DATA\r\n".to_owned(),
    ]
}
