//! Replies (RFC 5321 4.2) and enhanced status codes (RFC 3463, 2034).
//!
//! A [`Reply`] is valid by construction: its code is 200 to 599, its lines hold neither CR, LF nor other control characters, and no line
//! is longer than RFC 5321 4.5.3.1.5 allows. A [`Refusal`] is a reply of class 4 or 5.

use core::fmt;

/// RFC 5321 4.5.3.1.5: 512 octets with code and CRLF; the rest is room for both and for an enhanced code.
const TEXT_BYTES_MAX: usize = 480;

/// An enhanced status code without its class, which is the reply code's first digit: `Enhanced(1, 1)` is `X.1.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Enhanced(
    /// Subject, at most 999.
    pub u16,
    /// Detail, at most 999.
    pub u16,
);

/// A reply, sent or received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    code: u16,
    enhanced: Option<Enhanced>,
    lines: Vec<String>,
}

impl Reply {
    /// A reply of one line. Text is cleaned: what a reply cannot hold becomes `?`.
    ///
    /// # Panics
    /// If the code is not 200 to 599 or a part of the enhanced code is above 999: codes are constants of the program.
    #[must_use]
    pub fn new(code: u16, enhanced: Option<Enhanced>, text: &str) -> Self {
        Reply::multi(code, enhanced, [text])
    }

    /// A reply of several lines; without any it has one empty line.
    ///
    /// # Panics
    /// As [`Reply::new`].
    #[must_use]
    pub fn multi<'a>(
        code: u16,
        enhanced: Option<Enhanced>,
        lines: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        assert!((200..600).contains(&code), "reply code {code}");
        assert!(
            enhanced.is_none_or(|e| e.0 <= 999 && e.1 <= 999),
            "enhanced code out of range"
        );
        let mut lines: Vec<String> = lines.into_iter().map(clean).collect();
        if lines.is_empty() {
            lines.push(String::new());
        }
        Reply {
            code,
            enhanced,
            lines,
        }
    }

    /// The three digits.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.code
    }

    /// The enhanced code, if any; its class is that of the code.
    #[must_use]
    pub fn enhanced(&self) -> Option<Enhanced> {
        self.enhanced
    }

    /// Its text, a string a line; at least one.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Its first lines alone.
    pub(crate) fn with_lines_max(mut self, lines_max: usize) -> Self {
        self.lines.truncate(lines_max.max(1));
        self
    }

    /// Class 2.
    #[must_use]
    pub fn is_positive(&self) -> bool {
        self.code / 100 == 2
    }

    /// Class 4: worth trying again.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.code / 100 == 4
    }

    /// Class 5.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.code / 100 == 5
    }

    /// Appends the reply as it goes over the wire. RFC 2034 4: the enhanced code stands in each line.
    pub fn encode(&self, out: &mut Vec<u8>) {
        use std::io::Write;
        let last = self.lines.len() - 1;
        for (i, line) in self.lines.iter().enumerate() {
            let separator = if i == last { ' ' } else { '-' };
            // Writing to a Vec cannot fail.
            let _ = match self.enhanced {
                Some(Enhanced(subject, detail)) => {
                    write!(
                        out,
                        "{}{separator}{}.{subject}.{detail} {line}\r\n",
                        self.code,
                        self.code / 100
                    )
                }
                None => write!(out, "{}{separator}{line}\r\n", self.code),
            };
        }
    }
}

impl fmt::Display for Reply {
    /// As in a log: one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if let Some(Enhanced(subject, detail)) = self.enhanced {
            write!(f, " {}.{subject}.{detail}", self.code / 100)?;
        }
        for line in &self.lines {
            write!(f, " {line}")?;
        }
        Ok(())
    }
}

fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    for c in text.chars() {
        let c = if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            '?'
        } else {
            c
        };
        if cleaned.len() + c.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        cleaned.push(c);
    }
    cleaned
}

/// A reply of class 4 or 5: what the client is told, and by its class whether it is temporary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(Reply);

impl Refusal {
    /// A refusal with this code.
    ///
    /// # Panics
    /// If the code is not 400 to 599: codes are constants of the program.
    #[must_use]
    pub fn new(code: u16, enhanced: Enhanced, text: &str) -> Self {
        assert!((400..600).contains(&code), "refusal with code {code}");
        Refusal(Reply::new(code, Some(enhanced), text))
    }

    /// 550 5.1.1: no such mailbox here. The limit on unknown recipients of a client counts these replies.
    #[must_use]
    pub fn unknown_recipient() -> Self {
        Refusal::new(550, Enhanced(1, 1), "No such mailbox here")
    }

    /// 550 5.7.1: not our domain.
    #[must_use]
    pub fn relay_denied() -> Self {
        Refusal::new(550, Enhanced(7, 1), "Relaying denied")
    }

