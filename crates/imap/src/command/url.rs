//! Relative URLs of messages and their parts (RFC 5092), as CATENATE names them (RFC 4469, section 3).
//!
//! ```text
//! [["/"] enc-mailbox [";UIDVALIDITY=" nz-number] "/"] ";UID=" nz-number ["/;SECTION=" enc-section] ["/;PARTIAL=" partial-range]
//! ```
//!
//! "only relative IMAP message or message part URLs (i.e., those having no scheme or <iserver>) are used": any other is refused, one with
//! URLAUTH, too.

use super::fetch::{Partial, Section, section_spec};
use crate::core::MailboxName;
use crate::decode::cursor::Cursor;
use crate::limits::Limits;

/// A message, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageUrl {
    /// Where the message lies.
    pub mailbox: UrlMailbox,
    /// The UIDVALIDITY that the UID is of.
    pub uid_validity: Option<u32>,
    /// Which message.
    pub uid: u32,
    /// What of it.
    pub section: Section,
    /// What of that. Without a length in the URL it reaches to the end.
    pub partial: Option<Partial>,
}

/// The mailbox of a [`MessageUrl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlMailbox {
    /// `;UID=20` "references a message with UID in the mailbox specified by the Base URI" (RFC 5092, section 9.1): the selected one.
    Selected,
    /// By its whole name.
    Named(MailboxName),
    /// By its name below the superior of the selected mailbox (RFC 3986, section 5.2.3).
    Beside(String),
}

/// Not a URL of a message, or not one that is relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidUrl;

impl MessageUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// When it names anything but a message or a part of one, or somewhere else.
    pub fn parse(url: &str, limits: &Limits) -> Result<Self, InvalidUrl> {
        let (mailbox, rest) = split_ci(url, "/;UID=")
            .map(|(mailbox, rest)| (Some(mailbox), rest))
            .or_else(|| Some((None, strip_ci(url, ";UID=")?)))
            .ok_or(InvalidUrl)?;
        let (rest, partial) = match split_ci(rest, "/;PARTIAL=") {
            Some((rest, range)) => (rest, Some(partial_range(range)?)),
            None => (rest, None),
        };
        let (uid, section) = match split_ci(rest, "/;SECTION=") {
            Some((uid, section)) => (uid, decode(section)?),
            None => (rest, String::new()),
        };
        let mut cursor = Cursor::over(section.as_bytes(), limits);
        let section = if section.is_empty() {
            // `enc-section` has at least one character.
            if uid.len() < rest.len() {
                return Err(InvalidUrl);
            }
            Section::default()
        } else {
            section_spec(&mut cursor).map_err(|_| InvalidUrl)?
        };
        if !cursor.is_at_end() {
            return Err(InvalidUrl);
        }
        let (mailbox, uid_validity) = match mailbox {
            None => (UrlMailbox::Selected, None),
            Some(reference) => mailbox_ref(reference)?,
        };
        Ok(Self {
            mailbox,
            uid_validity,
            uid: nz_number(uid)?,
            section,
            partial,
        })
    }
}

/// `imailbox-ref = enc-mailbox [";UIDVALIDITY=" nz-number]`, behind a slash or not.
fn mailbox_ref(reference: &str) -> Result<(UrlMailbox, Option<u32>), InvalidUrl> {
    let (name, uid_validity) = match split_ci(reference, ";UIDVALIDITY=") {
        Some((name, number)) => (name, Some(nz_number(number)?)),
        None => (reference, None),
    };
    let absolute = name.strip_prefix('/');
    // "//" begins the name of a server, and a colon in front of any slash ends that of a scheme.
    let first = name.split('/').next().unwrap_or_default();
    if name.starts_with("//") || (absolute.is_none() && first.contains(':')) {
        return Err(InvalidUrl);
    }
    let name = decode(absolute.unwrap_or(name))?;
    // Segments of a path that are not names (RFC 3986, section 3.3).
    if name.is_empty() || name.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(InvalidUrl);
    }
    let mailbox = if absolute.is_some() {
        UrlMailbox::Named(MailboxName::new(&name).map_err(|_| InvalidUrl)?)
    } else {
        UrlMailbox::Beside(name)
    };
    Ok((mailbox, uid_validity))
}

/// `partial-range = number ["." nz-number]`
fn partial_range(text: &str) -> Result<Partial, InvalidUrl> {
    let (offset, length) = match text.split_once('.') {
        Some((offset, length)) => (number(offset)?, number(length)?),
        None => (number(text)?, i64::MAX as u64),
    };
    if length == 0 {
        return Err(InvalidUrl);
    }
    Ok(Partial { offset, length })
}

fn number(text: &str) -> Result<u64, InvalidUrl> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(InvalidUrl);
    }
    text.parse()
        .ok()
        .filter(|&n| n <= i64::MAX as u64)
        .ok_or(InvalidUrl)
}

fn nz_number(text: &str) -> Result<u32, InvalidUrl> {
    u32::try_from(number(text)?)
        .ok()
        .filter(|&n| n > 0)
        .ok_or(InvalidUrl)
}

