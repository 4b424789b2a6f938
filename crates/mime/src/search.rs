//! Search in decoded text, as a stream: TEXT and BODY over a whole message, and single header fields.
//!
//! How strings are compared: by i;unicode-casemap (RFC 5051, [`crate::collation`]): whatever the case, composed or decomposed. A mark is a
//! character of its own there, so that `cafe` is found in `café`, but not the other way round. RFC 9051 6.4.4: "a message matches the key if the
//! string is a substring of the associated text. The matching SHOULD be case insensitive for characters within the ASCII
//! range."
//!
//! What is searched: under TEXT the header of the message, the MIME headers of parts and the headers of embedded messages, but not under BODY
//! ("Unlike TEXT, this doesn't match any header fields"); under both the bodies of text parts and of message parts that are not looked into (delivery
//! reports and the like). A match lies within one header field (name, colon and decoded value) or within one body. Bodies are decoded from their
//! transfer encoding and charset ("Server implementations MAY exclude [MIME-IMB] body parts with terminal content media types other than TEXT and
//! MESSAGE from consideration in SEARCH matching"); HTML is searched as it is written. Preambles, epilogues, delimiter lines and other parts are not
//! searched; images and their kin are not even read.

mod fields;
mod keys;
mod matcher;
mod slice;

use std::sync::Arc;

use memchr::memmem::Finder;

use crate::charset::{Charset, CharsetDecoder};
use crate::collation::Casemap;
use crate::header::HeaderDecoder;
use crate::summary::{Content, Part, Span, Summary};
use crate::transfer::{Encoding, TransferDecoder};
use fields::{FieldSink, FieldSplitter};
use matcher::Matcher;

pub use keys::{FieldKeys, FieldSearcher, Look};
pub use slice::Slice;

/// Bytes between two wanted ranges that are rather read than sought over.
const GAP_BYTES_MAX: u64 = 1024;
/// Bytes that are decoded at a time: what bounds the scratch buffers.
const PIECE_BYTES: usize = 4096;
/// What it costs to decode a byte, in bytes that are looked through.
const DECODE_WORK: usize = 8;

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// TEXT: headers and bodies.
    Text,
    /// BODY: without any header.
    Body,
}

/// A string to search for, folded.
#[derive(Clone, Debug)]
pub struct Needle {
    finder: Arc<Finder<'static>>,
}

impl Needle {
    /// Prepares a needle. The empty one matches everything.
    pub fn new(text: &str) -> Needle {
        let folded = folded(text);
        Needle {
            finder: Arc::new(Finder::new(&folded).into_owned()),
        }
    }

    fn folded(&self) -> &[u8] {
        self.finder.needle()
    }

    /// Whether it occurs in a text: what the searchers are compared with.
    pub(crate) fn in_text(&self, text: &str) -> bool {
        let folded = folded(text);
        self.finder.find(&folded).is_some()
    }

    /// Whether it is the empty string.
    pub fn is_empty(&self) -> bool {
        self.folded().is_empty()
    }
}

fn folded(text: &str) -> Vec<u8> {
    let mut folded = Vec::with_capacity(text.len());
    let mut casemap = Casemap::for_search();
    casemap.push(text, &mut folded);
    casemap.finish(&mut folded);
    folded
}

/// The text of a raw value in which nothing is to be decoded, as most are: [`crate::header::decode`] would give the same. `None`: it has to.
fn plain(raw: &[u8]) -> Option<&[u8]> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let begin = raw
        .iter()
        .position(|byte| !blank(byte))
        .unwrap_or(raw.len());
    let end = raw.iter().rposition(|byte| !blank(byte));
    let text = &raw[begin..end.map_or(begin, |last| last + 1)];
    let is_plain = |byte: &u8| byte.is_ascii() && !matches!(byte, b'=' | b'\r' | b'\n' | 0);
    text.iter().all(is_plain).then_some(text)
}

/// Searches the text of a message for several needles at once, in constant memory (some KiB and the length of the longest
/// needle). Work: the bytes asked for, times the number of needles; who cannot do so much at once uses [`TextSearcher::push_slice`] and
/// [`TextSearcher::settle`].
///
/// Ask [`TextSearcher::next_range`], read these bytes of the message in order and [`TextSearcher::push`] them all, in chunks
/// of any size; repeat until it says `None`.
pub struct TextSearcher {
    segments: Segments,
    /// Where the range ends that was asked for last.
    end: u64,
    matcher: Matcher,
}

/// A stretch of the message that is one kind of text.
struct Segment {
    span: Span,
    kind: Kind,
}

enum Kind {
    Header,
    Body(Encoding, Charset),
    /// A message under an encoding, and what is text in it.
    Encoded(Encoding, Vec<Segment>),
}

