//! Entry points for fuzzers, also used by tests: each takes any bytes and panics when an invariant is broken.

use crate::charset::{Charset, CharsetDecoder};
use crate::header::{HeaderDecoder, decode};
use crate::preview::{LatePreview, PREVIEW_CHARS_MAX};
use crate::search::{FieldKeys, FieldSearcher, Look, Needle, Scope, TextSearcher};
use crate::section::resolve;
use crate::transfer::{Encoding, TransferDecoder};
use crate::{Content, HeaderFilter, Limits, Parser, Part, SectionText, Span, Summary};

/// Limits that inputs of some hundred bytes come to.
fn small_limits() -> Limits {
    Limits {
        nesting_max: 4,
        parts_max: 6,
        header_bytes_max: 200,
        header_fields_max: 6,
        addresses_max: 4,
        params_max: 3,
        summary_bytes_max: 0,
        preview_bytes_max: 40,
    }
}

/// A message, its first byte apart, which chooses limits and pieces: read the same however it is cut, every part within the part around
/// it, the summary bounded and the inverse of its encoding; sections, fields and searched text of it.
pub fn message(data: &[u8]) {
    let Some((&choice, message)) = data.split_first() else {
        return;
    };
    let limits = if choice & 1 == 0 {
        Limits::default()
    } else {
        small_limits()
    };
    let piece = usize::from(choice >> 1).max(1);
    let (summary, work) = parse(message, message.len().max(1), &limits);
    assert_eq!(summary, parse(message, piece, &limits).0, "cut otherwise");
    assert_eq!(summary.size, message.len() as u64);
    assert!(work <= (message.len() as u64 + 1) * limits.nesting_max as u64 * 4);
    let encoded = summary.encode();
    assert!(encoded.len() <= limits.summary_bytes_max.max(Limits::SUMMARY_BYTES_MIN));
    assert_eq!(Summary::decode(&encoded).ok().as_ref(), Some(&summary));
    let whole = Span {
        start: 0,
        len: summary.size,
    };
    nested(&summary.message.body, whole, 0);
    sections(&summary, &mut Vec::new(), &summary.message.body);
    let shown = summary.preview.as_deref().unwrap_or_default();
    assert!(shown.chars().count() <= PREVIEW_CHARS_MAX && !shown.contains(['\r', '\n', '\0']));
    late_preview(message, &summary, &limits);
    fields(message, &summary, piece);
    search(message, &summary, piece);
    let prefix = b"Delivered-To: anne@example.org\r\nReceived: from a\r\n by b\r\n";
    let with = summary.with_prefix(prefix, &limits);
    assert!(with.encode().len() <= limits.summary_bytes_max.max(Limits::SUMMARY_BYTES_MIN));
}

fn parse(message: &[u8], piece: usize, limits: &Limits) -> (Summary, u64) {
    let mut parser = Parser::new(limits);
    for piece in message.chunks(piece) {
        parser.push(piece);
    }
    let work = parser.work();
    (parser.finish(), work)
}

fn nested(part: &Part, outer: Span, depth: usize) {
    assert!(depth <= Limits::NESTING_MAX + 1, "nested too deep");
    for span in [part.header, part.body] {
        assert!(span.start >= outer.start && span.end() <= outer.end());
    }
    assert!(part.header.end() == part.body.start);
    match &part.content {
        Content::Basic | Content::Text => {}
        Content::Multipart(parts) => {
            assert!(!parts.is_empty());
            assert!(
                parts
                    .windows(2)
                    .all(|pair| pair[0].body.end() <= pair[1].header.start)
            );
            for inner in parts {
                nested(inner, part.body, depth + 1);
            }
        }
        Content::Message(message) => nested(&message.body, part.body, depth + 1),
    }
}

/// Every path of the tree, and one that is not there: a section lies within the message.
fn sections(summary: &Summary, path: &mut Vec<u32>, part: &Part) {
    let texts = [
        SectionText::MessageOrBody,
        SectionText::Header,
        SectionText::Text,
        SectionText::Mime,
    ];
    for text in texts {
        if let Some(found) = resolve(summary, path, text) {
            assert!(found.span.end() <= summary.size);
        }
    }
    let children: Vec<&Part> = match &part.content {
        Content::Basic | Content::Text => Vec::new(),
        Content::Multipart(parts) => parts.iter().collect(),
        Content::Message(message) => vec![&message.body],
    };
    for number in 0..=children.len() + 1 {
        path.push(number as u32);
        match number.checked_sub(1).and_then(|at| children.get(at)) {
            Some(child) => sections(summary, path, child),
            None => {
                let _ = resolve(summary, path, SectionText::MessageOrBody);
            }
        }
        path.pop();
    }
}

/// A preview that is made later is the one that was made with the summary.
fn late_preview(message: &[u8], summary: &Summary, limits: &Limits) {
    let mut late = LatePreview::new(summary, limits);
    while let Some(range) = late.next_range() {
        assert!(range.end() <= summary.size && range.len > 0);
        late.push(&message[range.start as usize..range.end() as usize]);
    }
    assert_eq!(Some(late.finish()), summary.preview);
}

