//! A small blocking IMAP client (RFC 9051) for tests. It is suspicious: whatever the grammar does not have is a mistake of the server.

pub mod parse;
pub mod reply;
mod resync;

use std::sync::Arc;

use rustls::ClientConfig;

pub use self::{
    parse::{Fetched, Node, Response, Status},
    reply::Reply,
    resync::Resync,
};
use crate::{
    strict::Session,
    wire::{Result, Trouble, Wire},
};

/// A session.
pub struct Imap {
    /// The connection, for tests that speak raw.
    pub wire: Wire,
    next_tag: u32,
    /// Who hears all of it, where that is watched ([`crate::strict`]).
    strict: Option<Session>,
}

impl Imap {
    /// Connects by TLS and reads the greeting.
    pub fn connect(port: u16, config: &Arc<ClientConfig>) -> Result<Imap> {
        Imap::greeted(Wire::tls(port, config)?).map(|imap| imap.at(port))
    }

    /// Connects in clear and reads the greeting.
    pub fn connect_clear(port: u16) -> Result<Imap> {
        Imap::greeted(Wire::clear(port)?).map(|imap| imap.at(port))
    }

    fn at(mut self, port: u16) -> Imap {
        self.strict = Session::at(port);
        self
    }

    /// Not strict: what is sent past this client has answers, too.
    #[must_use]
    pub fn unwatched(mut self) -> Imap {
        self.strict = None;
        self
    }

    /// Over a connection on which somebody is logged in from the start.
    pub fn preauthenticated(wire: Wire) -> Result<Imap> {
        Imap::greeted_with(wire, Status::Preauth)
    }

    fn greeted(wire: Wire) -> Result<Imap> {
        Imap::greeted_with(wire, Status::Ok)
    }

    fn greeted_with(wire: Wire, expected: Status) -> Result<Imap> {
        let mut imap = Imap {
            wire,
            next_tag: 0,
            strict: None,
        };
        match imap.response()? {
            Response::State(status, _, _) if status == expected => Ok(imap),
            other => Err(Trouble::Protocol(format!("greeting: {other:?}"))),
        }
    }

    /// Connects by TLS and logs in.
    pub fn login(
        port: u16,
        config: &Arc<ClientConfig>,
        user: &str,
        password: &str,
    ) -> Result<Imap> {
        let mut imap = Imap::connect(port, config)?;
        let reply = imap.command(&format!("LOGIN {} {}", quoted(user), quoted(password)))?;
        if reply.status == Status::Ok {
            Ok(imap)
        } else {
            Err(Trouble::Protocol(format!("LOGIN: {reply:?}")))
        }
    }

    /// A tag that was not used yet.
    pub fn tag(&mut self) -> String {
        self.next_tag += 1;
        format!("t{}", self.next_tag)
    }

    /// Sends a command without waiting; its tag.
    pub fn send(&mut self, command: &[u8]) -> Result<String> {
        let tag = self.tag();
        if let Some(strict) = &mut self.strict {
            strict.sent(&tag, command);
        }
        let mut line = format!("{tag} ").into_bytes();
        line.extend_from_slice(command);
        line.extend_from_slice(b"\r\n");
        self.wire.send(&line)?;
        Ok(tag)
    }

    /// Sends commands of these tags, one a line, without waiting for anything.
    pub fn pipeline(&mut self, commands: &[(&str, &str)]) -> Result<()> {
        let mut lines = String::new();
        for (tag, command) in commands {
            if let Some(strict) = &mut self.strict {
                strict.sent(tag, command.as_bytes());
            }
            lines.push_str(&format!("{tag} {command}\r\n"));
        }
        self.wire.send(lines.as_bytes())
    }

    /// Sends a command and waits for its end.
    pub fn command(&mut self, command: &str) -> Result<Reply> {
        self.raw_command(command.as_bytes())
    }

    /// The same for bytes, such as those with non-synchronizing literals.
    pub fn raw_command(&mut self, command: &[u8]) -> Result<Reply> {
        let tag = self.send(command)?;
        let reply = self.reply(&tag)?;
        self.list()?;
        Ok(reply)
    }

    /// Behind a SELECT: what a client that keeps everything asks for.
    fn list(&mut self) -> Result<()> {
        let Some((changed, all)) = self.strict.as_mut().and_then(Session::questions) else {
            return Ok(());
        };
        let changed = match changed {
            Some(changed) => {
                let tag = self.send(changed.as_bytes())?;
                Some(self.reply(&tag)?)
            }
            None => None,
        };
        let tag = self.send(all.as_bytes())?;
        let all = self.reply(&tag)?;
        if let Some(strict) = &mut self.strict {
            objects(strict.listed(changed.as_ref(), &all), strict, &all);
        }
        Ok(())
    }

    /// APPEND by a literal that waits for nobody (LITERAL+).
    pub fn append(&mut self, mailbox: &str, flags: &[&str], message: &[u8]) -> Result<Reply> {
        let command = append_command(mailbox, flags, message);
        self.raw_command(&command)
    }

    /// Reads until the end of the command of this tag.
    pub fn reply(&mut self, tag: &str) -> Result<Reply> {
        let mut untagged = Vec::new();
        loop {
            match self.response()? {
                Response::Tagged(of, status, code, text) if of == tag => {
                    return Ok(Reply {
                        status,
                        code,
                        text,
                        untagged,
                    });
                }
                Response::Tagged(of, ..) => {
                    return Err(Trouble::Protocol(format!("tag {of} instead of {tag}")));
                }
                Response::Continue(text) => {
                    return Err(Trouble::Protocol(format!(
                        "continuation nobody asked for: {text}"
                    )));
                }
                other => untagged.push(other),
            }
        }
    }

    /// Reads one response.
    pub fn response(&mut self) -> Result<Response> {
        let mut pieces = vec![parse::Piece::Text(self.wire.line()?)];
        while let Some(count) = pieces.last().and_then(parse::Piece::literal) {
            pieces.push(parse::Piece::Literal(self.wire.bytes(count)?));
            pieces.push(parse::Piece::Text(self.wire.line()?));
        }
        let response = parse::response(&pieces).map_err(Trouble::Protocol)?;
        if let Some(strict) = &mut self.strict {
            objects(strict.heard(&response), strict, &response);
        }
        Ok(response)
    }
}

/// A test cannot overlook it, as it may the end of a session.
fn objects(judged: std::result::Result<(), String>, by: &Session, told: &impl std::fmt::Debug) {
    if let Err(breach) = judged {
        panic!("a strict client objects: {breach}\ntold: {told:?}\nknown: {by:?}");
    }
}

/// The command of an APPEND with LITERAL+, without tag and without CRLF.
#[must_use]
pub fn append_command(mailbox: &str, flags: &[&str], message: &[u8]) -> Vec<u8> {
    let mut command = format!(
        "APPEND {} ({}) {{{}+}}\r\n",
        quoted(mailbox),
        flags.join(" "),
        message.len()
    )
    .into_bytes();
    command.extend_from_slice(message);
    command
}

/// A quoted string.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A sequence set of these numbers, which are sorted.
#[must_use]
pub fn set_of(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
    words.join(",")
}