enum SegmentDecoder {
    Header(Box<FieldSplitter>, Box<HeaderDecoder>),
    Body {
        transfer: TransferDecoder,
        charset: CharsetDecoder,
        bytes: Vec<u8>,
        text: String,
    },
    Encoded {
        transfer: TransferDecoder,
        bytes: Vec<u8>,
        inside: Box<Segments>,
    },
}

/// Stretches of a text that streams by.
struct Segments {
    /// Those to come, the next one last.
    list: Vec<Segment>,
    /// Where the next byte lies.
    at: u64,
    /// Of the next one, once it has begun.
    decoder: Option<SegmentDecoder>,
}

impl TextSearcher {
    /// A search; only what `summary` says to be text will be asked for.
    pub fn new(summary: &Summary, scope: Scope, needles: &[Needle]) -> TextSearcher {
        let mut list = Vec::new();
        part_segments(&summary.message.body, scope, &mut list);
        TextSearcher {
            segments: Segments::new(list, 0),
            end: 0,
            matcher: Matcher::new(needles),
        }
    }

    /// The next bytes wanted. `None`: the search is over, because all is read or every needle was found. To be called when
    /// the range before was pushed whole, or [`TextSearcher::matched`] is true throughout.
    pub fn next_range(&mut self) -> Option<Span> {
        self.settle(&mut Slice::endless());
        if self.matcher.is_done() {
            return None;
        }
        assert!(
            self.segments.at == self.end,
            "the range before is not pushed whole"
        );
        let (first, others) = self.segments.list.split_last()?;
        let mut end = first.span.end();
        for segment in others.iter().rev() {
            if segment.span.start > end + GAP_BYTES_MAX {
                break;
            }
            end = segment.span.end();
        }
        (self.segments.at, self.end) = (first.span.start, end);
        Some(Span::between(self.segments.at, self.end))
    }

    /// The next bytes of the range; bytes beyond it are an error of the caller and panic.
    pub fn push(&mut self, bytes: &[u8]) {
        self.push_slice(bytes, &mut Slice::endless());
    }

    /// As [`TextSearcher::push`], as far as the slice goes: says how many bytes were taken. Which needles were found shows when there was enough
    /// of the text, or after [`TextSearcher::settle`].
    pub fn push_slice(&mut self, bytes: &[u8], slice: &mut Slice) -> usize {
        assert!(
            bytes.len() as u64 <= self.end - self.segments.at,
            "bytes beyond the range"
        );
        let mut rest = bytes;
        while !rest.is_empty() && !self.matcher.is_done() {
            if slice.is_used_up() || (self.matcher.is_full() && !self.matcher.search(slice)) {
                return bytes.len() - rest.len();
            }
            let (taken, decoded) = self.segments.push(rest, &mut self.matcher);
            slice.take(DECODE_WORK * decoded);
            rest = &rest[taken..];
        }
        if self.matcher.is_full() {
            self.matcher.search(slice);
        }
        self.segments.at += rest.len() as u64;
        bytes.len()
    }

    /// Looks through what was pushed, so that [`TextSearcher::matched`] says what was found so far. False: the slice is used up before that.
    pub fn settle(&mut self, slice: &mut Slice) -> bool {
        self.matcher.search(slice)
    }

    /// How many needles were found so far.
    pub fn found(&self) -> usize {
        self.matcher.found()
    }

    /// Which needles were found so far, in the order given.
    pub fn matched(&self) -> &[bool] {
        self.matcher.matched()
    }
}

/// Recursion is as deep as the tree, which `Limits::NESTING_MAX` bounds.
fn part_segments(part: &Part, scope: Scope, segments: &mut Vec<Segment>) {
    let mut want = |span: Span, kind: Kind| {
        if span.len > 0 {
            segments.push(Segment { span, kind });
        }
    };
    if scope == Scope::Text {
        want(part.header, Kind::Header);
    }
    let encoding = Encoding::by_name(&part.encoding).unwrap_or(Encoding::Identity);
    let charset = part
        .param("charset")
        .map_or(Charset::Mixed, Charset::by_label);
    match &part.content {
        Content::Text => want(part.body, Kind::Body(encoding, charset)),
        Content::Basic if part.media_type.eq_ignore_ascii_case(b"message") => {
            want(part.body, Kind::Body(encoding, charset));
        }
        Content::Basic => {}
        Content::Multipart(parts) => parts
            .iter()
            .for_each(|part| part_segments(part, scope, segments)),
        Content::Message(message) if encoding == Encoding::Identity => {
            part_segments(&message.body, scope, segments);
        }
        Content::Message(message) => {
            let mut inside = Vec::new();
            part_segments(&message.body, scope, &mut inside);
            want(part.body, Kind::Encoded(encoding, inside));
        }
    }
}

