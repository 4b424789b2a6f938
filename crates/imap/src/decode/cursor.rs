//! A cursor over the collected text of one command: the words of the grammar that commands share.

pub(crate) use super::collect::Refusal;
use super::collect::{Collected, Piece};
use crate::core::{
    Date, Flag, MailboxName, MessageSet, ModSeq, ObjectId, PartialRange, SequenceSet, SetBuilder,
    SetError, is_astring_char, is_atom_char, mailbox,
};
use crate::limits::Limits;

/// Reads a command from its begin to its end, never back.
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    pieces: &'a mut [(usize, Piece)],
    at: usize,
    next_piece: usize,
    ranges_left: usize,
    pub(crate) limits: &'a Limits,
    pub(crate) utf8: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(collected: &'a mut Collected, limits: &'a Limits, utf8: bool) -> Self {
        let (text, pieces) = collected.parts();
        let held: usize = pieces.iter().map(|(_, piece)| piece.ranges()).sum();
        let ranges_left = limits.sequence_set_ranges_max.saturating_sub(held);
        Self {
            text,
            pieces,
            at: 0,
            next_piece: 0,
            ranges_left,
            limits,
            utf8,
        }
    }

    /// A cursor that goes on where another one stood ([`Cursor::position`]) in the same text, which may have grown. For commands
    /// without sequence sets.
    pub(crate) fn resume(
        collected: &'a mut Collected,
        limits: &'a Limits,
        utf8: bool,
        (at, next_piece): (usize, usize),
    ) -> Self {
        let (text, pieces) = collected.parts();
        Self {
            text,
            pieces,
            at,
            next_piece,
            ranges_left: 0,
            limits,
            utf8,
        }
    }

    /// A cursor over text that came in some other way, and has no literals.
    pub(crate) fn over(text: &'a [u8], limits: &'a Limits) -> Self {
        Self {
            text,
            pieces: &mut [],
            at: 0,
            next_piece: 0,
            ranges_left: 0,
            limits,
            utf8: true,
        }
    }

    /// Where it stands.
    pub(crate) fn position(&self) -> (usize, usize) {
        (self.at, self.next_piece)
    }

    /// The next byte; `None` at the end and in front of a literal or a long sequence set.
    pub(crate) fn peek(&self) -> Option<u8> {
        if self.piece_is_next() {
            None
        } else {
            self.text.get(self.at).copied()
        }
    }

    fn piece_is_next(&self) -> bool {
        self.pieces
            .get(self.next_piece)
            .is_some_and(|(at, _)| *at == self.at)
    }

    fn next_is_set(&self) -> bool {
        self.piece_is_next() && matches!(self.pieces[self.next_piece].1, Piece::Set(_))
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.text.len() && !self.piece_is_next()
    }

    pub(crate) fn end(&self) -> Result<(), Refusal> {
        if self.is_at_end() {
            Ok(())
        } else {
            Err("unexpected text after the command")
        }
    }

    /// Takes `byte` if it is next.
    pub(crate) fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes the next byte if it is one of these.
    pub(crate) fn skip_any(&mut self, bytes: &[u8]) -> Option<u8> {
        let found = self.peek().filter(|byte| bytes.contains(byte));
        self.at += usize::from(found.is_some());
        found
    }

    /// Takes these bytes (upper case) if they are next, in any case, and end a word.
    pub(crate) fn skip_ahead(&mut self, bytes: &[u8]) -> bool {
        let limit = self
            .pieces
            .get(self.next_piece)
            .map_or(self.text.len(), |(at, _)| *at);
        let rest = &self.text[self.at..limit];
        let found = rest
            .get(..bytes.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(bytes))
            && !rest.get(bytes.len()).is_some_and(|&b| is_atom_char(b));
        if found {
            self.at += bytes.len();
        }
        found
    }

    pub(crate) fn space(&mut self) -> Result<(), Refusal> {
        if self.skip(b' ') {
            Ok(())
        } else {
            Err("expected a space")
        }
    }

    /// Takes as many spaces as there are: whether there are any.
    pub(crate) fn spaces(&mut self) -> bool {
        !self.run(|byte| byte == b' ').is_empty()
    }

    pub(crate) fn open(&mut self) -> Result<(), Refusal> {
        if self.skip(b'(') {
            Ok(())
        } else {
            Err("expected (")
        }
    }

    pub(crate) fn close(&mut self) -> Result<(), Refusal> {
        if self.skip(b')') {
            Ok(())
        } else {
            Err("expected )")
        }
    }

    /// After an item of a list in parentheses: `true` when another follows, `false` when the list has ended.
    pub(crate) fn more(&mut self) -> Result<bool, Refusal> {
        if self.skip(b' ') {
            Ok(true)
        } else {
            self.close()?;
            Ok(false)
        }
    }

    /// The longest run of bytes that `good` accepts, maybe none.
    pub(crate) fn run(&mut self, good: impl Fn(u8) -> bool) -> &'a [u8] {
        let limit = self
            .pieces
            .get(self.next_piece)
            .map_or(self.text.len(), |(at, _)| *at);
        let rest = &self.text[self.at..limit];
        let run = &rest[..rest.iter().position(|&b| !good(b)).unwrap_or(rest.len())];
        self.at += run.len();
        run
    }

    /// `atom`
    pub(crate) fn atom(&mut self) -> Result<&'a [u8], Refusal> {
        let atom = self.run(is_atom_char);
        if atom.is_empty() {
            Err("expected an atom")
        } else {
            Ok(atom)
        }
    }

    /// Takes `word` (upper case) if the next atom is it, in any case.
    pub(crate) fn skip_word(&mut self, word: &[u8]) -> bool {
        let before = self.at;
        let found = self.run(is_atom_char).eq_ignore_ascii_case(word);
        if !found {
            self.at = before;
        }
        found
    }

    /// `number64`
    pub(crate) fn number64(&mut self) -> Result<u64, Refusal> {
        let digits = self.run(|b| b.is_ascii_digit());
        if digits.is_empty() {
            return Err("expected a number");
        }
        digits
            .iter()
            .try_fold(0u64, |sum, &d| {
                sum.checked_mul(10)?.checked_add(u64::from(d - b'0'))
            })
            .filter(|&n| n <= i64::MAX as u64)
            .ok_or("number is too large")
    }

    /// `nz-number`
    pub(crate) fn nz_number(&mut self) -> Result<u32, Refusal> {
        let number = u32::try_from(self.number64()?).map_err(|_| "number is too large")?;
        if number == 0 {
            Err("number must not be zero")
        } else {
            Ok(number)
        }
    }

    /// `mod-sequence-value`, or with `zero` also `mod-sequence-valzer` (RFC 7162, section 7).
    pub(crate) fn mod_seq(&mut self, zero: bool) -> Result<ModSeq, Refusal> {
        let number = self.number64()?;
        if number == 0 && !zero {
            Err("modification sequence must not be zero")
        } else {
            Ok(number)
        }
    }

    /// Whether a quoted string or a literal is next.
    pub(crate) fn string_is_next(&self) -> bool {
        self.piece_is_next() || self.peek() == Some(b'"')
    }

    /// `string`: quoted or literal.
    pub(crate) fn string(&mut self) -> Result<Vec<u8>, Refusal> {
        if self.piece_is_next() {
            let Piece::Literal(bytes) = &mut self.pieces[self.next_piece].1 else {
                return Err("expected a string");
            };
            let bytes = std::mem::take(bytes);
            self.next_piece += 1;
            if memchr::memchr(0, &bytes).is_some() {
                // "CHAR8 = any OCTET except NUL".
                return Err("NUL in literal");
            }
            return Ok(bytes);
        }
        if !self.skip(b'"') {
            return Err("expected a string");
        }
        self.quoted()
    }

    fn quoted(&mut self) -> Result<Vec<u8>, Refusal> {
        // At once as long as it becomes, so that a password is not left behind by a vector that grew.
        let room = memchr::memchr(b'"', &self.text[self.at..]).unwrap_or(0);
        let mut bytes = Vec::with_capacity(room);
        loop {
            bytes.extend_from_slice(self.run(|b| b != b'"' && b != b'\\'));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    break;
                }
                Some(b'\\') => {
                    self.at += 1;
                    let Some(escaped @ (b'"' | b'\\')) = self.peek() else {
                        return Err("only \" and \\ are escaped in a quoted string");
                    };
                    self.at += 1;
                    bytes.push(escaped);
                }
                _ => return Err("quoted string is not closed"),
            }
        }
        if !bytes.is_ascii() {
            if !self.utf8 {
                return Err("8-bit text in a quoted string before ENABLE");
            }
            if std::str::from_utf8(&bytes).is_err() {
                return Err("quoted string is not UTF-8");
            }
        }
        Ok(bytes)
    }

    /// `astring`
    pub(crate) fn astring(&mut self) -> Result<Vec<u8>, Refusal> {
        if self.string_is_next() {
            return self.string();
        }
        let word = self.run(is_astring_char);
        if word.is_empty() {
            Err("expected a word or a string")
        } else {
            Ok(word.to_vec())
        }
    }

    /// `astring` that is text.
    pub(crate) fn astring_text(&mut self) -> Result<String, Refusal> {
        String::from_utf8(self.astring()?).map_err(|_| "string is not UTF-8")
    }

    /// `nstring` that is text.
    pub(crate) fn nstring_text(&mut self) -> Result<Option<String>, Refusal> {
        if self.skip_word(b"NIL") {
            return Ok(None);
        }
        String::from_utf8(self.string()?)
            .map(Some)
            .map_err(|_| "string is not UTF-8")
    }

    /// `mailbox`. By the syntax any astring is one: what cannot be decoded names no mailbox, and the answer is NO, as for any that does not exist.
    pub(crate) fn mailbox(&mut self) -> Result<MailboxName, Refusal> {
        use mailbox::InvalidName::{Control, Utf7, Utf8};
        let bytes = self.astring()?;
        match MailboxName::from_wire(&bytes, self.utf8) {
            Err(Control | Utf7 | Utf8) => Ok(MailboxName::nowhere()),
            name => name.map_err(mailbox::InvalidName::text),
        }
    }

    /// `mailbox` that may be empty: the reference of LIST.
    pub(crate) fn reference(&mut self) -> Result<String, Refusal> {
        let bytes = self.astring()?;
        mailbox::decode_text(&bytes, self.utf8).map_err(mailbox::InvalidName::text)
    }

    /// `sequence-set` without `$`.
    pub(crate) fn numbers(&mut self) -> Result<SequenceSet, Refusal> {
        match self.message_set()? {
            MessageSet::Numbers(set) => Ok(set),
            MessageSet::Saved | MessageSet::NumbersAndSaved(_) => Err(SetError::Syntax.text()),
        }
    }

    /// `sequence-set`, `$` (RFC 5182) included.
    pub(crate) fn message_set(&mut self) -> Result<MessageSet, Refusal> {
        if self.next_is_set() {
            let Piece::Set(set) = &mut self.pieces[self.next_piece].1 else {
                return Err("expected a sequence set");
            };
            let set = std::mem::replace(set, MessageSet::Saved);
            self.next_piece += 1;
            return Ok(set);
        }
        let mut builder = SetBuilder::new(self.ranges_left);
        for &byte in self.run(SetBuilder::is_set_byte) {
            builder.push(byte).map_err(SetError::text)?;
        }
        let set = builder.finish().map_err(SetError::text)?;
        self.ranges_left -= set.numbers().map_or(0, |set| set.ranges().len());
        Ok(set)
    }

    /// Whether a sequence set begins here.
    pub(crate) fn set_is_next(&self) -> bool {
        self.next_is_set() || matches!(self.peek(), Some(b'0'..=b'9' | b'*' | b'$'))
    }

    /// A flag; `None` for `\Recent`, which no client can set but some repeat.
    pub(crate) fn flag(&mut self) -> Result<Option<Flag>, Refusal> {
        let start = self.at;
        self.skip(b'\\');
        self.atom()?;
        let text = &self.text[start..self.at];
        if text.eq_ignore_ascii_case(b"\\Recent") {
            return Ok(None);
        }
        Flag::new(text)
            .map(Some)
            .ok_or("unknown system flag or too long keyword")
    }

    /// `flag-list`, or with `bare` also `flag *(SP flag)` up to the end.
    pub(crate) fn flags(&mut self, bare: bool) -> Result<Vec<Flag>, Refusal> {
        let listed = if bare {
            self.skip(b'(')
        } else {
            self.open().map(|()| true)?
        };
        let mut flags = Vec::new();
        if listed && self.skip(b')') {
            return Ok(flags);
        }
        loop {
            if let Some(flag) = self.flag()?.filter(|flag| !flags.contains(flag)) {
                if flags.len() == self.limits.flags_max {
                    return Err("too many flags");
                }
                flags.push(flag);
            }
            let more = if listed {
                self.more()?
            } else {
                self.skip(b' ')
            };
            if !more {
                return Ok(flags);
            }
        }
    }

    /// `date`
    pub(crate) fn date(&mut self) -> Result<Date, Refusal> {
        let quoted = self.skip(b'"');
        let date = Date::parse(self.run(|b| b.is_ascii_alphanumeric() || b == b'-'))
            .ok_or("invalid date")?;
        if quoted && !self.skip(b'"') {
            Err("invalid date")
        } else {
            Ok(date)
        }
    }

    /// `partial-range` (RFC 9394)
    pub(crate) fn partial_range(&mut self) -> Result<PartialRange, Refusal> {
        let from_end = self.skip(b'-');
        let first = self.nz_number()?;
        if !self.skip(b':') || self.skip(b'-') != from_end {
            return Err("invalid range of PARTIAL");
        }
        Ok(PartialRange {
            first,
            last: self.nz_number()?,
            from_end,
        })
    }

    /// `objectid` (RFC 8474)
    pub(crate) fn object_id(&mut self) -> Result<ObjectId, Refusal> {
        let word = self.run(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        ObjectId::new(word).ok_or("invalid object identifier")
    }

    /// `header-fld-name`: an astring that can be the name of a field (RFC 5322, section 2.2).
    pub(crate) fn field_name(&mut self) -> Result<String, Refusal> {
        let bytes = self.astring()?;
        if bytes.is_empty() || !bytes.iter().all(|&b| matches!(b, 33..=126) && b != b':') {
            return Err("invalid name of a header field");
        }
        String::from_utf8(bytes).map_err(|_| "invalid name of a header field")
    }

    /// The part numbers of a section, as far as they go; `true` when a word must follow (the text ended in a dot).
    pub(crate) fn section_part(&mut self) -> Result<(Vec<u32>, bool), Refusal> {
        let mut part = Vec::new();
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            if part.len() == self.limits.section_depth_max {
                return Err("section is too deep");
            }
            part.push(self.nz_number()?);
            if !self.skip(b'.') {
                return Ok((part, false));
            }
        }
        Ok((part, true))
    }
}
