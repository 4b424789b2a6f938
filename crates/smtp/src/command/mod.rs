//! Commands (RFC 5321 4.1): one complete line to one value.
//!
//! Strict, but for what RFC 5321 asks to tolerate (white space at the end of a line, 4.1.1) and one thing more: spaces between `FROM:`
//! or `TO:` and the path, which too many programs send and which cannot be mistaken for anything.

mod mail;

use core::str::FromStr;

use crate::address::{AddressError, HostName};
use crate::reply::{Enhanced, Refusal};
use crate::session::{MailFrom, RcptTo};

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `HELO name`
    Helo(HostName),
    /// `EHLO name`
    Ehlo(HostName),
    /// `LHLO name` (RFC 2033)
    Lhlo(HostName),
    /// `MAIL FROM:<path> parameters`
    Mail(MailFrom),
    /// `RCPT TO:<path> parameters`
    Rcpt(RcptTo),
    /// `DATA`
    Data,
    /// `BDAT size [LAST]` (RFC 3030)
    Bdat {
        /// Octets that follow.
        bytes: u64,
        /// Whether the message ends with them.
        last: bool,
    },
    /// `RSET`
    Rset,
    /// `NOOP`
    Noop,
    /// `QUIT`
    Quit,
    /// `VRFY`
    Vrfy,
    /// `EXPN`
    Expn,
    /// `HELP`
    Help,
    /// `STARTTLS` (RFC 3207)
    StartTls,
    /// `AUTH mechanism [initial-response]` (RFC 4954)
    Auth {
        /// In upper case.
        mechanism: String,
        /// Still in base64; `=` is an empty one.
        initial: Option<String>,
    },
}

/// Why a line is no command. Each is permanent; the log needs no more than the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such verb.
    #[error("Command not recognized")]
    Unknown,
    /// A control character, or no UTF-8.
    #[error("Invalid characters")]
    Characters,
    /// Arguments missing, malformed or too many.
    #[error("Invalid arguments")]
    Arguments,
    /// The size of a BDAT is not known: what follows cannot be told from commands.
    #[error("Invalid BDAT")]
    Bdat,
    /// The reverse-path.
    #[error("Invalid sender: {0}")]
    Sender(AddressError),
    /// The forward-path.
    #[error("Invalid recipient: {0}")]
    Recipient(AddressError),
    /// A parameter of MAIL or RCPT that is not offered.
    #[error("Parameter not supported")]
    Parameter,
    /// A non-ASCII address without SMTPUTF8.
    #[error("Address needs SMTPUTF8")]
    NeedsUtf8,
}

impl CommandError {
    /// What the client is told.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        let (code, enhanced) = match self {
            CommandError::Unknown => (500, Enhanced(5, 1)),
            CommandError::Characters => (500, Enhanced(5, 2)),
            CommandError::Arguments | CommandError::Bdat => (501, Enhanced(5, 4)),
            CommandError::Sender(_) => (501, Enhanced(1, 7)),
            CommandError::Recipient(_) => (501, Enhanced(1, 3)),
            // RFC 5321 4.1.1.11: "555 MAIL FROM/RCPT TO parameters not recognized or not implemented"
            CommandError::Parameter => (555, Enhanced(5, 4)),
            // RFC 6531 3.5, RFC 3463 as extended by RFC 6531 4.2 (X.6.7)
            CommandError::NeedsUtf8 => (553, Enhanced(6, 7)),
        };
        Refusal::new(code, enhanced, &self.to_string())
    }
}

/// Extensions that a server need not offer, as far as they add parameters: without the offer a parameter is unknown (555).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions {
    /// DSN (RFC 3461).
    pub dsn: bool,
    /// REQUIRETLS (RFC 8689).
    pub require_tls: bool,
    /// FUTURERELEASE (RFC 4865).
    pub future_release: bool,
}

impl Extensions {
    fn has_mail_parameter(self, keyword: &str) -> bool {
        match keyword {
            "RET" | "ENVID" => self.dsn,
            "REQUIRETLS" => self.require_tls,
            "HOLDFOR" | "HOLDUNTIL" => self.future_release,
            _ => false,
        }
    }
}

/// Octets of a BDAT size or a SIZE that are looked at: RFC 1870 3 has at most 20 digits.
const DIGITS_MAX: usize = 20;

impl Command {
    /// Parses a line without its CRLF, for a server that offers `extensions`.
    ///
    /// # Errors
    /// When it is no command.
    pub fn parse(line: &[u8], extensions: Extensions) -> Result<Command, CommandError> {
        let text = core::str::from_utf8(line).map_err(|_| CommandError::Characters)?;
        let text = text.trim_end_matches([' ', '\t']);
        if text.contains(char::is_control) {
            return Err(CommandError::Characters);
        }
        let (verb, arguments) = match text.split_once(' ') {
            Some((verb, arguments)) => (verb, Some(arguments)),
            None => (text, None),
        };
        // The longest verb has eight letters; what is longer is not copied.
        let mut upper = [0; 8];
        let Some(upper) = upper.get_mut(..verb.len()) else {
            return Err(CommandError::Unknown);
        };
        upper.copy_from_slice(verb.as_bytes());
        upper.make_ascii_uppercase();
        let none = |command| {
            if arguments.is_none() {
                Ok(command)
            } else {
                Err(CommandError::Arguments)
            }
        };
        let given = arguments.ok_or(CommandError::Arguments);
        match &*upper {
            b"MAIL" => mail::parse_mail(given?, extensions).map(Command::Mail),
            b"RCPT" => mail::parse_rcpt(given?, extensions).map(Command::Rcpt),
            b"DATA" => none(Command::Data),
            b"BDAT" => parse_bdat(arguments),
            b"HELO" => host_name(given?).map(Command::Helo),
            b"EHLO" => host_name(given?).map(Command::Ehlo),
            b"LHLO" => host_name(given?).map(Command::Lhlo),
            b"RSET" => none(Command::Rset),
            b"QUIT" => none(Command::Quit),
            b"STARTTLS" => none(Command::StartTls),
            b"NOOP" => Ok(Command::Noop),
            b"HELP" => Ok(Command::Help),
            b"VRFY" => given.map(|_| Command::Vrfy),
            b"EXPN" => given.map(|_| Command::Expn),
            b"AUTH" => parse_auth(given?),
            _ => Err(CommandError::Unknown),
        }
    }
}