/// `1*bchar`, decoded: UTF-8.
fn decode(text: &str) -> Result<String, InvalidUrl> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let digits = after.get(..2).ok_or(InvalidUrl)?;
                let value = |digit: u8| (digit as char).to_digit(16);
                let (high, low) = value(digits[0]).zip(value(digits[1])).ok_or(InvalidUrl)?;
                out.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            byte if byte.is_ascii_alphanumeric() || b"-._~!$'()*+,&=:@/".contains(&byte) => {
                out.push(byte);
            }
            _ => return Err(InvalidUrl),
        }
    }
    String::from_utf8(out).map_err(|_| InvalidUrl)
}

fn strip_ci<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

/// What stands before and behind the first `separator`, in any case.
fn split_ci<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let at = text
        .as_bytes()
        .windows(separator.len())
        .position(|window| window.eq_ignore_ascii_case(separator.as_bytes()))?;
    Some((&text[..at], &text[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{HeaderFields, SectionText};

    fn url(mailbox: UrlMailbox, uid: u32) -> MessageUrl {
        MessageUrl {
            mailbox,
            uid_validity: None,
            uid,
            section: Section::default(),
            partial: None,
        }
    }

    fn named(name: &str) -> UrlMailbox {
        UrlMailbox::Named(MailboxName::new(name).unwrap())
    }

    #[track_caller]
    fn check(text: &str, expected: Option<MessageUrl>) {
        assert_eq!(
            MessageUrl::parse(text, &Limits::default()).ok(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn messages() {
        check("/Drafts/;UID=20", Some(url(named("Drafts"), 20)));
        check(
            "/Drafts;UIDVALIDITY=385759045/;uid=20",
            Some(MessageUrl {
                uid_validity: Some(385_759_045),
                ..url(named("Drafts"), 20)
            }),
        );
        check("/a/b%20c%2Fd/;UID=1", Some(url(named("a/b c/d"), 1)));
        check("/gr%C3%BC%C3%9Fe/;UID=1", Some(url(named("grüße"), 1)));
        check("/inbox/;UID=1", Some(url(named("INBOX"), 1)));
        check(";UID=20", Some(url(UrlMailbox::Selected, 20)));
        check(
            "x/y/;UID=20",
            Some(url(UrlMailbox::Beside("x/y".into()), 20)),
        );
    }

    #[test]
    fn parts() {
        let part = |part: &[u32], text| {
            Some(MessageUrl {
                section: Section {
                    part: part.to_vec(),
                    text,
                },
                ..url(UrlMailbox::Selected, 2)
            })
        };
        check(";UID=2/;SECTION=1.2", part(&[1, 2], None));
        check(
            ";UID=2/;section=header",
            part(&[], Some(SectionText::Header)),
        );
        check(
            ";UID=2/;Section=2.MIME",
            part(&[2], Some(SectionText::Mime)),
        );
        let fields = HeaderFields {
            not: true,
            names: vec!["A/B".into(), "C".into()],
        };
        check(
            ";UID=2/;SECTION=HEADER.FIELDS.NOT%20(A/B%20%22C%22)",
            part(&[], Some(SectionText::HeaderFields(fields))),
        );
        let partial = |offset, length| {
            Some(MessageUrl {
                partial: Some(Partial { offset, length }),
                ..url(UrlMailbox::Selected, 2)
            })
        };
        check(";UID=2/;PARTIAL=0.5", partial(0, 5));
        check(";UID=2/;PARTIAL=7", partial(7, i64::MAX as u64));
        let both = MessageUrl {
            partial: partial(3, 4).unwrap().partial,
            ..part(&[1], None).unwrap()
        };
        check(";UID=2/;SECTION=1/;PARTIAL=3.4", Some(both));
    }

    #[test]
    fn others() {
        for text in [
            "",
            "/",
            "/Drafts",
            "/Drafts;UIDVALIDITY=5",
            "/Drafts?SEEN",
            "imap://example.org/Drafts/;UID=1",
            "//example.org/Drafts/;UID=1",
            "http:/x/;UID=1",
            "/;UID=1",
            "//;UID=1",
            "/a/;UID=0",
            "/a/;UID=",
            "/a/;UID=+1",
            "/a/;UID=4294967296",
            "/a/;UID=1/",
            "/a/;UID=1;SECTION=1",
            "/a/;UID=1/;SECTION=",
            "/a/;UID=1/;SECTION=0",
            "/a/;UID=1/;SECTION=MIME",
            "/a/;UID=1/;SECTION=1]",
            "/a/;UID=1/;SECTION=1%5D",
            "/a/;UID=1/;SECTION=1%20x",
            "/a/;UID=1/;PARTIAL=",
            "/a/;UID=1/;PARTIAL=1.0",
            "/a/;UID=1/;PARTIAL=1./;SECTION=1",
            "/a/;UID=1/;PARTIAL=1/;SECTION=1",
            "/a;UIDVALIDITY=0/;UID=1",
            "/a;UIDVALIDITY=x/;UID=1",
            "/a;b/;UID=1",
            "/a%/;UID=1",
            "/a%2/;UID=1",
            "/a%+1/;UID=1",
            "/a%FF/;UID=1",
            "/a%00/;UID=1",
            "/a b/;UID=1",
            "/ä/;UID=1",
            "/a/../b/;UID=1",
            "/%2E/;UID=1",
            "/a/;UID=1;URLAUTH=anonymous",
            "/a/;UID=1;EXPIRE=2030-01-01T00:00:00Z;URLAUTH=authuser:INTERNAL:00",
        ] {
            check(text, None);
        }
    }
}
