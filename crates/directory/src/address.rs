//! Addresses as the directory compares them.
//!
//! RFC 5321, 2.4 leaves the meaning of a local part to the host that receives for it. Ours folds case in both parts, as users
//! expect of Dovecot and Postfix with virtual mailboxes: `Anne@Example.ORG` and `anne@example.org` are one.

use std::fmt;

/// Longest local part in octets (RFC 5321, 4.5.3.1.1).
pub const LOCAL_BYTES_MAX: usize = 64;
/// Longest domain in octets (RFC 5321, 4.5.3.1.2).
pub const DOMAIN_BYTES_MAX: usize = 255;
/// Separates the mailbox in `anne+x@example.org` (RFC 5233, 1.1).
pub const DETAIL_SEPARATOR: char = '+';

/// A domain we receive mail for: folded, without a trailing dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(Box<str>);

/// An address in one of our domains, folded. An empty local part is the catch-all `@domain`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: Domain,
    local: Box<str>,
}

/// Why a string is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No `@`, or nothing after it.
    #[error("an address is LOCAL@DOMAIN, as in anne@example.org")]
    Form,
    /// A part is too long.
    #[error("the part before @ may have {LOCAL_BYTES_MAX} bytes, the domain {DOMAIN_BYTES_MAX}")]
    Long,
    /// White space, a control character, or a character that is special in addresses.
    #[error("the address holds a character that is not allowed")]
    Character,
}

impl Domain {
    /// Parses and folds a domain name.
    ///
    /// # Errors
    /// When it is empty, too long, or holds what no domain may hold.
    pub fn new(text: &str) -> Result<Self, AddressError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(AddressError::Form);
        }
        let folded = text.to_lowercase();
        if folded.len() > DOMAIN_BYTES_MAX {
            return Err(AddressError::Long);
        }
        let label_is_fine =
            |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
        let char_is_fine = |c: char| {
            c.is_ascii_alphanumeric()
                || c == '-'
                || c == '.'
                || (!c.is_ascii() && c.is_alphanumeric())
        };
        if !folded.chars().all(char_is_fine) || !folded.split('.').all(label_is_fine) {
            return Err(AddressError::Character);
        }
        Ok(Domain(folded.into()))
    }

    /// The folded name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Address {
    /// From parts as a client gave them, the local part unquoted.
    ///
    /// # Errors
    /// When a part is empty, too long, or holds what we do not allow in it.
    pub fn new(local: &str, domain: &str) -> Result<Self, AddressError> {
        if local.is_empty() {
            return Err(AddressError::Form);
        }
        let folded = local.to_lowercase();
        if folded.len() > LOCAL_BYTES_MAX {
            return Err(AddressError::Long);
        }
        // A quoted local part may hold any of these; no account or alias of ours does.
        if folded
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || "\"(),:;<>@[\\]".contains(c))
        {
            return Err(AddressError::Character);
        }
        Ok(Address {
            domain: Domain::new(domain)?,
            local: folded.into(),
        })
    }

    /// The catch-all of a domain.
    #[must_use]
    pub fn catch_all(domain: Domain) -> Self {
        Address {
            domain,
            local: "".into(),
        }
    }

    /// Parses `anne@example.org`.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (local, domain) = text.rsplit_once('@').ok_or(AddressError::Form)?;
        Address::new(local, domain)
    }

    /// Parses an address or a catch-all, `@example.org`.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn parse_alias(text: &str) -> Result<Self, AddressError> {
        match text.strip_prefix('@') {
            Some(domain) => Ok(Address::catch_all(Domain::new(domain)?)),
            None => Address::parse(text),
        }
    }

    /// The part after the `@`.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The folded part before the `@`; empty for a catch-all.
    #[must_use]
    pub fn local(&self) -> &str {
        &self.local
    }

    /// `anne+x@…` as `anne@…`, if there is a detail and something before it.
    #[must_use]
    pub fn without_detail(&self) -> Option<Address> {
        let (user, detail) = self.local.split_once(DETAIL_SEPARATOR)?;
        (!user.is_empty() && !detail.is_empty()).then(|| Address {
            domain: self.domain.clone(),
            local: user.into(),
        })
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.local, self.domain)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_folded_or_refused() {
        let check = |text: &str, expected: Result<&str, AddressError>| {
            assert_eq!(
                Address::parse_alias(text).map(|a| a.to_string()),
                expected.map(str::to_owned),
                "{text:?}"
            );
        };
        check("Anne@Example.ORG", Ok("anne@example.org"));
        check("anne@example.org.", Ok("anne@example.org"));
        check("ÄRGER@Bücher.example", Ok("ärger@bücher.example"));
        check("@example.org", Ok("@example.org"));
        check("anne", Err(AddressError::Form));
        check("anne@", Err(AddressError::Form));
        check("@", Err(AddressError::Form));
        check("a b@example.org", Err(AddressError::Character));
        check("a\r\nb@example.org", Err(AddressError::Character));
        check("anne@exa..mple", Err(AddressError::Character));
        check("anne@-x.org", Err(AddressError::Character));
        check("anne@[127.0.0.1]", Err(AddressError::Character));
        check(
            &format!("{}@example.org", "a".repeat(65)),
            Err(AddressError::Long),
        );
        check(&format!("a@{}", "b".repeat(256)), Err(AddressError::Long));
    }

    #[test]
    fn details_are_cut_off_at_the_first_separator() {
        let check = |text: &str, expected: Option<&str>| {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                address.without_detail().map(|a| a.to_string()).as_deref(),
                expected
            );
        };
        check("anne+lists@example.org", Some("anne@example.org"));
        check("anne+a+b@example.org", Some("anne@example.org"));
        check("anne@example.org", None);
        check("+x@example.org", None);
        check("anne+@example.org", None);
    }
}
