//! Search in decoded text, as a stream: TEXT and BODY over a whole message, and single header fields.
//!
//! How strings are compared: both sides are folded by Unicode simple case folding, character by character; nothing else is
//! made equal (no composition or decomposition, no accents dropped, no white space joined). This is i;unicode-casemap
//! (RFC 5051) without its decomposition: one-character case mappings only. RFC 9051 6.4.4: "a message matches the key if the
//! string is a substring of the associated text. The matching SHOULD be case insensitive for characters within the ASCII
//! range."
//!
//! What is searched: under TEXT the header of the message; under both the MIME headers of parts, headers of embedded
//! messages, and the bodies of text parts and of message parts that are not looked into (delivery reports and the like). A
//! match lies within one header field (name, colon and decoded value) or within one body. Bodies are decoded from their
//! transfer encoding and charset ("Server implementations MAY exclude [MIME-IMB] body parts with terminal content media types
//! other than TEXT and MESSAGE from consideration in SEARCH matching"); HTML is searched as it is written. Preambles, epilogues, delimiter lines and other parts
//! are not searched; images and their kin are not even read.

mod fields;
mod matcher;

use std::sync::Arc;

use memchr::memmem::Finder;

use crate::charset::{Charset, CharsetDecoder};
use crate::header::{HeaderDecoder, decode};
use crate::summary::{Content, Message, Part, Span, Summary};
use crate::transfer::{Encoding, TransferDecoder};
use fields::{FieldSink, FieldSplitter};
use matcher::{Matcher, fold};

/// Bytes between two wanted ranges that are rather read than sought over.
const GAP_BYTES_MAX: u64 = 1024;
/// Bytes that are decoded at a time: what bounds the scratch buffers.
const PIECE_BYTES: usize = 4096;

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// TEXT: the header and the body.
    Text,
    /// BODY: without the header of the message.
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
        let mut folded = Vec::with_capacity(text.len());
        fold(text, &mut folded);
        Needle {
            finder: Arc::new(Finder::new(&folded).into_owned()),
        }
    }

    fn folded(&self) -> &[u8] {
        self.finder.needle()
    }

    /// Whether it occurs in a text.
    pub fn in_text(&self, text: &str) -> bool {
        let mut folded = Vec::with_capacity(text.len());
        fold(text, &mut folded);
        self.finder.find(&folded).is_some()
    }

    /// Whether it occurs in the decoded text of a header field's raw value.
    pub fn in_header(&self, raw: &[u8]) -> bool {
        match plain(raw) {
            Some(text) => self.finder.find(&text.to_ascii_lowercase()).is_some(),
            None => self.in_text(&decode(raw)),
        }
    }

    /// Whether it is the empty string.
    pub fn is_empty(&self) -> bool {
        self.folded().is_empty()
    }
}

/// The text of a raw value in which nothing is to be decoded, as most are: [`decode`] would give the same. `None`: it has to.
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
/// needle). Work: the bytes asked for, times the number of needles.
///
/// Ask [`TextSearcher::next_range`], read these bytes of the message in order and [`TextSearcher::push`] them all, in chunks
/// of any size; repeat until it says `None`.
pub struct TextSearcher {
    /// What is wanted, in order; the next one last.
    segments: Vec<Segment>,
    /// The range that was asked for last: where the next byte lies, and where it ends.
    at: u64,
    end: u64,
    decoder: Option<SegmentDecoder>,
    matcher: Matcher,
}

/// A stretch of the message that is one kind of text.
struct Segment {
    span: Span,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Header,
    Body(Encoding, Charset),
}

enum SegmentDecoder {
    Header(Box<FieldSplitter>, Box<HeaderDecoder>),
    Body {
        transfer: TransferDecoder,
        charset: CharsetDecoder,
        bytes: Vec<u8>,
        text: String,
    },
}

