//! The items of one message.

use bytes::Bytes;
use whimbrel_imap::{
    command::{FetchItem, HeaderFields, Partial, Section, SectionText as WireText},
    core::DateTime,
    encode::{BodyAnswer, FetchWriter, structure},
};
use whimbrel_mime::{
    SectionText, Span, View, Wanted,
    section::{self, Within},
};
use whimbrel_service::api::{Call, Reply, Row};

use super::{
    super::{blob::Opened, context::Context, objectid, view::wire_flags},
    binary::{self, BinaryPart, Source},
    body::Body,
    next::Next,
    preview::Preview,
};

/// A message that is being written.
pub(super) struct Message {
    /// `None` when the response is ended.
    writer: Option<FetchWriter>,
    /// Where it begins in the output, and how often that had been sent by then.
    begun: (u64, usize),
    row: Row,
    /// Its flags were changed by this command.
    changed: bool,
    opened: Option<Opened>,
    /// The next item.
    item: usize,
    body: Option<Body>,
}

/// How far a message was written.
pub(super) enum Written {
    All,
    Wants(Call),
    /// There is no room.
    Full,
    /// The rest cannot be had. Some of a literal may have been sent.
    Failed,
}

/// Whether an item is answered from the content row.
pub(super) fn needs_content(item: &FetchItem) -> bool {
    !matches!(
        item,
        FetchItem::Uid
            | FetchItem::Flags
            | FetchItem::ModSeq
            | FetchItem::InternalDate
            | FetchItem::Rfc822Size
            | FetchItem::EmailId
            | FetchItem::ThreadId
            | FetchItem::SaveDate
    )
}

/// Whether an item is made of the summary alone, as that lies in its row: see [`Made`].
pub(super) fn is_made(item: &FetchItem) -> bool {
    matches!(
        item,
        FetchItem::Envelope | FetchItem::Body | FetchItem::BodyStructure
    )
}

/// What was made of a summary for the items of one message, before anything of it is sent: a summary may turn out to be damaged at its end.
#[derive(Default)]
pub(super) struct Made {
    bytes: Vec<u8>,
    /// Where each item ends, in the order of those that are made.
    ends: Vec<usize>,
    /// Items that were sent.
    sent: usize,
}

impl Made {
    /// `None`: the summary cannot be read.
    pub(super) fn make(&mut self, items: &[FetchItem], view: &View<'_>, utf8: bool) -> Option<()> {
        self.bytes.clear();
        self.ends.clear();
        self.sent = 0;
        let out = &mut self.bytes;
        for item in items {
            match item {
                FetchItem::Envelope => {
                    structure::envelope(out, &view.envelope().ok()?, utf8);
                }
                FetchItem::Body => structure::body(out, &view.body(), false, utf8).ok()?,
                FetchItem::BodyStructure => structure::body(out, &view.body(), true, utf8).ok()?,
                _ => continue,
            }
            self.ends.push(out.len());
        }
        Some(())
    }

    /// The next item of those that are made.
    fn next(&mut self) -> &[u8] {
        let end = |at: usize| self.ends.get(at).copied();
        let begin = self.sent.checked_sub(1).and_then(end).unwrap_or(0);
        let end = end(self.sent).unwrap_or(begin);
        self.sent += 1;
        &self.bytes[begin..end]
    }
}

/// Whether an item needs more of the parts than where header and text of the whole message lie.
fn needs_parts(item: &FetchItem) -> bool {
    match item {
        FetchItem::Section { section, .. } => !section.part.is_empty(),
        FetchItem::Binary { .. }
        | FetchItem::BinarySize { .. }
        | FetchItem::Preview { lazy: false } => true,
        _ => false,
    }
}

/// What is needed of its summary.
pub(super) fn wanted(items: &[FetchItem]) -> Wanted {
    let is_fields = |item: &FetchItem| matches!(item, FetchItem::Section { section, .. } if matches!(section.text, Some(WireText::HeaderFields(_))));
    Wanted {
        envelope: false,
        fields: items.iter().any(is_fields),
        parts: items.iter().any(needs_parts),
    }
}

