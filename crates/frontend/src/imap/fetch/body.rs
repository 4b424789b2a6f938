//! The octets of a body item: a range of the message as it is; the fields of a header that HEADER.FIELDS asks for; a part whose
//! transfer encoding is undone, for BINARY.
//!
//! A literal says its length first. Of a range it is known; for the others it is known only when all was read: what is asked for is kept
//! when it is short, and read twice when it is long, so that a header or a part of any size needs one chunk of memory.

use bytes::Bytes;
use whimbrel_imap::{
    command::{FetchItem, Partial, SectionText},
    encode::{BodyAnswer, FetchWriter},
};
use whimbrel_mime::{HeaderFilter, Span};
use whimbrel_service::api::BlobName;

use super::{
    super::{
        blob::{Opened, Reader},
        context::Context,
        limits::OUTPUT_BYTES,
        unwrap::Unwrap,
    },
    binary::{Decoded, Source},
    next::Next,
    preview::Preview,
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
    /// What comes out of a sieve.
    Sieved {
        source: Source,
        wanted: Span,
        pass: Option<Box<Pass>>,
    },
    /// The preview of a message that was stored without.
    Preview(Preview),
}

/// A pass through what lies before a sieve.
struct Pass {
    reader: Reader,
    /// Stands before the sieve.
    unwrap: Option<Unwrap>,
    sieve: Sieve,
    out: Out,
    /// The end of what was read was told to the sieve.
    finished: bool,
}

/// What octets go through.
enum Sieve {
    Fields(HeaderFilter),
    Decoded(Box<Decoded>),
}

/// What becomes of the octets that come out of a sieve.
struct Out {
    /// Octets that came out.
    found: u64,
    /// Those that are asked for.
    wanted: Span,
    /// How many of these came out, and whether NUL was among them.
    count: u64,
    nul: bool,
    kept: Kept,
}

enum Kept {
    /// In the first pass, while they are short.
    Bytes(Vec<u8>),
    /// They are too long, or only their number is asked for.
    No,
    /// In the second pass they are sent; so many were announced.
    Sent(u64),
}

