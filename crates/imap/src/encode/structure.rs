//! ENVELOPE and BODYSTRUCTURE (RFC 9051, section 7.5.2), written from the encoded summary of a message as it is read.

use super::strings::{nstring, number, string};
use whimbrel_mime::DecodeError;
use whimbrel_mime::summary::{
    AddressView, ContentView, DispositionView, EnvelopeView, List, MessageView, ParamView,
    PartSummary, PartView,
};

/// Appends an envelope.
pub fn envelope(out: &mut Vec<u8>, envelope: &EnvelopeView<'_>, utf8: bool) {
    out.push(b'(');
    nstring(out, envelope.date, utf8);
    out.push(b' ');
    nstring(out, envelope.subject, utf8);
    for list in [
        envelope.from.clone(),
        envelope.sender(),
        envelope.reply_to(),
        envelope.to.clone(),
        envelope.cc.clone(),
        envelope.bcc.clone(),
    ] {
        out.push(b' ');
        addresses(out, list, utf8);
    }
    out.push(b' ');
    nstring(out, envelope.in_reply_to, utf8);
    out.push(b' ');
    nstring(out, envelope.message_id, utf8);
    out.push(b')');
}

fn addresses(out: &mut Vec<u8>, list: List<'_, AddressView<'_>>, utf8: bool) {
    if list.is_empty() {
        out.extend_from_slice(b"NIL");
        return;
    }
    out.push(b'(');
    for address in list {
        out.push(b'(');
        nstring(out, address.name, utf8);
        out.push(b' ');
        nstring(out, address.route, utf8);
        out.push(b' ');
        nstring(out, address.mailbox, utf8);
        out.push(b' ');
        nstring(out, address.host, utf8);
        out.push(b')');
    }
    out.push(b')');
}

/// Appends a body structure; with `extended` its extension data (BODYSTRUCTURE), without it none (BODY).
///
/// # Errors
/// When any part is damaged: then nothing is appended.
pub fn body(
    out: &mut Vec<u8>,
    part: &PartView<'_>,
    extended: bool,
    utf8: bool,
) -> Result<(), DecodeError> {
    let begin = out.len();
    nested(out, part, extended, utf8).inspect_err(|_| out.truncate(begin))
}

/// Recursion: a part that lies too deep is damaged.
fn nested(
    out: &mut Vec<u8>,
    part: &PartView<'_>,
    extended: bool,
    utf8: bool,
) -> Result<(), DecodeError> {
    let told = part.summary()?;
    out.push(b'(');
    if let ContentView::Multipart(parts) = &told.content {
        for inner in parts.clone() {
            nested(out, &inner?, extended, utf8)?;
        }
        out.push(b' ');
        string(out, told.subtype, utf8);
        if extended {
            out.push(b' ');
            params(out, told.params.clone(), utf8);
        }
    } else {
        string(out, told.media_type, utf8);
        out.push(b' ');
        string(out, told.subtype, utf8);
        out.push(b' ');
        params(out, told.params.clone(), utf8);
        out.push(b' ');
        nstring(out, told.id, utf8);
        out.push(b' ');
        nstring(out, told.description, utf8);
        out.push(b' ');
        string(out, told.encoding, utf8);
        out.push(b' ');
        number(out, part.body.len);
        let mut has_lines = matches!(told.content, ContentView::Text);
        if let ContentView::Message(message) = &told.content {
            let before = out.len();
            embedded(out, message, extended, utf8)?;
            has_lines = utf8 || !told.is("MESSAGE", "GLOBAL");
            if !has_lines {
                // To IMAP4rev1 only RFC822 is such a message (RFC 3501, `media-message`); it takes whatever else this is for a basic part.
                out.truncate(before);
            }
        }
        if has_lines {
            out.push(b' ');
            number(out, part.lines);
        }
        if extended {
            out.push(b' ');
            nstring(out, told.md5, utf8);
        }
    }
    if extended {
        extension(out, told, utf8);
    }
    out.push(b')');
    Ok(())
}

fn embedded(
    out: &mut Vec<u8>,
    message: &MessageView<'_>,
    extended: bool,
    utf8: bool,
) -> Result<(), DecodeError> {
    out.push(b' ');
    envelope(out, &message.envelope()?, utf8);
    out.push(b' ');
    nested(out, &message.body, extended, utf8)
}

