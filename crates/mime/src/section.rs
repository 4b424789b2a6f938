//! Section specifications of BODY[...]: from path to byte range (RFC 9051 6.4.5), and the filter of HEADER.FIELDS.

mod filter;

pub use filter::HeaderFilter;

use crate::summary::{Content, Message, Part, Span, Summary};
use crate::transfer::Encoding;

/// What stands behind the part numbers of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionText {
    /// Nothing: the message, or the body of the part.
    MessageOrBody,
    /// HEADER, and also HEADER.FIELDS and HEADER.FIELDS.NOT, which are filters on this range.
    Header,
    /// TEXT.
    Text,
    /// MIME.
    Mime,
}

/// Where a section lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// Its bytes.
    pub span: Span,
    /// The part it belongs to: gives the transfer encoding that BINARY undoes. For `BODY[]`, HEADER and TEXT the outermost
    /// part of the message in question.
    pub part: &'a Part,
    /// The body of a message around it that is under an encoding. The range is of what comes out of that, counted from the begin of this body.
    pub within: Option<Within>,
}

/// Where a message lies that is under an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// Its bytes, as they are.
    pub body: Span,
    /// What is to be undone.
    pub encoding: Encoding,
}

/// Finds a section: `path` is the part numbers, from 1. `None`: the message has no such section; Dovecot answers the empty
/// string then, the RFC says nothing.
///
/// RFC 9051 6.4.5: "Every message has at least one part number. Messages that do not use MIME, and MIME messages that are
/// not multipart and have no encapsulated message within them, only have a part 1", and the parts of an embedded message
/// are counted below the part that holds it. HEADER and TEXT below a number need a part of type message/rfc822 or
/// message/global. MIME of part 1 of a message that is no multipart is the header of the message, as in Dovecot.
pub fn resolve<'a>(summary: &'a Summary, path: &[u32], text: SectionText) -> Option<Resolved<'a>> {
    let mut cursor = Cursor::Message(&summary.message);
    let mut within = None;
    for &number in path {
        within = within.or_else(|| cursor.encoded());
        cursor = Cursor::Part(cursor.child(number)?);
    }
    match (cursor, text) {
        (Cursor::Message(message), SectionText::MessageOrBody) => Some(Resolved {
            span: Span {
                start: 0,
                len: summary.size,
            },
            part: &message.body,
            within,
        }),
        (Cursor::Message(_), SectionText::Mime) => None,
        (Cursor::Part(part), SectionText::MessageOrBody) => Some(Resolved {
            span: part.body,
            part,
            within,
        }),
        (Cursor::Part(part), SectionText::Mime) => Some(Resolved {
            span: part.header,
            part,
            within,
        }),
        (cursor, SectionText::Header | SectionText::Text) => {
            let part = &cursor.message()?.body;
            Some(Resolved {
                span: if text == SectionText::Header {
                    part.header
                } else {
                    part.body
                },
                part,
                within: within.or_else(|| cursor.encoded()),
            })
        }
    }
}

/// Where a path has led.
enum Cursor<'a> {
    /// The whole message.
    Message(&'a Message),
    Part(&'a Part),
}

impl<'a> Cursor<'a> {
    /// The message at the cursor: HEADER and TEXT are its.
    fn message(&self) -> Option<&'a Message> {
        match self {
            Cursor::Message(message) => Some(message),
            Cursor::Part(part) => match &part.content {
                Content::Message(message) => Some(message),
                Content::Basic | Content::Text | Content::Multipart(_) => None,
            },
        }
    }

    /// The message under an encoding at the cursor: what is in it is in that.
    fn encoded(&self) -> Option<Within> {
        let Cursor::Part(part) = self else {
            return None;
        };
        let encoding = match part.content {
            Content::Message(_) => Encoding::by_name(&part.encoding)?,
            _ => Encoding::Identity,
        };
        (encoding != Encoding::Identity).then_some(Within {
            body: part.body,
            encoding,
        })
    }

    fn child(&self, number: u32) -> Option<&'a Part> {
        let outermost = match self {
            Cursor::Part(Part {
                content: Content::Multipart(parts),
                ..
            }) => return nth(parts, number),
            _ => &self.message()?.body,
        };
        match &outermost.content {
            Content::Multipart(parts) => nth(parts, number),
            _ => (number == 1).then_some(outermost),
        }
    }
}

