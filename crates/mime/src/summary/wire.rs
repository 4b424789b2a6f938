//! The stored encoding of a summary: CBOR, an array for each structure, the place in the array being the field's number.
//! What stands behind the known fields of an array is skipped, so that fields can be added. What few commands need is a byte string with an
//! encoding in it (below in angle brackets), so that it is stepped over at once.
//!
//! ```text
//! summary  = [version, rule of usual fields, prefix length, size, lines, message, <fields>, preview?]
//! message  = [<envelope>, part]
//! envelope = [date, subject, from, sender, reply-to, to, cc, bcc, in-reply-to, message-id]
//! address  = [name, route, mailbox, host]
//! part     = [header start, header length, body start, body length, lines, <told>]
//! told     = [type, subtype, params, id, description, encoding, md5, disposition, language, location, kind, inside]
//! params   = [name, value, name, value ...]    disposition = [type, params]
//! kind     = 0 basic, 1 text (inside: null), 2 multipart (inside: [part ...]), 3 message (inside: message)
//! fields   = [[name length, raw ...], [dropped name ...], complete, end]
//! ```

use std::convert::Infallible;

use bytes::Bytes;
use minicbor::Encoder;

use super::fields::RULE;
use super::format::{DecodeError, VERSION};
use super::reader::List;
use super::view::{
    AddressView, ContentView, DispositionView, EnvelopeView, FieldView, FieldsView, ParamView,
    PartView, View,
};
use super::{
    Address, Content, Disposition, Envelope, Field, Fields, Message, Octets, Param, Part, Summary,
    Wanted,
};

type Writer = Encoder<Vec<u8>>;
type Written = Result<(), minicbor::encode::Error<Infallible>>;

pub(super) fn encode(summary: &Summary) -> Vec<u8> {
    let mut writer = Encoder::new(Vec::with_capacity(1024));
    write_summary(&mut writer, summary).expect("writing to memory cannot fail");
    writer.into_writer()
}

fn write_summary(w: &mut Writer, summary: &Summary) -> Written {
    w.array(7 + u64::from(summary.preview.is_some()))?
        .u32(VERSION)?
        .u32(RULE)?
        .u64(summary.prefix_len)?
        .u64(summary.size)?
        .u64(summary.lines)?;
    write_message(w, &summary.message)?;
    write_apart(w, |w| write_fields(w, &summary.fields))?;
    if let Some(preview) = &summary.preview {
        w.str(preview)?;
    }
    Ok(())
}

/// As a byte string.
fn write_apart(w: &mut Writer, write: impl FnOnce(&mut Writer) -> Written) -> Written {
    let mut apart = Encoder::new(Vec::with_capacity(256));
    write(&mut apart)?;
    w.bytes(apart.writer())?;
    Ok(())
}

fn write_fields(w: &mut Writer, fields: &Fields) -> Written {
    w.array(4)?.array(2 * fields.list.len() as u64)?;
    for field in &fields.list {
        w.u64(field.name_len as u64)?.bytes(&field.raw)?;
    }
    write_texts(w, &fields.dropped)?;
    w.bool(fields.complete)?.bytes(&fields.end)?;
    Ok(())
}

fn write_message(w: &mut Writer, message: &Message) -> Written {
    w.array(2)?;
    write_apart(w, |w| write_envelope(w, &message.envelope))?;
    write_part(w, &message.body)
}

fn write_envelope(w: &mut Writer, e: &Envelope) -> Written {
    w.array(10)?;
    write_text(w, &e.date)?;
    write_text(w, &e.subject)?;
    for list in [
        &e.from,
        &e.given_sender,
        &e.given_reply_to,
        &e.to,
        &e.cc,
        &e.bcc,
    ] {
        w.array(list.len() as u64)?;
        for address in list {
            w.array(4)?;
            write_text(w, &address.name)?;
            write_text(w, &address.route)?;
            write_text(w, &address.mailbox)?;
            write_text(w, &address.host)?;
        }
    }
    write_text(w, &e.in_reply_to)?;
    write_text(w, &e.message_id)
}

