//! ENVELOPE and BODYSTRUCTURE written from a decoded summary, as a tree: shares with the crate only how a string and a number are written.

use whimbrel_imap::encode::strings::{nstring, number, string};
use whimbrel_mime::{Address, Content, Envelope, Message, Param, Part};

/// ENVELOPE.
pub(crate) fn envelope(out: &mut Vec<u8>, envelope: &Envelope, utf8: bool) {
    out.push(b'(');
    nstring(out, envelope.date.as_deref(), utf8);
    out.push(b' ');
    nstring(out, envelope.subject.as_deref(), utf8);
    for list in [
        envelope.from.as_slice(),
        envelope.sender(),
        envelope.reply_to(),
        &envelope.to,
        &envelope.cc,
        &envelope.bcc,
    ] {
        out.push(b' ');
        addresses(out, list, utf8);
    }
    out.push(b' ');
    nstring(out, envelope.in_reply_to.as_deref(), utf8);
    out.push(b' ');
    nstring(out, envelope.message_id.as_deref(), utf8);
    out.push(b')');
}

fn addresses(out: &mut Vec<u8>, list: &[Address], utf8: bool) {
    if list.is_empty() {
        out.extend_from_slice(b"NIL");
        return;
    }
    out.push(b'(');
    for address in list {
        out.push(b'(');
        nstring(out, address.name.as_deref(), utf8);
        out.push(b' ');
        nstring(out, address.route.as_deref(), utf8);
        out.push(b' ');
        nstring(out, address.mailbox.as_deref(), utf8);
        out.push(b' ');
        nstring(out, address.host.as_deref(), utf8);
        out.push(b')');
    }
    out.push(b')');
}

/// BODYSTRUCTURE, or BODY.
pub(crate) fn body(out: &mut Vec<u8>, part: &Part, extended: bool, utf8: bool) {
    nested(out, part, extended, utf8);
}

fn nested(out: &mut Vec<u8>, part: &Part, extended: bool, utf8: bool) {
    out.push(b'(');
    if let Content::Multipart(parts) = &part.content {
        for inner in parts {
            nested(out, inner, extended, utf8);
        }
        out.push(b' ');
        string(out, &part.subtype, utf8);
        if extended {
            out.push(b' ');
            params(out, &part.params, utf8);
        }
    } else {
        string(out, &part.media_type, utf8);
        out.push(b' ');
        string(out, &part.subtype, utf8);
        out.push(b' ');
        params(out, &part.params, utf8);
        out.push(b' ');
        nstring(out, part.id.as_deref(), utf8);
        out.push(b' ');
        nstring(out, part.description.as_deref(), utf8);
        out.push(b' ');
        string(out, &part.encoding, utf8);
        out.push(b' ');
        number(out, part.body.len);
        // To IMAP4rev1 only RFC822 is such a message (RFC 3501, `media-message`); it takes whatever else this is for a basic part.
        let looked_into = utf8 || !part.is("MESSAGE", "GLOBAL");
        match &part.content {
            Content::Message(message) if looked_into => {
                embedded(out, message, extended, utf8);
            }
            _ => {}
        }
        if matches!(part.content, Content::Text)
            || (looked_into && matches!(part.content, Content::Message(_)))
        {
            out.push(b' ');
            number(out, part.lines);
        }
        if extended {
            out.push(b' ');
            nstring(out, part.md5.as_deref(), utf8);
        }
    }
    if extended {
        extension(out, part, utf8);
    }
    out.push(b')');
}

fn embedded(out: &mut Vec<u8>, message: &Message, extended: bool, utf8: bool) {
    out.push(b' ');
    envelope(out, &message.envelope, utf8);
    out.push(b' ');
    nested(out, &message.body, extended, utf8);
}

/// Disposition, language, location: the same for single and multiple parts.
fn extension(out: &mut Vec<u8>, part: &Part, utf8: bool) {
    out.push(b' ');
    match &part.disposition {
        None => out.extend_from_slice(b"NIL"),
        Some(disposition) => {
            out.push(b'(');
            string(out, &disposition.kind, utf8);
            out.push(b' ');
            params(out, &disposition.params, utf8);
            out.push(b')');
        }
    }
    out.push(b' ');
    match part.language.as_slice() {
        [] => out.extend_from_slice(b"NIL"),
        [one] => string(out, one, utf8),
        many => {
            for (n, language) in many.iter().enumerate() {
                out.push(if n == 0 { b'(' } else { b' ' });
                string(out, language, utf8);
            }
            out.push(b')');
        }
    }
    out.push(b' ');
    nstring(out, part.location.as_deref(), utf8);
}

fn params(out: &mut Vec<u8>, params: &[Param], utf8: bool) {
    if params.is_empty() {
        out.extend_from_slice(b"NIL");
        return;
    }
    for (n, param) in params.iter().enumerate() {
        out.push(if n == 0 { b'(' } else { b' ' });
        string(out, &param.name, utf8);
        out.push(b' ');
        string(out, &param.value, utf8);
    }
    out.push(b')');
}
