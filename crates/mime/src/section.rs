//! Section specifications of BODY[...]: from path to byte range (RFC 9051 6.4.5), and the filter of HEADER.FIELDS.

mod filter;

pub use filter::HeaderFilter;

use crate::summary::{Content, Message, Part, Span, Summary};

/// What stands behind the part numbers of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionText {
    /// Nothing: the whole message, or the body of the part.
    Whole,
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
    for &number in path {
        cursor = Cursor::Part(cursor.child(number)?);
    }
    match (cursor, text) {
        (Cursor::Message(message), SectionText::Whole) => Some(Resolved {
            span: Span {
                start: 0,
                len: summary.size,
            },
            part: &message.body,
        }),
        (Cursor::Message(_), SectionText::Mime) => None,
        (Cursor::Part(part), SectionText::Whole) => Some(Resolved {
            span: part.body,
            part,
        }),
        (Cursor::Part(part), SectionText::Mime) => Some(Resolved {
            span: part.header,
            part,
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
        use SectionText::{Header, Mime, Text, Whole};
        check(MESSAGE, &[], Whole, Some(MESSAGE));
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
        check(MESSAGE, &[1], Whole, Some("one"));
        check(MESSAGE, &[1], Mime, Some("Content-Type: text/plain\n\n"));
        check(MESSAGE, &[1], Header, None);
        check(MESSAGE, &[1], Text, None);
        check(MESSAGE, &[1, 1], Whole, None);
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
        check(MESSAGE, &[2, 1], Whole, Some("two-one"));
        check(MESSAGE, &[2, 1], Mime, Some("\n"));
        check(MESSAGE, &[2, 2], Whole, Some("Subject: two-two\n\ndeep"));
        check(MESSAGE, &[2, 2], Header, Some("Subject: two-two\n\n"));
        check(MESSAGE, &[2, 2], Text, Some("deep"));
        check(MESSAGE, &[2, 2, 1], Whole, Some("deep"));
        check(MESSAGE, &[2, 2, 1], Mime, Some("Subject: two-two\n\n"));
        check(MESSAGE, &[2, 2, 1, 1], Whole, None);
        check(MESSAGE, &[2, 2, 2], Whole, None);
        check(MESSAGE, &[3], Whole, Some("--C\n\nthree-one\n--C--"));
        check(MESSAGE, &[3], Header, None);
        check(MESSAGE, &[3, 1], Whole, Some("three-one"));
        check(MESSAGE, &[4], Whole, None);
        check(MESSAGE, &[0], Whole, None);
        check(MESSAGE, &[u32::MAX], Whole, None);
    }

    #[test]
    fn part_1_of_a_simple_message() {
        use SectionText::{Header, Mime, Text, Whole};
        check("A: b\r\n\r\ntext\r\n", &[1], Whole, Some("text\r\n"));
        check("A: b\r\n\r\ntext\r\n", &[1], Mime, Some("A: b\r\n\r\n"));
        check("A: b\r\n\r\ntext\r\n", &[1], Text, None);
        check("A: b\r\n\r\ntext\r\n", &[1, 1], Whole, None);
        check("A: b\r\n\r\ntext\r\n", &[2], Whole, None);
        check(
            "Content-Type: message/rfc822\n\nB: c\n\nx",
            &[1],
            Header,
            Some("B: c\n\n"),
        );
        check(
            "Content-Type: message/rfc822\n\nB: c\n\nx",
            &[1, 1],
            Whole,
            Some("x"),
        );
    }
}
