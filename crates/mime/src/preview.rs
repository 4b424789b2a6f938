//! The preview of a message (RFC 8970): the begin of its text, as a list of messages shows it.
//!
//! It is the text of the first text/plain or text/html part that has any, attachments and embedded messages apart: in multipart/alternative
//! that is the plain one. Markup is taken out of HTML ([`crate::html`]), white space becomes single spaces, what is not seen is left out.
//! Made while a message is parsed, of no more bytes than [`Limits::preview_bytes_max`]; for summaries from before there were previews,
//! [`LatePreview`] reads the same bytes of the stored message.

use crate::Limits;
use crate::charset::{Charset, CharsetDecoder};
use crate::html::Stripper;
use crate::parser::text::HeldEnd;
use crate::summary::{Content, Part, Span, Summary};
use crate::transfer::{Encoding, TransferDecoder};

/// Characters of a preview at most: "The server SHOULD limit the length of the preview text to 200 preview characters" (RFC 8970, 3.3).
pub const PREVIEW_CHARS_MAX: usize = 200;
/// Bytes of its encoding at most.
pub(crate) const PREVIEW_BYTES: usize = 4 * PREVIEW_CHARS_MAX + 3;
/// Bytes that are decoded at a time: a preview is mostly made of one such piece.
const PIECE_BYTES: usize = 1024;

/// A preview in the making, while the parts of a message stream by.
pub(crate) struct Preview {
    /// The part that is looked at.
    part: Option<Box<PartText>>,
    /// Text that was found.
    text: Option<String>,
    bytes_left: usize,
    held: HeldEnd,
}

impl Preview {
    pub(crate) fn new(limits: &Limits) -> Preview {
        Preview {
            part: None,
            text: None,
            bytes_left: limits.preview_bytes_max,
            held: HeldEnd::default(),
        }
    }

    /// The body of a part begins that is neither an embedded message nor in one.
    pub(crate) fn begin(&mut self, part: &Part) {
        self.held.take();
        if self.text.is_none() && self.bytes_left > 0 {
            self.part = Recipe::new(part).map(|recipe| Box::new(PartText::new(recipe)));
        }
    }

    /// More of it.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut held = std::mem::take(&mut self.held);
        held.push(bytes, |bytes| self.take(bytes));
        self.held = held;
    }

    fn take(&mut self, bytes: &[u8]) {
        if let Some(part) = &mut self.part {
            let bytes = &bytes[..bytes.len().min(self.bytes_left)];
            self.bytes_left -= bytes.len();
            part.push(bytes);
            if self.bytes_left == 0 || part.is_full() {
                self.over();
            }
        }
    }

    /// Its end. `cut`: by a delimiter, to which the last line end belongs.
    pub(crate) fn end(&mut self, cut: bool) {
        let held = self.held.take();
        if !cut {
            self.take(held);
        }
        self.over();
    }

    fn over(&mut self) {
        if let Some(part) = self.part.take() {
            self.text = Some(part.finish()).filter(|text| !text.is_empty());
        }
    }

    /// The preview; may be empty.
    pub(crate) fn finish(mut self) -> String {
        self.end(false);
        self.text.unwrap_or_default()
    }
}

/// The text of one part.
struct PartText {
    transfer: TransferDecoder,
    charset: Option<CharsetDecoder>,
    html: Option<Stripper>,
    bytes: Vec<u8>,
    decoded: String,
    text: Squeezed,
}

/// How the text of a part is read.
#[derive(Clone, Copy)]
struct Recipe {
    html: bool,
    encoding: Encoding,
    charset: Charset,
}

impl Recipe {
    /// `None`: it is nothing to look at.
    fn new(part: &Part) -> Option<Recipe> {
        let html = part.is("text", "html");
        let attached = part
            .disposition
            .as_ref()
            .is_some_and(|d| d.kind.eq_ignore_ascii_case(b"attachment"));
        if attached || !(html || part.is("text", "plain")) {
            return None;
        }
        Some(Recipe {
            html,
            encoding: Encoding::by_name(&part.encoding)?,
            charset: part
                .param("charset")
                .map_or(Charset::Mixed, Charset::by_label),
        })
    }
}

impl PartText {
    fn new(recipe: Recipe) -> PartText {
        PartText {
            transfer: TransferDecoder::new(recipe.encoding),
            charset: Some(CharsetDecoder::new(recipe.charset)),
            html: recipe.html.then(Stripper::default),
            bytes: Vec::new(),
            decoded: String::new(),
            text: Squeezed::default(),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            if self.is_full() {
                return;
            }
            self.bytes.clear();
            self.transfer.push(piece, &mut self.bytes);
            self.decoded.clear();
            if let Some(charset) = &mut self.charset {
                charset.push(&self.bytes, &mut self.decoded);
            }
            self.take();
        }
    }

    fn take(&mut self) {
        let text = &mut self.text;
        let mut take = |character| text.push(character);
        match &mut self.html {
            Some(html) => html.push(&self.decoded, &mut take),
            None => self.decoded.chars().for_each(take),
        }
    }

    fn is_full(&self) -> bool {
        self.text.count >= PREVIEW_CHARS_MAX
    }

