//! A cursor over one response: the words of the grammar that responses share. It is strict, but for what a lenient client takes.

use super::Limits;
use super::response::BadName;
use crate::core::{
    InvalidName, MailboxName, ObjectId, SequenceSet, SetBuilder, is_astring_char, is_atom_char,
};

pub(super) type Result<T> = std::result::Result<T, &'static str>;

/// Of a name that cannot be read, what is shown of it.
const BAD_NAME_BYTES: usize = 100;

/// Reads a response from its begin to its end.
pub(super) struct Cursor<'a> {
    pub(super) input: &'a [u8],
    pub(super) at: usize,
    /// After ENABLE IMAP4rev2 (or UTF8=ACCEPT).
    pub(super) utf8: bool,
    elements_left: usize,
    pub(super) numbers_max: usize,
    pub(super) lenient: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(input: &'a [u8], utf8: bool, limits: &Limits) -> Self {
        Self {
            input,
            at: 0,
            utf8,
            elements_left: limits.elements_max,
            numbers_max: limits.numbers_max,
            lenient: limits.lenient,
        }
    }

    /// One more element of some list.
    pub(super) fn element(&mut self) -> Result<()> {
        let left = self.elements_left.checked_sub(1);
        self.elements_left = left.ok_or("more elements than are taken")?;
        Ok(())
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    pub(super) fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn exact(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.input[self.at..].starts_with(bytes) {
            return Err("expected other bytes");
        }
        self.at += bytes.len();
        Ok(())
    }

    pub(super) fn space(&mut self) -> Result<()> {
        self.exact(b" ").map_err(|_| "expected a space")
    }

    pub(super) fn open(&mut self) -> Result<()> {
        self.exact(b"(").map_err(|_| "expected (")
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.exact(b")").map_err(|_| "expected )")
    }

    pub(super) fn run(&mut self, good: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = &self.input[self.at..];
        let run = &rest[..rest.iter().position(|&b| !good(b)).unwrap_or(rest.len())];
        self.at += run.len();
        run
    }

    pub(super) fn atom(&mut self) -> Result<String> {
        let atom = self.run(is_atom_char);
        if atom.is_empty() {
            Err("expected an atom")
        } else {
            Ok(String::from_utf8_lossy(atom).into_owned())
        }
    }

    pub(super) fn skip_word(&mut self, word: &str) -> bool {
        let before = self.at;
        let found = self.run(is_atom_char).eq_ignore_ascii_case(word.as_bytes());
        if !found {
            self.at = before;
        }
        found
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let digits = self.run(|b| b.is_ascii_digit());
        std::str::from_utf8(digits)
            .ok()
            .and_then(|d| d.parse().ok())
            .ok_or("expected a number")
    }

    pub(super) fn number32(&mut self) -> Result<u32> {
        u32::try_from(self.number()?).map_err(|_| "number is too large")
    }

    pub(super) fn nz_number(&mut self) -> Result<u32> {
        match self.number32()? {
            0 => Err("number must not be zero"),
            n => Ok(n),
        }
    }

    pub(super) fn mod_seq(&mut self) -> Result<u64> {
        match self.number()? {
            n if n > i64::MAX as u64 => Err("modification sequence has more than 63 bits"),
            n => Ok(n),
        }
    }

    /// A literal behind its `{`.
    pub(super) fn literal(&mut self) -> Result<&'a [u8]> {
        let size = usize::try_from(self.number()?).map_err(|_| "literal is too large")?;
        self.exact(b"}\r\n").map_err(|_| "malformed literal")?;
        let end = self.at.checked_add(size).ok_or("literal is too large")?;
        let bytes = self.input.get(self.at..end).ok_or("literal is not whole")?;
        self.at = end;
        Ok(bytes)
    }

    pub(super) fn string(&mut self) -> Result<Vec<u8>> {
        let quoted = self.peek() == Some(b'"');
        let bytes = self.octets()?;
        let good = bytes.is_ascii() || (self.utf8 && std::str::from_utf8(&bytes).is_ok());
        if good || !quoted {
            Ok(bytes)
        } else {
            Err("8-bit text in a quoted string")
        }
    }

    /// A literal, or a quoted string that may hold any 8-bit text.
    pub(super) fn octets(&mut self) -> Result<Vec<u8>> {
        if self.skip(b'{') {
            let bytes = self.literal()?;
            if !self.lenient && memchr::memchr(0, bytes).is_some() {
                return Err("NUL in literal");
            }
            return Ok(bytes.to_vec());
        }
        self.exact(b"\"").map_err(|_| "expected a string")?;
        let mut bytes = Vec::new();
        loop {
            bytes.extend_from_slice(self.run(|b| !matches!(b, b'"' | b'\\' | 0 | b'\r' | b'\n')));
            if self.skip(b'"') {
                return Ok(bytes);
            }
            self.exact(b"\\")
                .map_err(|_| "quoted string is not closed")?;
            match self.peek() {
                Some(b @ (b'"' | b'\\')) => bytes.push(b),
                _ => return Err("bad escape in quoted string"),
            }
            self.at += 1;
        }
    }

    pub(super) fn nstring(&mut self) -> Result<Option<Vec<u8>>> {
        if self.skip_word("NIL") {
            Ok(None)
        } else {
            self.string().map(Some)
        }
    }

    pub(super) fn astring(&mut self) -> Result<Vec<u8>> {
        if matches!(self.peek(), Some(b'"' | b'{')) {
            return self.string();
        }
        let word = self.run(is_astring_char);
        if word.is_empty() {
            Err("expected a word or a string")
        } else {
            Ok(word.to_vec())
        }
    }

    pub(super) fn text_string(&mut self) -> Result<String> {
        String::from_utf8(self.string()?).map_err(|_| "string is not UTF-8")
    }

    pub(super) fn mailbox(&mut self) -> Result<String> {
        let bytes = self.astring()?;
        self.name(&bytes).map_err(InvalidName::text)
    }

    fn name(&self, bytes: &[u8]) -> std::result::Result<String, InvalidName> {
        match MailboxName::from_wire(bytes, self.utf8) {
            Ok(name) => Ok(name.into_string()),
            Err(InvalidName::Empty) => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// A name in a list. One that no mailbox has is no mistake in what stands around it.
    pub(super) fn listed_name(&mut self) -> Result<std::result::Result<String, BadName>> {
        let bytes = match self.peek() {
            Some(b'"' | b'{') => self.octets()?,
            // 8-bit text, too.
            _ => match self.run(|b| is_astring_char(b) || !b.is_ascii()) {
                b"" => return Err("expected a word or a string"),
                word => word.to_vec(),
            },
        };
        Ok(self.name(&bytes).map_err(|why| BadName {
            begin: bytes[..bytes.len().min(BAD_NAME_BYTES)]
                .escape_ascii()
                .to_string(),
            why,
        }))
    }

    pub(super) fn set(&mut self) -> Result<SequenceSet> {
        let set = SequenceSet::parse(self.run(SetBuilder::is_set_byte), self.numbers_max)
            .map_err(|e| e.text())?;
        if set.star().is_some() {
            Err("* in a set from a server")
        } else {
            Ok(set)
        }
    }

    /// Numbers of a set in the order in which they are written.
    pub(super) fn uid_list(&mut self) -> Result<Vec<u32>> {
        let mut uids = Vec::new();
        loop {
            let first = self.nz_number()?;
            let last = if self.skip(b':') {
                self.nz_number()?
            } else {
                first
            };
            // "2:4 and 4:2 are equivalent" (RFC 9051, `uid-range`).
            let (first, last) = (first.min(last), first.max(last));
            if (last - first) as usize >= self.numbers_max.saturating_sub(uids.len()) {
                return Err("more UIDs than are taken");
            }
            uids.extend(first..=last);
            if !self.skip(b',') {
                return Ok(uids);
            }
        }
    }

    pub(super) fn words(&mut self) -> Result<Vec<String>> {
        let mut words = Vec::new();
        while self.skip(b' ') {
            self.element()?;
            words.push(self.atom()?);
        }
        Ok(words)
    }

    /// `(item item)`, maybe empty.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.open()?;
        let mut items = Vec::new();
        if self.skip(b')') {
            return Ok(items);
        }
        loop {
            self.element()?;
            items.push(item(self)?);
            if !self.skip(b' ') {
                self.close()?;
                return Ok(items);
            }
        }
    }

    pub(super) fn flag(&mut self) -> Result<String> {
        if self.skip(b'\\') {
            let name = if self.skip(b'*') {
                "*".to_owned()
            } else {
                self.atom()?
            };
            return Ok(format!("\\{name}"));
        }
        self.atom()
    }

    pub(super) fn delimiter(&mut self) -> Result<Option<char>> {
        if self.skip_word("NIL") {
            return Ok(None);
        }
        let text = self.text_string()?;
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(Some(c)),
            _ => Err("delimiter is one character"),
        }
    }

    /// `"(" objectid ")"`
    pub(super) fn object_id(&mut self) -> Result<ObjectId> {
        self.open()?;
        let word = self.run(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        let id = ObjectId::new(word).ok_or("invalid object identifier")?;
        self.close()?;
        Ok(id)
    }
}
