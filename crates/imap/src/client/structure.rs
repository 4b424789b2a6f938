//! ENVELOPE and BODYSTRUCTURE from the wire (RFC 9051, section 7.5.2).

use super::cursor::{Cursor, Result};
use whimbrel_mime::{Address, Content, Disposition, Envelope, Message, Octets, Param, Part, Span};

/// Nesting that is followed; servers nest less.
const DEPTH_MAX: usize = 500;

fn text(p: &mut Cursor<'_>) -> Result<Option<Octets>> {
    Ok(p.nstring()?.map(Into::into))
}

fn string(p: &mut Cursor<'_>) -> Result<Octets> {
    Ok(p.string()?.into())
}

fn is_nil(p: &mut Cursor<'_>) -> bool {
    p.exact(b"NIL").is_ok()
}

pub(super) fn envelope(p: &mut Cursor<'_>) -> Result<Envelope> {
    p.open()?;
    let date = text(p)?;
    p.space()?;
    let subject = text(p)?;
    let mut lists = Vec::new();
    for _ in 0..6 {
        p.space()?;
        lists.push(addresses(p)?);
    }
    p.space()?;
    let in_reply_to = text(p)?;
    p.space()?;
    let message_id = text(p)?;
    p.close()?;
    let mut lists = lists.into_iter();
    let mut next = || lists.next().unwrap_or_default();
    Ok(Envelope {
        date,
        subject,
        from: next(),
        given_sender: next(),
        given_reply_to: next(),
        to: next(),
        cc: next(),
        bcc: next(),
        in_reply_to,
        message_id,
    })
}

fn addresses(p: &mut Cursor<'_>) -> Result<Vec<Address>> {
    if is_nil(p) {
        return Ok(Vec::new());
    }
    p.open()?;
    let mut list = Vec::new();
    while p.skip(b'(') {
        p.element()?;
        let name = text(p)?;
        p.space()?;
        let route = text(p)?;
        p.space()?;
        let mailbox = text(p)?;
        p.space()?;
        list.push(Address {
            name,
            route,
            mailbox,
            host: text(p)?,
        });
        p.close()?;
    }
    p.close()?;
    if list.is_empty() {
        Err("empty list of addresses")
    } else {
        Ok(list)
    }
}

pub(super) fn body(p: &mut Cursor<'_>, extended: bool) -> Result<Part> {
    nested(p, extended, 0)
}

fn nested(p: &mut Cursor<'_>, extended: bool, depth: usize) -> Result<Part> {
    if depth > DEPTH_MAX {
        return Err("body is nested too deep");
    }
    p.element()?;
    p.open()?;
    let mut part = Part {
        media_type: "MULTIPART".into(),
        subtype: Octets::default(),
        params: Vec::new(),
        id: None,
        description: None,
        encoding: "7BIT".into(),
        md5: None,
        disposition: None,
        language: Vec::new(),
        location: None,
        header: Span::default(),
        body: Span::default(),
        lines: 0,
        content: Content::Basic,
    };
    if p.peek() == Some(b'(') {
        let mut parts = Vec::new();
        while p.peek() == Some(b'(') {
            parts.push(nested(p, extended, depth + 1)?);
        }
        part.content = Content::Multipart(parts);
        p.space()?;
        part.subtype = string(p)?;
        if extended {
            p.space()?;
            part.params = params(p)?;
        }
    } else {
        single(p, &mut part, extended, depth)?;
    }
    if extended {
        extension(p, &mut part)?;
    }
    p.close()?;
    Ok(part)
}

fn single(p: &mut Cursor<'_>, part: &mut Part, extended: bool, depth: usize) -> Result<()> {
    part.media_type = string(p)?;
    p.space()?;
    part.subtype = string(p)?;
    p.space()?;
    part.params = params(p)?;
    p.space()?;
    part.id = text(p)?;
    p.space()?;
    part.description = text(p)?;
    p.space()?;
    part.encoding = string(p)?;
    p.space()?;
    part.body.len = p.number()?;
    if part.is("MESSAGE", "RFC822") || (p.utf8 && part.is("MESSAGE", "GLOBAL")) {
        p.space()?;
        let envelope = envelope(p)?;
        p.space()?;
        part.content = Content::Message(Box::new(Message {
            envelope,
            body: nested(p, extended, depth + 1)?,
        }));
    } else if part.media_type.eq_ignore_ascii_case(b"TEXT") {
        part.content = Content::Text;
    }
    if !matches!(part.content, Content::Basic) {
        p.space()?;
        part.lines = p.number()?;
    }
    if extended {
        p.space()?;
        part.md5 = text(p)?;
    }
    Ok(())
}

fn extension(p: &mut Cursor<'_>, part: &mut Part) -> Result<()> {
    p.space()?;
    if !is_nil(p) {
        p.open()?;
        let kind = string(p)?;
        p.space()?;
        part.disposition = Some(Disposition {
            kind,
            params: params(p)?,
        });
        p.close()?;
    }
    p.space()?;
    if p.peek() == Some(b'(') {
        part.language = p.list(string)?;
    } else {
        part.language = text(p)?.into_iter().collect();
    }
    p.space()?;
    part.location = text(p)?;
    Ok(())
}

fn params(p: &mut Cursor<'_>) -> Result<Vec<Param>> {
    if is_nil(p) {
        return Ok(Vec::new());
    }
    let params = p.list(|p| {
        let name = string(p)?;
        p.space()?;
        Ok(Param {
            name,
            value: string(p)?,
        })
    })?;
    if params.is_empty() {
        Err("empty list of parameters")
    } else {
        Ok(params)
    }
}
