//! The streaming parser: bytes in, a summary out.
//!
//! The parser is always in one of three places: in a header block, in a body, or in the rest of a delimiter line. A stack
//! of frames holds the parts that are open, outermost first. Of the text itself only the head of the present line is
//! buffered, since that is what a delimiter line is known by (RFC 2046 5.1.1).
//!
//! Delimiter lines, where RFC 2046 leaves a choice (Dovecot's answers):
//! - a line is a delimiter when it *begins* with one ("An exact match of the entire candidate line is not required; it is
//!   sufficient that the boundary appear in its entirety following the CRLF"); an exact match goes before a longer one, a longer one before a shorter
//!   one, an inner one before an
//!   outer one;
//! - a delimiter ends all parts inside its multipart, also one that is still in its header;
//! - after the closing delimiter of a multipart its boundary means nothing any more.
//!
//! What cannot be cut into parts is shown, not hidden. A multipart that gives no boundary is told as text/plain; one in which no delimiter is
//! found, or which is nested too deep to be looked into, has one text/plain part, its whole text.
//!
//! A message that may not be looked into (nesting) keeps its type and is told as an empty one, because the grammar of BODYSTRUCTURE leaves no
//! other way.
//!
//! Reading order: here, `boundary`, `block`, `address`, `content`, `encoded`, `budget`, `text`.

pub(crate) mod address;
pub(crate) mod block;
mod boundary;
pub(crate) mod budget;
pub(crate) mod content;
mod encoded;
pub(crate) mod text;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use crate::Limits;
use crate::preview::Preview;
use crate::summary::{Content, Envelope, Fields, Message, Octets, Part, Span, Summary};
use crate::transfer::Encoding;
use block::{Block, Role, empty_part};
use boundary::{Delimiter, HEAD_BYTES_MAX};
use budget::{Shares, Texts};
use encoded::Encoded;

/// Reads a message in chunks of any size. Memory is bounded by the limits, work is linear in the bytes pushed.
pub struct Parser {
    limits: Limits,
    parts_left: usize,
    texts: Texts,
    shares: Shares,
    frames: Vec<Frame>,
    place: Place,
    /// Bytes taken so far.
    offset: u64,
    /// The last two bytes; CRLF before there are any.
    end: [u8; 2],
    /// LFs taken so far.
    lines: u64,
    line: Line,
    usual: Option<Fields>,
    done: Option<Message>,
    /// Multiparts that are open and not closed by their last delimiter.
    boundaries: usize,
    /// Finds a line that begins with a hyphen.
    hyphen: memchr::memmem::Finder<'static>,
    preview: Preview,
    /// Of the innermost part, if that is a message under an encoding.
    encoded: Option<Box<Encoded>>,
    /// Messages under an encoding are looked into: not in one of them.
    decodes: bool,
    work: u64,
}

/// Where the parser is.
enum Place {
    Header(Box<Block>),
    Body,
    /// Behind a delimiter, up to the end of its line. `next`: a part begins behind it.
    DelimiterRest {
        next: bool,
    },
}

/// The line that is being read.
#[derive(Default)]
struct Line {
    start: u64,
    /// LFs before it.
    lines_before: u64,
    /// Bytes of the line end before it.
    end_before: u8,
    /// Its first bytes. In a body only as long as it may become a delimiter.
    head: Vec<u8>,
    /// Its bytes so far.
    len: u64,
    /// Whether its last byte so far is CR.
    cr: bool,
    /// Whether it is no delimiter in any case (only in a body).
    plain: bool,
}

/// A part that is open.
struct Frame {
    part: Part,
    /// Set for the outermost part of a message.
    envelope: Option<Envelope>,
    inside: Inside,
    /// LFs before its body.
    lines_before: u64,
}

enum Inside {
    /// Nothing to look into.
    Leaf,
    /// A multipart; its boundary until the closing delimiter.
    Multipart {
        boundary: Option<Octets>,
        parts: Vec<Part>,
    },
    /// An embedded message, once it is read.
    Message(Option<Box<Message>>),
}

impl Parser {
    /// A parser at the start of a message. A prefix is not pushed: see [`Summary::with_prefix`].
    pub fn new(limits: &Limits) -> Parser {
        let mut limits = limits.clone();
        limits.nesting_max = limits.nesting_max.clamp(1, Limits::NESTING_MAX);
        let shares = Shares::new(&limits);
        let texts = Texts::new(shares.part_texts);
        // The outermost part is the first.
        let parts_left = shares.parts - 1;
        Parser::of_message(Role::Top, limits, shares, texts, parts_left, 0)
    }