    fn finish(mut self) -> String {
        self.bytes.clear();
        self.transfer.finish(&mut self.bytes);
        self.decoded.clear();
        if let Some(mut charset) = self.charset.take() {
            charset.push(&self.bytes, &mut self.decoded);
            charset.finish(&mut self.decoded);
        }
        self.take();
        self.text.text
    }
}

/// Text with single spaces, up to [`PREVIEW_CHARS_MAX`] characters.
#[derive(Default)]
struct Squeezed {
    text: String,
    count: usize,
    space: bool,
}

impl Squeezed {
    fn push(&mut self, character: char) {
        if character.is_whitespace() {
            self.space = self.count > 0;
            return;
        }
        if is_unseen(character) {
            return;
        }
        if std::mem::take(&mut self.space) {
            self.add(' ');
        }
        self.add(character);
    }

    fn add(&mut self, character: char) {
        if self.count < PREVIEW_CHARS_MAX {
            self.text.push(character);
            self.count += 1;
        }
    }
}

/// Control characters, what has no width (letters fill their previews with it), and what turns the direction of all that follows, the
/// client's own text too.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{AD}'
                | '\u{34F}'
                | '\u{61C}'
                | '\u{180E}'
                | '\u{200B}'..='\u{200F}'
                | '\u{202A}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}'
        )
}

/// A preview that is made of a stored message.
///
/// Ask [`LatePreview::next_range`], read these bytes of the message and [`LatePreview::push`] them, in chunks of any size; repeat until it
/// says `None`.
pub struct LatePreview {
    /// The parts that may have text, the next one last.
    parts: Vec<(Span, Recipe)>,
    /// What was not asked for of the present one.
    rest: Span,
    preview: Preview,
}

/// Bytes that are asked for at a time: most previews need no more.
const RANGE_BYTES: u64 = 4096;

impl LatePreview {
    /// Of the message that has this summary.
    pub fn new(summary: &Summary, limits: &Limits) -> LatePreview {
        let mut parts = Vec::new();
        candidates(&summary.message.body, &mut parts);
        parts.reverse();
        LatePreview {
            parts,
            rest: Span::default(),
            preview: Preview::new(limits),
        }
    }

    /// The next bytes wanted. To be called when the range before was pushed whole.
    pub fn next_range(&mut self) -> Option<Span> {
        loop {
            if self.preview.text.is_some() || self.preview.bytes_left == 0 {
                return None;
            }
            if self.preview.part.is_none() {
                let (span, recipe) = self.parts.pop()?;
                self.rest = span;
                self.preview.part = Some(Box::new(PartText::new(recipe)));
            }
            if self.rest.len == 0 {
                self.preview.end(false);
                continue;
            }
            let len = RANGE_BYTES.min(self.preview.bytes_left as u64);
            let range = self.rest.partial(0, len);
            self.rest = Span::between(range.end(), self.rest.end());
            return Some(range);
        }
    }

    /// The next bytes of the range.
    pub fn push(&mut self, bytes: &[u8]) {
        self.preview.push(bytes);
    }

    /// The preview; may be empty.
    pub fn finish(self) -> String {
        self.preview.finish()
    }
}

