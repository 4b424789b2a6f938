//! Messages: parser, summary, sections, header fields, searched text, and the decoders that these use.

use whimbrel_mime::fuzz;

/// Any input.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((0..=63, rest)) => fuzz::text(rest),
        Some((_, rest)) => fuzz::message(rest),
        None => {}
    }
}
