//! What the tests of the commands share.

use crate::{CommandBody, Decoder, Event, Limits};

/// A decoder after login.
pub(crate) fn decoder(limits: Limits) -> Decoder {
    let mut decoder = Decoder::new(limits);
    decoder.set_authenticated(true);
    decoder
}

/// What `t <input>` CRLF is after login, literals accepted: a command, or the text of its refusal.
pub(crate) fn parse(input: &[u8], utf8: bool) -> Result<CommandBody, &'static str> {
    let mut decoder = decoder(Limits::default());
    decoder.set_utf8(utf8);
    decoder.push(b"t ");
    decoder.push(input);
    decoder.push(b"\r\n");
    loop {
        match decoder.next() {
            Some(Event::Continue { .. }) => {}
            Some(Event::Command(command)) => {
                assert_eq!(command.tag.as_str(), "t");
                assert!(decoder.is_empty());
                return Ok(command.body);
            }
            Some(Event::Bad { tag, text }) => {
                assert_eq!(tag.unwrap().as_str(), "t");
                assert!(decoder.is_empty());
                return Err(text);
            }
            other => panic!("{other:?} from {}", input.escape_ascii()),
        }
    }
}

/// Fails unless `input` is `expected`.
#[track_caller]
pub(crate) fn check(input: &str, expected: CommandBody) {
    assert_eq!(parse(input.as_bytes(), false), Ok(expected), "{input}");
}

/// Fails unless `input` is refused with `text`.
#[track_caller]
pub(crate) fn refuse(input: &str, text: &str) {
    assert_eq!(parse(input.as_bytes(), false), Err(text), "{input}");
}