/// All there is.
const ALL: Span = Span {
    start: 0,
    len: u64::MAX,
};

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

    pub(super) fn preview(preview: Preview) -> Body {
        Body {
            state: State::Preview(preview),
        }
    }

    /// What comes out of a sieve, of which `partial` is asked for.
    pub(super) fn sieved(source: Source, partial: Option<Partial>) -> Body {
        // Both numbers have 63 bits, so that their sum has room.
        let wanted = partial.map_or(ALL, |partial| Span {
            start: partial.offset,
            len: partial.length,
        });
        Body {
            state: State::Sieved {
                source,
                wanted,
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
        let Some(item) = item else {
            return Next::Failed;
        };
        loop {
            match &mut self.state {
                State::Bytes(known) => {
                    let nul = memchr::memchr(0, known).is_some();
                    head(cx, writer, item, known.len() as u64, nul);
                    push(cx, known, is_binary(item));
                    return Next::Done;
                }
                State::Preview(preview) => {
                    return preview.write(cx, writer, opened, blob, bytes);
                }
                State::Span(reader, len) => {
                    head(cx, writer, item, *len, false);
                    let mut reader = reader.clone();
                    if let Some(piece) = reader.prefix(&opened.prefix) {
                        push(cx, &piece, false);
                    }
                    self.state = State::Octets(reader);
                }
                State::Octets(reader) => {
                    if let Some(bytes) = bytes.take() {
                        if reader.took(&bytes).is_err() {
                            return Next::Failed;
                        }
                        push(cx, &bytes, false);
                        if cx.is_full() {
                            return Next::Full;
                        }
                    }
                    return reader.call(blob).map_or(Next::Done, Next::Wants);
                }
                State::Sieved {
                    source,
                    wanted,
                    pass,
                } => {
                    let pass = pass.get_or_insert_with(|| {
                        let kept = match item {
                            FetchItem::BinarySize { .. } => Kept::No,
                            _ => Kept::Bytes(Vec::new()),
                        };
                        Box::new(Pass::new(opened, *source, item, *wanted, kept))
                    });
                    let piece = match bytes.take() {
                        Some(bytes) if pass.reader.took(&bytes).is_err() => return Next::Failed,
                        Some(bytes) => Some(bytes),
                        None => pass.reader.prefix(&opened.prefix),
                    };
                    let raw = is_binary(item);
                    if let Some(piece) = piece {
                        pass.push(cx, Some(&piece), raw);
                        if cx.is_full() {
                            return Next::Full;
                        }
                    }
                    // What lies behind that which is asked for need not be read.
                    if !pass.out.is_enough() {
                        if let Some(call) = pass.reader.call(blob).filter(|_| !pass.has_all()) {
                            return Next::Wants(call);
                        }
                        if !std::mem::replace(&mut pass.finished, true) {
                            pass.push(cx, None, raw);
                        }
                    }
                    let count = pass.out.count;
                    match &mut pass.out.kept {
                        Kept::Sent(announced) if *announced == count => return Next::Done,
                        Kept::Sent(_) => return Next::Failed,
                        Kept::Bytes(kept) => self.state = State::Bytes(std::mem::take(kept)),
                        Kept::No => {
                            if let FetchItem::BinarySize { part } = item {
                                writer.binary_size(&mut cx.out, part, count);
                                return Next::Done;
                            }
                            head(cx, writer, item, count, pass.out.nul);
                            **pass = Pass::new(opened, *source, item, *wanted, Kept::Sent(count));
                        }
                    }
                }
            }
        }
    }
}

impl Pass {
    fn new(opened: &Opened, source: Source, item: &FetchItem, wanted: Span, kept: Kept) -> Pass {
        let sieve = match item {
            FetchItem::Section { section, .. }
                if let Some(SectionText::HeaderFields(fields)) = &section.text =>
            {
                Sieve::Fields(HeaderFilter::new(&fields.names, fields.not))
            }
            _ => Sieve::Decoded(Box::new(Decoded::new(source))),
        };
        Pass {
            reader: Reader::new(&opened.summary, source.read_span()),
            unwrap: source.unwrap(),
            sieve,
            out: Out {
                found: 0,
                wanted,
                count: 0,
                nul: false,
                kept,
            },
            finished: false,
        }
    }

    /// Nothing more comes out of what is read.
    fn has_all(&self) -> bool {
        self.unwrap.as_ref().is_some_and(Unwrap::is_done)
    }

    /// The next bytes of what is read, or its end.
    fn push(&mut self, cx: &mut Context, bytes: Option<&[u8]>, raw: bool) {
        let Pass {
            unwrap, sieve, out, ..
        } = self;
        let mut take = |piece: &[u8]| out.take(cx, piece, raw);
        match unwrap {
            None => sieve.push(bytes, &mut take),
            Some(unwrap) => {
                unwrap.push(bytes, &mut |bytes| sieve.push(Some(bytes), &mut take));
                if bytes.is_none() {
                    sieve.push(None, &mut take);
                }
            }
        }
    }
}

impl Sieve {
    fn push(&mut self, bytes: Option<&[u8]>, take: &mut impl FnMut(&[u8])) {
        match (self, bytes) {
            (Sieve::Fields(filter), Some(bytes)) => filter.push(bytes, take),
            (Sieve::Decoded(decoded), Some(bytes)) => decoded.push(bytes, take),
            (Sieve::Decoded(decoded), None) => decoded.finish(take),
            (Sieve::Fields(filter), None) => {
                let none: [&str; 0] = [];
                let filter = std::mem::replace(filter, HeaderFilter::new(&none, false));
                filter.finish(take);
            }
        }
    }
}

impl Out {
    fn is_enough(&self) -> bool {
        self.found >= self.wanted.end()
    }

    fn take(&mut self, cx: &mut Context, piece: &[u8], raw: bool) {
        let start = self.found;
        self.found += piece.len() as u64;
        let from = self.wanted.start.clamp(start, self.found);
        let to = self.wanted.end().clamp(start, self.found);
        let piece = &piece[(from - start) as usize..(to - start) as usize];
        self.count += piece.len() as u64;
        match &mut self.kept {
            Kept::Sent(_) => push(cx, piece, raw),
            kept => {
                self.nul = self.nul || memchr::memchr(0, piece).is_some();
                // Once they are too long nothing is kept.
                if self.count > OUTPUT_BYTES as u64 {
                    *kept = Kept::No;
                } else if let Kept::Bytes(bytes) = kept {
                    bytes.extend_from_slice(piece);
                }
            }
        }
    }
}

/// Whether octets are sent as they are, NUL included.
fn is_binary(item: &FetchItem) -> bool {
    matches!(item, FetchItem::Binary { .. })
}

/// The name of the item and the length of its literal.
fn head(cx: &mut Context, writer: &mut FetchWriter, item: &FetchItem, len: u64, nul: bool) {
    let out = &mut cx.out;
    let answer = BodyAnswer::Literal(len);
    match item {
        FetchItem::Section {
            section, partial, ..
        } => {
            writer.body(out, section, partial.map(|partial| partial.offset), answer);
        }
        // "If the domain of the decoded data is "8bit" and the data does not contain the NUL octet, the server SHOULD return the data in a
        // <string> instead of a <literal8>" (RFC 9051, 7.5.2).
        FetchItem::Binary { part, partial, .. } => {
            let answer = if nul {
                BodyAnswer::Literal8(len)
            } else {
                answer
            };
            writer.binary(out, part, partial.map(|partial| partial.offset), answer);
        }
        FetchItem::BinarySize { part } => writer.binary_size(out, part, len),
        FetchItem::Rfc822 => writer.rfc822(out, "RFC822", answer),
        FetchItem::Rfc822Header => writer.rfc822(out, "RFC822.HEADER", answer),
        FetchItem::Rfc822Text => writer.rfc822(out, "RFC822.TEXT", answer),
        _ => debug_assert!(false, "an item without octets"),
    }
}

/// Appends octets of a literal, in which NUL cannot be ("CHAR8 = %x01-ff"): it becomes `?`, and the length stays. With `raw`, those of
/// BINARY, in whose literal8 it can.
fn push(cx: &mut Context, bytes: &[u8], raw: bool) {
    let start = cx.out.len();
    cx.out.extend_from_slice(bytes);
    let mut at = start;
    while !raw && let Some(next) = memchr::memchr(0, &cx.out[at..]) {
        cx.out[at + next] = b'?';
        at += next + 1;
    }
}
