//! SMTP, LMTP and submission: the session machine whole and in pieces, its client, its commands and addresses, its scanner of text.

use whimbrel_smtp::fuzz;

/// Any input.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((0..=9, rest)) => fuzz::client(rest),
        Some((10..=19, rest)) => fuzz::command(rest),
        Some((20..=29, rest)) => fuzz::text(rest),
        Some((_, rest)) => fuzz::session(rest),
        None => {}
    }
}