impl Message {
    pub(super) fn begin(
        cx: &mut Context,
        place: u32,
        row: Row,
        changed: bool,
        uid_is_due: bool,
        opened: Option<Opened>,
    ) -> Message {
        let begun = (cx.sends, cx.out.len());
        let mut writer = FetchWriter::begin(&mut cx.out, place + 1);
        if uid_is_due {
            // "The server MUST automatically include both UID and mod-sequence data [...] whether they were caused by [...] a FETCH/UID FETCH
            // that implicitly set the \Seen flag" (RFC 7162, 3.2.4).
            writer.uid(&mut cx.out, row.uid);
        }
        if changed {
            writer.flags(&mut cx.out, &wire_flags(&row.flags), false);
            if cx.condstore {
                writer.mod_seq(&mut cx.out, row.modseq);
            }
        }
        Message {
            writer: Some(writer),
            begun,
            row,
            changed,
            opened,
            item: 0,
            body: None,
        }
    }

    /// Takes back what was written of it; `false`: some of it is on its way.
    pub(super) fn take_back(self, cx: &mut Context) -> bool {
        let (sends, at) = self.begun;
        let whole = sends == cx.sends;
        if whole {
            cx.out.truncate(at);
            if self.changed
                && let Some(view) = &mut cx.view
            {
                // The next telling of changes tells it.
                view.told.retain(|(uid, _)| *uid != self.row.uid);
            }
        }
        whole
    }

    /// Goes on. `reply` is the answer to what was wanted.
    pub(super) fn write(
        &mut self,
        cx: &mut Context,
        items: &[FetchItem],
        made: &mut Made,
        reply: Option<Reply>,
    ) -> Written {
        let mut bytes: Option<Bytes> = match reply {
            None => None,
            Some(Reply::Bytes(bytes)) => Some(bytes),
            Some(_) => return Written::Failed,
        };
        loop {
            if let Some(body) = &mut self.body {
                let (Some(opened), Some(writer)) = (&self.opened, &mut self.writer) else {
                    return Written::Failed;
                };
                match body.write(
                    cx,
                    writer,
                    items.get(self.item),
                    opened,
                    self.row.blob,
                    bytes.take(),
                ) {
                    Next::Done => {
                        self.body = None;
                        self.item += 1;
                    }
                    Next::Wants(call) => return Written::Wants(call),
                    Next::Full => return Written::Full,
                    Next::Failed => return Written::Failed,
                }
            }
            let Some(item) = items.get(self.item) else {
                if let Some(writer) = self.writer.take() {
                    writer.end(&mut cx.out);
                }
                return Written::All;
            };
            self.answer(cx, item, made);
            if self.body.is_none() {
                self.item += 1;
            }
        }
    }

