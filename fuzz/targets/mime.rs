//! Messages: parser, summary, sections, header fields, searched text, and the decoders that these use.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_mime::fuzz;

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((0..=63, rest)) => fuzz::text(rest),
        Some((_, rest)) => fuzz::message(rest),
        None => {}
    }
});
