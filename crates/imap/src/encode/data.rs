//! Untagged data that is neither a list, a search nor a fetch: CAPABILITY, ENABLED, ID, NAMESPACE, STATUS, FLAGS, sizes.

use super::strings::{flag_list, mailbox, nstring, number, object_id, string, text};
use crate::command::StatusItem;
use crate::core::{Flag, ObjectId};
use base64::Engine as _;

/// `* CAPABILITY ...` (RFC 9051, section 7.2.2).
pub fn capability(out: &mut Vec<u8>, names: &[&str]) {
    words(out, "CAPABILITY", names);
}

/// `* ENABLED ...` (RFC 5161), with nothing when nothing was enabled.
pub fn enabled(out: &mut Vec<u8>, names: &[&str]) {
    words(out, "ENABLED", names);
}

fn words(out: &mut Vec<u8>, first: &str, names: &[&str]) {
    out.extend_from_slice(b"* ");
    out.extend_from_slice(first.as_bytes());
    for name in names {
        out.push(b' ');
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// `+ text`: go on with the literal, or with IDLE.
pub fn continuation(out: &mut Vec<u8>, words: &str) {
    out.extend_from_slice(b"+ ");
    text(out, words, false);
    out.extend_from_slice(b"\r\n");
}

/// `+ base64`: a challenge of AUTHENTICATE, maybe empty.
pub fn sasl_continuation(out: &mut Vec<u8>, challenge: &[u8]) {
    out.extend_from_slice(b"+ ");
    out.extend_from_slice(
        base64::engine::general_purpose::STANDARD
            .encode(challenge)
            .as_bytes(),
    );
    out.extend_from_slice(b"\r\n");
}

/// `* ID (...)` or `* ID NIL` (RFC 2971).
pub fn id(out: &mut Vec<u8>, fields: &[(&str, Option<&str>)]) {
    out.extend_from_slice(b"* ID ");
    if fields.is_empty() {
        out.extend_from_slice(b"NIL");
    }
    for (n, (name, value)) in fields.iter().enumerate() {
        out.push(if n == 0 { b'(' } else { b' ' });
        string(out, name.as_bytes(), false);
        out.push(b' ');
        nstring(out, value.map(str::as_bytes), false);
    }
    if !fields.is_empty() {
        out.push(b')');
    }
    out.extend_from_slice(b"\r\n");
}

/// One namespace (RFC 2342): prefix and hierarchy delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceEntry<'a> {
    /// What its names begin with; empty for the usual personal one.
    pub prefix: &'a str,
    /// Between the levels of its names.
    pub delimiter: Option<char>,
}

/// `* NAMESPACE personal others shared`; an empty slice is `NIL`.
pub fn namespace(out: &mut Vec<u8>, classes: [&[NamespaceEntry<'_>]; 3], utf8: bool) {
    out.extend_from_slice(b"* NAMESPACE");
    for class in classes {
        out.push(b' ');
        if class.is_empty() {
            out.extend_from_slice(b"NIL");
            continue;
        }
        out.push(b'(');
        for entry in class {
            out.push(b'(');
            mailbox(out, entry.prefix, utf8);
            out.push(b' ');
            super::list::delimiter(out, entry.delimiter);
            out.push(b')');
        }
        out.push(b')');
    }
    out.extend_from_slice(b"\r\n");
}

/// What STATUS may tell; `None` is not told.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StatusValues {
    /// Messages.
    pub messages: u64,
    /// Recent ones.
    pub recent: u64,
    /// Next UID.
    pub uid_next: u32,
    /// UIDVALIDITY.
    pub uid_validity: u32,
    /// Messages without `\Seen`.
    pub unseen: u64,
    /// Messages with `\Deleted`.
    pub deleted: u64,
    /// Bytes of all messages.
    pub size: u64,
    /// Bytes of messages with `\Deleted`.
    pub deleted_size: u64,
    /// Highest modification sequence.
    pub highest_mod_seq: u64,
    /// Name of the mailbox that outlives renaming; to be there when it is asked for.
    pub mailbox_id: Option<ObjectId>,
    /// Greatest message that APPEND takes, in bytes.
    pub append_limit: u64,
}

/// `* STATUS name (...)`: of `values` the items asked, in that order.
pub fn status_data(
    out: &mut Vec<u8>,
    name: &str,
    items: &[StatusItem],
    values: &StatusValues,
    utf8: bool,
) {
    out.extend_from_slice(b"* STATUS ");
    mailbox(out, name, utf8);
    out.extend_from_slice(b" (");
    for (n, &item) in items.iter().enumerate() {
        if n > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(item.as_str().as_bytes());
        out.push(b' ');
        if item == StatusItem::MailboxId {
            object_id(out, values.mailbox_id.as_ref());
            continue;
        }
        number(
            out,
            match item {
                StatusItem::Messages => values.messages,
                StatusItem::Recent => values.recent,
                StatusItem::UidNext => u64::from(values.uid_next),
                StatusItem::UidValidity => u64::from(values.uid_validity),
                StatusItem::Unseen => values.unseen,
                StatusItem::Deleted => values.deleted,
                StatusItem::Size => values.size,
                StatusItem::HighestModSeq => values.highest_mod_seq,
                StatusItem::AppendLimit => values.append_limit,
                StatusItem::DeletedStorage => values.deleted_size,
                StatusItem::MailboxId => continue,
            },
        );
    }
    out.extend_from_slice(b")\r\n");
}

/// `* FLAGS (...)`
pub fn flags(out: &mut Vec<u8>, list: &[Flag]) {
    out.extend_from_slice(b"* FLAGS ");
    flag_list(out, list, None);
    out.extend_from_slice(b"\r\n");
}

/// `* n EXISTS`
pub fn exists(out: &mut Vec<u8>, count: u32) {
    numbered(out, count, "EXISTS");
}

/// `* n RECENT`: IMAP4rev1 only.
pub fn recent(out: &mut Vec<u8>, count: u32) {
    numbered(out, count, "RECENT");
}

/// `* n EXPUNGE`
pub fn expunge(out: &mut Vec<u8>, sequence: u32) {
    numbered(out, sequence, "EXPUNGE");
}

fn numbered(out: &mut Vec<u8>, n: u32, what: &str) {
    out.extend_from_slice(b"* ");
    number(out, u64::from(n));
    out.push(b' ');
    out.extend_from_slice(what.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `* VANISHED `, with `(EARLIER) ` in answer to a client that comes back (RFC 7162, section 3.2.10). A set of UIDs and CRLF follow.
pub fn vanished_begin(out: &mut Vec<u8>, earlier: bool) {
    out.extend_from_slice(b"* VANISHED ");
    if earlier {
        out.extend_from_slice(b"(EARLIER) ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\r\n"));
    }

    #[test]
    fn lines() {
        check(
            |o| capability(o, &["IMAP4rev2", "AUTH=PLAIN"]),
            "* CAPABILITY IMAP4rev2 AUTH=PLAIN",
        );
        check(|o| enabled(o, &[]), "* ENABLED");
        check(|o| id(o, &[]), "* ID NIL");
        check(
            |o| id(o, &[("name", Some("Whimbrel")), ("os", None)]),
            r#"* ID ("name" "Whimbrel" "os" NIL)"#,
        );
        check(
            |o| flags(o, &[Flag::Answered, Flag::Seen]),
            r"* FLAGS (\Answered \Seen)",
        );
        check(|o| exists(o, 172), "* 172 EXISTS");
        check(|o| recent(o, 0), "* 0 RECENT");
        check(|o| expunge(o, 3), "* 3 EXPUNGE");
        check(|o| continuation(o, "idling"), "+ idling");
        check(|o| sasl_continuation(o, b""), "+ ");
        check(|o| sasl_continuation(o, b"abc"), "+ YWJj");
        let vanished = |o: &mut Vec<u8>, earlier| {
            vanished_begin(o, earlier);
            o.extend_from_slice(b"300:301\r\n");
        };
        check(|o| vanished(o, true), "* VANISHED (EARLIER) 300:301");
        check(|o| vanished(o, false), "* VANISHED 300:301");
    }

    #[test]
    fn namespaces() {
        // RFC 2342, section 5.
        let personal = [NamespaceEntry {
            prefix: "",
            delimiter: Some('/'),
        }];
        let others = [NamespaceEntry {
            prefix: "~",
            delimiter: Some('/'),
        }];
        check(
            |o| namespace(o, [&personal, &[], &[]], false),
            r#"* NAMESPACE (("" "/")) NIL NIL"#,
        );
        check(
            |o| namespace(o, [&personal, &others, &[]], false),
            r#"* NAMESPACE (("" "/")) (("~" "/")) NIL"#,
        );
    }

    #[test]
    fn status_lines() {
        let values = StatusValues {
            messages: 231,
            uid_next: 44292,
            mailbox_id: ObjectId::new(b"F6352ae03"),
            ..StatusValues::default()
        };
        check(
            |o| {
                status_data(
                    o,
                    "blurdybloop",
                    &[
                        StatusItem::Messages,
                        StatusItem::MailboxId,
                        StatusItem::UidNext,
                    ],
                    &values,
                    false,
                )
            },
            r#"* STATUS "blurdybloop" (MESSAGES 231 MAILBOXID (F6352ae03) UIDNEXT 44292)"#,
        );
    }
}
