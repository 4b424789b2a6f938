//! The usual header fields, kept raw, so that most HEADER.FIELDS and SEARCH HEADER need no body.

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

    /// What stands behind the colon, raw, with folds and line end: for [`crate::header::decode`].
    pub fn value(&self) -> &[u8] {
        Field::value_in(&self.raw, self.name_len)
    }

    pub(super) fn value_in(raw: &[u8], name_len: usize) -> &[u8] {
        let rest = &raw[name_len.min(raw.len())..];
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
        if !names.iter().all(|name| self.is_complete(name.as_ref())) {
            return None;
        }
        let asked = |field: &&Field| {
            let mut names = names.iter().map(AsRef::as_ref);
            names.any(|name: &[u8]| name.eq_ignore_ascii_case(field.name()))
        };
        // A client names few fields, and of those kept there are few: a set of names would cost more than it saves.
        let found = self.list.iter().filter(asked);
        let pieces: Vec<&[u8]> = found.map(|field| &*field.raw).chain([&*self.end]).collect();
        Some(pieces.concat())
    }
}

/// The rule by which fields are kept: stored with a summary, so that one written under an older rule is not taken to be
/// complete for names that came later.
pub(super) const RULE: u32 = 1;

/// Whether fields of this name are kept: what mutt, Thunderbird, Apple Mail, K-9, mbsync and webmails fetch of a list of
/// messages, and what threading and sorting need. Content-* and List-* besides these by their beginning. What is long
/// and seldom asked for (Received, signatures, Autocrypt) is not.
pub(crate) fn is_usual(name: &[u8]) -> bool {
    let mut lower = [0; NAME_BYTES_MAX];
    let begins_with = |prefix: &[u8]| {
        let begin = name.get(..prefix.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
    };
    let listed = lower.get_mut(..name.len()).is_some_and(|lower| {
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        USUAL.binary_search(&&*lower).is_ok()
    });
    listed || begins_with(b"content-") || begins_with(b"list-")
}

/// The longest of [`USUAL`].
const NAME_BYTES_MAX: usize = 31;

const USUAL: &[&[u8]] = &[
    b"auto-submitted",
    b"bcc",
    b"cc",
    b"date",
    b"delivered-to",
    b"disposition-notification-to",
    b"followup-to",
    b"from",
    b"importance",
    b"in-reply-to",
    b"lines",
    b"mail-followup-to",
    b"message-id",
    b"mime-version",
    b"newsgroups",
    b"organization",
    b"precedence",
    b"priority",
    b"references",
    b"reply-to",
    b"resent-date",
    b"resent-from",
    b"resent-to",
    b"return-path",
    b"sender",
    b"status",
    b"subject",
    b"to",
    b"user-agent",
    b"x-k9mail-identity",
    b"x-label",
    b"x-mailer",
    b"x-original-to",
    b"x-priority",
    b"x-spam-flag",
    b"x-spam-status",
    b"x-status",
    b"x-tuid",
    b"x-uniform-type-identifier",
    b"x-universally-unique-identifier",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names() {
        assert!(USUAL.is_sorted());
        let longest = USUAL.iter().map(|name| name.len()).max();
        assert_eq!(longest, Some(NAME_BYTES_MAX));
        for name in [
            "From",
            "SUBJECT",
            "content-type",
            "List-Unsubscribe",
            "X-TUID",
        ] {
            assert!(is_usual(name.as_bytes()), "{name}");
        }
        for name in ["", "Received", "DKIM-Signature", "From ", "Autocrypt"] {
            assert!(!is_usual(name.as_bytes()), "{name}");
        }
    }
}
