//! The octets of a body item: a range of the message as it is, or the fields of a header that HEADER.FIELDS asks for.
//!
//! A literal says its length first. For a filtered header that is known only when all of it was read: it is kept when it is short, and read
//! twice when it is long, so that a header of any size needs one chunk of memory.

use bytes::Bytes;
use whimbrel_imap::{
    command::{FetchItem, Partial, SectionText},
    encode::{BodyAnswer, FetchWriter},
};
use whimbrel_mime::{HeaderFilter, Span};
use whimbrel_service::api::{BlobName, Call};

use super::super::{
    blob::{Opened, Reader},
    context::Context,
    limits::OUTPUT_BYTES,
};

/// A body item that is being written.
pub(super) struct Body {
    state: State,
}

enum State {
    /// Known bytes.
    Bytes(Vec<u8>),
    /// A range, not yet begun.
    Span(Reader, u64),
    /// A range whose octets are being sent.
    Octets(Reader),
    /// A filtered header.
    Filter {
        span: Span,
        partial: Option<Partial>,
        pass: Option<Box<Pass>>,
    },
}

/// A pass through a header.
struct Pass {
    reader: Reader,
    filter: Option<HeaderFilter>,
    /// Octets that came out of the filter.
    found: u64,
    /// Those kept, in the first pass.
    kept: Vec<u8>,
    /// In the second pass: the octets to be sent.
    send: Option<Span>,
}

/// What a body wants next.
pub(super) enum Next {
    Done,
    Wants(Call),
    Full,
    Failed,
}

impl Body {
    pub(super) fn span(opened: &Opened, span: Span) -> Body {
        Body {
            state: State::Span(Reader::new(&opened.summary, span), span.len),
        }
    }

    pub(super) fn bytes(mut bytes: Vec<u8>, partial: Option<Partial>) -> Body {
        if let Some(partial) = partial {
            let cut = Span {
                start: 0,
                len: bytes.len() as u64,
            }
            .partial(partial.offset, partial.length);
            bytes.truncate(cut.end() as usize);
            bytes.drain(..cut.start as usize);
        }
        Body {
            state: State::Bytes(bytes),
        }
    }

    pub(super) fn filter(span: Span, partial: Option<Partial>) -> Body {
        Body {
            state: State::Filter {
                span,
                partial,
                pass: None,
            },
        }
    }

    /// Goes on with `item`. `bytes` is what was wanted.
    pub(super) fn write(
        &mut self,
        cx: &mut Context,
        writer: &mut FetchWriter,
        item: Option<&FetchItem>,
        opened: &Opened,
        blob: BlobName,
        mut bytes: Option<Bytes>,
    ) -> Next {
        loop {
            match &mut self.state {
                State::Bytes(known) => {
                    head(cx, writer, item, known.len() as u64);
                    push(cx, known);
                    return Next::Done;
                }
                State::Span(reader, len) => {
                    head(cx, writer, item, *len);
                    let mut reader = reader.clone();
                    if let Some(piece) = reader.prefix(&opened.prefix) {
                        push(cx, &piece);
                    }
                    self.state = State::Octets(reader);
                }
                State::Octets(reader) => {
                    if let Some(bytes) = bytes.take() {
                        if reader.took(&bytes).is_err() {
                            return Next::Failed;
                        }
                        push(cx, &bytes);
                        if cx.is_full() {
                            return Next::Full;
                        }
                    }
                    return reader.call(blob).map_or(Next::Done, Next::Wants);
                }
                State::Filter {
                    span,
                    partial,
                    pass,
                } => {
                    let Some(item) = item else {
                        return Next::Failed;
                    };
                    let pass =
                        pass.get_or_insert_with(|| Box::new(Pass::new(opened, *span, item, None)));
                    let piece = match bytes.take() {
                        Some(bytes) if pass.reader.took(&bytes).is_err() => return Next::Failed,
                        Some(bytes) => Some(bytes),
                        None => pass.reader.prefix(&opened.prefix),
                    };
                    if let Some(piece) = piece {
                        pass.push(cx, Some(&piece));
                        if cx.is_full() {
                            return Next::Full;
                        }
                    }
                    if let Some(call) = pass.reader.call(blob) {
                        return Next::Wants(call);
                    }
                    pass.push(cx, None);
                    if pass.send.is_some() {
                        return Next::Done;
                    }
                    if pass.found == pass.kept.len() as u64 {
                        self.state = Body::bytes(std::mem::take(&mut pass.kept), *partial).state;
                        continue;
                    }
                    let all = Span {
                        start: 0,
                        len: pass.found,
                    };
                    let send = partial.map_or(all, |p| all.partial(p.offset, p.length));
                    head(cx, writer, Some(item), send.len);
                    **pass = Pass::new(opened, *span, item, Some(send));
                }
            }
        }
    }
}

impl Pass {
    fn new(opened: &Opened, span: Span, item: &FetchItem, send: Option<Span>) -> Pass {
        let filter = match item {
            FetchItem::Section { section, .. } => match &section.text {
                Some(SectionText::HeaderFields(fields)) => {
                    Some(HeaderFilter::new(&fields.names, fields.not))
                }
                _ => None,
            },
            _ => None,
        };
        Pass {
            reader: Reader::new(&opened.summary, span),
            filter,
            found: 0,
            kept: Vec::new(),
            send,
        }
    }

    /// The next bytes of the header, or its end.
    fn push(&mut self, cx: &mut Context, bytes: Option<&[u8]>) {
        let (found, kept, send) = (&mut self.found, &mut self.kept, self.send);
        let mut take = |piece: &[u8]| {
            let start = *found;
            *found += piece.len() as u64;
            match send {
                // Once it is too long nothing is kept.
                None if *found > OUTPUT_BYTES as u64 => *kept = Vec::new(),
                None => kept.extend_from_slice(piece),
                Some(send) => {
                    let from = send.start.clamp(start, *found);
                    let to = send.end().clamp(start, *found);
                    push(cx, &piece[(from - start) as usize..(to - start) as usize]);
                }
            }
        };
        match bytes {
            Some(bytes) => {
                if let Some(filter) = &mut self.filter {
                    filter.push(bytes, &mut take);
                }
            }
            None => {
                if let Some(filter) = self.filter.take() {
                    filter.finish(&mut take);
                }
            }
        }
    }
}

/// The name of the item and the length of its literal.
fn head(cx: &mut Context, writer: &mut FetchWriter, item: Option<&FetchItem>, len: u64) {
    let out = &mut cx.out;
    let answer = BodyAnswer::Literal(len);
    match item {
        Some(FetchItem::Section {
            section, partial, ..
        }) => {
            writer.body(out, section, partial.map(|partial| partial.offset), answer);
        }
        Some(FetchItem::Rfc822) => writer.rfc822(out, "RFC822", answer),
        Some(FetchItem::Rfc822Header) => writer.rfc822(out, "RFC822.HEADER", answer),
        Some(FetchItem::Rfc822Text) => writer.rfc822(out, "RFC822.TEXT", answer),
        _ => debug_assert!(false, "an item without octets"),
    }
}

/// Appends octets of a literal, in which NUL cannot be ("CHAR8 = %x01-ff"): it becomes `?`, and the length stays.
fn push(cx: &mut Context, bytes: &[u8]) {
    let start = cx.out.len();
    cx.out.extend_from_slice(bytes);
    let mut at = start;
    while let Some(next) = memchr::memchr(0, &cx.out[at..]) {
        cx.out[at + next] = b'?';
        at += next + 1;
    }
}
