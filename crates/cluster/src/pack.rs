//! Packs: the bytes of a link in pieces, compressed where that helps.
//!
//! A pack is its length on the wire and its unpacked length (4 bytes each, most significant first), and then the bytes: an LZ4 block if the lengths
//! differ. Frames are cut and joined at any byte. A pack is small, so that neither side holds more than one of them in addition. Mail compresses to
//! half or less, and regions are far apart.

use std::io;

/// The peer reads compressed packs.
pub const FEATURE_LZ4: u64 = 1;

/// Longest pack, unpacked: the receiver holds it twice.
pub(crate) const PACK_BYTES_MAX: usize = 128 * 1024;
/// Bytes before a pack.
pub(crate) const HEADER_BYTES: usize = 8;
/// Below this length compression gains nothing.
const COMPRESS_BYTES_MIN: usize = 256;

/// Appends packs that hold these bytes.
pub(crate) fn pack(bytes: &[u8], compress: bool, out: &mut Vec<u8>) {
    for piece in bytes.chunks(PACK_BYTES_MAX) {
        let squeezed = (compress && piece.len() >= COMPRESS_BYTES_MIN)
            .then(|| lz4_flex::block::compress(piece))
            .filter(|squeezed| squeezed.len() < piece.len());
        let body = squeezed.as_deref().unwrap_or(piece);
        for length in [body.len(), piece.len()] {
            // No pack is longer than PACK_BYTES_MAX.
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        out.extend_from_slice(body);
    }
}

/// The lengths in a header: on the wire, and unpacked.
pub(crate) fn lengths(header: [u8; HEADER_BYTES]) -> io::Result<(usize, usize)> {
    let [a, b, c, d, e, f, g, h] = header;
    let wire = u32::from_be_bytes([a, b, c, d]) as usize;
    let raw = u32::from_be_bytes([e, f, g, h]) as usize;
    if wire == 0 || wire > raw || raw > PACK_BYTES_MAX {
        return Err(malformed("lengths"));
    }
    Ok((wire, raw))
}

/// Unpacks into `out`, which has the unpacked length.
pub(crate) fn unpack(body: &[u8], out: &mut [u8]) -> io::Result<()> {
    if body.len() == out.len() {
        out.copy_from_slice(body);
        return Ok(());
    }
    match lz4_flex::block::decompress_into(body, out) {
        Ok(length) if length == out.len() => Ok(()),
        _ => Err(malformed("block")),
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("malformed pack: {what}"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unpack_all(mut wire: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((header, rest)) = wire.split_first_chunk() {
            let (length, raw) = lengths(*header)?;
            let (body, rest) = rest
                .split_at_checked(length)
                .ok_or_else(|| malformed("end"))?;
            let start = all.len();
            all.resize(start + raw, 0);
            unpack(body, &mut all[start..])?;
            wire = rest;
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            words in proptest::collection::vec(0u8..4, 0..5000),
            times in 1usize..60,
            compress: bool,
        ) {
            let bytes = words.repeat(times);
            let mut wire = Vec::new();
            pack(&bytes, compress, &mut wire);
            prop_assert_eq!(unpack_all(&wire).unwrap(), bytes);
        }

        #[test]
        fn nonsense_is_refused_or_small(wire in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(all) = unpack_all(&wire) {
                prop_assert!(all.len() <= 40 * PACK_BYTES_MAX);
            }
        }
    }

    #[test]
    fn mail_gets_smaller_and_noise_does_not_grow() {
        let mail = b"Received: from mail.example.org by mail.example.net; ".repeat(100);
        let mut wire = Vec::new();
        pack(&mail, true, &mut wire);
        assert!(wire.len() < mail.len() / 4);
        let mut noise = vec![0; 100_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let mut wire = Vec::new();
        pack(&noise, true, &mut wire);
        assert_eq!(wire.len(), noise.len() + HEADER_BYTES);
    }

    #[test]
    fn lengths_are_bounded() {
        let check = |wire: u32, raw: u32, ok: bool| {
            let mut header = [0; HEADER_BYTES];
            header[..4].copy_from_slice(&wire.to_be_bytes());
            header[4..].copy_from_slice(&raw.to_be_bytes());
            assert_eq!(lengths(header).is_ok(), ok, "{wire} {raw}");
        };
        let most = PACK_BYTES_MAX as u32;
        check(1, 1, true);
        check(1, most, true);
        check(most, most, true);
        check(1, most + 1, false);
        check(most + 1, most + 1, false);
        check(2, 1, false);
        check(0, 0, false);
        check(0, 1, false);
        check(u32::MAX, u32::MAX, false);
    }
}
