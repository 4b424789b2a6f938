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
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};

pub(super) use super::fields::RULE;
use super::{
    Address, Content, Disposition, Envelope, Field, Fields, Message, Octets, Param, Part, Span,
    Summary, Wanted,
};
use crate::Limits;

pub(super) const VERSION: u32 = 2;
/// A placeholder stands below the deepest part that is looked into.
const DEPTH_MAX: usize = Limits::NESTING_MAX + 1;

/// Why bytes are no summary. The log's affair: a client is told that the message cannot be read. Permanent.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Written by a later version.
    #[error("summary has version {0}, which is unknown here")]
    Version(u32),
    /// Not the encoding of a summary.
    #[error("summary is damaged: {0}")]
    Damaged(String),
}

impl From<minicbor::decode::Error> for DecodeError {
    fn from(error: minicbor::decode::Error) -> DecodeError {
        DecodeError::Damaged(error.to_string())
    }
}

pub(super) fn damaged(what: &str) -> DecodeError {
    DecodeError::Damaged(what.to_owned())
}

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

pub(super) type Read<T> = Result<T, DecodeError>;

/// Encoded bytes that are being read, parts of which go into the summary.
struct Source<'b> {
    decoder: Decoder<'b>,
    bytes: &'b Bytes,
}

impl<'b> Source<'b> {
    /// Reads what is a byte string with an encoding in it.
    fn apart<T>(&mut self, read: impl FnOnce(&mut Source<'b>) -> Read<T>) -> Read<T> {
        let mut apart = Source {
            decoder: Decoder::new(self.decoder.bytes()?),
            bytes: self.bytes,
        };
        let read = read(&mut apart)?;
        apart.end()?;
        Ok(read)
    }

    /// Steps over what is a byte string.
    fn over(&mut self) -> Read<()> {
        self.decoder.bytes()?;
        Ok(())
    }

    fn end(&self) -> Read<()> {
        if self.decoder.position() == self.decoder.input().len() {
            Ok(())
        } else {
            Err(damaged("bytes behind the end"))
        }
    }
}

impl<'b> std::ops::Deref for Source<'b> {
    type Target = Decoder<'b>;
    fn deref(&self) -> &Decoder<'b> {
        &self.decoder
    }
}

impl<'b> std::ops::DerefMut for Source<'b> {
    fn deref_mut(&mut self) -> &mut Decoder<'b> {
        &mut self.decoder
    }
}

/// An array that is being read. Vectors grow as elements come, never by a length that is only declared.
pub(super) struct Array {
    left: u64,
}

impl Array {
    pub(super) fn open(d: &mut Decoder<'_>, fields: u64) -> Read<Array> {
        let left = d
            .array()?
            .ok_or_else(|| damaged("array of indefinite length"))?;
        if left < fields {
            return Err(damaged("array too short"));
        }
        Ok(Array {
            left: left - fields,
        })
    }

    /// Whether there is one more field, which is then to be read.
    fn takes_one(&mut self) -> bool {
        let one = self.left > 0;
        self.left -= u64::from(one);
        one
    }

    /// Skips the fields that are unknown here.
    pub(super) fn close(self, d: &mut Decoder<'_>) -> Read<()> {
        for _ in 0..self.left {
            d.skip()?;
        }
        Ok(())
    }

    fn elements<T>(
        d: &mut Source<'_>,
        mut one: impl FnMut(&mut Source<'_>) -> Read<T>,
    ) -> Read<Vec<T>> {
        let count = d
            .array()?
            .ok_or_else(|| damaged("array of indefinite length"))?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(one(d)?);
        }
        Ok(list)
    }

