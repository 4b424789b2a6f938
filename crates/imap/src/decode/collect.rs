//! The text of one command while it comes in: line after line, literals set apart, long sequence sets turned into ranges.
//!
//! A line is looked at byte by byte as it comes and never again from its begin. A sequence set of more than
//! [`SET_TEXT_BYTES_MAX`] bytes goes into a [`SetBuilder`] and its text is not held.

use crate::core::{MessageSet, SequenceSet, SetBuilder, SetError};
use crate::limits::Limits;
use zeroize::Zeroize as _;

/// Why a command is refused: the text for the client.
pub(crate) type Refusal = &'static str;

/// A sequence set that is longer is turned into ranges while it comes in. Shorter ones cost less as text.
const SET_TEXT_BYTES_MAX: usize = 256;

/// The refusal of a command over its limit.
pub(super) const TOO_LONG: Refusal = "command is too long";

/// What an idle connection may keep of its buffers, in bytes.
pub(super) const IDLE_BYTES_MAX: usize = 512;

/// What stands in a command but is not kept as its text.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes of a literal.
    Literal(Vec<u8>),
    /// A long sequence set.
    Set(MessageSet),
}

impl Piece {
    pub(crate) fn ranges(&self) -> usize {
        match self {
            Self::Literal(_) => 0,
            Self::Set(set) => set.numbers().map_or(0, |set| set.ranges().len()),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Literal(bytes) => bytes.capacity(),
            Self::Set(set) => set.numbers().map_or(0, SequenceSet::memory_bytes),
        }
    }
}

/// The literal that a line ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiteralHeader {
    /// As declared; `u64::MAX` when it is more.
    pub(crate) size: u64,
    /// Without `+`.
    pub(crate) synchronising: bool,
    /// `~{`: may hold NUL (RFC 3516).
    pub(crate) binary: bool,
}

/// What a line was found to be when its LF came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// The command ends here.
    Command,
    /// A literal follows.
    Literal(LiteralHeader),
}

/// Text and pieces of a command.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    text: Vec<u8>,
    pieces: Vec<(usize, Piece)>,
    literal_bytes: usize,
    literals: usize,
    set_bytes: usize,
    set_ranges: usize,
    builder: Option<SetBuilder>,
    /// Bytes at the end of `text` that may be a sequence set; `None` when the word there is none.
    set_run: Option<usize>,
    in_quotes: bool,
    escaped: bool,
    after_cr: bool,
    /// The text is not kept, but for what may be the header of a literal.
    discarding: bool,
}

impl Collected {
    /// Text and pieces, to be read by a cursor.
    pub(crate) fn parts(&mut self) -> (&[u8], &mut [(usize, Piece)]) {
        (&self.text, &mut self.pieces)
    }

