//! Commands: one line to one value (RFC 1939, 2449, 2595, 5034, 6856).
//!
//! ```text
//! command = keyword *(SP param) CRLF
//! keyword = 3*4VCHAR        ; not case-sensitive
//! ```

use crate::Secret;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `USER name`
    User(String),
    /// `PASS string`
    Pass(Secret),
    /// `AUTH [mechanism [initial-response]]` (RFC 5034); without a mechanism it asks which there are.
    Auth(Option<Auth>),
    /// `STLS` (RFC 2595)
    Stls,
    /// `CAPA` (RFC 2449)
    Capa,
    /// `UTF8` (RFC 6856)
    Utf8,
    /// `LANG [range]` (RFC 6856)
    Lang(Option<String>),
    /// `STAT`
    Stat,
    /// `LIST [msg]`
    List(Option<u32>),
    /// `UIDL [msg]`
    Uidl(Option<u32>),
    /// `RETR msg`
    Retr(u32),
    /// `TOP msg n`
    Top {
        /// Which message.
        message: u32,
        /// Lines of its body.
        lines: u32,
    },
    /// `DELE msg`
    Dele(u32),
    /// `NOOP`
    Noop,
    /// `RSET`
    Rset,
    /// `QUIT`
    Quit,
}

/// What AUTH begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// In upper case.
    pub mechanism: String,
    /// Decoded.
    pub initial: Option<Secret>,
}

/// Why a line is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// No such keyword.
    Unknown,
    /// A control character, or not UTF-8 ("The server MUST reject UTF-8 usernames or passwords that fail to comply with the formal
    /// syntax in UTF-8", RFC 6856, 2.2).
    Characters,
    /// Arguments missing, malformed or too many.
    Arguments,
}

impl CommandError {
    /// What the client is told.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            CommandError::Unknown => "Unknown command",
            CommandError::Characters => "Invalid characters",
            CommandError::Arguments => "Invalid arguments",
        }
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for CommandError {}

/// The longest keyword.
const KEYWORD_BYTES_MAX: usize = 4;
/// "sasl-mech = 1*20mech-char" (RFC 4422, 3.1).
const MECHANISM_BYTES_MAX: usize = 20;
/// A language range: RFC 4647 sets no limit, no tag is near to it.
const LANGUAGE_BYTES_MAX: usize = 64;

impl Command {
    /// Parses a line without its line end.
    ///
    /// # Errors
    /// When it is no command.
    pub fn parse(line: &[u8]) -> Result<Command, CommandError> {
        let text = std::str::from_utf8(line).map_err(|_| CommandError::Characters)?;
        let (keyword, rest) = match text.split_once(' ') {
            Some((keyword, rest)) => (keyword, Some(rest)),
            None => (text, None),
        };
        let mut upper = [0; KEYWORD_BYTES_MAX];
        let Some(upper) = upper.get_mut(..keyword.len()) else {
            return Err(CommandError::Unknown);
        };
        upper.copy_from_slice(keyword.as_bytes());
        upper.make_ascii_uppercase();
        if &*upper == b"PASS" {
            // "Since the PASS command has exactly one argument, a POP3 server may treat spaces in the argument as part of the password, instead of
            // as argument separators" (RFC 1939, 7).
            let password = rest.ok_or(CommandError::Arguments)?;
            if password.contains(['\0', '\r']) {
                return Err(CommandError::Characters);
            }
            return Ok(Command::Pass(Secret::new(password.as_bytes().to_vec())));
        }
        if text.contains(char::is_control) {
            return Err(CommandError::Characters);
        }
        // Some clients send a space too many; it cannot be mistaken for anything.
        let rest = rest
            .map(|rest| rest.trim_matches(' '))
            .filter(|rest| !rest.is_empty());
        let none = |command| match rest {
            None => Ok(command),
            Some(_) => Err(CommandError::Arguments),
        };
        let given = rest.ok_or(CommandError::Arguments);
        let maybe_number = || rest.map(number).transpose();
        match &*upper {
            b"USER" => Ok(Command::User(given?.to_owned())),
            b"AUTH" => rest.map(auth).transpose().map(Command::Auth),
            b"STLS" => none(Command::Stls),
            b"CAPA" => none(Command::Capa),
            b"UTF8" => none(Command::Utf8),
            b"LANG" => rest.map(language).transpose().map(Command::Lang),
            b"STAT" => none(Command::Stat),
            b"LIST" => Ok(Command::List(maybe_number()?)),
            b"UIDL" => Ok(Command::Uidl(maybe_number()?)),
            b"RETR" => Ok(Command::Retr(number(given?)?)),
            b"TOP" => top(given?),
            b"DELE" => Ok(Command::Dele(number(given?)?)),
            b"NOOP" => none(Command::Noop),
            b"RSET" => none(Command::Rset),
            b"QUIT" => none(Command::Quit),
            _ => Err(CommandError::Unknown),
        }
    }

