//! Paths: what stands in angle brackets in MAIL and RCPT.

use core::fmt;

use super::{AddressError, Domain, Mailbox};

/// Whom bounces go to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReversePath {
    /// `<>`: a notification; it must never cause another (RFC 5321 4.5.5).
    Null,
    /// An address.
    Mailbox(Mailbox),
}

/// A recipient.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ForwardPath {
    /// `<Postmaster>` without a domain, in any case (RFC 5321 4.5.1).
    Postmaster,
    /// An address.
    Mailbox(Mailbox),
}

impl ReversePath {
    /// The address, if there is one.
    #[must_use]
    pub fn mailbox(&self) -> Option<&Mailbox> {
        match self {
            ReversePath::Null => None,
            ReversePath::Mailbox(mailbox) => Some(mailbox),
        }
    }

    /// Parses `<...>` at the head of `text`; gives what follows.
    ///
    /// # Errors
    /// When there is none.
    pub fn parse_prefix(text: &str) -> Result<(Self, &str), AddressError> {
        if let Some(rest) = text.strip_prefix("<>") {
            return Ok((ReversePath::Null, rest));
        }
        parse_path(text).map(|(mailbox, rest)| (ReversePath::Mailbox(mailbox), rest))
    }
}

impl ForwardPath {
    /// The address, unless it is `<Postmaster>`.
    #[must_use]
    pub fn mailbox(&self) -> Option<&Mailbox> {
        match self {
            ForwardPath::Postmaster => None,
            ForwardPath::Mailbox(mailbox) => Some(mailbox),
        }
    }

    /// Parses `<...>` at the head of `text`; gives what follows.
    ///
    /// # Errors
    /// When there is none.
    pub fn parse_prefix(text: &str) -> Result<(Self, &str), AddressError> {
        const POSTMASTER: &str = "<postmaster>";
        if let Some((head, rest)) = text.split_at_checked(POSTMASTER.len())
            && head.eq_ignore_ascii_case(POSTMASTER)
        {
            return Ok((ForwardPath::Postmaster, rest));
        }
        parse_path(text).map(|(mailbox, rest)| (ForwardPath::Mailbox(mailbox), rest))
    }
}

/// `Path = "<" [ A-d-l ":" ] Mailbox ">"`. RFC 5321 4.1.2 on the route: "MUST BE accepted, SHOULD NOT be generated, and SHOULD
/// be ignored".
fn parse_path(text: &str) -> Result<(Mailbox, &str), AddressError> {
    let mut rest = text.strip_prefix('<').ok_or(AddressError::Syntax)?;
    if rest.starts_with('@') {
        // The command line's limit bounds the number of hops.
        loop {
            let hop = rest.strip_prefix('@').ok_or(AddressError::Syntax)?;
            (_, rest) = Domain::parse_prefix(hop)?;
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix(':').ok_or(AddressError::Syntax)?;
    }
    let (mailbox, rest) = Mailbox::parse_prefix(rest)?;
    let rest = rest.strip_prefix('>').ok_or(AddressError::Syntax)?;
    Ok((mailbox, rest))
}

impl fmt::Display for ReversePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReversePath::Null => f.write_str("<>"),
            ReversePath::Mailbox(mailbox) => write!(f, "<{mailbox}>"),
        }
    }
}

impl fmt::Display for ForwardPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForwardPath::Postmaster => f.write_str("<Postmaster>"),
            ForwardPath::Mailbox(mailbox) => write!(f, "<{mailbox}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected`: path as written, then what follows; `None`: refused.
    fn check(text: &str, reverse: Option<(&str, &str)>, forward: Option<(&str, &str)>) {
        let got = ReversePath::parse_prefix(text)
            .ok()
            .map(|(p, rest)| (p.to_string(), rest));
        assert_eq!(
            got,
            reverse.map(|(p, rest)| (p.to_owned(), rest)),
            "reverse {text:?}"
        );
        let got = ForwardPath::parse_prefix(text)
            .ok()
            .map(|(p, rest)| (p.to_string(), rest));
        assert_eq!(
            got,
            forward.map(|(p, rest)| (p.to_owned(), rest)),
            "forward {text:?}"
        );
    }

    #[test]
    fn paths() {
        let both = |text, expected| check(text, expected, expected);
        both("<a@b> SIZE=1", Some(("<a@b>", " SIZE=1")));
        both("<@x:a@b>", Some(("<a@b>", "")));
        both("<@x,@y.z,@[1.2.3.4]:a@b>", Some(("<a@b>", "")));
        both("<@x,:a@b>", None);
        both("<@x,y:a@b>", None);
        both("<@x@y:a@b>", None);
        both("<@x:>", None);
        both("<:a@b>", None);
        both("<a@b", None);
        both("a@b", None);
        both("<a@b >", None);
        both("< a@b>", None);
        both("<\">\"@b>", Some(("<\">\"@b>", "")));
        both("<a>", None);
        check("<>", Some(("<>", "")), None);
        check("<> X", Some(("<>", " X")), None);
        check("<PostMaster> X", None, Some(("<Postmaster>", " X")));
        both("<postmaster@b>", Some(("<postmaster@b>", "")));
    }
}
