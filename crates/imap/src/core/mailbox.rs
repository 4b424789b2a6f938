//! Mailbox names as they pass the wire (RFC 9051, section 5.1).
//!
//! Here a name is decoded and rid of what must never reach a log line, a file or another client: NUL and controls. What makes a
//! name fit for storage (hierarchy, length of a part) is decided where mailboxes are kept.

use super::utf7;
use std::fmt;

/// A decoded mailbox name: not empty, no control characters; INBOX in any case is spelled `INBOX`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailboxName(String);

/// Why bytes are no mailbox name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum InvalidName {
    /// Nothing was given.
    Empty,
    /// More bytes than [`MailboxName::BYTES_MAX`].
    TooLong,
    /// Not the strict modified UTF-7 of any name.
    Utf7,
    /// Not UTF-8.
    Utf8,
    /// RFC 9051, section 5.1: names are Net-Unicode, which has no controls.
    Control,
}

impl InvalidName {
    /// What the client is told.
    pub fn text(self) -> &'static str {
        match self {
            Self::Empty => "mailbox name is empty",
            Self::TooLong => "mailbox name is too long",
            Self::Utf7 => "mailbox name is not valid modified UTF-7",
            Self::Utf8 => "mailbox name is not valid UTF-8",
            Self::Control => "mailbox name holds a control character",
        }
    }
}

impl MailboxName {
    /// Longest name accepted, in bytes of UTF-8: a few components of the longest size that file systems know.
    pub const BYTES_MAX: usize = 1024;

    /// Checks a decoded name.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        if name.is_empty() {
            return Err(InvalidName::Empty);
        }
        if name.eq_ignore_ascii_case("INBOX") {
            return Ok(Self("INBOX".to_owned()));
        }
        check_text(name)?;
        Ok(Self(name.to_owned()))
    }

    /// Decodes a name from the wire: UTF-8 when `utf8` (after ENABLE IMAP4rev2 or UTF8=ACCEPT), modified UTF-7 otherwise.
    pub fn from_wire(bytes: &[u8], utf8: bool) -> Result<Self, InvalidName> {
        if bytes.is_empty() {
            return Err(InvalidName::Empty);
        }
        Self::new(&decode_text(bytes, utf8)?)
    }

    /// A name that no mailbox has, here or anywhere: U+FFFF is no character.
    pub(crate) fn nowhere() -> Self {
        Self("\u{FFFF}".to_owned())
    }

    /// The decoded name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The decoded name, owned.
    pub fn into_string(self) -> String {
        self.0
    }

    /// Whether a mailbox may be created with this name: "Server implementations MUST prohibit the creation of 8-bit mailbox names
    /// that do not comply with Net-Unicode" (RFC 9051, section 5.1), which asks for normalization form C (RFC 5198, section 3).
    /// Two names that look alike would be two mailboxes otherwise.
    pub fn is_net_unicode(&self) -> bool {
        self.0.is_ascii() || unicode_normalization::is_nfc(&self.0)
    }

    /// Whether this is INBOX itself.
    pub fn is_inbox(&self) -> bool {
        self.0 == "INBOX"
    }
}

/// Decodes a name, a reference or a pattern; it may be empty.
pub(crate) fn decode_text(bytes: &[u8], utf8: bool) -> Result<String, InvalidName> {
    // Modified UTF-7 takes at most five bytes for two of UTF-8.
    if bytes.len() > 3 * MailboxName::BYTES_MAX {
        return Err(InvalidName::TooLong);
    }
    let text = if utf8 {
        std::str::from_utf8(bytes)
            .map_err(|_| InvalidName::Utf8)?
            .to_owned()
    } else {
        utf7::decode(bytes).ok_or(InvalidName::Utf7)?
    };
    check_text(&text)?;
    Ok(text)
}

fn check_text(text: &str) -> Result<(), InvalidName> {
    if text.len() > MailboxName::BYTES_MAX {
        return Err(InvalidName::TooLong);
    }
    // RFC 5198, section 2, and RFC 9051, section 5.1: no C0, no C1, no LINE or PARAGRAPH SEPARATOR.
    if text
        .chars()
        .any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
    {
        return Err(InvalidName::Control);
    }
    Ok(())
}

impl fmt::Debug for MailboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for MailboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], utf8: bool, expected: Result<&str, InvalidName>) {
        let name = MailboxName::from_wire(input, utf8);
        assert_eq!(
            name.as_ref().map(MailboxName::as_str).map_err(|&e| e),
            expected
        );
    }

    #[test]
    fn net_unicode() {
        let check =
            |name: &str, good| assert_eq!(MailboxName::new(name).unwrap().is_net_unicode(), good);
        check("a", true);
        check("Entw\u{fc}rfe", true);
        check("Entwu\u{308}rfe", false);
        check("\u{212b}", false);
        check("q\u{308}", true);
    }

    #[test]
    fn names() {
        check(b"inBox", false, Ok("INBOX"));
        check(b"inbox/sub", false, Ok("inbox/sub"));
        check(b"Entw&APw-rfe", false, Ok("Entwürfe"));
        check(b"Entw&APw-rfe", true, Ok("Entw&APw-rfe"));
        check("Entwürfe".as_bytes(), true, Ok("Entwürfe"));
        check("Entwürfe".as_bytes(), false, Err(InvalidName::Utf7));
        check(b"\xff", true, Err(InvalidName::Utf8));
        check(b"", true, Err(InvalidName::Empty));
        check(b"a\0b", true, Err(InvalidName::Control));
        check(b"a\0b", false, Err(InvalidName::Utf7));
        check(b"&AAE-", false, Err(InvalidName::Control));
        check("a\u{85}".as_bytes(), true, Err(InvalidName::Control));
        check("a\u{2028}".as_bytes(), true, Err(InvalidName::Control));
        check(&[b'a'; 1024], true, Ok(&"a".repeat(1024)));
        check(&[b'a'; 1025], true, Err(InvalidName::TooLong));
        check(&[b'a'; 5000], false, Err(InvalidName::TooLong));
    }
}