impl TextSearcher {
    /// A search; only what `summary` says to be text will be asked for.
    pub fn new(summary: &Summary, scope: Scope, needles: &[Needle]) -> TextSearcher {
        let mut segments = Vec::new();
        message_segments(&summary.message, scope == Scope::Text, &mut segments);
        segments.reverse();
        TextSearcher {
            segments,
            at: 0,
            end: 0,
            decoder: None,
            matcher: Matcher::new(needles),
        }
    }

    /// The next bytes wanted. `None`: the search is over, because all is read or every needle was found. To be called when
    /// the range before was pushed whole, or [`TextSearcher::matched`] is true throughout.
    pub fn next_range(&mut self) -> Option<Span> {
        if self.matcher.is_done() {
            return None;
        }
        assert!(self.at == self.end, "the range before is not pushed whole");
        let (first, others) = self.segments.split_last()?;
        let mut end = first.span.end();
        for segment in others.iter().rev() {
            if segment.span.start > end + GAP_BYTES_MAX {
                break;
            }
            end = segment.span.end();
        }
        (self.at, self.end) = (first.span.start, end);
        Some(Span::between(self.at, self.end))
    }

    /// The next bytes of the range; bytes beyond it are an error of the caller and panic.
    pub fn push(&mut self, mut bytes: &[u8]) {
        assert!(
            bytes.len() as u64 <= self.end - self.at,
            "bytes beyond the range"
        );
        while !bytes.is_empty() && !self.matcher.is_done() {
            let Some(segment) = self.segments.last() else {
                break;
            };
            let span = segment.span;
            if self.at < span.start {
                let skip = bytes
                    .len()
                    .min(usize::try_from(span.start - self.at).unwrap_or(usize::MAX));
                self.at += skip as u64;
                bytes = &bytes[skip..];
                continue;
            }
            let left = usize::try_from(span.end() - self.at).unwrap_or(usize::MAX);
            let (piece, rest) = bytes.split_at(bytes.len().min(left).min(PIECE_BYTES));
            let decoder = self
                .decoder
                .get_or_insert_with(|| SegmentDecoder::new(segment.kind));
            decoder.push(piece, &mut self.matcher);
            self.at += piece.len() as u64;
            bytes = rest;
            if self.at == span.end() {
                if let Some(decoder) = self.decoder.take() {
                    decoder.finish(&mut self.matcher);
                }
                self.segments.pop();
            }
        }
        self.at += bytes.len() as u64;
    }

    /// Which needles were found so far, in the order given.
    pub fn matched(&self) -> &[bool] {
        self.matcher.matched()
    }
}

fn message_segments(message: &Message, with_header: bool, segments: &mut Vec<Segment>) {
    part_segments(&message.body, with_header, segments);
}

/// Recursion is as deep as the tree, which `Limits::NESTING_MAX` bounds.
fn part_segments(part: &Part, with_header: bool, segments: &mut Vec<Segment>) {
    let mut want = |span: Span, kind: Kind| {
        if span.len > 0 {
            segments.push(Segment { span, kind });
        }
    };
    if with_header {
        want(part.header, Kind::Header);
    }
    let body = Kind::Body(
        Encoding::by_name(&part.encoding).unwrap_or(Encoding::Identity),
        part.param("charset")
            .map_or(Charset::Mixed, Charset::by_label),
    );
    match &part.content {
        Content::Text => want(part.body, body),
        Content::Basic if part.media_type.eq_ignore_ascii_case(b"message") => want(part.body, body),
        Content::Basic => {}
        Content::Multipart(parts) => parts
            .iter()
            .for_each(|part| part_segments(part, true, segments)),
        Content::Message(message) => message_segments(message, true, segments),
    }
}

impl SegmentDecoder {
    fn new(kind: Kind) -> SegmentDecoder {
        match kind {
            Kind::Header => SegmentDecoder::Header(Box::default(), Box::default()),
            Kind::Body(encoding, charset) => SegmentDecoder::Body {
                transfer: TransferDecoder::new(encoding),
                charset: CharsetDecoder::new(charset),
                bytes: Vec::new(),
                text: String::new(),
            },
        }
    }

