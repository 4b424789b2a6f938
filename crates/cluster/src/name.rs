//! Names of nodes: one label of a domain name, so that a certificate can hold them.

use std::fmt;

/// The longest label of a domain name (RFC 1035, 2.3.4).
const NAME_BYTES_MAX: usize = 63;

/// A node's name within its cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(String);

/// A text that is not a node's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid node name: use letters a to z, digits and inner hyphens, at most 63")]
pub struct NameError(String);

impl NodeName {
    /// A name from a text.
    ///
    /// If the text is not a valid name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let inner = !text.starts_with('-') && !text.ends_with('-');
        if (1..=NAME_BYTES_MAX).contains(&text.len()) && inner && text.bytes().all(plain) {
            Ok(NodeName(text.to_owned()))
        } else {
            // A wrong text may be long and contain anything.
            Err(NameError(text.chars().take(NAME_BYTES_MAX).collect()))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels() {
        let check = |text: &str, ok: bool| assert_eq!(NodeName::new(text).is_ok(), ok, "{text}");
        check("eu-1", true);
        check("1", true);
        check(&"a".repeat(63), true);
        check(&"a".repeat(64), false);
        check("", false);
        check("-a", false);
        check("a-", false);
        check("A", false);
        check("a.b", false);
        check("a\n", false);
        check("ä", false);
    }
}