/// Recursion is as deep as the tree, which `Limits::NESTING_MAX` bounds.
fn candidates(part: &Part, parts: &mut Vec<(Span, Recipe)>) {
    match &part.content {
        Content::Text => parts.extend(Recipe::new(part).map(|recipe| (part.body, recipe))),
        // What stands for the parts of a multipart without any is all of its text: it has no header, as no part with a body has.
        Content::Multipart(inner) => inner
            .iter()
            .filter(|part| part.header.len > 0)
            .for_each(|part| candidates(part, parts)),
        Content::Basic | Content::Message(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parser;
    use proptest::prelude::*;

    fn parsed(message: &[u8], step: usize, limits: &Limits) -> Summary {
        let mut parser = Parser::new(limits);
        message.chunks(step).for_each(|piece| parser.push(piece));
        parser.finish()
    }

    fn late(message: &[u8], summary: &Summary, limits: &Limits) -> String {
        let mut late = LatePreview::new(summary, limits);
        while let Some(range) = late.next_range() {
            late.push(&message[range.start as usize..range.end() as usize]);
        }
        late.finish()
    }

    #[track_caller]
    fn check(message: &str, expected: &str) {
        let limits = Limits::default();
        for step in [1, 7, 100_000] {
            let summary = parsed(message.as_bytes(), step, &limits);
            assert_eq!(summary.preview.as_deref(), Some(expected), "by {step}");
            assert_eq!(
                late(message.as_bytes(), &summary, &limits),
                expected,
                "late"
            );
        }
    }

    #[test]
    fn plain_text() {
        check(
            "Subject: x\r\n\r\nHello,\r\n\r\n\tworld!  \r\n",
            "Hello, world!",
        );
        check("\nno header", "no header");
        check("Subject: only\r\n", "");
        check(
            "Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\ncaf=E9=\n!",
            "café!",
        );
        check("Content-Transfer-Encoding: base64\n\nYWJj\nZA==\n", "abcd");
        check(
            "Content-Type: text/plain; charset=utf-8\n\n\u{feff}a\u{200b}\u{ad}b\u{202e}c\0\u{1b}d\u{a0}\u{3000}e",
            "abcd e",
        );
    }

    #[test]
    fn html() {
        check(
            "Content-Type: text/html\n\n<style>p{}</style><p>Hello&nbsp;<b>w</b>orld</p>\n",
            "Hello world",
        );
    }

    #[test]
    fn which_part() {
        let parts = |kind: &str, parts: &[&str]| {
            let body: String = parts.iter().map(|part| format!("--b\n{part}\n")).collect();
            format!(
                "Content-Type: multipart/{kind}; boundary=b\n\npreamble\n{body}--b--\nepilogue\n"
            )
        };
        let plain = "Content-Type: text/plain\n\nplain\n-x\n--x\n";
        let html = "Content-Type: text/html\n\n<i>html</i>\n";
        check(&parts("alternative", &[plain, html]), "plain -x --x");
        check(&parts("alternative", &["\n \n", html]), "html");
        check(
            &parts("mixed", &["Content-Type: image/png\n\nxxxx\n", html, plain]),
            "html",
        );
        let attached = "Content-Disposition: attachment\n\nattached\n";
        check(&parts("mixed", &[attached, plain]), "plain -x --x");
        check(&parts("mixed", &[attached]), "");
        let embedded = "Content-Type: message/rfc822\n\nSubject: y\n\nembedded\n";
        check(&parts("mixed", &[embedded, html]), "html");
        check(&parts("mixed", &[embedded]), "");
        check(embedded, "");
        check("Content-Type: text/calendar\n\nBEGIN:VCALENDAR\n", "");
        check("Content-Transfer-Encoding: x-unknown\n\nabc\n", "");
        // What stands where a delimiter might.
        check(&parts("mixed", &["\n-\n-a\n--\n--bb no\n"]), "- -a --");
    }

    #[test]
    fn length() {
        let long = format!("\n{}", "wörd ".repeat(1000));
        let expected = format!("{}wörd", "wörd ".repeat(39)) + " ";
        check(&long, &expected);
        assert_eq!(expected.chars().count(), PREVIEW_CHARS_MAX);
        let widest = format!(
            "Content-Type: text/plain; charset=utf-8\n\n{}",
            "𝄞".repeat(500)
        );
        check(&widest, &"𝄞".repeat(200));
    }

    /// What hides in front of the text is not read without end.
    #[test]
    fn bytes_max() {
        let limits = Limits {
            preview_bytes_max: 1000,
            ..Limits::default()
        };
        for (hidden, expected) in [(900, "text"), (1000, "")] {
            let message = format!(
                "Content-Type: text/html\n\n<!--{}-->text",
                "x".repeat(hidden - 7)
            );
            let summary = parsed(message.as_bytes(), 50, &limits);
            assert_eq!(summary.preview.as_deref(), Some(expected), "{hidden}");
            assert_eq!(late(message.as_bytes(), &summary, &limits), expected);
        }
    }

    /// Found by fuzzing: the line end before a delimiter was counted, and decoded, as if it were text.
    #[test]
    fn the_line_end_before_a_delimiter_is_no_text() {
        let check = |message: &[u8], preview_bytes_max: usize, expected: &str| {
            let limits = Limits {
                preview_bytes_max,
                ..Limits::default()
            };
            for step in [1, 2, 3, 1000] {
                let summary = parsed(message, step, &limits);
                assert_eq!(summary.preview.as_deref(), Some(expected), "by {step}");
                assert_eq!(late(message, &summary, &limits), expected);
            }
        };
        let head = "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n";
        // White space has no text, so the second part is looked at with what is left of four bytes.
        let message = format!("{head}\r\n \r\n--b\r\n\r\nabcdef\r\n--b--\r\n");
        check(message.as_bytes(), 4, "abc");
        let mut message = head.as_bytes().to_vec();
        message.extend_from_slice(
            b"Content-Type: text/plain; charset=utf-16be\r\n\r\n\0h\0i\r\n--b--\r\n",
        );
        check(&message, 1000, "hi");
    }

    proptest! {
        #[test]
        fn late_ones_are_the_same(parts in proptest::collection::vec(proptest::sample::select(&[
            "Content-Type: multipart/mixed; boundary=b", "Content-Type: text/html", "Content-Transfer-Encoding: base64",
            "Content-Type: message/rfc822", "Content-Disposition: attachment", "", "--b", "--b--", "<p>a", "YWJj", "text ", "--", "-", "&amp",
        ][..]), 0..40), crlf: bool, step in 1usize..50,
            preview_bytes_max in 1usize..30) {
            let message = parts.join(if crlf { "\r\n" } else { "\n" });
            for limits in [Limits::default(), Limits { preview_bytes_max, ..Limits::default() }] {
                let summary = parsed(message.as_bytes(), step, &limits);
                let late = late(message.as_bytes(), &summary, &limits);
                prop_assert_eq!(summary.preview, Some(late));
            }
        }
    }
}