    /// A parser of the message under an encoding that the innermost frame is: what may be spent on the whole message is its to spend until it is
    /// at its end.
    fn of_encoded(&mut self, start: u64) -> Parser {
        let limits = Limits {
            nesting_max: self.limits.nesting_max - self.frames.len(),
            preview_bytes_max: 0,
            ..self.limits.clone()
        };
        let texts = std::mem::replace(&mut self.texts, Texts::new(0));
        let (shares, parts_left) = (self.shares.clone(), self.parts_left - 1);
        Parser::of_message(Role::Embedded, limits, shares, texts, parts_left, start)
    }

    fn of_message(
        role: Role,
        limits: Limits,
        shares: Shares,
        mut texts: Texts,
        parts_left: usize,
        start: u64,
    ) -> Parser {
        let block = Block::new(role, start, &shares, &mut texts);
        Parser {
            parts_left,
            texts,
            shares,
            frames: Vec::new(),
            place: Place::Header(Box::new(block)),
            offset: start,
            end: *b"\r\n",
            lines: 0,
            line: Line {
                start,
                ..Line::default()
            },
            usual: None,
            done: None,
            boundaries: 0,
            hyphen: memchr::memmem::Finder::new(b"\n-"),
            preview: Preview::new(&limits),
            encoded: None,
            decodes: role == Role::Top,
            work: 0,
            limits,
        }
    }