fn host_name(text: &str) -> Result<HostName, CommandError> {
    HostName::new(text).map_err(|_| CommandError::Arguments)
}

/// `1*20DIGIT`; what does not fit is as good as the greatest number.
fn number(text: &str) -> Option<u64> {
    let digits =
        !text.is_empty() && text.len() <= DIGITS_MAX && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| u64::from_str(text).unwrap_or(u64::MAX))
}

/// `bdat-cmd ::= "BDAT" SP chunk-size [ SP end-marker ] CR LF`
fn parse_bdat(arguments: Option<&str>) -> Result<Command, CommandError> {
    let arguments = arguments.ok_or(CommandError::Bdat)?;
    let (size, last) = match arguments.split_once(' ') {
        Some((size, marker)) if marker.eq_ignore_ascii_case("LAST") => (size, true),
        Some(_) => return Err(CommandError::Bdat),
        None => (arguments, false),
    };
    let bytes = number(size).ok_or(CommandError::Bdat)?;
    Ok(Command::Bdat { bytes, last })
}

fn parse_auth(arguments: &str) -> Result<Command, CommandError> {
    let (mechanism, initial) = match arguments.split_once(' ') {
        Some((mechanism, initial)) => (mechanism, Some(initial)),
        None => (arguments, None),
    };
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    // RFC 4422 3.1: sasl-mech = 1*20mech-char
    if mechanism.is_empty()
        || mechanism.len() > 20
        || !mechanism.bytes().all(valid)
        || initial.is_some_and(|i| i.contains(' '))
    {
        return Err(CommandError::Arguments);
    }
    Ok(Command::Auth {
        mechanism: mechanism.to_ascii_uppercase(),
        initial: initial.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<Command, CommandError>) {
        assert_eq!(
            Command::parse(line.as_bytes(), Extensions::default()),
            expected,
            "{line:?}"
        );
    }

    #[test]
    fn verbs() {
        use CommandError::{Arguments, Bdat, Characters, Unknown};
        let host = |name| HostName::new(name).unwrap();
        check(
            "EHLO mail.example.net",
            Ok(Command::Ehlo(host("mail.example.net"))),
        );
        check("helo my_pc", Ok(Command::Helo(host("my_pc"))));
        check("Lhlo [IPv6:::1] \t ", Ok(Command::Lhlo(host("[IPv6:::1]"))));
        check("EHLO", Err(Arguments));
        check("EHLO a b", Err(Arguments));
        check("EHLO a;b", Err(Arguments));
        check("DATA", Ok(Command::Data));
        check("DATA  ", Ok(Command::Data));
        check("DATA x", Err(Arguments));
        check(" DATA", Err(Unknown));
        check(
            "BDAT 0",
            Ok(Command::Bdat {
                bytes: 0,
                last: false,
            }),
        );
        check(
            "bdat 12 last",
            Ok(Command::Bdat {
                bytes: 12,
                last: true,
            }),
        );
        check(
            "BDAT 99999999999999999999 LAST",
            Ok(Command::Bdat {
                bytes: u64::MAX,
                last: true,
            }),
        );
        for bad in [
            "BDAT",
            "BDAT x",
            "BDAT -1",
            "BDAT +1",
            "BDAT 1 LAST 2",
            "BDAT 1  LAST",
            "BDAT LAST",
            "BDAT 999999999999999999999",
            "BDAT  1",
        ] {
            check(bad, Err(Bdat));
        }
        check("NOOP whatever it is", Ok(Command::Noop));
        check("HELP", Ok(Command::Help));
        check("VRFY anne", Ok(Command::Vrfy));
        check("VRFY", Err(Arguments));
        check("STARTTLS", Ok(Command::StartTls));
        check("STARTTLS now", Err(Arguments));
        check("", Err(Unknown));
        check("MAILFROM:<a@b>", Err(Unknown));
        check("GET / HTTP/1.1", Err(Unknown));
        check("NOOP \u{1}", Err(Characters));
        check("NOOP \u{85}", Err(Characters));
        check("NO\tOP", Err(Characters));
        assert_eq!(
            Command::parse(b"NOOP \xff", Extensions::default()),
            Err(Characters)
        );
        check(
            "AUTH plain AGEAYg==",
            Ok(Command::Auth {
                mechanism: "PLAIN".into(),
                initial: Some("AGEAYg==".into()),
            }),
        );
        check(
            "AUTH LOGIN",
            Ok(Command::Auth {
                mechanism: "LOGIN".into(),
                initial: None,
            }),
        );
        check("AUTH PLAIN a b", Err(Arguments));
        check("AUTH PL@IN", Err(Arguments));
    }
}
