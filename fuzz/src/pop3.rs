//! POP3: the decoder of commands, whole and in pieces, and messages with their dots stuffed.

use whimbrel_pop3::fuzz;

/// Any input.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((0..=63, rest)) => fuzz::body(rest),
        Some((_, rest)) => fuzz::decoder(rest),
        None => {}
    }
}
