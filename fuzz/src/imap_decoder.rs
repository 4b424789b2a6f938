//! The decoder of IMAP commands and the parsers of their words: any bytes, whole and in pieces.

/// Any input.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((0..=9, words)) => whimbrel_imap::fuzz::fuzz_words(words),
        Some((10..=19, commands)) => whimbrel_imap::fuzz::fuzz_commands(commands),
        Some((_, session)) => whimbrel_imap::fuzz::fuzz_decoder(session),
        None => {}
    }
}