impl Segments {
    /// `list` is in order.
    fn new(mut list: Vec<Segment>, at: u64) -> Segments {
        list.reverse();
        Segments {
            list,
            at,
            decoder: None,
        }
    }

    fn push_all(&mut self, mut bytes: &[u8], matcher: &mut Matcher) {
        while !bytes.is_empty() {
            let (taken, _) = self.push(bytes, matcher);
            bytes = &bytes[taken..];
        }
    }

    /// Takes some of the next bytes: how many, and how many of these were decoded.
    fn push(&mut self, bytes: &[u8], matcher: &mut Matcher) -> (usize, usize) {
        let Some(segment) = self.list.last_mut() else {
            self.at += bytes.len() as u64;
            return (bytes.len(), 0);
        };
        let span = segment.span;
        let up_to = |end: u64| usize::try_from(end - self.at).unwrap_or(usize::MAX);
        if self.at < span.start {
            let skip = bytes.len().min(up_to(span.start));
            self.at += skip as u64;
            return (skip, 0);
        }
        let piece = &bytes[..bytes.len().min(up_to(span.end())).min(PIECE_BYTES)];
        let decoder = self
            .decoder
            .get_or_insert_with(|| SegmentDecoder::new(segment));
        decoder.push(piece, matcher);
        self.at += piece.len() as u64;
        if self.at == span.end() {
            if let Some(decoder) = self.decoder.take() {
                decoder.finish(matcher);
            }
            self.list.pop();
        }
        (piece.len(), piece.len())
    }
}

impl SegmentDecoder {
    fn new(segment: &mut Segment) -> SegmentDecoder {
        match &mut segment.kind {
            Kind::Header => SegmentDecoder::Header(Box::default(), Box::default()),
            Kind::Body(encoding, charset) => SegmentDecoder::Body {
                transfer: TransferDecoder::new(*encoding),
                charset: CharsetDecoder::new(*charset),
                bytes: Vec::new(),
                text: String::new(),
            },
            Kind::Encoded(encoding, inside) => SegmentDecoder::Encoded {
                transfer: TransferDecoder::new(*encoding),
                bytes: Vec::new(),
                inside: Box::new(Segments::new(std::mem::take(inside), segment.span.start)),
            },
        }
    }

    fn push(&mut self, piece: &[u8], matcher: &mut Matcher) {
        match self {
            SegmentDecoder::Header(splitter, decoder) => {
                splitter.push(
                    piece,
                    &mut FieldTexts {
                        decoder,
                        matcher,
                        text: String::new(),
                    },
                );
            }
            SegmentDecoder::Body {
                transfer,
                charset,
                bytes,
                text,
            } => {
                bytes.clear();
                text.clear();
                transfer.push(piece, bytes);
                charset.push(bytes, text);
                matcher.push(0, text);
            }
            SegmentDecoder::Encoded {
                transfer,
                bytes,
                inside,
            } => {
                bytes.clear();
                transfer.push(piece, bytes);
                inside.push_all(bytes, matcher);
            }
        }
    }

    fn finish(self, matcher: &mut Matcher) {
        match self {
            SegmentDecoder::Header(mut splitter, mut decoder) => {
                splitter.finish(&mut FieldTexts {
                    decoder: &mut decoder,
                    matcher,
                    text: String::new(),
                });
            }
            SegmentDecoder::Body {
                mut transfer,
                mut charset,
                mut bytes,
                mut text,
            } => {
                bytes.clear();
                text.clear();
                transfer.finish(&mut bytes);
                charset.push(&bytes, &mut text);
                charset.finish(&mut text);
                matcher.push(0, &text);
                matcher.end_unit(0);
            }
            SegmentDecoder::Encoded {
                mut transfer,
                mut bytes,
                mut inside,
            } => {
                bytes.clear();
                transfer.finish(&mut bytes);
                inside.push_all(&bytes, matcher);
                // Its last part, where the text ends before what was known of it.
                if let Some(decoder) = inside.decoder.take() {
                    decoder.finish(matcher);
                }
            }
        }
    }
}

/// Every field as one text: name, colon, decoded value.
struct FieldTexts<'a> {
    decoder: &'a mut HeaderDecoder,
    matcher: &'a mut Matcher,
    text: String,
}

impl FieldSink for FieldTexts<'_> {
    fn name(&mut self, name: &[u8]) {
        self.value(name);
        self.value(b":");
    }

    fn value(&mut self, piece: &[u8]) {
        self.text.clear();
        self.decoder.push(piece, &mut self.text);
        self.matcher.push(0, &self.text);
    }

    fn end(&mut self) {
        self.text.clear();
        self.decoder.finish(&mut self.text);
        self.matcher.push(0, &self.text);
        self.matcher.end_unit(0);
    }
}

#[cfg(test)]
mod tests;
