//! The part for people: what has happened to which recipient, and what they can do about it.

use core::fmt::Write;

use super::fields::sanitized;
use super::{
    Action, DIAGNOSTIC_BYTES_MAX, Diagnostic, Kind, Recipient, Report, SUBJECT_BYTES_MAX,
    transcript,
};

/// Columns of a line; a longer word has a line of its own.
const LINE_CHARS: usize = 72;
/// Octets of a line: RFC 5321 4.5.3.1.6 has 1,000 with CRLF.
const LINE_BYTES_MAX: usize = 900;

/// The Subject.
pub(super) fn subject(kind: Kind) -> &'static str {
    match kind {
        Kind::Failure => "Your message was not delivered",
        Kind::Delay => "Your message is delayed",
        Kind::Success => "Your message was delivered",
    }
}

/// The text, with lines that end in CRLF. Addresses and subject may be UTF-8; what other servers said is so only if the form is.
pub(super) fn text(report: &Report<'_>, kind: Kind, told: &[&Recipient<'_>], utf8: bool) -> String {
    let mut out = String::new();
    wrap(
        &mut out,
        "",
        &format!("This is the mail server {}.", report.reporting),
    );
    out.push_str("\r\n");
    let subject = report
        .original
        .subject
        .map(|subject| sanitized(subject, true, SUBJECT_BYTES_MAX));
    let message = match subject.as_deref().map(str::trim) {
        None | Some("") => format!("Your message of {}", report.arrived),
        Some(subject) => format!("Your message \"{subject}\" of {}", report.arrived),
    };
    let (to, whom) = match told.len() {
        1 => ("to this recipient", "recipient"),
        _ => ("to these recipients", "recipients"),
    };
    let happened = match kind {
        Kind::Failure => format!("{message} could not be delivered {to}. The server has given up:"),
        Kind::Delay => format!(
            "{message} is not yet delivered {to}. You need not send it again: the server goes on trying."
        ),
        Kind::Success => {
            format!("{message} has reached the {whom} below, as far as this server can tell.")
        }
    };
    wrap(&mut out, "", &happened);
    for recipient in told {
        out.push_str("\r\n");
        wrap(&mut out, "  ", &recipient.address.to_string());
        for sentence in sentences(recipient) {
            wrap(&mut out, "    ", &sentence);
        }
        match recipient.diagnostic {
            Some(Diagnostic::Reply(reply)) if recipient.action.kind() != Kind::Success => {
                let remote = recipient.remote.map(|remote| sanitized(remote, false, 255));
                let who = remote.map_or_else(
                    || "The other server said:".to_owned(),
                    |remote| format!("The server {remote} said:"),
                );
                wrap(&mut out, "    ", &who);
                for line in transcript(reply) {
                    wrap(
                        &mut out,
                        "      ",
                        &sanitized(&line, utf8, DIAGNOSTIC_BYTES_MAX),
                    );
                }
            }
            Some(Diagnostic::Own(cause)) if recipient.action.kind() != Kind::Success => {
                wrap(
                    &mut out,
                    "    ",
                    &format!("Cause: {}", sanitized(cause, utf8, DIAGNOSTIC_BYTES_MAX)),
                );
            }
            _ => {}
        }
    }
    out.push_str("\r\n");
    if kind != Kind::Success {
        wrap(
            &mut out,
            "",
            &format!(
                "If you need help, write to {} and enclose this message.",
                report.help
            ),
        );
    }
    out
}

/// What to say of a recipient besides what the servers said.
fn sentences(recipient: &Recipient<'_>) -> Vec<String> {
    match recipient.action {
        Action::Failed => vec![advice(recipient).to_owned()],
        Action::Delayed => {
            let until = recipient.retry_until.map(|until| {
                format!("The server tries until {until}, and tells you if it gives up.")
            });
            until.into_iter().collect()
        }
        Action::Delivered => vec!["It is in the mailbox.".to_owned()],
        Action::Relayed => vec![
            "It is with the recipient's server, which does not tell whether it delivers it."
                .to_owned(),
        ],
        Action::Expanded => vec![
            "It was sent on to the addresses behind this one. You may still hear of each of them."
                .to_owned(),
        ],
    }
}

/// What the reader can do, by the status (RFC 3463).
fn advice(recipient: &Recipient<'_>) -> &'static str {
    let status = recipient.status;
    match (status.class(), status.subject(), status.detail()) {
        (5, 1, 10) => {
            "The recipient's domain accepts no mail. Ask the recipient for another address."
        }
        (5, 1, 2) | (5, 4, 4) => {
            "There is no mail server for the part behind the @. Check its spelling, then send the message again."
        }
        (5, 1, 7 | 8) => {
            "The recipient's server does not accept your address as a sender. Ask for help here, or use another address."
        }
        (5, 1, _) => "There is no such address. Check its spelling, then send the message again.",
        (5, 2, 1) => "The mailbox is closed. Ask the recipient for another address.",
        (_, 2, 2) | (_, 3, 1) => {
            "The mailbox or its server is full. Try again later, or reach the recipient in another way."
        }
        (5, 2, 3) | (5, 3, 4) => {
            "The message is too large for the recipient's server. Send less at a time."
        }
        (5, 4, 6) => {
            "The message would run in a circle. Whoever is responsible for the recipient's domain has to mend that."
        }
        (5, 6, 7) => {
            "The recipient's server does not know addresses with such letters. Ask the recipient for another address."
        }
        (5, 6, _) => {
            "The recipient's server cannot take what the message holds. Send it as an attachment, or as plain text."
        }
        (5, 7, _) => {
            "The recipient's server does not want the message, by its rules. Reach the recipient in another way, or ask for help."
        }
        (4, ..) | (5, 4, _) => {
            "The recipient's server could not be reached, or put the message off each time. Try again later."
        }
        _ => "The recipient's server has refused the message. What it said may tell you why.",
    }
}

/// Words into lines, each after the indent.
fn wrap(out: &mut String, indent: &str, text: &str) {
    let mut column = 0;
    for word in text.split_ascii_whitespace() {
        // Nothing has longer words but what somebody has made up.
        let word = sanitized(word, true, LINE_BYTES_MAX);
        let length = word.chars().count();
        if column > 0 && column + 1 + length > LINE_CHARS {
            out.push_str("\r\n");
            column = 0;
        }
        let before = if column == 0 { indent } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(out, "{before}{word}");
        column += before.len() + length;
    }
    out.push_str("\r\n");
}