    /// 452 4.2.2: the mailbox is full. It may be emptied, so this is not 552 5.2.2, which is permanent (RFC 3463).
    #[must_use]
    pub fn mailbox_full() -> Self {
        Refusal::new(452, Enhanced(2, 2), "Mailbox full")
    }

    /// 550 5.2.1: the mailbox takes no mail.
    #[must_use]
    pub fn mailbox_disabled() -> Self {
        Refusal::new(550, Enhanced(2, 1), "Mailbox disabled")
    }

    /// 451 4.3.0: any other temporary failure of this server.
    #[must_use]
    pub fn try_later() -> Self {
        Refusal::new(451, Enhanced(3, 0), "Temporary failure, try again later")
    }

    /// 452 4.3.1: the disk is full, the queue is full, or too many messages wait for other nodes.
    #[must_use]
    pub fn no_space() -> Self {
        Refusal::new(452, Enhanced(3, 1), "Insufficient storage, try again later")
    }

    /// 552 5.5.3 (RFC 5321, 4.5.3.1.10; RFC 3463): the message can go to some of the recipients at a time.
    #[must_use]
    pub fn too_many_recipients() -> Self {
        Refusal::new(
            552,
            Enhanced(5, 3),
            "Too many recipients for one message; send it to fewer at a time",
        )
    }

    /// 451 4.3.2: mail is accepted when other nodes have it, and too few can be reached. Nothing was written.
    #[must_use]
    pub fn not_accepting() -> Self {
        Refusal::new(
            451,
            Enhanced(3, 2),
            "Too few nodes of this server can be reached, try again later",
        )
    }

    /// 451 4.3.2: this node writes nothing while its clock is wrong.
    #[must_use]
    pub fn wrong_clock() -> Self {
        Refusal::new(
            451,
            Enhanced(3, 2),
            "The clock of this server is wrong, try again later",
        )
    }

    /// 451 4.4.2: too few other nodes confirmed the message in time. It had been written, and is withdrawn.
    #[must_use]
    pub fn not_confirmed() -> Self {
        Refusal::new(
            451,
            Enhanced(4, 2),
            "Other nodes of this server do not answer, try again later",
        )
    }

    /// 552 5.3.4: the message is too large.
    #[must_use]
    pub fn too_large() -> Self {
        Refusal::new(552, Enhanced(3, 4), "Message too large")
    }

    /// 554 5.4.6: the message is looping.
    #[must_use]
    pub fn mail_loop() -> Self {
        Refusal::new(
            554,
            Enhanced(4, 6),
            "Too many hops, this message is looping",
        )
    }

    /// 550 5.7.1 with a text.
    #[must_use]
    pub fn policy(text: &str) -> Self {
        Refusal::new(550, Enhanced(7, 1), text)
    }

    /// A received reply as a refusal, if it is one; else it is given back.
    ///
    /// # Errors
    /// The reply, when it is of class 2 or 3.
    pub fn from_reply(reply: Reply) -> Result<Self, Reply> {
        if reply.is_temporary() || reply.is_permanent() {
            Ok(Refusal(reply))
        } else {
            Err(reply)
        }
    }

    /// Its first lines alone.
    pub(crate) fn with_lines_max(self, lines_max: usize) -> Self {
        Refusal(self.0.with_lines_max(lines_max))
    }

    /// The reply.
    #[must_use]
    pub fn reply(&self) -> &Reply {
        &self.0
    }

    /// Class 4.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.0.is_temporary()
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Reply {
        refusal.0
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reply: &Reply, expected: &str) {
        let mut out = Vec::new();
        reply.encode(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn encodes() {
        check(
            &Reply::new(250, Some(Enhanced(1, 5)), "ok"),
            "250 2.1.5 ok\r\n",
        );
        check(
            &Reply::new(220, None, "mx.example.org ESMTP"),
            "220 mx.example.org ESMTP\r\n",
        );
        check(
            &Reply::multi(250, None, ["mx", "SIZE 1", "HELP"]),
            "250-mx\r\n250-SIZE 1\r\n250 HELP\r\n",
        );
        check(
            &Reply::multi(550, Some(Enhanced(7, 1)), ["a", "b"]),
            "550-5.7.1 a\r\n550 5.7.1 b\r\n",
        );
        check(&Reply::multi(250, None, []), "250 \r\n");
    }

    #[test]
    fn text_cannot_inject_a_line() {
        check(
            Refusal::policy("no\r\n250 ok\0\u{85}").reply(),
            "550 5.7.1 no??250 ok??\r\n",
        );
        let long = "é".repeat(1_000);
        let mut out = Vec::new();
        Reply::new(550, Some(Enhanced(999, 999)), &long).encode(&mut out);
        assert!(out.len() <= 512, "{}", out.len());
    }

    #[test]
    #[should_panic(expected = "refusal with code 250")]
    fn a_refusal_refuses() {
        let _ = Refusal::new(250, Enhanced(0, 0), "ok");
    }
}