/// HEADER.FIELDS, however the header is cut; from the summary the same.
fn fields(message: &[u8], summary: &Summary, piece: usize) {
    let span = summary.message.body.header;
    let header = &message[span.start as usize..span.end() as usize];
    let names = ["subject", "FROM", "content-type", "list-id", "x"];
    for not in [false, true] {
        let filtered = |piece: usize| {
            let mut filter = HeaderFilter::new(&names, not);
            let mut found = Vec::new();
            let mut take = |bytes: &[u8]| found.extend_from_slice(bytes);
            for piece in header.chunks(piece) {
                filter.push(piece, &mut take);
            }
            filter.finish(&mut take);
            found
        };
        let found = filtered(header.len().max(1));
        assert_eq!(filtered(piece), found);
        assert!(found.len() <= header.len());
        if !not && let Some(known) = summary.header_fields(&names) {
            assert_eq!(known, found);
        }
    }
}

/// The searched text asks for ranges in order and finds the same however they are cut.
fn search(message: &[u8], summary: &Summary, piece: usize) {
    let needles = [
        Needle::new("a"),
        Needle::new("\u{df}ubject: \u{e4}"),
        Needle::new(""),
    ];
    for scope in [Scope::Text, Scope::Body] {
        let found = |piece: usize| {
            let mut searcher = TextSearcher::new(summary, scope, &needles);
            let mut at = 0;
            while let Some(range) = searcher.next_range() {
                assert!(range.start >= at && range.end() <= summary.size && range.len > 0);
                at = range.end();
                for piece in message[range.start as usize..at as usize].chunks(piece) {
                    searcher.push(piece);
                }
            }
            searcher.matched().to_vec()
        };
        let whole = found(message.len().max(1));
        assert_eq!(found(piece), whole);
        assert!(whole[2], "the empty string is everywhere");
    }
}

/// Decoders of text, each in any pieces: header fields, transfer encodings, charsets, dates, summaries from the disk.
pub fn text(data: &[u8]) {
    let [choice, charset, text @ ..] = data else {
        return;
    };
    let piece = usize::from(*choice).max(1);
    let headers = |piece: usize| {
        let (mut decoder, mut out) = (HeaderDecoder::new(), String::new());
        for piece in text.chunks(piece) {
            decoder.push(piece, &mut out);
        }
        decoder.finish(&mut out);
        out
    };
    let header = headers(text.len().max(1));
    assert_eq!(headers(piece), header);
    assert_eq!(decode(text), header.trim_matches([' ', '\t']));
    for needle in [
        Needle::new("A"),
        Needle::new("\u{e9}t"),
        Needle::new(" "),
        Needle::new(&header),
    ] {
        let mut searcher =
            FieldSearcher::new(&FieldKeys::new(&[("x", Look::Value, needle.clone())]));
        searcher.field(b"X", text);
        assert_eq!(searcher.finish(), [needle.in_text(&decode(text))]);
    }
    // A character of the replacement may stand for each octet.
    assert!(header.len() <= text.len() * 4 + 16);
    for encoding in ["7bit", "base64", "quoted-printable", "x-uuencode"] {
        let Some(encoding) = Encoding::by_name(encoding.as_bytes()) else {
            continue;
        };
        let run = |piece: usize| {
            let (mut decoder, mut out) = (TransferDecoder::new(encoding), Vec::new());
            for piece in text.chunks(piece) {
                decoder.push(piece, &mut out);
            }
            decoder.finish(&mut out);
            out
        };
        let whole = run(text.len().max(1));
        assert_eq!(run(piece), whole);
        assert!(whole.len() <= text.len() + 4);
    }
    let labels = [
        "us-ascii",
        "utf-8",
        "utf-7",
        "iso-8859-1",
        "iso-2022-jp",
        "gb18030",
        "big5",
        "euc-kr",
        "shift_jis",
        "utf-16le",
        "utf-16be",
        "x-user-defined",
        "koi8-r",
        "replacement",
        "none",
    ];
    let label = labels[usize::from(*charset) % labels.len()];
    let run = |piece: usize| {
        let (mut decoder, mut out) = (
            CharsetDecoder::new(Charset::by_label(label.as_bytes())),
            String::new(),
        );
        for piece in text.chunks(piece) {
            decoder.push(piece, &mut out);
        }
        decoder.finish(&mut out);
        out
    };
    let whole = run(text.len().max(1));
    assert_eq!(run(piece), whole, "{label}");
    assert!(whole.len() <= text.len() * 4 + 16);
    let mut scratch = String::new();
    let base = crate::subject::base(text, &mut scratch);
    assert!(base.text.len() <= header.len());
    let ids: usize = crate::message_id::Ids::new(text).map(|id| id.len()).sum();
    assert!(ids <= text.len());
    let mut key = Vec::new();
    crate::collation::casemap(&header, &mut key);
    let _ = Charset::by_label(text);
    let _ = crate::date::parse(text);
    let _ = crate::header::decode_extended(text);
    if let Ok(summary) = Summary::decode(text) {
        assert_eq!(
            Summary::decode(&summary.encode()).ok().as_ref(),
            Some(&summary),
            "what was read can be written"
        );
        let _ = summary.message.envelope.sender();
        let _ = summary.message.envelope.reply_to();
        sections(&summary, &mut Vec::new(), &summary.message.body);
    }
}