    /// The keyword, for the metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Command::User(_) => "USER",
            Command::Pass(_) => "PASS",
            Command::Auth(_) => "AUTH",
            Command::Stls => "STLS",
            Command::Capa => "CAPA",
            Command::Utf8 => "UTF8",
            Command::Lang(_) => "LANG",
            Command::Stat => "STAT",
            Command::List(_) => "LIST",
            Command::Uidl(_) => "UIDL",
            Command::Retr(_) => "RETR",
            Command::Top { .. } => "TOP",
            Command::Dele(_) => "DELE",
            Command::Noop => "NOOP",
            Command::Rset => "RSET",
            Command::Quit => "QUIT",
        }
    }
}

/// What does not fit is as good as the greatest number: there is no such message, and no message has so many lines.
fn number(text: &str) -> Result<u32, CommandError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CommandError::Arguments);
    }
    Ok(text.parse().unwrap_or(u32::MAX))
}

fn top(arguments: &str) -> Result<Command, CommandError> {
    let (message, lines) = arguments.split_once(' ').ok_or(CommandError::Arguments)?;
    let lines = lines.trim_start_matches(' ');
    Ok(Command::Top {
        message: number(message)?,
        lines: number(lines)?,
    })
}

/// `mechanism [SP initial-response]`, where "=" is an empty response (RFC 5034, 4).
fn auth(arguments: &str) -> Result<Auth, CommandError> {
    let (mechanism, initial) = match arguments.split_once(' ') {
        Some((mechanism, initial)) => (mechanism, Some(initial)),
        None => (arguments, None),
    };
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if mechanism.len() > MECHANISM_BYTES_MAX || !mechanism.bytes().all(valid) {
        return Err(CommandError::Arguments);
    }
    let initial = match initial {
        None => None,
        Some("=") => Some(Secret::default()),
        Some(text) => Some(base64(text.as_bytes()).ok_or(CommandError::Arguments)?),
    };
    Ok(Auth {
        mechanism: mechanism.to_ascii_uppercase(),
        initial,
    })
}

/// A basic language range (RFC 4647, 2.1): letters, digits and hyphens, or `*`.
fn language(range: &str) -> Result<String, CommandError> {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if range.len() > LANGUAGE_BYTES_MAX || !(range == "*" || range.bytes().all(valid)) {
        return Err(CommandError::Arguments);
    }
    Ok(range.to_owned())
}