fn write_part(w: &mut Writer, part: &Part) -> Written {
    w.array(6)?
        .u64(part.header.start)?
        .u64(part.header.len)?
        .u64(part.body.start)?
        .u64(part.body.len)?
        .u64(part.lines)?;
    write_apart(w, |w| write_told(w, part))
}

fn write_told(w: &mut Writer, part: &Part) -> Written {
    w.array(12)?.bytes(&part.media_type)?.bytes(&part.subtype)?;
    write_params(w, &part.params)?;
    write_text(w, &part.id)?;
    write_text(w, &part.description)?;
    w.bytes(&part.encoding)?;
    write_text(w, &part.md5)?;
    match &part.disposition {
        None => drop(w.null()?),
        Some(disposition) => {
            w.array(2)?.bytes(&disposition.kind)?;
            write_params(w, &disposition.params)?;
        }
    }
    write_texts(w, &part.language)?;
    write_text(w, &part.location)?;
    match &part.content {
        Content::Basic => drop(w.u8(0)?.null()?),
        Content::Text => drop(w.u8(1)?.null()?),
        Content::Multipart(parts) => {
            w.u8(2)?.array(parts.len() as u64)?;
            for part in parts {
                write_part(w, part)?;
            }
        }
        Content::Message(message) => {
            w.u8(3)?;
            write_message(w, message)?;
        }
    }
    Ok(())
}

fn write_params(w: &mut Writer, params: &[Param]) -> Written {
    w.array(2 * params.len() as u64)?;
    for param in params {
        w.bytes(&param.name)?.bytes(&param.value)?;
    }
    Ok(())
}

fn write_texts(w: &mut Writer, texts: &[Octets]) -> Written {
    w.array(texts.len() as u64)?;
    for text in texts {
        w.bytes(text)?;
    }
    Ok(())
}

fn write_text(w: &mut Writer, text: &Option<Octets>) -> Written {
    match text {
        Some(text) => w.bytes(text)?,
        None => w.null()?,
    };
    Ok(())
}

pub(super) fn decode(bytes: &Bytes, wanted: Wanted) -> Result<Summary, DecodeError> {
    let view = View::new(bytes)?;
    let shared = Shared(bytes);
    let place = view.body();
    let mut body = Part::default();
    if wanted.parts {
        body = shared.part(&place)?;
    } else {
        (body.header, body.body, body.lines) = (place.header, place.body, place.lines);
    }
    let mut envelope = Envelope::default();
    if wanted.envelope {
        envelope = shared.envelope(&view.envelope()?);
    }
    let mut fields = Fields::default();
    if wanted.fields {
        fields = shared.fields(&view.fields()?);
    }
    Ok(Summary {
        prefix_len: view.prefix_len,
        size: view.size,
        lines: view.lines,
        message: Message { envelope, body },
        fields,
        preview: view.preview.map(str::to_owned),
    })
}

/// Encoded bytes, parts of which go into the summary. Vectors grow as elements come, never by a length that is only declared.
struct Shared<'b>(&'b Bytes);

