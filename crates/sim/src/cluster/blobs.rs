//! Messages, by their number: a message of this number has these bytes and this content row, wherever it is.
//!
//! Where nobody reads by bytes a message is a few words and its size is said to be its number, which is what checkers know it by. From [`REAL_FROM`]
//! on it is a message that a client can be shown, and its number is its size.

use bytes::Bytes;
use whimbrel_mime::{Limits, Parser};
use whimbrel_service::{api::Date, content::Content};

/// Numbers from here on are sizes of real messages: header and a line of text have room in so many bytes.
pub(super) const REAL_FROM: u32 = 512;

/// The bytes of a message.
pub(super) fn text(body: u32) -> Bytes {
    let mut text = format!("message {body}");
    if body < REAL_FROM {
        return text.into();
    }
    let head = format!(
        "From: anne@example.com\r\nTo: bob@example.org\r\nSubject: {text}\r\nMessage-ID: <{body}@example.com>\r\n\r\n"
    );
    text = head;
    let len = usize::try_from(body).unwrap_or(usize::MAX);
    while text.len() + 2 < len {
        let line = (len - 2 - text.len()).min(70);
        text.extend(std::iter::repeat_n('x', line));
        // Never so near to the end that the last line has no room for its own.
        if text.len() + 6 < len {
            text.push_str("\r\n");
        }
    }
    text.push_str("\r\n");
    text.into()
}

/// A message's bytes, its date, and what lies beside it.
pub(super) type Given = (Bytes, Date, Bytes);

/// What a message is.
pub(super) fn first(body: u32) -> Given {
    (text(body), date(body), content(body))
}

/// What a source gives when it is asked again: other words of the same length, received one second later. Of small messages only, which nobody reads by bytes.
pub(super) fn other(body: u32) -> Given {
    let (text, date) = (format!("Message {body}"), date(body));
    let date = Date {
        seconds: date.seconds + 1,
        ..date
    };
    let content = Content {
        prefix: Bytes::new(),
        summary: text.clone().into(),
    };
    (text.into(), date, content.encode())
}

/// When it was received: no two of some thousands that are near each other have one date, and zones lie on both sides of Greenwich.
pub(super) fn date(body: u32) -> Date {
    const NOON: i64 = 1_000_036_800;
    let half_hours = i16::try_from(body % 23).unwrap_or(0) - 11;
    Date {
        seconds: NOON + i64::from(body % 10_000),
        zone_minutes: half_hours * 30,
    }
}

/// What lies beside it.
pub(super) fn content(body: u32) -> Bytes {
    let summary = match body < REAL_FROM {
        true => text(body),
        false => {
            let mut parser = Parser::new(&Limits::default());
            parser.push(&text(body));
            parser.finish().encode().into()
        }
    };
    Content {
        prefix: Bytes::new(),
        summary,
    }
    .encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_message_is_as_long_as_its_number() {
        for body in REAL_FROM..2 * REAL_FROM {
            let text = text(body);
            assert_eq!(text.len(), body as usize);
            assert!(text.ends_with(b"x\r\n"), "{body}");
        }
    }
}