    /// The text without pieces, for a first look at tag and command.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let pieces: usize = self
            .pieces
            .iter()
            .map(|(_, piece)| piece.memory_bytes())
            .sum();
        self.text.capacity() + pieces + self.builder.as_ref().map_or(0, SetBuilder::memory_bytes)
    }

    /// Bytes that count against the limit of the command.
    pub(super) fn counted_bytes(&self) -> usize {
        self.text.len() + self.literal_bytes
    }

    /// Literals so far.
    pub(super) fn literals(&self) -> usize {
        self.literals
    }

    /// Whether nothing has come yet.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.pieces.is_empty() && self.builder.is_none() && !self.after_cr
    }

    /// Forgets all, overwrites it first when it may have held a password, and gives memory back.
    pub(super) fn reset(&mut self, secret: bool) {
        if secret {
            self.text.zeroize();
            for (_, piece) in &mut self.pieces {
                if let Piece::Literal(bytes) = piece {
                    bytes.zeroize();
                }
            }
        }
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        if text.capacity() > IDLE_BYTES_MAX {
            text = Vec::new();
        }
        *self = Self {
            text,
            ..Self::default()
        };
    }

    /// From here on the text is not kept; what was kept is given back. The line goes on to be read to its end.
    pub(super) fn discard(&mut self, secret: bool) {
        if self.discarding {
            return;
        }
        let keep = Self {
            in_quotes: self.in_quotes,
            escaped: self.escaped,
            after_cr: self.after_cr,
            ..Self::default()
        };
        let tail = self.text.len().saturating_sub(LITERAL_HEADER_BYTES_MAX);
        let tail = self.text.split_off(tail);
        self.reset(secret);
        *self = Self {
            text: tail,
            discarding: true,
            ..keep
        };
    }

    /// Takes bytes of a line up to its LF: how many were taken, and whether the last was the LF.
    ///
    /// An error says that the line is bad; the bytes up to and without the offending one were taken, and the caller goes on with
    /// [`Collected::discard`].
    pub(super) fn push_line(
        &mut self,
        input: &[u8],
        limits: &Limits,
        authenticated: bool,
    ) -> (usize, Result<bool, Refusal>) {
        let (line, has_end) = match memchr::memchr(b'\n', input) {
            Some(at) => (&input[..at], true),
            None => (input, false),
        };
        if self.discarding {
            self.push_discarded(line);
        } else {
            let mut at = 0;
            while at < line.len() {
                let result = match self.push_set(&line[at..], limits) {
                    Ok(0) => self.push_byte(line[at], limits, authenticated).map(|()| 1),
                    other => other,
                };
                match result {
                    Ok(taken) => at += taken,
                    Err(refusal) => return (at, Err(refusal)),
                }
            }
        }
        if !has_end {
            return (input.len(), Ok(false));
        }
        // RFC 9051, section 2.2: "all interactions ... are in the form of lines, that is, strings that end with a CRLF".
        if !std::mem::take(&mut self.after_cr) && !self.discarding {
            return (line.len(), Err("line does not end in CRLF"));
        }
        if let Err(refusal) = self.end_set() {
            return (line.len(), Err(refusal));
        }
        (line.len() + 1, Ok(true))
    }

    fn push_byte(&mut self, byte: u8, limits: &Limits, authenticated: bool) -> Result<(), Refusal> {
        match byte {
            b'\r' if !self.after_cr => {
                self.after_cr = true;
                return Ok(());
            }
            _ if self.after_cr => return Err("CR without LF in a line"),
            0 => return Err("NUL in a line"),
            _ => {}
        }
        self.end_set()?;
        let limit = if authenticated {
            limits.command_bytes_max
        } else {
            limits.command_bytes_max_before_login
        };
        if self.counted_bytes() >= limit {
            return Err(TOO_LONG);
        }
        self.track_quotes(byte);
        self.text.push(byte);
        self.set_run = match self.set_run {
            Some(run) if SetBuilder::is_set_byte(byte) => Some(run + 1),
            _ => (!self.in_quotes && matches!(byte, b' ' | b'(')).then_some(0),
        };
        if authenticated && self.set_run.is_some_and(|run| run > SET_TEXT_BYTES_MAX) {
            self.begin_set(limits)?;
        }
        Ok(())
    }

    /// Takes what goes on with the long sequence set in hand: how many bytes.
    fn push_set(&mut self, line: &[u8], limits: &Limits) -> Result<usize, Refusal> {
        let Some(builder) = self.builder.as_mut().filter(|_| !self.after_cr) else {
            return Ok(0);
        };
        let run = line
            .iter()
            .position(|&b| !SetBuilder::is_set_byte(b))
            .unwrap_or(line.len());
        let room = limits.sequence_set_bytes_max.saturating_sub(self.set_bytes);
        for &byte in &line[..run.min(room)] {
            builder.push(byte).map_err(SetError::text)?;
        }
        self.set_bytes += run;
        if run > room {
            Err("sequence set is too long")
        } else {
            Ok(run)
        }
    }

    /// Moves the sequence set at the end of the text into a builder.
    fn begin_set(&mut self, limits: &Limits) -> Result<(), Refusal> {
        let start = self.text.len() - self.set_run.take().unwrap_or(0);
        let mut builder = SetBuilder::new(
            limits
                .sequence_set_ranges_max
                .saturating_sub(self.set_ranges),
        );
        for byte in self.text.drain(start..) {
            builder.push(byte).map_err(SetError::text)?;
            self.set_bytes += 1;
        }
        self.builder = Some(builder);
        Ok(())
    }

    fn end_set(&mut self) -> Result<(), Refusal> {
        if let Some(builder) = self.builder.take() {
            let set = builder.finish().map_err(SetError::text)?;
            let piece = Piece::Set(set);
            self.set_ranges += piece.ranges();
            self.pieces.push((self.text.len(), piece));
        }
        Ok(())
    }

    fn track_quotes(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
        } else if byte == b'"' {
            self.in_quotes = !self.in_quotes;
        } else if byte == b'\\' {
            self.escaped = self.in_quotes;
        }
    }

    /// Of a discarded line only the quotes and the last bytes matter: they tell whether a literal follows.
    fn push_discarded(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        for &byte in line {
            self.track_quotes(byte);
        }
        if std::mem::take(&mut self.after_cr) {
            self.text.push(b'\r');
        }
        let line = line
            .strip_suffix(b"\r")
            .inspect(|_| self.after_cr = true)
            .unwrap_or(line);
        let from = line.len().saturating_sub(LITERAL_HEADER_BYTES_MAX);
        self.text.extend_from_slice(&line[from..]);
        let excess = self.text.len().saturating_sub(LITERAL_HEADER_BYTES_MAX);
        self.text.drain(..excess);
    }

    /// What the line that has just ended is, the header of its literal taken off.
    pub(super) fn line_end(&mut self) -> LineEnd {
        let header = if self.in_quotes {
            None
        } else {
            literal_header(&self.text)
        };
        self.in_quotes = false;
        self.escaped = false;
        self.set_run = None;
        let Some((start, header)) = header else {
            return LineEnd::Command;
        };
        self.text.truncate(start);
        LineEnd::Literal(header)
    }

    /// Begins a literal here.
    pub(super) fn begin_literal(&mut self) {
        self.literals += 1;
        self.pieces
            .push((self.text.len(), Piece::Literal(Vec::new())));
    }

    /// Takes bytes of the literal begun last.
    pub(super) fn push_literal(&mut self, bytes: &[u8]) {
        if let Some((_, Piece::Literal(literal))) = self.pieces.last_mut() {
            literal.extend_from_slice(bytes);
            self.literal_bytes += bytes.len();
        }
    }
}