    /// Answers an item, or begins to.
    fn answer(&mut self, cx: &mut Context, item: &FetchItem, made: &mut Made) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let (out, row) = (&mut cx.out, &self.row);
        match (item, &self.opened) {
            (FetchItem::Uid, _) => writer.uid(out, row.uid),
            (FetchItem::Flags, _) if self.changed => {}
            (FetchItem::Flags, _) => writer.flags(out, &wire_flags(&row.flags), false),
            (FetchItem::ModSeq, _) if self.changed && cx.condstore => {}
            (FetchItem::ModSeq, _) => writer.mod_seq(out, row.modseq),
            (FetchItem::InternalDate, _) => {
                writer.internal_date(
                    out,
                    DateTime::with_zone(row.date.seconds, row.date.zone_minutes),
                );
            }
            (FetchItem::EmailId, _) => writer.email_id(out, &objectid::email_id(row.origin)),
            (FetchItem::ThreadId, _) => writer.thread_id(out, None),
            (FetchItem::SaveDate, _) => {
                writer.save_date(out, DateTime::with_zone(row.saved, 0));
            }
            (FetchItem::Rfc822Size, _) => writer.size(out, u64::from(row.size)),
            (FetchItem::Envelope, _) => writer.envelope(out, made.next()),
            (FetchItem::Body, _) => writer.body_basic(out, made.next()),
            (FetchItem::BodyStructure, _) => writer.body_structure(out, made.next()),
            (
                FetchItem::Section {
                    section, partial, ..
                },
                Some(opened),
            ) => {
                self.body = begin_section(opened, section, *partial);
                if self.body.is_none() {
                    writer.body(
                        out,
                        section,
                        partial.map(|partial| partial.offset),
                        BodyAnswer::Nil,
                    );
                }
            }
            (FetchItem::Binary { part, partial, .. }, Some(opened)) => {
                match binary::find(opened, part) {
                    BinaryPart::Octets(source) if source.is_plain() => {
                        let span = partial
                            .map_or(source.span, |p| source.span.partial(p.offset, p.length));
                        self.body = Some(Body::sieved(Source::plain(span), None));
                    }
                    BinaryPart::Octets(source) => self.body = Some(Body::sieved(source, *partial)),
                    BinaryPart::Nothing => {
                        let origin = partial.map(|partial| partial.offset);
                        writer.binary(out, part, origin, BodyAnswer::Nil);
                    }
                    BinaryPart::Unknown => {}
                }
            }
            (FetchItem::BinarySize { part }, Some(opened)) => match binary::find(opened, part) {
                BinaryPart::Octets(source) if source.is_plain() => {
                    writer.binary_size(out, part, source.span.len);
                }
                BinaryPart::Octets(source) => self.body = Some(Body::sieved(source, None)),
                BinaryPart::Nothing => writer.binary_size(out, part, 0),
                BinaryPart::Unknown => {}
            },
            (FetchItem::Preview { lazy }, Some(opened)) => match &opened.summary.preview {
                // "A server MUST NOT return NIL to a FETCH PREVIEW request made without the LAZY modifier" (RFC 8970, 3.2).
                None if !lazy => self.body = Some(Body::preview(Preview::new(cx, opened))),
                preview => writer.preview(out, preview.as_deref()),
            },
            (FetchItem::Rfc822, Some(opened)) => {
                self.body = begin_plain(opened, SectionText::Whole)
            }
            (FetchItem::Rfc822Header, Some(opened)) => {
                self.body = begin_plain(opened, SectionText::Header)
            }
            (FetchItem::Rfc822Text, Some(opened)) => {
                self.body = begin_plain(opened, SectionText::Text)
            }
            _ => debug_assert!(false, "an item that is not known"),
        }
    }
}

fn begin_plain(opened: &Opened, text: SectionText) -> Option<Body> {
    let span =
        section::resolve(&opened.summary, &[], text).map_or(Span::default(), |found| found.span);
    Some(Body::span(opened, span))
}

/// `None`: there is no such section.
fn begin_section(opened: &Opened, section: &Section, partial: Option<Partial>) -> Option<Body> {
    let Located {
        span,
        fields,
        within,
    } = locate(opened, section)?;
    if within.is_some() && fields.is_none() {
        return Some(Body::sieved(Source::inside(span, within), partial));
    }
    let Some(fields) = fields else {
        return Some(Body::span(
            opened,
            partial.map_or(span, |p| span.partial(p.offset, p.length)),
        ));
    };
    // The usual fields of the message are in its summary.
    if section.part.is_empty()
        && !fields.not
        && let Some(answer) = opened.summary.header_fields(&fields.names)
    {
        return Some(Body::bytes(answer, partial));
    }
    Some(Body::sieved(Source::inside(span, within), partial))
}

/// Where a section lies.
pub(in super::super) struct Located<'a> {
    pub(in super::super) span: Span,
    /// The message under an encoding that it is in.
    pub(in super::super) within: Option<Within>,
    /// Which fields of it are wanted, if it is HEADER.FIELDS.
    pub(in super::super) fields: Option<&'a HeaderFields>,
}

/// `None`: there is no such section.
pub(in super::super) fn locate<'a>(opened: &Opened, section: &'a Section) -> Option<Located<'a>> {
    let (text, fields) = match &section.text {
        None => (SectionText::Whole, None),
        Some(WireText::Header) => (SectionText::Header, None),
        Some(WireText::Text) => (SectionText::Text, None),
        Some(WireText::Mime) => (SectionText::Mime, None),
        Some(WireText::HeaderFields(fields)) => (SectionText::Header, Some(fields)),
    };
    let found = section::resolve(&opened.summary, &section.part, text)?;
    Some(Located {
        span: found.span,
        within: found.within,
        fields,
    })
}
