//! Compresses output (RFC 4978): each piece by itself.
//!
//! A compressor holds some 300 KiB, and a session would hold one for as long as its client pleases. So there is none between two pieces: each
//! piece of output, up to [`super::limits::OUTPUT_BYTES`] and a little, is compressed by a new compressor, which refers to nothing that was sent
//! before, and ends at a byte, so that the client can read it at once. That costs some per cent of what a longer memory would save. What is
//! short goes out as it is, in a stored block: five bytes more, and no compressor at all.

use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress_to_output, create_comp_flags_from_zip_params,
};

/// What is not longer is stored, not compressed: it goes out in one packet either way.
const STORED_BYTES_MAX: usize = 1024;

/// Of ten levels: RFC 4978, section 4, says of the one "least CPU-intensive [...] compresses typical responses to 25-40% of their original size".
/// This one does not look for better matches once it has one, and takes half as much again of the time of the least.
const LEVEL: i32 = 3;

/// Raw deflate, as RFC 1951 has it, without the header of zlib.
const RAW: i32 = 0;

/// A piece of output, compressed.
pub(super) fn piece(bytes: &[u8]) -> Vec<u8> {
    if bytes.len() <= STORED_BYTES_MAX {
        return stored(bytes, false);
    }
    let mut compressor = CompressorOxide::new(create_comp_flags_from_zip_params(LEVEL, RAW, 0));
    let mut out = Vec::with_capacity(bytes.len() / 2);
    let (status, consumed) = compress_to_output(&mut compressor, bytes, TDEFLFlush::Sync, |made| {
        out.extend_from_slice(made);
        true
    });
    assert!(
        status == TDEFLStatus::Okay && consumed == bytes.len(),
        "nothing but the output could have failed"
    );
    out
}

/// Bytes in blocks that are not compressed. With `last` the stream ends with the last of them, and with it the compression.
pub(super) fn stored(bytes: &[u8], last: bool) -> Vec<u8> {
    /// A stored block has a length of 16 bits.
    const BLOCK_BYTES_MAX: usize = u16::MAX as usize;
    let count = bytes.len().div_ceil(BLOCK_BYTES_MAX).max(1);
    let mut out = Vec::with_capacity(bytes.len() + 5 * count);
    let mut rest = bytes;
    for block in 1..=count {
        let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES_MAX));
        rest = later;
        let len = now.len() as u16;
        out.push(u8::from(last && block == count));
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(!len).to_le_bytes());
        out.extend_from_slice(now);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use miniz_oxide::inflate::{decompress_slice_iter_to_slice, decompress_to_vec};

    fn inflated(compressed: &[u8]) -> Vec<u8> {
        // The stream goes on; this ends it.
        let ended = [compressed, &stored(b"", true)].concat();
        decompress_to_vec(&ended).expect("it is deflate")
    }

    #[test]
    fn pieces_are_read_one_by_one_and_one_after_another() {
        let text = |len: usize| -> Vec<u8> {
            (0..len)
                .map(|n| b"* 12 FETCH (FLAGS)"[n * n % 17])
                .collect()
        };
        let mut stream = Vec::new();
        let mut all = Vec::new();
        for len in [1, 5, 1024, 1025, 30_000, 65_535, 65_536, 200_000] {
            let piece = piece(&text(len));
            assert_eq!(inflated(&piece), text(len), "{len}");
            assert!(
                len <= STORED_BYTES_MAX || piece.len() < len / 2,
                "{len}: {}",
                piece.len()
            );
            stream.extend_from_slice(&piece);
            all.extend_from_slice(&text(len));
        }
        assert_eq!(inflated(&stream), all);
    }

    #[test]
    fn the_last_block_ends_with_the_last_byte() {
        for len in [0, 3, 65_535, 65_536, 131_070] {
            let bytes = vec![b'x'; len];
            let stream = stored(&bytes, true);
            assert_eq!(decompress_to_vec(&stream).unwrap(), bytes);
            let mut out = vec![0; len];
            assert_eq!(
                decompress_slice_iter_to_slice(&mut out, [&stream[..]].into_iter(), false, true),
                Ok(len)
            );
            assert_eq!(stream.len(), len + 5 * len.div_ceil(65_535).max(1));
        }
    }

    #[test]
    fn what_cannot_be_compressed_grows_by_little() {
        let mut state = 1u32;
        let noise: Vec<u8> = (0..100_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        let piece = piece(&noise);
        assert_eq!(inflated(&piece), noise);
        assert!(piece.len() < noise.len() + 100, "{}", piece.len());
    }
}