    /// The next bytes of the message.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if let [.., before, last] = *bytes {
            self.end = [before, last];
        } else if let [last] = *bytes {
            self.end = [self.end[1], last];
        }
        while !bytes.is_empty() {
            let taken = match self.place {
                Place::Header(_) => self.header(bytes),
                Place::Body if self.boundaries == 0 => self.skip_body(bytes, bytes.len()),
                Place::Body => self.body(bytes),
                Place::DelimiterRest { .. } => self.delimiter_rest(bytes),
            };
            bytes = &bytes[taken..];
        }
    }

    /// What came so far is something, and does not end with CRLF.
    pub fn has_open_end(&self) -> bool {
        self.end != *b"\r\n"
    }

    /// The message is at its end.
    pub fn finish(mut self) -> Summary {
        let message = self.end_message();
        Summary {
            prefix_len: 0,
            size: self.offset,
            lines: self.lines,
            message,
            fields: self
                .usual
                .take()
                .expect("the top header is read first, and it sets the fields"),
            preview: (self.limits.preview_bytes_max > 0).then(|| self.preview.finish()),
        }
    }

    fn end_message(&mut self) -> Message {
        match self.place {
            Place::Header(_) => {
                if let Some(delimiter) = self.delimiter() {
                    block_of(&mut self.place).forget_line();
                    self.at_delimiter(delimiter);
                }
            }
            Place::Body if self.boundaries > 0 && !self.line.plain => match self.delimiter() {
                Some(delimiter) => self.at_delimiter(delimiter),
                None => self.line_is_text(),
            },
            Place::Body | Place::DelimiterRest { .. } => {}
        }
        // A delimiter that the message ends in begins no part, as in Dovecot; one with a line end does.
        if let Place::Header(_) = self.place {
            self.end_header(false, true);
        }
        while !self.frames.is_empty() {
            self.close_frame(self.offset, self.lines);
        }
        self.done
            .take()
            .expect("the outermost frame is opened by the end of the top header at the latest")
    }

    /// Bytes of the body of the innermost part.
    fn text(&mut self, bytes: &[u8]) {
        self.preview.push(bytes);
        if let Some(encoded) = &mut self.encoded {
            encoded.push(bytes);
        }
    }

    /// The head of the present line is no delimiter.
    fn line_is_text(&mut self) {
        let head = std::mem::take(&mut self.line.head);
        self.text(&head);
        self.line.head = head;
    }

    /// Bytes that were looked at more than once: fields parsed, boundaries compared. For tests of linearity.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Takes bytes of a header: at most one line.
    fn header(&mut self, bytes: &[u8]) -> usize {
        let Place::Header(block) = &mut self.place else {
            unreachable!("called in a header only")
        };
        if self.line.len == 0 {
            block.line_starts(bytes[0], &self.limits, &mut self.texts);
        }
        let lf = memchr::memchr(b'\n', bytes);
        let piece = &bytes[..lf.map_or(bytes.len(), |lf| lf + 1)];
        block.line_bytes(piece, &self.limits);
        let content = &piece[..lf.unwrap_or(piece.len())];
        self.line.take(content, self.boundaries > 0);
        self.offset += piece.len() as u64;
        if lf.is_none() {
            return piece.len();
        }
        let empty = self.line.len == u64::from(self.line.cr);
        if empty {
            block.forget_line();
            let crlf = self.line.cr;
            self.end_line();
            self.end_header(true, crlf);
        } else if let Some(delimiter) = self.delimiter() {
            block_of(&mut self.place).forget_line();
            self.at_delimiter(delimiter);
            self.end_line();
            self.after_delimiter_line();
        } else {
            self.end_line();
        }
        piece.len()
    }

    /// Takes bytes of a body in which delimiters may come.
    fn body(&mut self, bytes: &[u8]) -> usize {
        if self.line.plain || (self.line.len == 0 && bytes[0] != b'-') {
            // To the next line that begins with a hyphen; what is before it is only counted.
            let candidate = self.hyphen.find(bytes).map(|lf| lf + 1);
            return self.skip_body(bytes, candidate.unwrap_or(bytes.len()));
        }
        let lf = memchr::memchr(b'\n', bytes);
        let room = HEAD_BYTES_MAX - self.line.head.len();
        let content = &bytes[..lf.unwrap_or(bytes.len()).min(room)];
        self.line.take(content, true);
        self.offset += content.len() as u64;
        if self.line.head.get(1).is_some_and(|&b| b != b'-') {
            self.line.plain = true;
            self.line_is_text();
        } else if self.line.head.len() == HEAD_BYTES_MAX {
            match self.delimiter() {
                Some(delimiter) => self.at_delimiter(delimiter),
                None => {
                    self.line.plain = true;
                    self.line_is_text();
                }
            }
        } else if lf == Some(content.len()) {
            match self.delimiter() {
                Some(delimiter) => self.at_delimiter(delimiter),
                None => {
                    self.line_is_text();
                    self.text(b"\n");
                }
            }
            self.offset += 1;
            self.end_line();
            if let Place::DelimiterRest { .. } = self.place {
                self.after_delimiter_line();
            }
            return content.len() + 1;
        }
        content.len()
    }

    /// Takes `len` bytes of a body in which no delimiter begins, except perhaps behind the last of them.
    fn skip_body(&mut self, bytes: &[u8], len: usize) -> usize {
        let bytes = &bytes[..len];
        self.text(bytes);
        let Some(last) = memchr::memrchr(b'\n', bytes) else {
            self.line.len += len as u64;
            self.line.cr = bytes[len - 1] == b'\r';
            self.line.plain = true;
            self.offset += len as u64;
            return len;
        };
        let before = memchr::memchr_iter(b'\n', &bytes[..last]).count() as u64;
        self.lines += before;
        if last > 0 {
            self.line.cr = bytes[last - 1] == b'\r';
        }
        self.offset += last as u64 + 1;
        self.end_line();
        let rest = len - last - 1;
        if rest > 0 {
            self.line.len = rest as u64;
            self.line.cr = bytes[len - 1] == b'\r';
            self.line.plain = true;
            self.offset += rest as u64;
        }
        len
    }

    fn delimiter_rest(&mut self, bytes: &[u8]) -> usize {
        let lf = memchr::memchr(b'\n', bytes);
        let content = &bytes[..lf.unwrap_or(bytes.len())];
        if let Some(&last) = content.last() {
            self.line.cr = last == b'\r';
            self.line.len += content.len() as u64;
        }
        self.offset += content.len() as u64;
        if lf.is_none() {
            return content.len();
        }
        self.offset += 1;
        self.end_line();
        self.after_delimiter_line();
        content.len() + 1
    }

    /// The LF of the present line was taken, and `offset` stands behind it.
    fn end_line(&mut self) {
        self.lines += 1;
        let end_before = 1 + u8::from(self.line.cr);
        self.line.start = self.offset;
        self.line.lines_before = self.lines;
        self.line.end_before = end_before;
        self.line.head.clear();
        self.line.len = 0;
        self.line.cr = false;
        self.line.plain = false;
    }

    /// Which delimiter the present line is, if any.
    fn delimiter(&mut self) -> Option<Delimiter> {
        if self.boundaries == 0 || !self.line.head.starts_with(b"--") {
            return None;
        }
        let open = self
            .frames
            .iter()
            .enumerate()
            .rev()
            .filter_map(|(at, frame)| match &frame.inside {
                Inside::Multipart {
                    boundary: Some(boundary),
                    ..
                } => Some((at, &**boundary)),
                _ => None,
            });
        let delimiter = boundary::find(&self.line.head, open, &mut self.work)?;
        // Without a part to begin the line is content: so nothing is hidden, and the last part has the rest.
        (delimiter.closing || self.parts_left > 0).then_some(delimiter)
    }

    /// The present line is a delimiter: ends what is inside its multipart.
    ///
    /// RFC 2046 5.1.1: "The CRLF preceding the boundary delimiter line is conceptually attached to the boundary". Where that
    /// line end was needed otherwise (it is the empty line behind a header, or ends the delimiter before) it stays there,
    /// and all parts around end behind it, so that ranges are nested.
    fn at_delimiter(&mut self, delimiter: Delimiter) {
        let mut end = self.line.start - u64::from(self.line.end_before);
        let mut lines = self.line.lines_before.saturating_sub(1);
        if let Place::Header(block) = &self.place {
            if block.is_of_message() {
                // A message is lines: what is cut off behind a header field is a whole message (Dovecot agrees).
                end = self.line.start;
                lines = self.line.lines_before;
            }
            self.end_header_at(end, lines, &[], true);
        }
        while self.frames.len() > delimiter.frame + 1 {
            if self
                .frames
                .last()
                .is_some_and(|frame| frame.part.body.start > end)
            {
                end = self.line.start;
                lines = self.line.lines_before;
            }
            self.close_frame(end, lines);
        }
        if delimiter.closing
            && let Some(Frame {
                inside: Inside::Multipart { boundary, .. },
                ..
            }) = self.frames.last_mut()
        {
            *boundary = None;
            self.boundaries -= 1;
        }
        self.place = Place::DelimiterRest {
            next: !delimiter.closing,
        };
    }

    /// The line of a delimiter was taken.
    fn after_delimiter_line(&mut self) {
        let Place::DelimiterRest { next } = self.place else {
            unreachable!("called behind a delimiter only")
        };
        if next {
            self.open_part()
        } else {
            self.place = Place::Body
        }
    }

    /// A part of the innermost multipart begins here.
    fn open_part(&mut self) {
        self.parts_left = self.parts_left.saturating_sub(1);
        let digest = self
            .frames
            .last()
            .is_some_and(|frame| frame.part.is("multipart", "digest"));
        let role = if digest { Role::DigestPart } else { Role::Part };
        self.open_header(role);
    }

    fn open_header(&mut self, role: Role) {
        self.place = Place::Header(Box::new(Block::new(
            role,
            self.offset,
            &self.shares,
            &mut self.texts,
        )));
    }

    /// The header ends at the present offset: behind its empty line, or at the end of the message.
    fn end_header(&mut self, empty_line: bool, crlf: bool) {
        let end: &[u8] = match (empty_line, crlf) {
            (false, _) => b"",
            (true, true) => b"\r\n",
            (true, false) => b"\n",
        };
        self.end_header_at(self.offset, self.lines, end, !empty_line);
    }

    /// The header ends at `end`, with `lines_before` LFs before it. `over`: so does the part.
    fn end_header_at(&mut self, end: u64, lines_before: u64, end_line: &[u8], over: bool) {
        let done = block_of(&mut self.place).finish(end_line, &self.limits, &mut self.texts);
        self.work += block_of(&mut self.place).work;
        self.place = Place::Body;
        self.usual = done.usual.or(self.usual.take());
        let mut part = done.part;
        let end = end.max(part.header.start);
        part.header = Span::between(part.header.start, end);
        part.body = Span { start: end, len: 0 };
        let inside = self.inside(&mut part, done.boundary);
        let is_message = matches!(inside, Inside::Message(None));
        let encoding = self.encoding(&part).filter(|_| is_message && !over);
        if let Inside::Multipart {
            boundary: Some(_), ..
        } = inside
        {
            self.boundaries += 1;
        }
        let embedded = |frame: &Frame| matches!(frame.inside, Inside::Message(_));
        if matches!(inside, Inside::Leaf) && !self.frames.iter().any(embedded) {
            self.preview.begin(&part);
        }
        self.frames.push(Frame {
            part,
            envelope: done.envelope,
            inside,
            lines_before,
        });
        match encoding {
            None => {}
            Some(Encoding::Identity) => {
                self.parts_left -= 1;
                self.open_header(Role::Embedded);
            }
            Some(encoding) => {
                let parser = self.of_encoded(end);
                self.encoded = Some(Box::new(Encoded::new(encoding, parser)));
            }
        }
    }

    fn inside(&self, part: &mut Part, boundary: Option<Octets>) -> Inside {
        if part.media_type.eq_ignore_ascii_case(b"multipart") {
            let boundary = boundary.map(|b| boundary::usable(&b));
            let Some(boundary) = boundary.filter(|b| !b.is_empty()) else {
                block::make_text(part);
                return Inside::Leaf;
            };
            let deep = self.frames.len() + 1 >= self.limits.nesting_max;
            Inside::Multipart {
                boundary: (!deep).then_some(boundary),
                parts: Vec::new(),
            }
        } else if part.is("message", "rfc822") || part.is("message", "global") {
            Inside::Message(None)
        } else {
            Inside::Leaf
        }
    }

    /// The encoding of a message that can be looked into.
    fn encoding(&self, part: &Part) -> Option<Encoding> {
        let encoding = Encoding::by_name(&part.encoding)?;
        let fits = self.frames.len() + 1 < self.limits.nesting_max && self.parts_left > 0;
        (fits && (self.decodes || encoding == Encoding::Identity)).then_some(encoding)
    }

    /// Ends the innermost part at `end`, with `lines` LFs before it, and hands it to the one around it.
    fn close_frame(&mut self, end: u64, lines: u64) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let cut = end < self.offset;
        self.preview.end(cut);
        let Frame {
            mut part,
            envelope,
            mut inside,
            lines_before,
        } = frame;
        if let Some(encoded) = self.encoded.take() {
            let (message, parser) = encoded.finish(cut);
            inside = Inside::Message(Some(Box::new(message)));
            (self.texts, self.parts_left) = (parser.texts, parser.parts_left);
            self.work += parser.work;
        }
        if end > part.body.start {
            part.body = Span::between(part.body.start, end);
            part.lines = lines.saturating_sub(lines_before);
        }
        let text = part.media_type.eq_ignore_ascii_case(b"text");
        part.content = match inside {
            Inside::Leaf if text => Content::Text,
            Inside::Leaf => Content::Basic,
            Inside::Multipart { boundary, parts } => {
                self.boundaries -= usize::from(boundary.is_some());
                Content::Multipart(if parts.is_empty() {
                    vec![Part {
                        body: part.body,
                        lines: part.lines,
                        ..empty_part(part.body.start)
                    }]
                } else {
                    parts
                })
            }
            Inside::Message(message) => Content::Message(message.unwrap_or_else(|| {
                Box::new(Message {
                    envelope: Envelope::default(),
                    body: empty_part(part.body.start),
                })
            })),
        };
        let message = match envelope {
            None => Err(part),
            Some(envelope) => Ok(Message {
                envelope,
                body: part,
            }),
        };
        match (
            self.frames.last_mut().map(|frame| &mut frame.inside),
            message,
        ) {
            (None, Ok(message)) => self.done = Some(message),
            (Some(Inside::Message(place)), Ok(message)) => *place = Some(Box::new(message)),
            (Some(Inside::Multipart { parts, .. }), Err(part)) => parts.push(part),
            _ => unreachable!(
                "messages stand in message parts or nowhere, other parts in multiparts"
            ),
        }
    }
}

fn block_of(place: &mut Place) -> &mut Block {
    match place {
        Place::Header(block) => block,
        Place::Body | Place::DelimiterRest { .. } => unreachable!("called in a header only"),
    }
}

impl Line {
    /// Content of the line, without its LF.
    fn take(&mut self, content: &[u8], keep_head: bool) {
        if keep_head {
            let room = HEAD_BYTES_MAX - self.head.len();
            self.head
                .extend_from_slice(&content[..content.len().min(room)]);
        }
        self.len += content.len() as u64;
        if let Some(&last) = content.last() {
            self.cr = last == b'\r';
        }
    }
}
