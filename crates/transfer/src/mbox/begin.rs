//! Whether a line begins a message: what the line itself does not say, the next one says.

use super::{FROM, date::date};

/// What must follow a line, so that it begins a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line of any header.
    Field,
    /// One of a field that programs write into messages.
    UsualField,
}

/// The name of the field with which a line begins, if it is one of a header.
fn field_name(line: &[u8]) -> Option<&[u8]> {
    let colon = memchr::memchr(b':', &line[..line.len().min(FIELD_NAME_BYTES_MAX)])?;
    let (name, value) = line.split_at(colon);
    // Old programs put white space before the colon (RFC 5322, 4.5). And no address of a page.
    let name = name.trim_ascii_end();
    let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    (is_name && !value.starts_with(b"://")).then_some(name)
}

const FIELD_NAME_BYTES_MAX: usize = 100;

/// Fields with which headers begin, whatever program wrote them, or that all have.
const USUAL_FIELDS: [&str; 20] = [
    "return-path",
    "delivered-to",
    "envelope-to",
    "received",
    "authentication-results",
    "dkim-signature",
    "status",
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "bcc",
    "date",
    "subject",
    "message-id",
    "in-reply-to",
    "mime-version",
    "content-type",
    "content-length",
];

impl Next {
    pub(super) fn is(self, line: &[u8]) -> bool {
        // A line that another program had put there, and a third one has quoted.
        if line.starts_with(b">From ") {
            return true;
        }
        let Some(name) = field_name(line) else {
            return false;
        };
        let is = |of: &&str| name.eq_ignore_ascii_case(of.as_bytes());
        let begin = name.get(..2).unwrap_or_default();
        self == Next::Field || begin.eq_ignore_ascii_case(b"x-") || USUAL_FIELDS.iter().any(is)
    }
}

/// Whether a message begins here, behind the length of the one before.
pub(super) fn begins(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(FROM) else {
        return false;
    };
    let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let (line, next) = rest.split_at(end);
    date(line).is_some() || Next::UsualField.is(next.get(1..).unwrap_or_default())
}
