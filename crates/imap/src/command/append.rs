//! APPEND (RFC 9051, section 6.3.12; UTF8 of RFC 6855, section 4): everything in front of the message.
//!
//! A message may be announced as a literal8 (`~{n}`; RFC 3516, section 4.4), though RFC 9051, Appendix B, leaves that out of
//! IMAP4rev2: it is the session that refuses one that holds NUL.

use crate::core::{DateTime, Tag};
use crate::decode::AppendBegin;
use crate::decode::collect::{Collected, LiteralHeader};
use crate::decode::cursor::{Cursor, Refusal};
use crate::limits::Limits;

/// Parses an APPEND that ends in a literal: `None` when the literal is the name of the mailbox.
///
/// `append = "APPEND" SP mailbox [SP flag-list] [SP date-time] SP (literal / literal8)`
pub(crate) fn parse(
    collected: &mut Collected,
    limits: &Limits,
    utf8: bool,
    tag: Tag,
    literal: LiteralHeader,
) -> Result<Option<AppendBegin>, Refusal> {
    let mut c = Cursor::new(collected, limits, utf8);
    c.run(|b| b != b' ');
    c.space()?;
    c.run(|b| b != b' ');
    c.space()?;
    if c.is_at_end() {
        return Ok(None);
    }
    let mailbox = c.mailbox()?;
    c.space()?;
    let flags = if c.peek() == Some(b'(') {
        let flags = c.flags(false)?;
        c.space()?;
        flags
    } else {
        Vec::new()
    };
    let date = if c.skip(b'"') {
        let text = c.run(|b| b != b'"');
        let date = DateTime::parse(text).ok_or("invalid date-time")?;
        if !c.skip(b'"') {
            return Err("invalid date-time");
        }
        c.space()?;
        Some(date)
    } else {
        None
    };
    let utf8_data = c.skip_word(b"UTF8");
    if utf8_data {
        if !utf8 {
            return Err("UTF8 before ENABLE");
        }
        c.space()?;
        c.open()?;
    } else if c.skip_word(b"CATENATE") {
        return Err("CATENATE is not supported");
    }
    c.end().map_err(|_| "expected the message")?;
    if utf8_data && !literal.binary {
        return Err("UTF8 wants a literal of the form ~{n}");
    }
    Ok(Some(AppendBegin {
        tag,
        mailbox,
        flags,
        date,
        size: literal.size,
        too_big: literal.size > limits.append_bytes_max,
        synchronising: literal.synchronising,
        utf8: utf8_data,
        binary: literal.binary && !utf8_data,
    }))
}
