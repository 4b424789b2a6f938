//! Local parts. Held unquoted: RFC 5321 4.1.2, "all quoted forms MUST be treated as equivalent".

use core::fmt::{self, Write};

use super::{AddressError, LOCAL_BYTES_MAX};

/// The part of an address before the `@`, without quotes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalPart(String);

/// atext of RFC 5322 3.2.3 with UTF8-non-ascii of RFC 6531 3.3.
fn is_atext(c: char) -> bool {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' => true,
        '!' | '#' | '$' | '%' | '&' | '\'' | '*' | '+' | '-' | '/' | '=' | '?' | '^' | '_'
        | '`' | '{' | '|' | '}' | '~' => true,
        _ => is_printable_non_ascii(c),
    }
}

/// Non-ASCII that neither moves a cursor nor ends a line: no controls, no white space.
pub(super) fn is_printable_non_ascii(c: char) -> bool {
    !c.is_ascii() && !c.is_control() && !c.is_whitespace()
}

impl LocalPart {
    /// From its unquoted form.
    ///
    /// # Errors
    /// [`AddressError::Syntax`] on a control character, [`AddressError::TooLong`] beyond [`LOCAL_BYTES_MAX`].
    pub fn new(unquoted: &str) -> Result<Self, AddressError> {
        if unquoted.len() > LOCAL_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        let valid = |c: char| matches!(c, ' '..='~') || is_printable_non_ascii(c);
        if unquoted.chars().all(valid) {
            Ok(LocalPart(unquoted.to_owned()))
        } else {
            Err(AddressError::Syntax)
        }
    }

    /// Unquoted, case as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is written with quotes.
    fn needs_quotes(&self) -> bool {
        self.0.is_empty()
            || !self
                .0
                .split('.')
                .all(|atom| !atom.is_empty() && atom.chars().all(is_atext))
    }

    /// Octets as written.
    pub(super) fn written_len(&self) -> usize {
        if self.needs_quotes() {
            2 + self.0.len() + self.0.bytes().filter(|b| matches!(b, b'"' | b'\\')).count()
        } else {
            self.0.len()
        }
    }

    /// `Local-part = Dot-string / Quoted-string` at the head of `text`.
    pub(super) fn parse_prefix(text: &str) -> Result<(Self, &str), AddressError> {
        if let Some(quoted) = text.strip_prefix('"') {
            return LocalPart::parse_quoted(quoted);
        }
        let end = text
            .find(|c| c != '.' && !is_atext(c))
            .unwrap_or(text.len());
        let (local, rest) = text.split_at(end);
        if local.split('.').any(str::is_empty) {
            return Err(AddressError::Syntax);
        }
        Ok((LocalPart::new(local)?, rest))
    }

    /// After the opening quote.
    fn parse_quoted(text: &str) -> Result<(Self, &str), AddressError> {
        let mut unquoted = String::new();
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return Ok((LocalPart::new(&unquoted)?, &text[at + 1..])),
                // quoted-pairSMTP = %d92 %d32-126
                '\\' => match chars.next() {
                    Some((_, escaped @ ' '..='~')) => unquoted.push(escaped),
                    _ => return Err(AddressError::Syntax),
                },
                _ => unquoted.push(c),
            }
            if unquoted.len() > LOCAL_BYTES_MAX {
                return Err(AddressError::TooLong);
            }
        }
        Err(AddressError::Syntax)
    }
}

impl fmt::Display for LocalPart {
    /// With the least quoting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.needs_quotes() {
            return f.write_str(&self.0);
        }
        f.write_char('"')?;
        for c in self.0.chars() {
            if matches!(c, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        f.write_char('"')
    }
}