fn nth(parts: &[Part], number: u32) -> Option<&Part> {
    parts.get(usize::try_from(number).ok()?.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Parser};

    /// The example of RFC 9051 6.4.5, made small: what each section specification must find.
    const MESSAGE: &str = "Subject: top\nContent-Type: multipart/mixed; boundary=A\n\n\
        --A\nContent-Type: text/plain\n\none\n\
        --A\nContent-Type: message/rfc822\n\nSubject: two\nContent-Type: multipart/mixed; boundary=B\n\n\
        --B\n\ntwo-one\n--B\nContent-Type: message/rfc822\n\nSubject: two-two\n\ndeep\n--B--\n\
        --A\nContent-Type: multipart/alternative; boundary=C\n\n--C\n\nthree-one\n--C--\n--A--\n";

    fn check(message: &str, path: &[u32], text: SectionText, expected: Option<&str>) {
        let mut parser = Parser::new(&Limits::default());
        parser.push(message.as_bytes());
        let summary = parser.finish();
        let found = resolve(&summary, path, text)
            .map(|r| &message[r.span.start as usize..r.span.end() as usize]);
        assert_eq!(found, expected, "{path:?} {text:?}");
    }

    #[test]
    fn sections() {
        use SectionText::{Header, MessageOrBody, Mime, Text};
        check(MESSAGE, &[], MessageOrBody, Some(MESSAGE));
        check(
            MESSAGE,
            &[],
            Header,
            Some("Subject: top\nContent-Type: multipart/mixed; boundary=A\n\n"),
        );
        check(
            MESSAGE,
            &[],
            Text,
            Some(MESSAGE.split_once("\n\n").unwrap().1),
        );
        check(MESSAGE, &[], Mime, None);
        check(MESSAGE, &[1], MessageOrBody, Some("one"));
        check(MESSAGE, &[1], Mime, Some("Content-Type: text/plain\n\n"));
        check(MESSAGE, &[1], Header, None);
        check(MESSAGE, &[1], Text, None);
        check(MESSAGE, &[1, 1], MessageOrBody, None);
        check(
            MESSAGE,
            &[2],
            Mime,
            Some("Content-Type: message/rfc822\n\n"),
        );
        check(
            MESSAGE,
            &[2],
            Header,
            Some("Subject: two\nContent-Type: multipart/mixed; boundary=B\n\n"),
        );
        check(MESSAGE, &[2, 1], MessageOrBody, Some("two-one"));
        check(MESSAGE, &[2, 1], Mime, Some("\n"));
        check(
            MESSAGE,
            &[2, 2],
            MessageOrBody,
            Some("Subject: two-two\n\ndeep"),
        );
        check(MESSAGE, &[2, 2], Header, Some("Subject: two-two\n\n"));
        check(MESSAGE, &[2, 2], Text, Some("deep"));
        check(MESSAGE, &[2, 2, 1], MessageOrBody, Some("deep"));
        check(MESSAGE, &[2, 2, 1], Mime, Some("Subject: two-two\n\n"));
        check(MESSAGE, &[2, 2, 1, 1], MessageOrBody, None);
        check(MESSAGE, &[2, 2, 2], MessageOrBody, None);
        check(
            MESSAGE,
            &[3],
            MessageOrBody,
            Some("--C\n\nthree-one\n--C--"),
        );
        check(MESSAGE, &[3], Header, None);
        check(MESSAGE, &[3, 1], MessageOrBody, Some("three-one"));
        check(MESSAGE, &[4], MessageOrBody, None);
        check(MESSAGE, &[0], MessageOrBody, None);
        check(MESSAGE, &[u32::MAX], MessageOrBody, None);
    }

    #[test]
    fn sections_in_an_encoded_message() {
        use SectionText::{Header, MessageOrBody, Mime, Text};
        let inner = "Subject: in\r\nContent-Type: multipart/mixed; boundary=B\r\n\r\n--B\r\nA: b\r\n\r\none\r\n--B--";
        let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, inner);
        let message = format!(
            "Content-Type: multipart/mixed; boundary=A\r\n\r\n--A\r\nContent-Type: message/rfc822\r\n\
             Content-Transfer-Encoding: base64\r\n\r\n{base64}\r\n--A--"
        );
        let mut parser = Parser::new(&Limits::default());
        parser.push(message.as_bytes());
        let summary = parser.finish();
        let check = |path: &[u32], text, decoded: bool, expected: &str| {
            let found = resolve(&summary, path, text).unwrap();
            let (from, of) = match found.within {
                Some(within) => {
                    let body = within.body.start as usize..within.body.end() as usize;
                    assert_eq!(&message[body], base64);
                    (within.body.start, inner)
                }
                None => (0, &*message),
            };
            assert_eq!(found.within.is_some(), decoded, "{path:?} {text:?}");
            let start = (found.span.start - from) as usize;
            assert_eq!(
                &of[start..start + found.span.len as usize],
                expected,
                "{path:?} {text:?}"
            );
            assert!(
                found.span.end() <= summary.size,
                "ranges lie within the message"
            );
        };
        let (header, body) = inner.split_at(inner.find("--B").unwrap());
        check(&[1], MessageOrBody, false, &base64);
        check(&[1], Header, true, header);
        check(&[1], Text, true, body);
        check(&[1, 1], MessageOrBody, true, "one");
        check(&[1, 1], Mime, true, "A: b\r\n\r\n");
        // The stored form says the same.
        assert_eq!(Summary::decode(&summary.encode()).unwrap(), summary);
    }

    #[test]
    fn part_1_of_a_simple_message() {
        use SectionText::{Header, MessageOrBody, Mime, Text};
        check(
            "A: b\r\n\r\ntext\r\n",
            &[1],
            MessageOrBody,
            Some("text\r\n"),
        );
        check("A: b\r\n\r\ntext\r\n", &[1], Mime, Some("A: b\r\n\r\n"));
        check("A: b\r\n\r\ntext\r\n", &[1], Text, None);
        check("A: b\r\n\r\ntext\r\n", &[1, 1], MessageOrBody, None);
        check("A: b\r\n\r\ntext\r\n", &[2], MessageOrBody, None);
        check(
            "Content-Type: message/rfc822\n\nB: c\n\nx",
            &[1],
            Header,
            Some("B: c\n\n"),
        );
        check(
            "Content-Type: message/rfc822\n\nB: c\n\nx",
            &[1, 1],
            MessageOrBody,
            Some("x"),
        );
    }
}
