//! The decoder: bytes in, in any split, [`Event`]s out.
//!
//! A line ends with CRLF: "Commands in the POP3 consist of a case-insensitive keyword, possibly followed by one or more arguments. All commands are terminated
//! by a CRLF pair" (RFC 1939, 3). An LF alone ends the session: what one reader takes for one line and another for two lets commands be hidden in a line.
//!
//! Invariants: what comes out does not depend on how the bytes were split; no byte is looked at twice for a line end; a line that was read
//! is overwritten.

use memchr::memchr;
use zeroize::Zeroize as _;

use crate::{Command, CommandError, Limits, Secret, command::base64};

/// An empty buffer keeps no more than this: a session at rest is small.
const IDLE_BYTES_MAX: usize = 256;

/// What the decoder found.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole command.
    Command(Command),
    /// The client's line within AUTH, after [`Decoder::expect_sasl`].
    Sasl(SaslReply),
    /// A line that is no command.
    Bad(CommandError),
    /// The client cannot be understood any more: the session says so and closes. Nothing comes after it.
    Fatal {
        /// What is wrong: fit for the answer.
        text: &'static str,
    },
}

/// A line of the client within AUTH (RFC 5034, 4).
#[derive(Debug, PartialEq, Eq)]
pub enum SaslReply {
    /// Decoded.
    Data(Secret),
    /// `*`
    Cancel,
    /// Not base64.
    Invalid,
}

/// See the module.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    bytes: Vec<u8>,
    /// Where the unread bytes begin.
    at: usize,
    /// Of the unread bytes, how many are known to hold no line end.
    scanned: usize,
    sasl: bool,
    failed: bool,
}

