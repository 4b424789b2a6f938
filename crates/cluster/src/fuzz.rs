//! Entry points for fuzzers, also used by a property test: each takes arbitrary bytes and panics when an invariant is broken.

use std::{
    io,
    pin::pin,
    task::{Context, Poll, Waker},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use minicbor::{Decode, Encode};
use rustls::pki_types::CertificateDer;
use whimbrel_replication::wire::{Decoder, Frame};

use crate::{
    NodeName, Token, Tokens,
    authority::name_in,
    join::{self, Answer, JOIN_BYTES_MAX, Question},
    pack::{HEADER_BYTES, PACK_BYTES_MAX, lengths, pack, unpack},
    stream::Packs,
    token::PREFIX,
};

/// A token, as a line of text or as the bytes below its checksum. A token that is accepted is written and read as the same, and names a node.
pub fn token(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let text = if choice < 64 {
        String::from_utf8_lossy(data).into_owned()
    } else {
        let sum = blake3::hash(data);
        let whole = [&sum.as_bytes()[..4], data].concat();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(whole))
    };
    if let Ok(token) = Token::from_text(&text) {
        assert!(NodeName::new(&token.sponsor).is_ok());
        let again = Token::from_text(&token.to_text());
        let parts = |token: &Token| {
            let Token { id, secret, .. } = *token;
            let words = (token.address.clone(), token.sponsor.clone());
            (words, token.fingerprint, id, secret)
        };
        assert_eq!(again.as_ref().map(parts), Ok(parts(&token)));
    }
    same_again::<Tokens>(data);
    let text = String::from_utf8_lossy(data);
    match NodeName::new(&text) {
        Ok(name) => assert_eq!(name.to_string(), text),
        // The error is shown, and may contain anything.
        Err(error) => assert!(error.to_string().len() < 1000),
    }
}

/// What is stored in a file or sent while a node joins is read, written and read as the same.
fn same_again<T: Encode<()> + for<'b> Decode<'b, ()>>(data: &[u8]) {
    let Ok(read) = minicbor::decode::<T>(data) else {
        return;
    };
    let bytes = minicbor::to_vec(&read).unwrap_or_default();
    let again = minicbor::decode::<T>(&bytes).ok();
    let again = again.and_then(|again| minicbor::to_vec(again).ok());
    assert_eq!(again, Some(bytes));
}

/// Packs of a link whose peer sends anything: the frames are the same however the bytes are cut. Packed bytes are unpacked unchanged.
pub fn packs(data: &[u8]) {
    let Some((&choice, wire)) = data.split_first() else {
        return;
    };
    let frames = |piece: usize| {
        let (mut packs, mut decoder, mut frames) = (Packs::new(), Decoder::default(), Vec::new());
        for part in wire.chunks(piece) {
            packs.space()[..part.len()].copy_from_slice(part);
            let came = packs.came(part.len(), &mut decoder);
            loop {
                match decoder.frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(_) => return (frames, true),
                }
            }
            if came.is_err() {
                return (frames, true);
            }
        }
        (frames, false)
    };
    let whole: (Vec<Frame>, bool) = frames(wire.len().max(1));
    assert_eq!(frames(usize::from(choice) + 1), whole, "cut otherwise");

    let mut packed = Vec::new();
    pack(wire, choice & 1 == 0, &mut packed);
    assert!(packed.len() <= wire.len() + HEADER_BYTES);
    if let Some((header, body)) = packed.split_first_chunk() {
        let (on_wire, raw) = lengths(*header).unwrap_or_default();
        assert!(on_wire == body.len() && raw == wire.len() && raw <= PACK_BYTES_MAX);
        let mut out = vec![0; raw];
        assert!(unpack(body, &mut out).is_ok() && out == wire);
    }
}

/// Messages of both sides while a node joins, and the certificates.
pub fn join(data: &[u8]) {
    same_again::<Question>(data);
    same_again::<Answer>(data);
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    for length in [length, length / 2, JOIN_BYTES_MAX + 1] {
        let wire = [&length.to_be_bytes(), data].concat();
        let read = now(join::receive::<Question, _>(&mut &wire[..]));
        if let Ok(question) = read {
            assert!(length <= JOIN_BYTES_MAX);
            let mut again = Vec::new();
            assert!(now(join::send(&mut again, &question)).is_ok());
        }
    }
    if let Ok(name) = name_in(&CertificateDer::from(data)) {
        assert_eq!(NodeName::new(name.as_str()), Ok(name));
    }
}

/// On a stream in memory nothing waits.
fn now<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits for what is there"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            super::token(&data);
            super::packs(&data);
            super::join(&data);
        }
    }
}