    fn push(&mut self, piece: &[u8], matcher: &mut Matcher) {
        match self {
            SegmentDecoder::Header(splitter, decoder) => {
                splitter.push(
                    piece,
                    &mut WholeFields {
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
                matcher.push(text);
            }
        }
    }

    fn finish(self, matcher: &mut Matcher) {
        match self {
            SegmentDecoder::Header(mut splitter, mut decoder) => {
                splitter.finish(&mut WholeFields {
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
                matcher.push(&text);
                matcher.end_unit();
            }
        }
    }
}

/// Every field as one text: name, colon, decoded value.
struct WholeFields<'a> {
    decoder: &'a mut HeaderDecoder,
    matcher: &'a mut Matcher,
    text: String,
}

impl FieldSink for WholeFields<'_> {
    fn name(&mut self, name: &[u8]) {
        self.value(name);
        self.value(b":");
    }

    fn value(&mut self, piece: &[u8]) {
        self.text.clear();
        self.decoder.push(piece, &mut self.text);
        self.matcher.push(&self.text);
    }

    fn end(&mut self) {
        self.text.clear();
        self.decoder.finish(&mut self.text);
        self.matcher.push(&self.text);
        self.matcher.end_unit();
    }
}

/// Searches header fields by name in a header that streams by, in constant memory: for SEARCH HEADER on fields that the
/// summary does not have.
pub struct FieldSearcher {
    splitter: FieldSplitter,
    wanted: WantedFields,
}

struct WantedFields {
    list: Vec<Wanted>,
    decoder: HeaderDecoder,
    /// Whether the present field is wanted by any.
    any: bool,
    text: String,
}

struct Wanted {
    /// Lower case.
    name: Vec<u8>,
    matcher: Matcher,
    /// Whether a field of this name was seen.
    seen: bool,
    /// Whether the present field has this name.
    now: bool,
}

impl FieldSearcher {
    /// A search for each needle in the fields of its name. An empty needle matches when there is such a field.
    pub fn new<N: AsRef<[u8]>>(wanted: &[(N, Needle)]) -> FieldSearcher {
        let list = wanted.iter().map(|(name, needle)| Wanted {
            name: name.as_ref().to_ascii_lowercase(),
            matcher: Matcher::new(std::slice::from_ref(needle)),
            seen: false,
            now: false,
        });
        let list = list.collect();
        FieldSearcher {
            splitter: FieldSplitter::default(),
            wanted: WantedFields {
                list,
                decoder: HeaderDecoder::new(),
                any: false,
                text: String::new(),
            },
        }
    }

    /// The next bytes of the header.
    pub fn push(&mut self, bytes: &[u8]) {
        bytes
            .chunks(PIECE_BYTES)
            .for_each(|piece| self.splitter.push(piece, &mut self.wanted));
    }

    /// The header is at its end: which were found, in the order given.
    pub fn finish(mut self) -> Vec<bool> {
        self.splitter.finish(&mut self.wanted);
        self.wanted
            .list
            .iter()
            .map(|wanted| wanted.seen && wanted.matcher.matched()[0])
            .collect()
    }
}

impl FieldSink for WantedFields {
    fn name(&mut self, name: &[u8]) {
        self.any = false;
        for wanted in &mut self.list {
            wanted.now = wanted.name.eq_ignore_ascii_case(name);
            wanted.seen |= wanted.now;
            self.any |= wanted.now;
        }
    }

    fn value(&mut self, piece: &[u8]) {
        if self.any {
            self.text.clear();
            self.decoder.push(piece, &mut self.text);
            self.give();
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.any) {
            self.text.clear();
            self.decoder.finish(&mut self.text);
            self.give();
            for wanted in &mut self.list {
                wanted.matcher.end_unit();
                wanted.now = false;
            }
        }
    }
}

impl WantedFields {
    fn give(&mut self) {
        for wanted in self.list.iter_mut().filter(|wanted| wanted.now) {
            wanted.matcher.push(&self.text);
        }
    }
}

#[cfg(test)]
mod tests;
