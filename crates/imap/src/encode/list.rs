//! LIST and LSUB responses (RFC 9051, section 7.3.1; RFC 5258).

use super::strings::{mailbox, quoted};
use crate::command::SpecialUse;

/// `LIST` or `LSUB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    List,
    Lsub,
}

/// Attributes of a mailbox in a LIST response.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListData<'a> {
    /// `\Noselect`: there is no such mailbox, only names below it.
    pub no_select: bool,
    /// `\NonExistent`; implies `\Noselect` (RFC 5258, section 3).
    pub non_existent: bool,
    /// `\Noinferiors`
    pub no_inferiors: bool,
    /// `\HasChildren` or `\HasNoChildren`, when it is told.
    pub has_children: Option<bool>,
    /// `\Marked` or `\Unmarked`, when it is told.
    pub marked: Option<bool>,
    /// `\Subscribed`
    pub subscribed: bool,
    /// `\Remote`
    pub remote: bool,
    /// Special uses.
    pub special_use: &'a [SpecialUse],
}

/// The mailbox a LIST response is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListResponse<'a> {
    /// Its name, decoded.
    pub name: &'a str,
    /// Hierarchy delimiter.
    pub delimiter: Option<char>,
    /// Its attributes.
    pub data: ListData<'a>,
    /// `CHILDINFO ("SUBSCRIBED")` (RFC 5258, section 3.5): a name below it is subscribed.
    pub child_info_subscribed: bool,
    /// `OLDNAME` (RFC 9051, section 6.3.9.7).
    pub old_name: Option<&'a str>,
}

/// `* LIST (...) "/" name ...`
pub fn list(out: &mut Vec<u8>, response: &ListResponse<'_>, utf8: bool) {
    write(out, Which::List, response, utf8);
}

/// `* LSUB (...) "/" name`
pub fn lsub(out: &mut Vec<u8>, response: &ListResponse<'_>, utf8: bool) {
    write(out, Which::Lsub, response, utf8);
}

fn write(out: &mut Vec<u8>, which: Which, response: &ListResponse<'_>, utf8: bool) {
    out.extend_from_slice(if which == Which::List {
        b"* LIST ("
    } else {
        b"* LSUB ("
    });
    let start = out.len();
    let mut attribute = |present: bool, name: &str| {
        if present {
            if out.len() > start {
                out.push(b' ');
            }
            out.extend_from_slice(name.as_bytes());
        }
    };
    let data = &response.data;
    attribute(data.non_existent, "\\NonExistent");
    attribute(data.no_select, "\\Noselect");
    attribute(data.no_inferiors, "\\Noinferiors");
    attribute(data.has_children == Some(true), "\\HasChildren");
    attribute(data.has_children == Some(false), "\\HasNoChildren");
    attribute(data.marked == Some(true), "\\Marked");
    attribute(data.marked == Some(false), "\\Unmarked");
    attribute(data.subscribed, "\\Subscribed");
    attribute(data.remote, "\\Remote");
    for special in data.special_use {
        attribute(true, special.as_str());
    }
    out.extend_from_slice(b") ");
    delimiter(out, response.delimiter);
    out.push(b' ');
    mailbox(out, response.name, utf8);
    if which == Which::List && (response.child_info_subscribed || response.old_name.is_some()) {
        out.extend_from_slice(b" (");
        if response.child_info_subscribed {
            out.extend_from_slice(b"\"CHILDINFO\" (\"SUBSCRIBED\")");
        }
        if let Some(old) = response.old_name {
            if response.child_info_subscribed {
                out.push(b' ');
            }
            out.extend_from_slice(b"\"OLDNAME\" (");
            mailbox(out, old, utf8);
            out.push(b')');
        }
        out.push(b')');
    }
    out.extend_from_slice(b"\r\n");
}

/// A quoted character, or `NIL`.
pub(super) fn delimiter(out: &mut Vec<u8>, delimiter: Option<char>) {
    match delimiter {
        None => out.extend_from_slice(b"NIL"),
        Some(c) => quoted(out, c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(response: &ListResponse<'_>, utf8: bool, expected: &str) {
        let mut out = Vec::new();
        list(&mut out, response, utf8);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\r\n"));
    }

    fn named(name: &str) -> ListResponse<'_> {
        ListResponse {
            name,
            delimiter: Some('/'),
            data: ListData::default(),
            child_info_subscribed: false,
            old_name: None,
        }
    }

    #[test]
    fn responses() {
        check(&named("foo"), false, r#"* LIST () "/" "foo""#);
        check(
            &ListResponse {
                delimiter: Some('\\'),
                ..named("")
            },
            false,
            r#"* LIST () "\\" """#,
        );
        check(
            &ListResponse {
                delimiter: None,
                ..named("INBOX")
            },
            false,
            r#"* LIST () NIL "INBOX""#,
        );
        let data = ListData {
            has_children: Some(false),
            subscribed: true,
            special_use: &[SpecialUse::Sent],
            ..ListData::default()
        };
        check(
            &ListResponse {
                data,
                ..named("Sent")
            },
            false,
            r#"* LIST (\HasNoChildren \Subscribed \Sent) "/" "Sent""#,
        );
        // RFC 5258, section 5, example 9; RFC 9051, section 6.3.9.7.
        check(
            &ListResponse {
                child_info_subscribed: true,
                ..named("Foo")
            },
            false,
            r#"* LIST () "/" "Foo" ("CHILDINFO" ("SUBSCRIBED"))"#,
        );
        check(
            &ListResponse {
                old_name: Some("Entwürfe"),
                ..named("Sent")
            },
            false,
            r#"* LIST () "/" "Sent" ("OLDNAME" ("Entw&APw-rfe"))"#,
        );
    }
}