/// Strict base64: with its padding, without line ends.
pub(crate) fn base64(text: &[u8]) -> Option<Secret> {
    use base64::Engine as _;
    let engine = base64::engine::general_purpose::STANDARD;
    engine.decode(text).ok().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use CommandError::{Arguments, Characters, Unknown};

    #[track_caller]
    fn check(line: &str, expected: Result<Command, CommandError>) {
        assert_eq!(Command::parse(line.as_bytes()), expected, "{line:?}");
    }

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    #[test]
    fn commands() {
        check("USER anne", Ok(Command::User("anne".into())));
        check(
            "user anne@example.org|Sent Mail ",
            Ok(Command::User("anne@example.org|Sent Mail".into())),
        );
        check("USER änne", Ok(Command::User("änne".into())));
        check("USER", Err(Arguments));
        check("USER  ", Err(Arguments));
        check("USER a\0b", Err(Characters));
        check("PASS a b  c ", Ok(Command::Pass(secret("a b  c "))));
        check("PASS ", Ok(Command::Pass(secret(""))));
        check("pass a\tb", Ok(Command::Pass(secret("a\tb"))));
        check("PASS", Err(Arguments));
        check("PASS a\0b", Err(Characters));
        check("STAT", Ok(Command::Stat));
        check("STAT ", Ok(Command::Stat));
        check("STAT 1", Err(Arguments));
        check("LIST", Ok(Command::List(None)));
        check("LIST 2", Ok(Command::List(Some(2))));
        check("LIST 99999999999", Ok(Command::List(Some(u32::MAX))));
        check("LIST -1", Err(Arguments));
        check("LIST +1", Err(Arguments));
        check("LIST 1 2", Err(Arguments));
        check("uidl 007", Ok(Command::Uidl(Some(7))));
        check("RETR 1", Ok(Command::Retr(1)));
        check("RETR 1 ", Ok(Command::Retr(1)));
        check("RETR", Err(Arguments));
        check("RETR x", Err(Arguments));
        let top = |message, lines| Ok(Command::Top { message, lines });
        check("TOP 1 0", top(1, 0));
        check("top 1  20 ", top(1, 20));
        check("TOP 1", Err(Arguments));
        check("TOP 1 -1", Err(Arguments));
        check("TOP 1 2 3", Err(Arguments));
        check("DELE 3", Ok(Command::Dele(3)));
        check("NOOP", Ok(Command::Noop));
        check("RSET", Ok(Command::Rset));
        check("quit", Ok(Command::Quit));
        check("QUIT now", Err(Arguments));
        check("CAPA", Ok(Command::Capa));
        check("STLS", Ok(Command::Stls));
        check("UTF8", Ok(Command::Utf8));
        check("UTF8 USER", Err(Arguments));
        check("LANG", Ok(Command::Lang(None)));
        check("LANG *", Ok(Command::Lang(Some("*".into()))));
        check("LANG en-GB", Ok(Command::Lang(Some("en-GB".into()))));
        check("LANG e*", Err(Arguments));
        check("APOP anne c4c9334bac560ecc979e58001b3e22fb", Err(Unknown));
        check("", Err(Unknown));
        check(" STAT", Err(Unknown));
        check("STATS", Err(Unknown));
        check("GET / HTTP/1.1", Err(Unknown));
        check("NO\tOP", Err(Unknown));
        check("LIST \u{1}", Err(Characters));
        check("LIST \u{85}", Err(Characters));
        assert_eq!(Command::parse(b"USER \xff"), Err(Characters));
        assert_eq!(Command::parse(b"PASS \xff"), Err(Characters));
    }

    #[test]
    fn auth() {
        let auth = |mechanism: &str, initial: Option<&str>| {
            Ok(Command::Auth(Some(Auth {
                mechanism: mechanism.into(),
                initial: initial.map(secret),
            })))
        };
        check("AUTH", Ok(Command::Auth(None)));
        check("AUTH plain", auth("PLAIN", None));
        check("AUTH PLAIN =", auth("PLAIN", Some("")));
        check("AUTH PLAIN AGEAYg==", auth("PLAIN", Some("\0a\0b")));
        check("AUTH SCRAM-SHA-256", auth("SCRAM-SHA-256", None));
        check("AUTH PLAIN AGEAYg", Err(Arguments));
        check("AUTH PLAIN a b", Err(Arguments));
        check("AUTH PL@IN", Err(Arguments));
        check("AUTH AAAAAAAAAAAAAAAAAAAAA", Err(Arguments));
    }
}
