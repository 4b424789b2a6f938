//! Addresses and paths of the envelope (RFC 5321 4.1.2, RFC 6531 3.3).
//!
//! A value of these types is valid: printable, without CR, LF, NUL or any other control character, and within the lengths of RFC
//! 5321 4.5.3.1. Text forms parse back to the same value.
//!
//! Deviations, each wider than the RFC because real mail needs it:
//! - a local part may have [`LOCAL_BYTES_MAX`] octets, not 64: bounce addresses that encode another address are longer;
//! - the name in EHLO may have underscores and need not be a domain ([`HostName`]).
//!
//! Not done: A-labels and U-labels of one internationalised domain are two domains here.

mod domain;
mod local;
mod path;

pub use domain::{Domain, HostName};
pub use local::LocalPart;
pub use path::{ForwardPath, ReversePath};

use core::fmt;
use core::str::FromStr;

/// Octets of a local part, unquoted. RFC 5321 4.5.3.1.1 has 64; see the module head.
pub const LOCAL_BYTES_MAX: usize = 128;
/// Octets of a domain or address literal (RFC 5321 4.5.3.1.2).
pub const DOMAIN_BYTES_MAX: usize = 255;
/// Octets of an address as written: RFC 5321 4.5.3.1.3 has 256 for a path, with its angle brackets.
pub const MAILBOX_BYTES_MAX: usize = 254;

/// Why a text is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not of the grammar.
    #[error("invalid address syntax")]
    Syntax,
    /// Longer than the limits.
    #[error("address too long")]
    TooLong,
}

/// An address: local part and domain. The domain is compared without case, the local part as given.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mailbox {
    local: LocalPart,
    domain: Domain,
}

impl Mailbox {
    /// An address of these parts.
    ///
    /// # Errors
    /// [`AddressError::TooLong`] if it is longer than [`MAILBOX_BYTES_MAX`] as written.
    pub fn new(local: LocalPart, domain: Domain) -> Result<Self, AddressError> {
        if local.written_len() + 1 + domain.as_str().len() > MAILBOX_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        Ok(Mailbox { local, domain })
    }

    /// The part before the `@`.
    #[must_use]
    pub fn local(&self) -> &LocalPart {
        &self.local
    }

    /// The part after the `@`.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Whether it can be used without SMTPUTF8.
    #[must_use]
    pub fn is_ascii(&self) -> bool {
        self.local.as_str().is_ascii() && self.domain.as_str().is_ascii()
    }

    /// Parses an address and nothing after it: `anne@example.org`, `"a b"@[192.0.2.1]`.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (mailbox, rest) = Mailbox::parse_prefix(text)?;
        if rest.is_empty() {
            Ok(mailbox)
        } else {
            Err(AddressError::Syntax)
        }
    }

    /// Parses the longest address at the head of `text`; gives it and what follows.
    fn parse_prefix(text: &str) -> Result<(Self, &str), AddressError> {
        let (local, rest) = LocalPart::parse_prefix(text)?;
        let rest = rest.strip_prefix('@').ok_or(AddressError::Syntax)?;
        let (domain, rest) = Domain::parse_prefix(rest)?;
        Ok((Mailbox::new(local, domain)?, rest))
    }
}

impl fmt::Display for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.local, self.domain)
    }
}

impl FromStr for Mailbox {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Mailbox::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `expected`: the text form after parsing, or the error.
    fn check(text: &str, expected: Result<&str, AddressError>) {
        let got = Mailbox::parse(text).map(|m| m.to_string());
        assert_eq!(got.as_deref().map_err(|e| *e), expected, "{text:?}");
        if let Ok(written) = got {
            assert_eq!(Mailbox::parse(&written).unwrap().to_string(), written);
        }
    }

