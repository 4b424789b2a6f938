//! BINARY, BINARY.PEEK and BINARY.SIZE (RFC 9051, 6.4.5 and 7.5.2; RFC 3516): a part without its transfer encoding, as a stream.
//!
//! - `BINARY[]` is the message as it is: "An empty section specification refers to the entire message, including the header" (6.4.5.1),
//!   and around that there is no encoding to be undone.
//! - "this data item can only be requested for leaf body parts: those that have media types other than multipart/*, message/rfc822, or
//!   message/global" (6.4.5). Who asks all the same is given the octets of BODY, as by Dovecot; a message without its encoding, which it
//!   should not have. A part that does not exist is NIL, as in BODY.
//! - The literals are those of [`super::body`]: sizes and NULs are found by reading the part once, and a long part is read again to be sent.

use whimbrel_imap::command::FetchItem;
use whimbrel_mime::{
    Content, SectionText, Span,
    section::{self, Within},
    transfer::{Encoding, TransferDecoder},
};

use super::super::{blob::Opened, unwrap::Unwrap};

/// What is read for an item, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) span: Span,
    encoding: Encoding,
    /// Its lines end in CRLF.
    lines: bool,
    /// The span is of what comes out of this.
    within: Option<Within>,
}

/// What BINARY finds.
pub(super) enum BinaryPart {
    /// No such part.
    Nothing,
    /// A part whose encoding is not known.
    Unknown,
    /// Its octets.
    Octets(Source),
}

impl Source {
    /// Octets as they are.
    pub(super) fn plain(span: Span) -> Source {
        Source::inside(span, None)
    }

    /// Octets of a message as they are in it.
    pub(super) fn inside(span: Span, within: Option<Within>) -> Source {
        Source {
            span,
            encoding: Encoding::Identity,
            lines: false,
            within,
        }
    }

    /// What has to be read.
    pub(super) fn read_span(&self) -> Span {
        self.within.map_or(self.span, |within| within.body)
    }

    /// What undoes the encoding of the message around it.
    pub(super) fn unwrap(&self) -> Option<Unwrap> {
        Some(Unwrap::new(self.within?, self.span))
    }

    /// Whether nothing is changed, so that sizes and offsets are those of the message.
    pub(super) fn is_plain(&self) -> bool {
        self.encoding == Encoding::Identity && !self.lines && self.within.is_none()
    }
}

/// What `BINARY[part]` is about.
pub(super) fn find(opened: &Opened, path: &[u32]) -> BinaryPart {
    let Some(found) = section::resolve(&opened.summary, path, SectionText::MessageOrBody) else {
        return BinaryPart::Nothing;
    };
    let plain = Source::inside(found.span, found.within);
    if path.is_empty() {
        return BinaryPart::Octets(plain);
    }
    match &found.part.content {
        // "If an entity is of type "multipart" the Content-Transfer-Encoding is not permitted to have any value other than "7bit", "8bit" or
        // "binary"" (RFC 2045, 6.4): whatever it says, its parts lie there as they are.
        Content::Multipart(_) => BinaryPart::Octets(plain),
        content @ (Content::Basic | Content::Text | Content::Message(_)) => {
            match Encoding::by_name(&found.part.encoding) {
                None => BinaryPart::Unknown,
                Some(encoding) => BinaryPart::Octets(Source {
                    encoding,
                    lines: matches!(content, Content::Text),
                    ..plain
                }),
            }
        }
    }
}

/// Whether this is an item of BINARY about a part whose encoding is not known: "If the server does not know how to decode the section's
/// Content-Transfer-Encoding, it MUST fail the request and issue a "NO" response that contains the "UNKNOWN-CTE" response code" (7.5.2).
/// The item is left out; everything else that was asked for is told.
pub(super) fn is_unknown(opened: Option<&Opened>, item: &FetchItem) -> bool {
    let (FetchItem::Binary { part, .. } | FetchItem::BinarySize { part }, Some(opened)) =
        (item, opened)
    else {
        return false;
    };
    matches!(find(opened, part), BinaryPart::Unknown)
}

/// Undoes the encoding of a source.
pub(super) struct Decoded {
    decoder: TransferDecoder,
    lines: bool,
    /// The last octet was CR.
    after_cr: bool,
    /// Octets of one piece; empty in between.
    buffer: Vec<u8>,
}

impl Decoded {
    pub(super) fn new(source: Source) -> Decoded {
        Decoded {
            decoder: TransferDecoder::new(source.encoding),
            lines: source.lines,
            after_cr: false,
            buffer: Vec::new(),
        }
    }

    /// The next bytes of the part.
    pub(super) fn push(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8])) {
        self.decoder.push(bytes, &mut self.buffer);
        self.pass_on(take);
    }

    /// The part is at its end.
    pub(super) fn finish(&mut self, take: &mut impl FnMut(&[u8])) {
        self.decoder.finish(&mut self.buffer);
        self.pass_on(take);
    }

    /// "servers MUST ensure that textual line-oriented sections are always transmitted using the IMAP CRLF line termination syntax,
    /// regardless of the underlying storage representation of the data on the server" (RFC 9051, 7.5.2).
    fn pass_on(&mut self, take: &mut impl FnMut(&[u8])) {
        let mut rest = &self.buffer[..];
        while self.lines
            && let Some(at) = memchr::memchr(b'\n', rest)
        {
            let (line, after) = rest.split_at(at);
            take(line);
            let has_cr = line.last().map_or(self.after_cr, |&last| last == b'\r');
            take(if has_cr { b"\n" } else { b"\r\n" });
            self.after_cr = false;
            rest = &after[1..];
        }
        take(rest);
        if let Some(&last) = rest.last() {
            self.after_cr = last == b'\r';
        }
        self.buffer.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(encoding: Encoding, lines: bool, text: &[u8], expected: &[u8]) {
        let source = Source {
            span: Span::default(),
            encoding,
            lines,
            within: None,
        };
        for step in 1..=text.len().max(1) {
            let mut out = Vec::new();
            let mut decoded = Decoded::new(source);
            let mut take = |piece: &[u8]| out.extend_from_slice(piece);
            for piece in text.chunks(step) {
                decoded.push(piece, &mut take);
            }
            decoded.finish(&mut take);
            assert_eq!(
                out.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "by {step}"
            );
        }
    }

    #[test]
    fn lines_of_texts_end_in_crlf() {
        check(
            Encoding::Identity,
            true,
            b"a\nb\r\nc\r\r\nd\re\n\nf",
            b"a\r\nb\r\nc\r\r\nd\re\r\n\r\nf",
        );
        check(Encoding::Identity, false, b"a\nb\r\n\0", b"a\nb\r\n\0");
        check(Encoding::Identity, true, b"", b"");
        check(
            Encoding::QuotedPrintable,
            true,
            b"a=0Ab=\nc=0D=0A=00",
            b"a\r\nbc\r\n\0",
        );
        check(Encoding::Base64, true, b"YQpi\r\nDQo=", b"a\r\nb\r\n");
        check(Encoding::Base64, false, b"YQpi", b"a\nb");
    }
}
