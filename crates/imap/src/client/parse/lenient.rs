//! What is taken of servers that are not one's own, though it is not as the RFCs want it: nothing of it is needed to read mail, and a server that sends it
//! sends it at every connection.

use super::super::cursor::{Cursor, Result};
use super::super::response::{ReplyCode, Response};
use crate::core::DateTime;

impl Cursor<'_> {
    /// A space; none is needed where nothing follows: `+` alone, and `* OK` alone, occur.
    pub(super) fn space_if_more(&mut self) -> Result<()> {
        match self.lenient && self.peek() == Some(b'\r') {
            true => Ok(()),
            false => self.space(),
        }
    }

    /// A response that is not known, up to its end; its literals were counted when the end was looked for.
    pub(super) fn unknown(&mut self) -> Result<Response> {
        if !self.lenient {
            return Err("unknown response");
        }
        self.at = self.input.len().saturating_sub(2);
        Ok(Response::Unknown)
    }

    /// A code that cannot be read is kept as it is, up to its bracket; the text may be missing, or of any charset.
    pub(super) fn lenient_code_and_text(&mut self) -> Result<(Option<ReplyCode>, String)> {
        self.space_if_more()?;
        let before = self.at;
        let mut code = None;
        if self.skip(b'[') {
            let begin = self.at;
            code = self.code().ok().filter(|_| self.skip(b']'));
            if code.is_none() {
                self.at = begin;
                let word = self.run(|b| !matches!(b, b']' | b'\r' | b'\n'));
                if self.skip(b']') {
                    code = Some(ReplyCode::Plain(String::from_utf8_lossy(word).into_owned()));
                } else {
                    // It has no end: it is text.
                    self.at = before;
                }
            }
            self.skip(b' ');
        }
        let text = self.run(|b| !matches!(b, b'\r' | b'\n'));
        Ok((code, String::from_utf8_lossy(text).into_owned()))
    }

    /// Whether an INTERNALDATE is next that is none, and was taken: some servers say `NIL`, or have days that no month has.
    pub(super) fn is_unreadable_date(&mut self) -> Result<bool> {
        const NAME: &[u8] = b"INTERNALDATE ";
        let before = self.at;
        let name = self.input[before..].get(..NAME.len());
        if !self.lenient || !name.is_some_and(|name| name.eq_ignore_ascii_case(NAME)) {
            return Ok(false);
        }
        self.at += NAME.len();
        let date = match self.skip_word("NIL") {
            true => None,
            false => DateTime::parse(&self.octets()?),
        };
        if date.is_some() {
            self.at = before;
        }
        Ok(date.is_none())
    }
}