/// `~{18446744073709551615+}` and some zeros.
const LITERAL_HEADER_BYTES_MAX: usize = 40;

/// The header of a literal at the end of `text` and where it begins: `["~"] "{" number64 ["+"] "}"`.
fn literal_header(text: &[u8]) -> Option<(usize, LiteralHeader)> {
    let inner = text.strip_suffix(b"}")?;
    let window = inner.len().saturating_sub(LITERAL_HEADER_BYTES_MAX);
    let open = window + memchr::memrchr(b'{', &inner[window..])?;
    let (digits, synchronising) = match inner[open + 1..].strip_suffix(b"+") {
        Some(digits) => (digits, false),
        None => (&inner[open + 1..], true),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits.iter().try_fold(0u64, |sum, &d| {
        sum.checked_mul(10)?.checked_add(u64::from(d - b'0'))
    });
    let binary = open > 0 && text[open - 1] == b'~';
    let header = LiteralHeader {
        size: size.unwrap_or(u64::MAX),
        synchronising,
        binary,
    };
    Some((open - usize::from(binary), header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(usize, u64, bool, bool)>) {
        let found =
            literal_header(text.as_bytes()).map(|(at, h)| (at, h.size, h.synchronising, h.binary));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn headers_of_literals() {
        check("a LOGIN {5}", Some((8, 5, true, false)));
        check("a LOGIN {5+}", Some((8, 5, false, false)));
        check("a APPEND x ~{5+}", Some((11, 5, false, true)));
        check("{0}", Some((0, 0, true, false)));
        check(
            "{99999999999999999999999}",
            Some((0, u64::MAX, true, false)),
        );
        check("{}", None);
        check("{+}", None);
        check("{5-}", None);
        check("{-5}", None);
        check("{5", None);
        check("5}", None);
        check("{5} ", None);
        check("{{5}", Some((1, 5, true, false)));
    }
}
