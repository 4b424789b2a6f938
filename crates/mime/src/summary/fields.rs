//! The usual header fields, kept raw, so that most HEADER.FIELDS need no body.

use super::Octets;

/// Header fields of a message that clients usually ask for, as they are.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Fields {
    /// The fields kept, in the order of the message.
    pub list: Vec<Field>,
    /// Names (lower case) of which not every field was kept, because of a limit.
    pub dropped: Vec<Octets>,
    /// False when the limits cut so much that no answer is complete.
    pub complete: bool,
    /// The empty line behind the header as it is: CRLF, LF or nothing.
    pub end: Octets,
}

/// A header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes of `raw` that are the name.
    pub name_len: usize,
    /// The field with its name, folds and line end.
    pub raw: Octets,
}

impl Field {
    /// The name as written.
    pub fn name(&self) -> &[u8] {
        &self.raw[..self.name_len.min(self.raw.len())]
    }

    /// What stands behind the colon, raw, with folds and line end. For [`crate::header::decode`].
    pub fn value(&self) -> &[u8] {
        let rest = &self.raw[self.name_len.min(self.raw.len())..];
        match memchr::memchr(b':', rest) {
            Some(colon) => &rest[colon + 1..],
            None => &[],
        }
    }
}

impl Fields {
    /// Whether every field of this name is in `list` (none there: the message has none).
    pub fn is_complete(&self, name: &[u8]) -> bool {
        self.complete
            && is_usual(name)
            && !self.dropped.iter().any(|d| d.eq_ignore_ascii_case(name))
    }

    /// The fields of this name, in order.
    pub fn named<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a Field> {
        self.list
            .iter()
            .filter(move |f| f.name().eq_ignore_ascii_case(name))
    }

    pub(super) fn answer<N: AsRef<[u8]>>(&self, names: &[N]) -> Option<Vec<u8>> {
        let _ = names;
        None
    }
}

/// Whether fields of this name are kept.
pub fn is_usual(name: &[u8]) -> bool {
    let _ = name;
    false
}
