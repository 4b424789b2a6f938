//! The name of a mailbox, a message or a thread that outlives renaming and moving (RFC 8474).

/// `1*255(ALPHA / DIGIT / "_" / "-")`; "characters in object identifiers are case significant".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(Box<str>);

impl ObjectId {
    /// Longest one.
    pub const BYTES_MAX: usize = 255;

    /// The id that `bytes` spell, if they spell one.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let good = (1..=Self::BYTES_MAX).contains(&bytes.len())
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        let text = std::str::from_utf8(bytes).ok().filter(|_| good)?;
        Some(Self(text.into()))
    }

    /// As the protocol spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_ids() {
        #[track_caller]
        fn check(input: &[u8], good: bool) {
            let id = ObjectId::new(input);
            assert_eq!(id.is_some(), good, "{input:?}");
            assert!(id.is_none_or(|id| id.as_str().as_bytes() == input));
        }
        check(b"M6d99ac3275bb4e", true);
        check(b"F2212ea87-6097-4256-9d51-71338625", true);
        check(b"a_B", true);
        check(b"", false);
        check(b"a b", false);
        check(b"a)", false);
        check("\u{e9}".as_bytes(), false);
        check(&[b'a'; ObjectId::BYTES_MAX], true);
        check(&[b'a'; ObjectId::BYTES_MAX + 1], false);
    }
}