    fn pairs<T>(
        d: &mut Source<'_>,
        mut one: impl FnMut(&mut Source<'_>) -> Read<T>,
    ) -> Read<Vec<T>> {
        let count = d
            .array()?
            .ok_or_else(|| damaged("array of indefinite length"))?;
        if count % 2 != 0 {
            return Err(damaged("odd number of elements"));
        }
        let mut list = Vec::new();
        for _ in 0..count / 2 {
            list.push(one(d)?);
        }
        Ok(list)
    }
}

pub(super) fn decode(bytes: &Bytes, wanted: Wanted) -> Read<Summary> {
    let d = &mut Source {
        decoder: Decoder::new(bytes),
        bytes,
    };
    let mut array = Array::open(d, 7)?;
    let version = d.u32()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let rule = d.u32()?;
    let (prefix_len, size, lines) = (d.u64()?, d.u64()?, d.u64()?);
    let message = read_message(d, 0, wanted)?;
    let mut fields = Fields::default();
    if wanted.fields {
        fields = d.apart(read_fields)?;
    } else {
        d.over()?;
    }
    let preview = if array.takes_one() {
        Some(d.str()?.to_owned())
    } else {
        None
    };
    array.close(d)?;
    d.end()?;
    if rule != RULE {
        fields.complete = false;
    }
    let summary = Summary {
        prefix_len,
        size,
        lines,
        message,
        fields,
        preview,
    };
    if prefix_len > size
        || !summary.message.body.lies_in(Span {
            start: 0,
            len: size,
        })
    {
        return Err(damaged("a range beyond the message"));
    }
    Ok(summary)
}

fn read_fields(d: &mut Source<'_>) -> Read<Fields> {
    let array = Array::open(d, 4)?;
    let list = Array::pairs(d, |d| {
        let name_len = d.u64()?;
        let raw = octets(d)?;
        match usize::try_from(name_len) {
            Ok(name_len) if name_len <= raw.len() => Ok(Field { name_len, raw }),
            _ => Err(damaged("name longer than its field")),
        }
    })?;
    let dropped = Array::elements(d, octets)?;
    let (complete, end) = (d.bool()?, octets(d)?);
    array.close(d)?;
    Ok(Fields {
        list,
        dropped,
        complete,
        end,
    })
}

fn read_message(d: &mut Source<'_>, depth: usize, wanted: Wanted) -> Read<Message> {
    let array = Array::open(d, 2)?;
    let mut envelope = Envelope::default();
    if wanted.envelope {
        envelope = d.apart(read_envelope)?;
    } else {
        d.over()?;
    }
    let body = read_part(d, depth + 1, wanted.parts)?;
    array.close(d)?;
    Ok(Message { envelope, body })
}

fn read_envelope(d: &mut Source<'_>) -> Read<Envelope> {
    let members = Array::open(d, 10)?;
    let envelope = Envelope {
        date: text(d)?,
        subject: text(d)?,
        from: Array::elements(d, read_address)?,
        given_sender: Array::elements(d, read_address)?,
        given_reply_to: Array::elements(d, read_address)?,
        to: Array::elements(d, read_address)?,
        cc: Array::elements(d, read_address)?,
        bcc: Array::elements(d, read_address)?,
        in_reply_to: text(d)?,
        message_id: text(d)?,
    };
    members.close(d)?;
    Ok(envelope)
}

fn read_address(d: &mut Source<'_>) -> Read<Address> {
    let array = Array::open(d, 4)?;
    let address = Address {
        name: text(d)?,
        route: text(d)?,
        mailbox: text(d)?,
        host: text(d)?,
    };
    array.close(d)?;
    Ok(address)
}

fn read_part(d: &mut Source<'_>, depth: usize, told: bool) -> Read<Part> {
    if depth > DEPTH_MAX {
        return Err(damaged("nested too deep"));
    }
    let array = Array::open(d, 6)?;
    let header = Span {
        start: d.u64()?,
        len: d.u64()?,
    };
    let body = Span {
        start: d.u64()?,
        len: d.u64()?,
    };
    let lines = d.u64()?;
    let mut part = Part::default();
    if told {
        part = d.apart(|d| read_told(d, depth))?;
    } else {
        d.over()?;
    }
    array.close(d)?;
    (part.header, part.body, part.lines) = (header, body, lines);
    Ok(part)
}

fn read_told(d: &mut Source<'_>, depth: usize) -> Read<Part> {
    let array = Array::open(d, 12)?;
    let part = Part {
        media_type: octets(d)?,
        subtype: octets(d)?,
        params: read_params(d)?,
        id: text(d)?,
        description: text(d)?,
        encoding: octets(d)?,
        md5: text(d)?,
        disposition: if null(d)? {
            None
        } else {
            Some(read_disposition(d)?)
        },
        language: Array::elements(d, octets)?,
        location: text(d)?,
        header: Span::default(),
        body: Span::default(),
        lines: 0,
        content: match d.u8()? {
            kind @ (0 | 1) => {
                d.skip()?;
                if kind == 0 {
                    Content::Basic
                } else {
                    Content::Text
                }
            }
            2 => {
                let parts = Array::elements(d, |d| read_part(d, depth + 1, true))?;
                if parts.is_empty() {
                    return Err(damaged("multipart without parts"));
                }
                Content::Multipart(parts)
            }
            3 => Content::Message(Box::new(read_message(d, depth, Wanted::ALL)?)),
            _ => return Err(damaged("unknown kind of part")),
        },
    };
    array.close(d)?;
    Ok(part)
}

fn read_params(d: &mut Source<'_>) -> Read<Vec<Param>> {
    Array::pairs(d, |d| {
        Ok(Param {
            name: octets(d)?,
            value: octets(d)?,
        })
    })
}

fn read_disposition(d: &mut Source<'_>) -> Read<Disposition> {
    let array = Array::open(d, 2)?;
    let disposition = Disposition {
        kind: octets(d)?,
        params: read_params(d)?,
    };
    array.close(d)?;
    Ok(disposition)
}

fn octets(d: &mut Source<'_>) -> Read<Octets> {
    let part = d.decoder.bytes()?;
    Ok(Octets(d.bytes.slice_ref(part)))
}

fn text(d: &mut Source<'_>) -> Read<Option<Octets>> {
    Ok(if null(d)? { None } else { Some(octets(d)?) })
}

/// Takes a null, if one is next.
pub(super) fn null(d: &mut Decoder<'_>) -> Read<bool> {
    let null = d.datatype()? == Type::Null;
    if null {
        d.null()?;
    }
    Ok(null)
}

impl Part {
    /// Whether the ranges of the part and of all in it lie in `outer` and their ends can be computed.
    fn lies_in(&self, outer: Span) -> bool {
        let within = |span: Span, outer: Span| {
            span.start >= outer.start
                && span
                    .start
                    .checked_add(span.len)
                    .is_some_and(|end| end <= outer.end())
        };
        within(self.header, outer)
            && within(self.body, outer)
            && match &self.content {
                Content::Basic | Content::Text => true,
                Content::Multipart(parts) => parts.iter().all(|part| part.lies_in(self.body)),
                Content::Message(message) => message.body.lies_in(self.body),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Read<Summary> {
        super::decode(&Bytes::copy_from_slice(bytes), Wanted::ALL)
    }

    use crate::Parser;

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
