//! The tag that ties an answer to its command (RFC 9051, section 2.2.1).

use super::is_astring_char;
use std::fmt;

/// `1*<any ASTRING-CHAR except "+">`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(Box<str>);

impl Tag {
    /// Longest tag accepted, in bytes. Clients use 4 to 10; what is longer would only be repeated in every answer.
    pub const BYTES_MAX: usize = 128;

    /// The tag that `bytes` spell, if they spell one.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let good = !bytes.is_empty()
            && bytes.len() <= Self::BYTES_MAX
            && bytes.iter().all(|&b| is_astring_char(b) && b != b'+');
        good.then(|| String::from_utf8_lossy(bytes).into_owned().into_boxed_str())
            .map(Self)
    }

    /// As it was sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], good: bool) {
        assert_eq!(Tag::new(input).is_some(), good, "{input:?}");
    }

    #[test]
    fn tags() {
        check(b"a001", true);
        check(b"A.b-c]", true);
        check(b"", false);
        check(b"+", false);
        check(b"a+b", false);
        check(b"a b", false);
        check(b"a\"", false);
        check(b"a*", false);
        check(b"a{", false);
        check(b"\x00", false);
        check("é".as_bytes(), false);
        check(&[b'a'; Tag::BYTES_MAX], true);
        check(&[b'a'; Tag::BYTES_MAX + 1], false);
    }
}
