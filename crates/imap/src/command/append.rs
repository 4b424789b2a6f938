//! APPEND and REPLACE (RFC 9051, section 6.3.12; RFC 3502; RFC 4469; RFC 6855, section 4; RFC 8508): everything but the octets of
//! their literals.
//!
//! ```text
//! append         = "APPEND" SP mailbox 1*append-message
//! replace        = "REPLACE" SP seq-number SP mailbox append-message
//! append-message = [SP flag-list] [SP date-time] [SP "X-WHIMBREL-IMPORT" SP 32HEXDIG SP 64HEXDIG] SP append-data
//! append-data    = literal / literal8 / "UTF8" SP "(" literal8 ")" / "CATENATE" SP "(" cat-part *(SP cat-part) ")"
//! cat-part       = "TEXT" SP literal / "URL" SP astring / "UTF8" SP "(" literal8 ")"
//! ```
//!
//! The text between two literals is read when it is whole, one event at a time, and never twice. A message may be announced as a literal8
//! (RFC 3516, section 4.4) everywhere: it is the session that refuses one that holds NUL.

use crate::core::{DateTime, MessageSet, SequenceSet, SetBuilder, Tag};
use crate::decode::collect::LiteralHeader;
use crate::decode::cursor::{Cursor, Refusal};
use crate::decode::{AppendBegin, AppendMessage, Event, Import, Replaced};

/// An APPEND or REPLACE that is being read.
#[derive(Debug)]
pub(crate) struct Progress {
    stage: Stage,
    /// Where in the collected text the stage begins.
    at: (usize, usize),
    /// It is REPLACE.
    replaces: bool,
    /// A message has been read.
    any: bool,
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The command up to the name of the mailbox.
    Head,
    /// Flags and date of a message; after a first one the command may end here.
    Options,
    /// `literal / literal8 / "UTF8" ...`, not within CATENATE.
    Data,
    /// A part of CATENATE.
    Part,
    /// The text of a URL.
    Url,
    /// What follows a literal.
    AfterLiteral { utf8: bool, catenate: bool },
    /// What follows a part of CATENATE.
    AfterPart,
}

/// What the text says next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AppendToken {
    /// Something to tell.
    Event(Event<'static>),
    /// The literal at the end of the text is a name or a URL: it is to be held.
    Hold,
    /// The literal at the end of the text belongs to a message.
    Octets {
        /// It stands in `UTF8 (...)`.
        utf8: bool,
    },
    /// The command ends here.
    End,
}