    #[test]
    fn addresses() {
        use AddressError::{Syntax, TooLong};
        for (text, expected) in [
            ("anne@example.org", Ok("anne@example.org")),
            ("Anne+Lists@EXAMPLE.Org", Ok("Anne+Lists@example.org")),
            ("a.b.c@x", Ok("a.b.c@x")),
            ("!#$%&'*+-/=?^_`{|}~@x.y", Ok("!#$%&'*+-/=?^_`{|}~@x.y")),
            ("\"anne\"@example.org", Ok("anne@example.org")),
            ("\"a b\"@example.org", Ok("\"a b\"@example.org")),
            (
                "\"a\\\"b\\\\\"@example.org",
                Ok("\"a\\\"b\\\\\"@example.org"),
            ),
            ("\"\\a@b\"@example.org", Ok("\"a@b\"@example.org")),
            ("\"\"@example.org", Ok("\"\"@example.org")),
            ("\"a..b\"@example.org", Ok("\"a..b\"@example.org")),
            ("a@[192.0.2.1]", Ok("a@[192.0.2.1]")),
            ("a@[IPv6:2001:DB8::1]", Ok("a@[ipv6:2001:db8::1]")),
            ("a@[X-tag:abc]", Ok("a@[x-tag:abc]")),
            ("jürgen@müller.example", Ok("jürgen@müller.example")),
            ("用户@例子.广告", Ok("用户@例子.广告")),
            ("a@MÜLLER.example", Ok("a@müller.example")),
            ("a@1.2", Ok("a@1.2")),
            ("", Err(Syntax)),
            ("anne", Err(Syntax)),
            ("@example.org", Err(Syntax)),
            ("anne@", Err(Syntax)),
            ("an ne@example.org", Err(Syntax)),
            (".anne@example.org", Err(Syntax)),
            ("anne.@example.org", Err(Syntax)),
            ("a..b@example.org", Err(Syntax)),
            ("a@example..org", Err(Syntax)),
            ("a@example.org.", Err(Syntax)),
            ("a@-example.org", Err(Syntax)),
            ("a@example-.org", Err(Syntax)),
            ("a@exa_mple.org", Err(Syntax)),
            ("a@b@c", Err(Syntax)),
            ("a@[192.0.2.256]", Err(Syntax)),
            ("a@[192.0.2.1", Err(Syntax)),
            ("a@[IPv6:1]", Err(Syntax)),
            ("a@[]", Err(Syntax)),
            ("\"a\"b@x", Err(Syntax)),
            ("\"a@x", Err(Syntax)),
            ("\"a\\\"@x", Err(Syntax)),
            ("\"a\rb\"@x", Err(Syntax)),
            ("\"a\nb\"@x", Err(Syntax)),
            ("\"a\0b\"@x", Err(Syntax)),
            ("\"a\\\0b\"@x", Err(Syntax)),
            ("a\0@x", Err(Syntax)),
            ("a\u{7f}@x", Err(Syntax)),
            ("a\u{85}@x", Err(Syntax)),
            ("a\u{2028}@x", Err(Syntax)),
            ("a\u{a0}@x", Err(Syntax)),
            ("a@x\u{3002}y", Err(Syntax)),
            ("a@x\u{200b}\r\ny", Err(Syntax)),
            (
                &format!("{}@x", "a".repeat(LOCAL_BYTES_MAX + 1)),
                Err(TooLong),
            ),
            (&format!("a@{}", "a".repeat(64)), Err(TooLong)),
            (&format!("a@{}", "İ".repeat(31)), Err(TooLong)),
            (
                &format!("a@{}", vec!["abcdefg"; 33].join(".")),
                Err(TooLong),
            ),
            (
                &format!("{}@{}", "a".repeat(100), vec!["abcdefg"; 20].join(".")),
                Err(TooLong),
            ),
        ] {
            check(text, expected);
        }
        assert!(Mailbox::parse(&format!("{}@x", "a".repeat(LOCAL_BYTES_MAX))).is_ok());
        assert!(Mailbox::parse(&format!("a@{}", vec!["abcdefg"; 31].join("."))).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_parses_to_something_harmless_or_not_at_all(text in "[a-zé@.\"\\\\ \\[\\]:\r\n\0\u{85}-]{0,24}") {
            if let Ok(mailbox) = Mailbox::parse(&text) {
                let written = mailbox.to_string();
                prop_assert!(!written.chars().any(char::is_control));
                prop_assert_eq!(Mailbox::parse(&written).unwrap(), mailbox);
            }
        }

        #[test]
        fn any_local_part_comes_back(local in "\\PC{0,20}") {
            if let Ok(local) = LocalPart::new(&local) {
                let mailbox = Mailbox::new(local.clone(), Domain::new("example.org").unwrap()).unwrap();
                let back = Mailbox::parse(&mailbox.to_string()).unwrap();
                prop_assert_eq!(back.local(), &local);
            }
        }
    }
}
