//! An IMAP client that counts answers and checks them, and keeps little.

use std::{
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rustls::ClientConfig;

use crate::{
    error::{Result, Trouble, expect_equal, wrong},
    wire::{Wire, shown},
};

/// One untagged response, its literals cut out.
pub struct Untagged<'a> {
    /// The line; where a literal was, its `{n}` still stands.
    pub line: &'a [u8],
    /// How many literals it had.
    pub literals: usize,
    /// Their bytes together.
    pub literal_bytes: usize,
}

impl Untagged<'_> {
    /// `* 12 NAME`: the number and the name.
    #[must_use]
    pub fn numbered(&self) -> Option<(u32, &[u8])> {
        let rest = self.line.strip_prefix(b"* ")?;
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let number = number(&rest[..space])?;
        let name = &rest[space + 1..];
        let end = name
            .iter()
            .position(|byte| *byte == b' ')
            .unwrap_or(name.len());
        Some((number, &name[..end]))
    }

    /// The number behind a word, such as `RFC822.SIZE `.
    #[must_use]
    pub fn number_after(&self, word: &str) -> Option<u64> {
        let at = self
            .line
            .windows(word.len())
            .position(|window| window == word.as_bytes())?;
        let digits = &self.line[at + word.len()..];
        let end = digits
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(digits.len());
        std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
    }

    /// Whether it says this somewhere.
    #[must_use]
    pub fn says(&self, word: &str) -> bool {
        self.line
            .windows(word.len())
            .any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// What a command brought.
#[derive(Debug, Default)]
pub struct Answer {
    /// The tagged line, behind the tag.
    pub status: String,
    /// The last EXISTS.
    pub exists: Option<u32>,
    /// FETCH responses.
    pub fetches: u32,
    /// EXPUNGE responses and UIDs of VANISHED.
    pub expunges: u32,
    /// LIST and LSUB responses.
    pub lists: u32,
    /// Numbers of SEARCH and ESEARCH responses.
    pub found: u32,
    /// STATUS responses.
    pub statuses: u32,
    /// Literals, and their bytes.
    pub literals: usize,
    /// Bytes of all literals.
    pub literal_bytes: u64,
    /// Bytes of the answer as it came.
    pub bytes: u64,
}

impl Answer {
    /// The number of a response code, such as `HIGHESTMODSEQ`, in the tagged line.
    #[must_use]
    pub fn code_number(&self, name: &str) -> Option<u64> {
        let rest = &self.status[self.status.find(name)? + name.len()..];
        rest.trim_start()
            .split(|character: char| !character.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    }
}

/// A connection.
pub struct Imap {
    wire: Wire,
    tag: u32,
    line: Vec<u8>,
    idle: bool,
}

impl Imap {
    /// Connects and reads the greeting.
    pub fn connect(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Result<Imap> {
        let mut imap = Imap {
            wire: Wire::connect(address, tls)?,
            tag: 0,
            line: Vec::new(),
            idle: false,
        };
        imap.wire.line(&mut imap.line)?;
        if imap.line.starts_with(b"* OK") {
            Ok(imap)
        } else {
            wrong(format!("greeting: {}", shown(&imap.line)))
        }
    }

    /// LOGIN.
    pub fn login(&mut self, user: &str, password: &str) -> Result<()> {
        self.run(&format!("LOGIN \"{user}\" \"{password}\""))
            .map(drop)
    }

    /// Bytes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.wire.received()
    }

    /// Runs a command that must succeed.
    pub fn run(&mut self, command: &str) -> Result<Answer> {
        self.run_with(command, |_| Ok(()))
    }

    /// Runs a command that must succeed, and shows each untagged response.
    pub fn run_with(
        &mut self,
        command: &str,
        see: impl FnMut(&Untagged<'_>) -> Result<()>,
    ) -> Result<Answer> {
        let answer = self.ask_with(command, see)?;
        if answer.status.starts_with("OK") {
            Ok(answer)
        } else {
            wrong(format!("{}: {}", beginning(command), answer.status))
        }
    }

    /// Runs a command, whatever becomes of it.
    pub fn ask(&mut self, command: &str) -> Result<Answer> {
        self.ask_with(command, |_| Ok(()))
    }

    fn ask_with(
        &mut self,
        command: &str,
        see: impl FnMut(&Untagged<'_>) -> Result<()>,
    ) -> Result<Answer> {
        let tag = self.send_command(command)?;
        self.finish(tag, see)
    }

    /// Sends a command and does not wait for its answer; the tag.
    pub fn send_command(&mut self, command: &str) -> Result<u32> {
        self.tag += 1;
        self.wire
            .send(format!("a{} {command}\r\n", self.tag).as_bytes())?;
        Ok(self.tag)
    }

    /// Reads up to the tagged line of a command that was sent.
    pub fn finish(
        &mut self,
        tag: u32,
        mut see: impl FnMut(&Untagged<'_>) -> Result<()>,
    ) -> Result<Answer> {
        let mut answer = Answer::default();
        let before = self.wire.received();
        let tagged = format!("a{tag} ");
        loop {
            let (literals, literal_bytes) = self.response()?;
            if let Some(status) = self.line.strip_prefix(tagged.as_bytes()) {
                answer.status = String::from_utf8_lossy(status).into_owned();
                answer.bytes = self.wire.received() - before;
                return Ok(answer);
            }
            if !self.line.starts_with(b"* ") {
                return wrong(format!(
                    "neither untagged nor {tagged}: {}",
                    shown(&self.line)
                ));
            }
            answer.literals += literals;
            answer.literal_bytes += literal_bytes as u64;
            let untagged = Untagged {
                line: &self.line,
                literals,
                literal_bytes,
            };
            count(&untagged, &mut answer);
            see(&untagged)?;
        }
    }

    /// Reads one response; its literals are dropped, their number and bytes told.
    fn response(&mut self) -> Result<(usize, usize)> {
        self.line.clear();
        let (mut literals, mut bytes) = (0, 0);
        loop {
            self.wire.line(&mut self.line)?;
            let Some(length) = literal(&self.line) else {
                return Ok((literals, bytes));
            };
            self.wire.skip(length)?;
            literals += 1;
            bytes += length;
        }
    }

    /// APPEND as an ordinary client does it: the literal is sent when the server asks for it.
    pub fn append(&mut self, mailbox: &str, message: &[u8]) -> Result<Answer> {
        let tag = self.send_command(&format!("APPEND \"{mailbox}\" {{{}}}", message.len()))?;
        self.continuation()?;
        self.wire.send(message)?;
        self.wire.send(b"\r\n")?;
        let answer = self.finish(tag, |_| Ok(()))?;
        if answer.status.starts_with("OK") {
            Ok(answer)
        } else {
            wrong(format!("APPEND: {}", answer.status))
        }
    }

    /// Sends an APPEND without waiting for anything (LITERAL+, RFC 7888); the tag.
    pub fn send_append(&mut self, mailbox: &str, message: &[u8]) -> Result<u32> {
        self.tag += 1;
        let mut bytes = format!(
            "a{} APPEND \"{mailbox}\" {{{}+}}\r\n",
            self.tag,
            message.len()
        )
        .into_bytes();
        bytes.extend_from_slice(message);
        bytes.extend_from_slice(b"\r\n");
        self.wire.send(&bytes)?;
        Ok(self.tag)
    }

    /// See [`Wire::handle`].
    pub fn handle(&self) -> Result<TcpStream> {
        self.wire.handle()
    }

    /// Sends bytes as they are; `false` when the server has closed the connection.
    pub fn send_unless_closed(&mut self, bytes: &[u8]) -> Result<bool> {
        self.wire.send_unless_closed(bytes)
    }

    /// All that comes until the server closes the connection.
    pub fn drain(&mut self) -> Result<Vec<u8>> {
        self.wire.drain()
    }

    /// Reads up to the request to go on.
    pub fn continuation(&mut self) -> Result<()> {
        loop {
            self.response()?;
            if self.line.starts_with(b"+") {
                return Ok(());
            }
            if !self.line.starts_with(b"* ") {
                return wrong(format!("no continuation: {}", shown(&self.line)));
            }
        }
    }

    /// IDLE, up to the server's `+`.
    pub fn idle(&mut self) -> Result<()> {
        self.send_command("IDLE")?;
        self.continuation()?;
        self.idle = true;
        self.wire.rest();
        Ok(())
    }

    /// Waits in IDLE for an EXISTS of at least this; what it was.
    pub fn await_exists(&mut self, at_least: u32) -> Result<u32> {
        loop {
            let (literals, literal_bytes) = self.response()?;
            let untagged = Untagged {
                line: &self.line,
                literals,
                literal_bytes,
            };
            match untagged.numbered() {
                Some((exists, b"EXISTS")) if exists >= at_least => return Ok(exists),
                _ if self.line.starts_with(b"* ") => {}
                _ => return wrong(format!("in IDLE: {}", shown(&self.line))),
            }
        }
    }

    /// Ends IDLE.
    pub fn done(&mut self) -> Result<Answer> {
        self.idle = false;
        self.wire.send(b"DONE\r\n")?;
        let answer = self.finish(self.tag, |_| Ok(()))?;
        if answer.status.starts_with("OK") {
            Ok(answer)
        } else {
            wrong(format!("DONE: {}", answer.status))
        }
    }

    /// LOGOUT.
    pub fn logout(mut self) -> Result<()> {
        self.run("LOGOUT").map(drop)
    }

    /// SELECT; how many messages there are.
    pub fn select(&mut self, mailbox: &str) -> Result<u32> {
        let answer = self.run(&format!("SELECT \"{mailbox}\""))?;
        answer
            .exists
            .ok_or_else(|| Trouble::Wrong(format!("SELECT {mailbox}: no EXISTS")))
    }

    /// How many messages a mailbox has, `None` if there is no such mailbox.
    pub fn messages(&mut self, mailbox: &str) -> Result<Option<u32>> {
        let mut messages = None;
        let answer = self.ask_with(&format!("STATUS \"{mailbox}\" (MESSAGES)"), |untagged| {
            if untagged.says("* STATUS ") {
                messages = untagged
                    .number_after("MESSAGES ")
                    .and_then(|number| u32::try_from(number).ok());
            }
            Ok(())
        })?;
        match (answer.status.starts_with("OK"), messages) {
            (true, Some(messages)) => Ok(Some(messages)),
            (false, None) => Ok(None),
            _ => wrong(format!("STATUS {mailbox}: {}", answer.status)),
        }
    }

    /// The capabilities, in upper case, with spaces around each.
    pub fn capabilities(&mut self) -> Result<String> {
        let mut text = String::new();
        self.run_with("CAPABILITY", |untagged| {
            if untagged.says("* CAPABILITY ") {
                text = String::from_utf8_lossy(untagged.line).to_ascii_uppercase();
                text.push(' ');
            }
            Ok(())
        })?;
        Ok(text)
    }

    /// A command that must bring exactly so many FETCH responses.
    pub fn fetch(&mut self, command: &str, expected: u32) -> Result<Answer> {
        let answer = self.run(command)?;
        expect_equal(beginning(command), answer.fetches, expected)?;
        Ok(answer)
    }

    /// A SEARCH that must find exactly so many.
    pub fn search(&mut self, command: &str, expected: u32) -> Result<Answer> {
        let answer = self.run(command)?;
        expect_equal(beginning(command), answer.found, expected)?;
        Ok(answer)
    }
}

fn beginning(command: &str) -> &str {
    command.get(..80).unwrap_or(command)
}

fn count(untagged: &Untagged<'_>, answer: &mut Answer) {
    match untagged.numbered() {
        Some((number, b"EXISTS")) => answer.exists = Some(number),
        Some((_, b"FETCH")) => answer.fetches += 1,
        Some((_, b"EXPUNGE")) => answer.expunges += 1,
        Some(_) => {}
        None => {
            let line = untagged.line;
            if let Some(found) = line.strip_prefix(b"* SEARCH") {
                answer.found += words(found);
            } else if line.starts_with(b"* ESEARCH") {
                if let Some(at) = line.windows(5).position(|window| window == b" ALL ") {
                    answer.found += set_size(&line[at + 5..]);
                }
            } else if line.starts_with(b"* VANISHED") {
                let set = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
                answer.expunges += set_size(set);
            } else if line.starts_with(b"* LIST") || line.starts_with(b"* LSUB") {
                answer.lists += 1;
            } else if line.starts_with(b"* STATUS") {
                answer.statuses += 1;
            }
        }
    }
}

/// Words of digits: `(MODSEQ 12)` at the end does not count.
fn words(text: &[u8]) -> u32 {
    let plain = text.split(|byte| *byte == b'(').next().unwrap_or_default();
    let mut count = 0;
    let mut before = b' ';
    for byte in plain {
        count += u32::from(byte.is_ascii_digit() && before == b' ');
        before = *byte;
    }
    count
}

/// How many numbers a set such as `1:3,7` names.
fn set_size(text: &[u8]) -> u32 {
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit() && !b":,".contains(byte))
        .unwrap_or(text.len());
    text[..end]
        .split(|byte| *byte == b',')
        .filter_map(|range| {
            let mut ends = range.split(|byte| *byte == b':').filter_map(number);
            let first = ends.next()?;
            let last = ends.next().unwrap_or(first);
            Some(first.abs_diff(last) + 1)
        })
        .sum()
}

/// The length in a line that ends in `{12}` or `~{12}`.
fn literal(line: &[u8]) -> Option<usize> {
    let inner = line.strip_suffix(b"}")?;
    let open = inner.iter().rposition(|byte| *byte == b'{')?;
    std::str::from_utf8(&inner[open + 1..]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &[&str]) -> Answer {
        let mut answer = Answer::default();
        for line in lines {
            let untagged = Untagged {
                line: line.as_bytes(),
                literals: 0,
                literal_bytes: 0,
            };
            count(&untagged, &mut answer);
        }
        answer
    }

    #[test]
    fn answers_are_counted() {
        let answer = counted(&[
            "* 3 EXISTS",
            "* 12 FETCH (FLAGS ())",
            "* SEARCH 1 22 333 (MODSEQ 9)",
            "* SEARCH",
            "* ESEARCH (TAG \"a1\") UID ALL 1:3,7 MODSEQ 9",
            "* VANISHED (EARLIER) 4,6:8",
            "* 2 EXPUNGE",
            "* LIST () \"/\" INBOX",
            "* STATUS INBOX (MESSAGES 3)",
            "* OK [UIDNEXT 4] hello",
        ]);
        assert_eq!(answer.exists, Some(3));
        assert_eq!((answer.fetches, answer.found, answer.expunges), (1, 7, 5));
        assert_eq!((answer.lists, answer.statuses), (1, 1));
    }

    #[test]
    fn literals_are_seen() {
        assert_eq!(literal(b"* 1 FETCH (BODY[] {120}"), Some(120));
        assert_eq!(literal(b"* 1 FETCH (BINARY[] ~{0}"), Some(0));
        assert_eq!(literal(b"* OK {x}"), None);
        assert_eq!(literal(b"* OK"), None);
    }

    #[test]
    fn numbers_are_found() {
        let untagged = Untagged {
            line: b"* 7 FETCH (UID 12 RFC822.SIZE 345)",
            literals: 0,
            literal_bytes: 0,
        };
        assert_eq!(untagged.number_after("RFC822.SIZE "), Some(345));
        assert_eq!(untagged.numbered(), Some((7, &b"FETCH"[..])));
        assert!(untagged.says("(uid"));
        let answer = Answer {
            status: "OK [HIGHESTMODSEQ 77] done".to_owned(),
            ..Answer::default()
        };
        assert_eq!(answer.code_number("HIGHESTMODSEQ"), Some(77));
    }
}
