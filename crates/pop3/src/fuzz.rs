//! Entry points for fuzzers, also used by a property test: each takes arbitrary bytes and panics when an invariant is broken.

use crate::{Body, Decoder, Event, Limits};

/// Limits that short inputs meet.
const SMALL: Limits = Limits {
    command_line_bytes_max: 64,
    auth_line_bytes_max: 80,
};

/// Commands and answers of a client, whole and in pieces: the same events. The first byte chooses the pieces, and which of the lines are
/// answers to challenges.
pub fn decoder(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let piece = usize::from(choice & 15) + 1;
    let decode = |piece: usize| {
        let mut decoder = Decoder::new(SMALL);
        let mut events = Vec::new();
        for bytes in input.chunks(piece) {
            decoder.push(bytes);
            while let Some(event) = decoder.next() {
                if events.len() % (usize::from(choice >> 4) + 2) == 1 {
                    decoder.expect_sasl();
                }
                let over = matches!(event, Event::Fatal { .. });
                events.push(event);
                assert!(!over || decoder.next().is_none(), "an event after the end");
            }
            assert!(
                decoder.buffered_bytes() <= 1024 + 4 * bytes.len(),
                "a decoder that grows"
            );
        }
        events
    };
    assert_eq!(decode(piece), decode(input.len().max(1)));
}

/// A message, whole and in pieces: the same octets, and one end.
pub fn body(data: &[u8]) {
    let Some((&choice, message)) = data.split_first() else {
        return;
    };
    let piece = usize::from(choice & 15) + 1;
    let body = match choice >> 4 {
        15 => Body::whole(),
        lines => Body::top(u32::from(lines)),
    };
    let send = |piece: usize| {
        let (mut body, mut out) = (body.clone(), Vec::new());
        for bytes in message.chunks(piece) {
            if !body.push(bytes, &mut out) {
                break;
            }
        }
        body.finish(&mut out);
        out
    };
    let sent = send(piece);
    assert_eq!(sent, send(message.len().max(1)));
    assert!(sent.ends_with(b".\r\n"));
    let early = [&b"\n.\r\n"[..], b"\n.\n"];
    let inner = &sent[..sent.len() - 3];
    assert!(
        early
            .iter()
            .all(|end| memchr::memmem::find(inner, end).is_none()),
        "an end within"
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            super::decoder(&data);
            super::body(&data);
        }
    }
}
