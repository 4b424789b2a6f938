//! Domains, address literals and the names clients give in EHLO.

use core::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::local::is_printable_non_ascii;
use super::{AddressError, DOMAIN_BYTES_MAX};

/// RFC 1035 2.3.4.
const LABEL_BYTES_MAX: usize = 63;

/// A domain name or an address literal, in lower case. Never empty, no trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(String);

impl Domain {
    /// Parses a domain or an address literal and nothing after it.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(text: &str) -> Result<Self, AddressError> {
        match Domain::parse_prefix(text)? {
            (domain, "") => Ok(domain),
            _ => Err(AddressError::Syntax),
        }
    }

    /// In lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is an address literal.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.0.starts_with('[')
    }

    /// The longest domain at the head of `text`.
    pub(super) fn parse_prefix(text: &str) -> Result<(Self, &str), AddressError> {
        let end = if text.starts_with('[') {
            text.find(']').ok_or(AddressError::Syntax)? + 1
        } else {
            text.find(|c| c != '.' && !is_label_char(c))
                .unwrap_or(text.len())
        };
        let (domain, rest) = text.split_at(end);
        if domain.len() > DOMAIN_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        // Checked in lower case, which can be longer than what it was made of.
        let lower = domain.to_lowercase();
        if lower.len() > DOMAIN_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        check(&lower)?;
        Ok((Domain(lower), rest))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Let-dig, hyphen, or a character of a U-label (RFC 6531 3.3). The full stops that IDNA maps to a dot are none: they would
/// make one label here and two elsewhere.
fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || c == '-'
        || (is_printable_non_ascii(c) && !matches!(c, '\u{3002}' | '\u{ff0e}' | '\u{ff61}'))
}

fn check(domain: &str) -> Result<(), AddressError> {
    if let Some(literal) = domain.strip_prefix('[').and_then(|d| d.strip_suffix(']')) {
        return if is_literal(literal) {
            Ok(())
        } else {
            Err(AddressError::Syntax)
        };
    }
    for label in domain.split('.') {
        if label.len() > LABEL_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        if label.is_empty() || label.starts_with('-') || label.ends_with('-') {
            return Err(AddressError::Syntax);
        }
    }
    Ok(())
}

/// What stands between the brackets (RFC 5321 4.1.3).
fn is_literal(text: &str) -> bool {
    let Some((tag, rest)) = text.split_once(':') else {
        return text.parse::<Ipv4Addr>().is_ok();
    };
    if tag.eq_ignore_ascii_case("IPv6") {
        return rest.parse::<Ipv6Addr>().is_ok();
    }
    let ldh = |c: char| c.is_ascii_alphanumeric() || c == '-';
    // dcontent = %d33-90 / %d94-126
    let dcontent = |c: char| matches!(c, '!'..='Z' | '^'..='~');
    !tag.is_empty()
        && tag.chars().all(ldh)
        && !tag.ends_with('-')
        && !rest.is_empty()
        && rest.chars().all(dcontent)
}

/// What a client called itself in HELO, EHLO or LHLO: letters, digits and `-._:[]`, at most 255. Wider than RFC 5321 4.1.1.1
/// because its value decides nothing (4.1.4: "MUST NOT refuse to accept a message" for it) and many clients have no proper name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName(String);

impl HostName {
    /// # Errors
    /// When it is empty, too long, or has other characters.
    pub fn new(text: &str) -> Result<Self, AddressError> {
        if text.len() > DOMAIN_BYTES_MAX {
            return Err(AddressError::TooLong);
        }
        let valid =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
        if text.is_empty() || !text.chars().all(valid) {
            return Err(AddressError::Syntax);
        }
        Ok(HostName(text.to_owned()))
    }

    /// As given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