/// Disposition, language, location: the same for single and multiple parts.
fn extension(out: &mut Vec<u8>, told: PartSummary<'_>, utf8: bool) {
    out.push(b' ');
    match told.disposition {
        None => out.extend_from_slice(b"NIL"),
        Some(DispositionView { kind, params: list }) => {
            out.push(b'(');
            string(out, kind, utf8);
            out.push(b' ');
            params(out, list, utf8);
            out.push(b')');
        }
    }
    out.push(b' ');
    languages(out, told.language, utf8);
    out.push(b' ');
    nstring(out, told.location, utf8);
}

fn languages<'a>(out: &mut Vec<u8>, mut list: List<'a, &'a [u8]>, utf8: bool) {
    match list.next() {
        None => out.extend_from_slice(b"NIL"),
        Some(one) if list.is_empty() => string(out, one, utf8),
        Some(first) => {
            out.push(b'(');
            string(out, first, utf8);
            for language in list {
                out.push(b' ');
                string(out, language, utf8);
            }
            out.push(b')');
        }
    }
}

fn params(out: &mut Vec<u8>, list: List<'_, ParamView<'_>>, utf8: bool) {
    if list.is_empty() {
        out.extend_from_slice(b"NIL");
        return;
    }
    for (n, param) in list.enumerate() {
        out.push(if n == 0 { b'(' } else { b' ' });
        string(out, param.name, utf8);
        out.push(b' ');
        string(out, param.value, utf8);
    }
    out.push(b')');
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_mime::{
        Address, Content, Disposition, Envelope, Fields, Message, Param, Part, Span, Summary, View,
    };

    /// Encodes what is tested, as a message of its own.
    fn encoded(message: Message) -> Vec<u8> {
        let summary = Summary {
            prefix_len: 0,
            size: 10_000,
            lines: 0,
            message,
            fields: Fields::default(),
            preview: None,
        };
        summary.encode()
    }

    fn shown(part: &Part, extended: bool, utf8: bool) -> String {
        let bytes = encoded(Message {
            envelope: Envelope::default(),
            body: part.clone(),
        });
        let mut out = Vec::new();
        body(&mut out, &View::new(&bytes).unwrap().body(), extended, utf8).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn part(media_type: &str, subtype: &str, len: u64, lines: u64, content: Content) -> Part {
        Part {
            media_type: media_type.into(),
            subtype: subtype.into(),
            params: Vec::new(),
            id: None,
            description: None,
            encoding: "7BIT".into(),
            md5: None,
            disposition: None,
            language: Vec::new(),
            location: None,
            header: Span::default(),
            body: Span { start: 0, len },
            lines,
            content,
        }
    }

    fn param(name: &str, value: &str) -> Param {
        Param {
            name: name.into(),
            value: value.into(),
        }
    }

    #[track_caller]
    fn check(part: &Part, extended: bool, expected: &str) {
        assert_eq!(shown(part, extended, false), expected);
    }

    #[test]
    fn global_messages() {
        let message = Message {
            envelope: Envelope::default(),
            body: part("TEXT", "PLAIN", 1, 0, Content::Text),
        };
        let global = part("message", "global", 9, 2, Content::Message(message.into()));
        let show = |utf8| shown(&global, false, utf8);
        assert_eq!(show(false), r#"("message" "global" NIL NIL NIL "7BIT" 9)"#);
        assert_eq!(
            show(true),
            r#"("message" "global" NIL NIL NIL "7BIT" 9 (NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL) ("TEXT" "PLAIN" NIL NIL NIL "7BIT" 1 0) 2)"#
        );
    }

    #[test]
    fn bodies_of_the_rfc() {
        // RFC 9051, section 7.5.2, "a simple text message" and "a two-part message".
        let mut text = part("TEXT", "PLAIN", 2279, 48, Content::Text);
        text.params = vec![param("CHARSET", "US-ASCII")];
        check(
            &text,
            false,
            r#"("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 2279 48)"#,
        );
        let mut one = part("TEXT", "PLAIN", 1152, 23, Content::Text);
        one.params = vec![param("CHARSET", "US-ASCII")];
        let mut two = part("TEXT", "PLAIN", 4554, 73, Content::Text);
        two.params = vec![param("CHARSET", "US-ASCII"), param("NAME", "cc.diff")];
        two.id = Some("<960723163407.20117h@cac.washington.edu>".into());
        two.description = Some("Compiler diff".into());
        two.encoding = "BASE64".into();
        let both = part(
            "MULTIPART",
            "MIXED",
            9000,
            100,
            Content::Multipart(vec![one, two]),
        );
        check(
            &both,
            false,
            concat!(
                r#"(("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 1152 23)"#,
                r#"("TEXT" "PLAIN" ("CHARSET" "US-ASCII" "NAME" "cc.diff") "#,
                r#""<960723163407.20117h@cac.washington.edu>" "Compiler diff" "BASE64" 4554 73) "MIXED")"#
            ),
        );
    }

    #[test]
    fn extension_data() {
        let mut basic = part("IMAGE", "PNG", 10, 1, Content::Basic);
        basic.disposition = Some(Disposition {
            kind: "attachment".into(),
            params: vec![param("filename", "a.png")],
        });
        basic.language = vec!["en".into(), "de".into()];
        check(
            &basic,
            true,
            r#"("IMAGE" "PNG" NIL NIL NIL "7BIT" 10 NIL ("attachment" ("filename" "a.png")) ("en" "de") NIL)"#,
        );
        check(&basic, false, r#"("IMAGE" "PNG" NIL NIL NIL "7BIT" 10)"#);
        let many = part(
            "MULTIPART",
            "MIXED",
            1,
            0,
            Content::Multipart(vec![part("TEXT", "PLAIN", 1, 0, Content::Text)]),
        );
        check(
            &many,
            true,
            r#"(("TEXT" "PLAIN" NIL NIL NIL "7BIT" 1 0 NIL NIL NIL NIL) "MIXED" NIL NIL NIL NIL)"#,
        );
        let inner = Message {
            envelope: Envelope::default(),
            body: part("TEXT", "PLAIN", 1, 0, Content::Text),
        };
        let outer = part(
            "MESSAGE",
            "RFC822",
            30,
            3,
            Content::Message(Box::new(inner)),
        );
        check(
            &outer,
            false,
            concat!(
                r#"("MESSAGE" "RFC822" NIL NIL NIL "7BIT" 30 (NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL) "#,
                r#"("TEXT" "PLAIN" NIL NIL NIL "7BIT" 1 0) 3)"#
            ),
        );
    }

    #[test]
    fn envelopes() {
        // RFC 9051, section 8: the envelope of message 12.
        let address = |name: Option<&str>, mailbox: &str, host: &str| Address {
            name: name.map(Into::into),
            route: None,
            mailbox: Some(mailbox.into()),
            host: Some(host.into()),
        };
        let message = Envelope {
            date: Some("Wed, 17 Jul 1996 02:23:25 -0700 (PDT)".into()),
            subject: Some("IMAP4rev2 WG mtg summary and minutes".into()),
            from: vec![address(Some("Terry Gray"), "gray", "cac.washington.edu")],
            to: vec![address(None, "imap", "cac.washington.edu")],
            cc: vec![
                address(None, "minutes", "CNRI.Reston.VA.US"),
                address(Some("John Klensin"), "KLENSIN", "MIT.EDU"),
            ],
            message_id: Some("<B27397-0100000@cac.washington.ed>".into()),
            ..Envelope::default()
        };
        let bytes = encoded(Message {
            envelope: message,
            body: Part::default(),
        });
        let mut out = Vec::new();
        let view = View::new(&bytes).unwrap();
        envelope(&mut out, &view.envelope().unwrap(), false);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                r#"("Wed, 17 Jul 1996 02:23:25 -0700 (PDT)" "IMAP4rev2 WG mtg summary and minutes" "#,
                r#"(("Terry Gray" NIL "gray" "cac.washington.edu")) (("Terry Gray" NIL "gray" "cac.washington.edu")) "#,
                r#"(("Terry Gray" NIL "gray" "cac.washington.edu")) ((NIL NIL "imap" "cac.washington.edu")) "#,
                r#"((NIL NIL "minutes" "CNRI.Reston.VA.US")("John Klensin" NIL "KLENSIN" "MIT.EDU")) NIL NIL "#,
                r#""<B27397-0100000@cac.washington.ed>")"#
            )
        );
    }
}
