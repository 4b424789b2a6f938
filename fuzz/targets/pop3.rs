//! POP3: the decoder of commands, whole and in pieces, and messages with their dots stuffed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_pop3::fuzz;

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((0..=63, rest)) => fuzz::body(rest),
        Some((_, rest)) => fuzz::decoder(rest),
        None => {}
    }
});
