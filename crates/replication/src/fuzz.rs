//! Entry points for fuzzers, also used by tests: each takes any bytes and panics when an invariant is broken.

use crate::wire::{BULK_BYTES_MAX, Decoder, Frame, HEADER_BYTES, WireError};

fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, Option<WireError>) {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.buffered() < HEADER_BYTES + BULK_BYTES_MAX + piece.len());
    }
    (frames, None)
}

/// A stream from a peer: the same however it is cut; what is read is written and read as the same.
pub fn stream(data: &[u8]) {
    let whole = frames(&[data]);
    let middle = data.len() / 2;
    assert_eq!(frames(&[&data[..middle], &data[middle..]]), whole);
    let bytes: Vec<&[u8]> = data.chunks(1).collect();
    assert_eq!(frames(&bytes), whole);
    for frame in &whole.0 {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(frames(&[&again]), (vec![frame.clone()], None));
    }
}