impl Shared<'_> {
    fn octets(&self, part: &[u8]) -> Octets {
        Octets(self.0.slice_ref(part))
    }

    fn text(&self, part: Option<&[u8]>) -> Option<Octets> {
        part.map(|part| self.octets(part))
    }

    fn fields(&self, fields: &FieldsView<'_>) -> Fields {
        let field = |field: FieldView<'_>| Field {
            name_len: field.name_len,
            raw: self.octets(field.raw),
        };
        let name = |name: &[u8]| self.octets(name);
        Fields {
            list: fields.list.clone().map(field).collect(),
            dropped: fields.dropped.clone().map(name).collect(),
            complete: fields.complete,
            end: self.octets(fields.end),
        }
    }

    fn envelope(&self, envelope: &EnvelopeView<'_>) -> Envelope {
        let address = |address: AddressView<'_>| Address {
            name: self.text(address.name),
            route: self.text(address.route),
            mailbox: self.text(address.mailbox),
            host: self.text(address.host),
        };
        let addresses =
            |list: &List<'_, AddressView<'_>>| list.clone().map(address).collect::<Vec<_>>();
        Envelope {
            date: self.text(envelope.date),
            subject: self.text(envelope.subject),
            from: addresses(&envelope.from),
            given_sender: addresses(&envelope.given_sender),
            given_reply_to: addresses(&envelope.given_reply_to),
            to: addresses(&envelope.to),
            cc: addresses(&envelope.cc),
            bcc: addresses(&envelope.bcc),
            in_reply_to: self.text(envelope.in_reply_to),
            message_id: self.text(envelope.message_id),
        }
    }

    /// Recursion is as deep as the view follows.
    fn part(&self, part: &PartView<'_>) -> Result<Part, DecodeError> {
        let told = part.summary()?;
        let content = match told.content {
            ContentView::Basic => Content::Basic,
            ContentView::Text => Content::Text,
            ContentView::Multipart(parts) => {
                let parts = parts.map(|part| self.part(&part?));
                Content::Multipart(parts.collect::<Result<_, _>>()?)
            }
            ContentView::Message(message) => Content::Message(Box::new(Message {
                envelope: self.envelope(&message.envelope()?),
                body: self.part(&message.body)?,
            })),
        };
        let disposition = |disposition: DispositionView<'_>| Disposition {
            kind: self.octets(disposition.kind),
            params: self.params(disposition.params),
        };
        Ok(Part {
            media_type: self.octets(told.media_type),
            subtype: self.octets(told.subtype),
            params: self.params(told.params),
            id: self.text(told.id),
            description: self.text(told.description),
            encoding: self.octets(told.encoding),
            md5: self.text(told.md5),
            disposition: told.disposition.map(disposition),
            language: told.language.map(|text| self.octets(text)).collect(),
            location: self.text(told.location),
            header: part.header,
            body: part.body,
            lines: part.lines,
            content,
        })
    }

    fn params(&self, params: List<'_, ParamView<'_>>) -> Vec<Param> {
        let param = |param: ParamView<'_>| Param {
            name: self.octets(param.name),
            value: self.octets(param.value),
        };
        params.map(param).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Summary, DecodeError> {
        super::decode(&Bytes::copy_from_slice(bytes), Wanted::ALL)
    }

    use super::super::Span;
    use super::super::view::DEPTH_MAX;
    use crate::{Limits, Parser};

    fn nested(levels: usize) -> Summary {
        let mut parser = Parser::new(&Limits::default());
        parser.push(b"\n");
        let mut summary = parser.finish();
        summary.preview = None;
        summary.message.body.header.len = 0;
        summary.message.body.body = Span { start: 0, len: 1 };
        for _ in 1..levels {
            let mut outer = summary.message.body.clone();
            outer.content = Content::Multipart(vec![summary.message.body]);
            summary.message.body = outer;
        }
        summary
    }

    #[test]
    fn nesting_is_bounded() {
        let deepest = nested(DEPTH_MAX);
        assert_eq!(decode(&encode(&deepest)).unwrap(), deepest);
        let error = decode(&encode(&nested(DEPTH_MAX + 1))).unwrap_err();
        assert_eq!(error.to_string(), "summary is damaged: nested too deep");
    }

    #[test]
    fn what_is_damaged_is_refused() {
        #[track_caller]
        fn check(expected: &str, damage: impl Fn(&mut Summary)) {
            let mut parser = Parser::new(&Limits::default());
            parser.push(b"Subject: s\r\nContent-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\n\r\nx\r\n--B--\r\n");
            let mut summary = parser.finish();
            assert_eq!(decode(&encode(&summary)).unwrap(), summary);
            damage(&mut summary);
            let error = decode(&encode(&summary)).unwrap_err();
            assert_eq!(error.to_string(), format!("summary is damaged: {expected}"));
        }
        fn inner(summary: &mut Summary) -> &mut Part {
            match &mut summary.message.body.content {
                Content::Multipart(parts) => &mut parts[0],
                _ => panic!("no multipart"),
            }
        }
        let beyond = "a range beyond the message";
        check(beyond, |summary| summary.size -= 1);
        check(beyond, |summary| summary.message.body.header.len = 1000);
        check(beyond, |summary| inner(summary).body.len += 100);
        check(beyond, |summary| inner(summary).body.start = u64::MAX);
        check(beyond, |summary| inner(summary).header.start = 0);
        check("a prefix longer than the message", |summary| {
            summary.prefix_len = summary.size + 1;
        });
        check("multipart without parts", |summary| {
            summary.message.body.content = Content::Multipart(Vec::new());
        });
        check("name longer than its field", |summary| {
            summary.fields.list[0].name_len = 1000;
        });
    }

    #[test]
    fn later_fields_are_skipped_and_later_versions_refused() {
        let summary = nested(2);
        let mut bytes = encode(&summary);
        assert_eq!(bytes[0], 0x87, "an array of 7");
        bytes[0] = 0x89;
        bytes.push(0x60);
        bytes.extend_from_slice(&[0x82, 1, 0x41, b'x']);
        let later = Summary {
            preview: Some(String::new()),
            ..summary
        };
        assert_eq!(decode(&bytes).unwrap(), later);
        bytes[1] = 3;
        assert!(matches!(decode(&bytes), Err(DecodeError::Version(3))));
    }

    #[test]
    fn another_rule_of_usual_fields_completes_no_answer() {
        let mut bytes = encode(&nested(1));
        assert!(decode(&bytes).unwrap().fields.complete);
        assert_eq!(u32::from(bytes[2]), RULE);
        bytes[2] += 1;
        assert!(!decode(&bytes).unwrap().fields.complete);
    }

    /// Bytes that were once written must be read for ever: this is version 2.
    #[test]
    fn the_format_is_kept() {
        let mut parser = Parser::new(&Limits::default());
        parser
            .push(b"From: A <a@b>\nContent-Type: multipart/mixed; boundary=B\n\n--B\n\nx\n--B--\n");
        let hex = |summary: &Summary| -> String {
            let bytes = encode(summary);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let kept = include_str!("version2.hex").trim_end();
        let with_preview = parser.finish();
        let before = Summary {
            preview: None,
            ..with_preview.clone()
        };
        assert_eq!(hex(&before), kept);
        assert_eq!(decode(&encode(&before)).unwrap(), before);
        // Since there are previews, they stand at the end: a text of one byte.
        let with = hex(&with_preview);
        assert_eq!(with, format!("88{}6178", &kept[2..]));
        assert_eq!(decode(&encode(&with_preview)).unwrap(), with_preview);
    }

    #[test]
    fn what_is_not_wanted_is_stepped_over() {
        let mut parser = crate::Parser::new(&Limits::default());
        parser.push(b"From: a@b\r\nSubject: s\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\ntext\r\n");
        let whole = parser.finish();
        let bytes = Bytes::from(encode(&whole));
        let choices = (0..8).map(|bits| [1, 2, 4].map(|bit| bits & bit != 0));
        for [envelope, fields, parts] in choices {
            let wanted = Wanted {
                envelope,
                fields,
                parts,
            };
            let found = super::decode(&bytes, wanted).unwrap();
            let mut expected = whole.clone();
            if !parts {
                let body = &mut expected.message.body;
                *body = Part {
                    header: body.header,
                    body: body.body,
                    lines: body.lines,
                    ..Part::default()
                };
            }
            if !envelope {
                expected.message.envelope = Envelope::default();
            }
            if !fields {
                expected.fields = Fields::default();
                assert_eq!(found.header_fields(&["subject"]), None);
            }
            assert_eq!(found, expected);
        }
    }
}
