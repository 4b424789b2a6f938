//! The fields a server puts before a message: Received (RFC 5321 4.4), Return-Path, Delivered-To.
//!
//! Invariant: what is built is a whole number of header fields, folded at 78 columns where there is white space, every line ended by
//! CRLF, and no part of the input can add a field or a line. Text that comes from elsewhere (TLS names, ids) is reduced to characters
//! that need no quoting.

mod date;

pub use date::WallTime;

use crate::address::Mailbox;
use crate::session::{Envelope, Role};
use crate::{Domain, ReversePath};

/// RFC 5322 2.1.1: "Each line of characters [...] SHOULD be no more than 78 characters, excluding the CRLF".
const LINE_CHARS_MAX: usize = 78;

/// Input of [`received`].
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The transaction: client, protocol, TLS.
    pub envelope: &'a Envelope,
    /// This server.
    pub by: &'a Domain,
    /// Queue id; only ASCII letters, digits and `-._` of it are kept.
    pub id: &'a str,
    /// Names the recipient: only when it is the only one, for the others are nobody's business (RFC 5321 7.2).
    pub recipient: Option<&'a Mailbox>,
    /// When it was received.
    pub time: WallTime,
}

/// The Received field with its CRLF.
#[must_use]
pub fn received(input: &Received<'_>) -> Vec<u8> {
    let origin = &input.envelope.origin;
    let mut field = Folded::new("Received:");
    field.word("from");
    field.word(origin.helo.as_str());
    field.word(&match origin.ip.to_canonical() {
        std::net::IpAddr::V4(ip) => format!("([{ip}])"),
        std::net::IpAddr::V6(ip) => format!("([IPv6:{ip}])"),
    });
    if let Some(tls) = &origin.tls {
        // The form most servers use; a comment may stand wherever CFWS may.
        field.word(&format!("(using {}", plain(&tls.version)));
        field.word(&format!("with cipher {})", plain(&tls.cipher)));
    }
    field.word("by");
    field.word(input.by.as_str());
    field.word("with");
    field.word(protocol(input.envelope));
    let id = plain(input.id);
    if !id.is_empty() {
        field.word("id");
        field.word(&id);
    }
    if let Some(recipient) = input.recipient {
        field.word("for");
        field.word(&format!("<{recipient}>"));
    }
    field.glue(";");
    field.word(&input.time.to_string());
    field.end()
}

/// The "with" keyword from IANA's registry "Mail Transmission Types" (RFC 3848, 6531 3.7.3).
fn protocol(envelope: &Envelope) -> &'static str {
    let origin = &envelope.origin;
    let utf8 = envelope.mail.utf8;
    match (
        envelope.role,
        utf8,
        origin.tls.is_some(),
        origin.authenticated,
    ) {
        (Role::Lmtp, false, false, false) => "LMTP",
        (Role::Lmtp, false, false, true) => "LMTPA",
        (Role::Lmtp, false, true, false) => "LMTPS",
        (Role::Lmtp, false, true, true) => "LMTPSA",
        (Role::Lmtp, true, false, false) => "UTF8LMTP",
        (Role::Lmtp, true, false, true) => "UTF8LMTPA",
        (Role::Lmtp, true, true, false) => "UTF8LMTPS",
        (Role::Lmtp, true, true, true) => "UTF8LMTPSA",
        (_, true, false, false) => "UTF8SMTP",
        (_, true, false, true) => "UTF8SMTPA",
        (_, true, true, false) => "UTF8SMTPS",
        (_, true, true, true) => "UTF8SMTPSA",
        (_, false, false, false) if origin.basic => "SMTP",
        (_, false, false, false) => "ESMTP",
        (_, false, false, true) => "ESMTPA",
        (_, false, true, false) => "ESMTPS",
        (_, false, true, true) => "ESMTPSA",
    }
}

/// The Return-Path field with its CRLF.
#[must_use]
pub fn return_path(path: &ReversePath) -> Vec<u8> {
    let mut field = Folded::new("Return-Path:");
    field.word(&path.to_string());
    field.end()
}

/// The Delivered-To field with its CRLF: the address as delivered, by which a loop through forwarding is seen.
#[must_use]
pub fn delivered_to(mailbox: &Mailbox) -> Vec<u8> {
    let mut field = Folded::new("Delivered-To:");
    field.word(&mailbox.to_string());
    field.end()
}

fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
        .take(128)
        .collect()
}

/// A header field under construction.
struct Folded {
    out: String,
    column: usize,
}

impl Folded {
    fn new(name: &str) -> Self {
        Folded {
            out: name.to_owned(),
            column: name.len(),
        }
    }

    /// Adds white space, folded if need be, and a word. Words may hold spaces (quoted local parts, dates), never line ends.
    fn word(&mut self, word: &str) {
        assert!(
            !word.chars().any(char::is_control),
            "control character in a header field"
        );
        let width = word.chars().count();
        if self.column + 1 + width > LINE_CHARS_MAX {
            self.out.push_str("\r\n ");
            self.column = 1;
        } else {
            self.out.push(' ');
            self.column += 1;
        }
        self.out.push_str(word);
        self.column += width;
    }

    fn glue(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.len();
    }

    fn end(mut self) -> Vec<u8> {
        self.out.push_str("\r\n");
        self.out.into_bytes()
    }
}

#[cfg(test)]
mod tests;
