//! What SORT and THREAD want of an encoded summary, read without building the rest: nothing is allocated and nothing is copied.

use super::DecodeError;
use super::fields::RULE;
use super::format::VERSION;
use super::reader::{Element, Read, Reader};
use super::view::{AddressView, FieldView};

/// Texts of a message, as they are in its header, unfolded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SortKeys<'a> {
    /// Date.
    pub date: Option<&'a [u8]>,
    /// Subject.
    pub subject: Option<&'a [u8]>,
    /// The first address of From.
    pub from: Option<FirstAddress<'a>>,
    /// The first address of To.
    pub to: Option<FirstAddress<'a>>,
    /// The first address of Cc.
    pub cc: Option<FirstAddress<'a>>,
    /// In-Reply-To.
    pub in_reply_to: Option<&'a [u8]>,
    /// Message-ID.
    pub message_id: Option<&'a [u8]>,
    /// References, raw with its folds; the last such field. `None` if it was not asked for, or if the field was too long to be kept.
    pub references: Option<&'a [u8]>,
}

/// An address structure: see [`super::Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FirstAddress<'a> {
    /// Display name, not decoded.
    pub name: Option<&'a [u8]>,
    /// Local part, or the name of a group.
    pub mailbox: Option<&'a [u8]>,
    /// Domain; `None` for a group.
    pub host: Option<&'a [u8]>,
}

impl<'a> SortKeys<'a> {
    /// Of the encoding of a summary. The part tree and the fields are stepped over only if `references` are wanted.
    ///
    /// # Errors
    /// As [`super::Summary::decode`], of which this looks at less.
    pub fn new(bytes: &'a [u8], references: bool) -> Result<SortKeys<'a>, DecodeError> {
        let r = &mut Reader::new(bytes);
        let _more = r.array(7)?;
        let version = r.short()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let rule = r.short()?;
        let _sizes = (r.number()?, r.number()?, r.number()?);
        let message = r.array(2)?;
        let mut sort_keys = SortKeys::of_envelope(&mut Reader::new(r.bytes()?))?;
        if references {
            r.skip()?;
            r.close(message)?;
            // Under another rule nothing is known of the fields.
            if rule == RULE {
                sort_keys.references = references_of(&mut Reader::new(r.bytes()?))?;
            }
        }
        Ok(sort_keys)
    }

    fn of_envelope(r: &mut Reader<'a>) -> Read<SortKeys<'a>> {
        let _more = r.array(10)?;
        let mut sort_keys = SortKeys {
            date: r.optional()?,
            subject: r.optional()?,
            from: first(r)?,
            ..SortKeys::default()
        };
        let _sender = first(r)?;
        let _reply_to = first(r)?;
        sort_keys.to = first(r)?;
        sort_keys.cc = first(r)?;
        let _bcc = first(r)?;
        sort_keys.in_reply_to = r.optional()?;
        sort_keys.message_id = r.optional()?;
        Ok(sort_keys)
    }
}

/// The first of a list of addresses.
fn first<'a>(r: &mut Reader<'a>) -> Read<Option<FirstAddress<'a>>> {
    let Some(others) = r.count()?.checked_sub(1) else {
        return Ok(None);
    };
    let address = AddressView::read(r)?;
    for _ in 0..others {
        r.skip()?;
    }
    Ok(Some(FirstAddress {
        name: address.name,
        mailbox: address.mailbox,
        host: address.host,
    }))
}

fn references_of<'a>(r: &mut Reader<'a>) -> Read<Option<&'a [u8]>> {
    let _more = r.array(4)?;
    let mut found = None;
    for _ in 0..r.count()? / 2 {
        let field = FieldView::read(r)?;
        if field.name().eq_ignore_ascii_case(b"references") {
            found = Some(field.value());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Parser};

    fn encoded(message: &str) -> Vec<u8> {
        let mut parser = Parser::new(&Limits::default());
        parser.push(message.as_bytes());
        parser.finish().encode()
    }

    #[test]
    fn all_that_is_wanted() {
        let bytes = encoded(
            "Date: Thu, 1 Jan 1970 00:00:00 +0000\r\nSubject: a\r\n b\r\nFrom: \"A, B\" <a@x>, c@y\r\nSender: s@x\r\n\
             To: friends: d@z;, e@z\r\nCc: <@r:f@x>\r\nBcc: g@x\r\nIn-Reply-To: <i@x>\r\nMessage-ID: <m@x>\r\n\
             References: <old@x>\r\nX: y\r\nReferences: <r1@x>\r\n <r2@x>\r\n\
             Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n\
             References: <inner@x>\r\n\r\n--b--\r\n",
        );
        let sort_keys = SortKeys::new(&bytes, true).unwrap();
        let expected = SortKeys {
            date: Some(b"Thu, 1 Jan 1970 00:00:00 +0000"),
            subject: Some(b"a b"),
            from: Some(FirstAddress {
                name: Some(b"A, B"),
                mailbox: Some(b"a"),
                host: Some(b"x"),
            }),
            to: Some(FirstAddress {
                name: None,
                mailbox: Some(b"friends"),
                host: None,
            }),
            cc: Some(FirstAddress {
                name: None,
                mailbox: Some(b"f"),
                host: Some(b"x"),
            }),
            in_reply_to: Some(b"<i@x>"),
            message_id: Some(b"<m@x>"),
            references: Some(b" <r1@x>\r\n <r2@x>\r\n"),
        };
        assert_eq!(sort_keys, expected);
        let short = SortKeys {
            references: None,
            ..expected
        };
        assert_eq!(SortKeys::new(&bytes, false).unwrap(), short);
    }

    #[test]
    fn nothing_there() {
        assert_eq!(
            SortKeys::new(&encoded("\r\n"), true).unwrap(),
            SortKeys::default()
        );
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let bytes = encoded("From: a@b\r\nTo: c@d\r\nReferences: <x@y>\r\n\r\ntext\r\n");
        for end in 0..bytes.len() {
            // What is cut off behind References is not looked at.
            if let Ok(sort_keys) = SortKeys::new(&bytes[..end], true) {
                assert_eq!(sort_keys.references, Some(&b" <x@y>\r\n"[..]), "{end}");
            }
        }
        let mut later = bytes.clone();
        later[1] = 9;
        assert!(matches!(
            SortKeys::new(&later, true),
            Err(DecodeError::Version(9))
        ));
        let mut other_rule = bytes;
        other_rule[2] += 1;
        assert_eq!(SortKeys::new(&other_rule, true).unwrap().references, None);
    }
}