impl Progress {
    /// Before anything was read.
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Head,
            at: (0, 0),
            replaces: false,
            any: false,
        }
    }

    /// Where the cursor goes on.
    pub(crate) fn at(&self) -> (usize, usize) {
        self.at
    }

    /// The text was read, and is gone.
    pub(crate) fn forget_text(&mut self) {
        self.at = (0, 0);
    }

    /// Reads on, up to the next thing to tell or the end of the text, behind which `literal` stands.
    pub(crate) fn read(
        &mut self,
        c: &mut Cursor<'_>,
        tag: &Tag,
        literal: Option<LiteralHeader>,
    ) -> Result<AppendToken, Refusal> {
        loop {
            let found = self.stage(c, tag, literal)?;
            if found != Some(AppendToken::Hold) {
                self.at = c.position();
            }
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    fn stage(
        &mut self,
        c: &mut Cursor<'_>,
        tag: &Tag,
        literal: Option<LiteralHeader>,
    ) -> Result<Option<AppendToken>, Refusal> {
        let literal_is_next = c.is_at_end() && literal.is_some();
        match self.stage {
            Stage::Head => self.head(c, tag, literal).map(Some),
            Stage::Options if self.any && c.is_at_end() && literal.is_none() => {
                Ok(Some(AppendToken::End))
            }
            Stage::Options if self.any && self.replaces => Err("REPLACE takes one message"),
            Stage::Options if self.any && c.peek() != Some(b' ') => {
                Err("unexpected text after the message")
            }
            Stage::Options => self.options(c).map(Some),
            Stage::Data if literal_is_next => Ok(Some(self.octets(false, false))),
            Stage::Data => {
                self.utf8(c, literal)?;
                Ok(Some(self.octets(true, false)))
            }
            Stage::Part if c.skip_word(b"TEXT") => {
                c.space()?;
                if !c.is_at_end() || literal.is_none() {
                    return Err("TEXT wants a literal");
                }
                Ok(Some(self.octets(false, true)))
            }
            Stage::Part if c.skip_word(b"URL") => {
                c.space()?;
                self.stage = Stage::Url;
                Ok(None)
            }
            Stage::Part => {
                self.utf8(c, literal)?;
                Ok(Some(self.octets(true, true)))
            }
            Stage::Url if literal_is_next => Ok(Some(AppendToken::Hold)),
            Stage::Url => {
                let url = c.astring_text()?;
                self.stage = Stage::AfterPart;
                Ok(Some(AppendToken::Event(Event::AppendUrl(url))))
            }
            Stage::AfterLiteral { utf8, catenate } => {
                if utf8 {
                    c.close()?;
                }
                if catenate {
                    self.stage = Stage::AfterPart;
                    return Ok(None);
                }
                Ok(Some(self.message_end()))
            }
            Stage::AfterPart => {
                if c.more()? {
                    self.stage = Stage::Part;
                    return Ok(None);
                }
                Ok(Some(self.message_end()))
            }
        }
    }

    fn head(
        &mut self,
        c: &mut Cursor<'_>,
        tag: &Tag,
        literal: Option<LiteralHeader>,
    ) -> Result<AppendToken, Refusal> {
        c.run(|b| b != b' ');
        c.space()?;
        let uid = c.skip_word(b"UID");
        if uid {
            c.space()?;
        }
        self.replaces = c.skip_word(b"REPLACE");
        if !self.replaces {
            c.atom()?;
        }
        c.space()?;
        let mut replaces = None;
        if self.replaces {
            // `seq-number = nz-number / "*"`: a set of one.
            let one = "REPLACE wants one number";
            let number = c.run(SetBuilder::is_set_byte);
            if number.iter().any(|b| matches!(b, b':' | b',')) {
                return Err(one);
            }
            let set = SequenceSet::parse(number, 1).map_err(|_| one)?;
            replaces = Some(Replaced {
                uid,
                set: MessageSet::Numbers(set),
            });
            c.space()?;
        }
        if c.is_at_end() && literal.is_some() {
            return Ok(AppendToken::Hold);
        }
        let mailbox = c.mailbox()?;
        self.stage = Stage::Options;
        Ok(AppendToken::Event(Event::AppendBegin(AppendBegin {
            tag: tag.clone(),
            replaces,
            mailbox,
        })))
    }

    fn options(&mut self, c: &mut Cursor<'_>) -> Result<AppendToken, Refusal> {
        c.space().map_err(|_| "expected the message")?;
        let mut message = AppendMessage {
            flags: Vec::new(),
            date: None,
            catenate: false,
            import: None,
        };
        if c.peek() == Some(b'(') {
            message.flags = c.flags(false)?;
            c.space().map_err(|_| "expected the message")?;
        }
        if c.skip(b'"') {
            let text = c.run(|b| b != b'"');
            message.date = Some(DateTime::parse(text).ok_or("invalid date-time")?);
            if !c.skip(b'"') {
                return Err("invalid date-time");
            }
            c.space().map_err(|_| "expected the message")?;
        }
        if c.skip_word(b"X-WHIMBREL-IMPORT") {
            c.space()?;
            let id = hexadecimal(c.run(|b| b != b' ')).ok_or("expected 32 hexadecimal digits")?;
            c.space()?;
            let hash = hexadecimal(c.run(|b| b != b' ')).ok_or("expected 64 hexadecimal digits")?;
            message.import = Some(Import { id, hash });
            c.space().map_err(|_| "expected the message")?;
        }
        message.catenate = c.skip_word(b"CATENATE");
        self.stage = Stage::Data;
        if message.catenate {
            c.space()?;
            c.open()?;
            self.stage = Stage::Part;
        }
        Ok(AppendToken::Event(Event::AppendMessage(message)))
    }

    /// `"UTF8" SP "(" literal8`
    fn utf8(&mut self, c: &mut Cursor<'_>, literal: Option<LiteralHeader>) -> Result<(), Refusal> {
        if !c.skip_word(b"UTF8") {
            return Err(if self.stage == Stage::Part {
                "expected TEXT, URL or UTF8"
            } else {
                "expected the message"
            });
        }
        c.space()?;
        c.open()?;
        if c.is_at_end() && literal.is_some_and(|literal| literal.binary) {
            Ok(())
        } else {
            Err("UTF8 wants a literal of the form ~{n}")
        }
    }

    fn octets(&mut self, utf8: bool, catenate: bool) -> AppendToken {
        self.stage = Stage::AfterLiteral { utf8, catenate };
        AppendToken::Octets { utf8 }
    }

    fn message_end(&mut self) -> AppendToken {
        self.any = true;
        self.stage = Stage::Options;
        AppendToken::Event(Event::AppendMessageEnd)
    }
}

fn hexadecimal<const LEN: usize>(digits: &[u8]) -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    if digits.len() != 2 * LEN {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = char::from(*digit).to_digit(16)?;
            *byte = *byte << 4 | u8::try_from(value).ok()?;
        }
    }
    Some(bytes)
}