impl Decoder {
    /// With nothing in it.
    #[must_use]
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            bytes: Vec::new(),
            at: 0,
            scanned: 0,
            sasl: false,
            failed: false,
        }
    }

    /// Takes bytes of the client. To be called when [`Decoder::next`] has nothing more: then it holds less than one line and what is
    /// pushed.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed {
            return;
        }
        // What has been read makes room when it is at least as much as what has not: linear in all.
        let unread = self.bytes.len() - self.at;
        if self.at > 0 && self.at >= unread {
            self.bytes.copy_within(self.at.., 0);
            self.bytes[unread..].zeroize();
            self.bytes.truncate(unread);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next line is not a command but an answer to a challenge.
    pub fn expect_sasl(&mut self) {
        self.sasl = true;
    }

    /// Whether something that was not read yet has come: the client does not wait for each answer.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.at < self.bytes.len()
    }

    /// What was read behind the last line that was given out: for who goes on in this one's place, which gives out nothing more.
    pub fn take_rest(&mut self) -> Vec<u8> {
        self.failed = true;
        self.scanned = 0;
        self.bytes.split_off(self.at)
    }

    /// Memory that depends on what the client did.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The next line, if it is whole.
    #[allow(clippy::should_implement_trait, reason = "it may have more later")]
    pub fn next(&mut self) -> Option<Event> {
        if self.failed {
            return None;
        }
        let bytes_max = if self.sasl {
            self.limits.auth_line_bytes_max
        } else {
            self.limits.command_line_bytes_max
        };
        let unread = &self.bytes[self.at..];
        let end = memchr(b'\n', &unread[self.scanned..]).map(|at| self.scanned + at);
        // Of the position of the line end alone, as if the bytes came one by one.
        if end.map_or(unread.len(), |end| end + 1) > bytes_max
            || (end.is_none() && unread.len() == bytes_max)
        {
            self.fail();
            return Some(Event::Fatal {
                text: "Line is too long",
            });
        }
        let Some(end) = end else {
            self.scanned = unread.len();
            return None;
        };
        let Some(line) = unread[..end].strip_suffix(b"\r") else {
            self.fail();
            return Some(Event::Fatal {
                text: "A line ends with CRLF",
            });
        };
        let event = if std::mem::take(&mut self.sasl) {
            Event::Sasl(match line {
                b"*" => SaslReply::Cancel,
                line => base64(line).map_or(SaslReply::Invalid, SaslReply::Data),
            })
        } else {
            match Command::parse(line) {
                Ok(command) => Event::Command(command),
                Err(error) => Event::Bad(error),
            }
        };
        self.consume(end + 1);
        Some(event)
    }

    fn consume(&mut self, count: usize) {
        self.bytes[self.at..self.at + count].zeroize();
        self.at += count;
        self.scanned = 0;
        if self.at == self.bytes.len() {
            self.at = 0;
            self.bytes.clear();
            if self.bytes.capacity() > IDLE_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    fn fail(&mut self) {
        self.failed = true;
        self.bytes.zeroize();
        self.bytes = Vec::new();
        self.at = 0;
        self.scanned = 0;
    }
}

impl Drop for Decoder {
    /// A half line may be half a password.
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Limits = Limits {
        command_line_bytes_max: 12,
        auth_line_bytes_max: 20,
    };

    /// What comes out of `input` in pieces of `size`; after AUTH the next line is an answer.
    fn decode(input: &[u8], size: usize) -> Vec<Event> {
        let mut decoder = Decoder::new(SMALL);
        let mut events = Vec::new();
        for piece in input.chunks(size) {
            decoder.push(piece);
            while let Some(event) = decoder.next() {
                if matches!(event, Event::Command(Command::Auth(Some(_)))) {
                    decoder.expect_sasl();
                }
                events.push(event);
            }
            assert!(
                decoder.bytes.len() - decoder.at < 20,
                "an unfinished line above the limit"
            );
        }
        events
    }

    #[track_caller]
    fn check(input: &str, expected: &[Event]) {
        for size in 1..=input.len() {
            assert_eq!(
                decode(input.as_bytes(), size),
                expected,
                "{input:?} by {size}"
            );
        }
    }

    fn fatal() -> Event {
        Event::Fatal {
            text: "Line is too long",
        }
    }

    #[test]
    fn lines() {
        let command = Event::Command;
        check(
            "STAT\r\nLIST\r\nretr 2\r\nQU",
            &[
                command(Command::Stat),
                command(Command::List(None)),
                command(Command::Retr(2)),
            ],
        );
        check(
            "\r\nx\r\nST\rAT\r\nNOOP\r\n",
            &[
                Event::Bad(CommandError::Unknown),
                Event::Bad(CommandError::Unknown),
                Event::Bad(CommandError::Unknown),
                command(Command::Noop),
            ],
        );
        check(
            "AUTH LOGIN\r\n*\r\nAUTH PLAIN\r\n?\r\nAUTH PLAIN\r\nYWJj\r\nNOOP\r\n",
            &[
                command(Command::parse(b"AUTH LOGIN").unwrap()),
                Event::Sasl(SaslReply::Cancel),
                command(Command::parse(b"AUTH PLAIN").unwrap()),
                Event::Sasl(SaslReply::Invalid),
                command(Command::parse(b"AUTH PLAIN").unwrap()),
                Event::Sasl(SaslReply::Data(Secret::new(b"abc".to_vec()))),
                command(Command::Noop),
            ],
        );
    }

    /// A line feed alone ended a line.
    #[test]
    fn lines_that_end_otherwise() {
        let bare = || Event::Fatal {
            text: "A line ends with CRLF",
        };
        let noop = || Event::Command(Command::Noop);
        check("NOOP\nNOOP\r\n", &[bare()]);
        check("NOOP\r\nSTAT\nQUIT\r\n", &[noop(), bare()]);
        check("USER a\nb\r\n", &[bare()]);
        check("\nNOOP\r\n", &[bare()]);
        check("NOOP\n\r\n", &[bare()]);
        check("NOOP\rSTA\r\n", &[Event::Bad(CommandError::Unknown)]);
        let auth = Event::Command(Command::parse(b"AUTH PLAIN").unwrap());
        check("AUTH PLAIN\r\nYWJj\n", &[auth, bare()]);
    }

    #[test]
    fn lines_that_are_too_long() {
        check(
            "USER a234\r\n",
            &[Event::Command(Command::User("a234".into()))],
        );
        check("USER a23456\r\nNOOP\r\n", &[fatal()]);
        check("USER a234567\nNOOP\r\n", &[fatal()]);
        check("AAAAAAAAAAAA", &[fatal()]);
        check("AAAAAAAAAAA", &[]);
        check(&"\0".repeat(100), &[fatal()]);
        check(
            &format!("AUTH PLAIN\r\n{}", "A".repeat(40)),
            &[
                Event::Command(Command::parse(b"AUTH PLAIN").unwrap()),
                fatal(),
            ],
        );
    }

    #[test]
    fn what_was_read_is_overwritten_and_given_back() {
        let mut decoder = Decoder::new(Limits::default());
        decoder.push(b"PASS secret\r\nNO");
        decoder.next().unwrap();
        assert_eq!(&decoder.bytes[..13], [0; 13]);
        decoder.push(b"OP\r\n");
        assert_eq!(decoder.next(), Some(Event::Command(Command::Noop)));
        decoder.push(&b"NOOP\r\n".repeat(2000));
        while decoder.next().is_some() {}
        assert!(decoder.buffered_bytes() <= IDLE_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_split_is_the_same(
            input in "(STAT\r\n|AUTH PLAIN\r\n|YQ==\r\n|[A*\r\n =]{0,30}){0,12}",
            size in 1usize..40,
        ) {
            prop_assert_eq!(decode(input.as_bytes(), size), decode(input.as_bytes(), 1));
        }
    }
}
