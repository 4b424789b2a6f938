//! A small blocking client of SMTP (RFC 5321) and LMTP (RFC 2033) for tests.

use std::sync::Arc;

use rustls::ClientConfig;

use crate::wire::{Result, Trouble, Wire};

/// A session.
pub struct Mail {
    /// The connection, for tests that speak raw.
    pub wire: Wire,
}

/// A reply: its code and its lines.
#[derive(Clone, Debug)]
pub struct MailReply {
    /// Such as 250.
    pub code: u16,
    /// The texts behind the code.
    pub lines: Vec<String>,
}

impl MailReply {
    /// Whether the code begins with this digit.
    #[must_use]
    pub fn is(&self, digit: u16) -> bool {
        self.code / 100 == digit
    }
}

impl Mail {
    /// Connects and says hello by SMTP.
    pub fn smtp(port: u16) -> Result<Mail> {
        Mail::hello(port, "EHLO client.example.net")
    }

    /// Connects and says hello by LMTP.
    pub fn lmtp(port: u16) -> Result<Mail> {
        Mail::hello(port, "LHLO client.example.net")
    }

    /// Connects and reads the greeting.
    pub fn connect(port: u16) -> Result<Mail> {
        let mut mail = Mail {
            wire: Wire::clear(port)?,
        };
        mail.expect(2)?;
        Ok(mail)
    }

    fn hello(port: u16, hello: &str) -> Result<Mail> {
        let mut mail = Mail::connect(port)?;
        mail.command(hello)?;
        Ok(mail)
    }

    /// STARTTLS, and hello again.
    pub fn start_tls(&mut self, config: &Arc<ClientConfig>, hello: &str) -> Result<()> {
        self.wire.send(b"STARTTLS\r\n")?;
        self.expect(2)?;
        self.wire.start_tls(config)?;
        self.command(hello)?;
        Ok(())
    }

    /// Reads one reply.
    pub fn reply(&mut self) -> Result<MailReply> {
        let mut lines = Vec::new();
        loop {
            let line = self.wire.line()?;
            let text = String::from_utf8(line)
                .map_err(|_| Trouble::Protocol("reply that is not UTF-8".to_owned()))?;
            let code: Option<u16> = text
                .get(..3)
                .and_then(|code| code.parse().ok())
                .filter(|code| (200..600).contains(code));
            let code = code.ok_or_else(|| Trouble::Protocol(format!("no reply: {text}")))?;
            lines.push(text.get(4..).unwrap_or_default().to_owned());
            match text.as_bytes().get(3) {
                Some(b'-') => {}
                Some(b' ') | None => return Ok(MailReply { code, lines }),
                _ => return Err(Trouble::Protocol(format!("no reply: {text}"))),
            }
        }
    }

    /// A reply whose code begins with this digit.
    pub fn expect(&mut self, digit: u16) -> Result<MailReply> {
        let reply = self.reply()?;
        if reply.is(digit) {
            Ok(reply)
        } else {
            Err(Trouble::Protocol(format!("{digit}xx expected: {reply:?}")))
        }
    }

    /// Sends a line and reads its reply.
    pub fn command(&mut self, line: &str) -> Result<MailReply> {
        self.wire.send(format!("{line}\r\n").as_bytes())?;
        self.reply()
    }

    /// Sends a message; the reply (by LMTP: of the first recipient) to the end of its data.
    pub fn deliver(
        &mut self,
        from: &str,
        to: &[&str],
        message: &[u8],
        lmtp: bool,
    ) -> Result<Vec<MailReply>> {
        self.command(&format!("MAIL FROM:<{from}>"))?;
        let mut accepted = 0;
        for to in to {
            accepted += usize::from(self.command(&format!("RCPT TO:<{to}>"))?.is(2));
        }
        self.wire.send(b"DATA\r\n")?;
        let go_on = self.reply()?;
        if !go_on.is(3) {
            return Ok(vec![go_on]);
        }
        let mut data = stuffed(message);
        data.extend_from_slice(b".\r\n");
        self.wire.send(&data)?;
        // RFC 2033, 4.2: one reply for each accepted recipient.
        (0..if lmtp { accepted } else { 1 })
            .map(|_| self.reply())
            .collect()
    }
}

/// A message whose lines that begin with a dot have one more (RFC 5321, 4.5.2).
#[must_use]
pub fn stuffed(message: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(message.len() + 16);
    let mut line_start = true;
    for byte in message {
        if line_start && *byte == b'.' {
            data.push(b'.');
        }
        data.push(*byte);
        line_start = *byte == b'\n';
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_stuffed() {
        assert_eq!(stuffed(b".a\r\nb.\r\n..\r\n"), b"..a\r\nb.\r\n...\r\n");
    }
}
