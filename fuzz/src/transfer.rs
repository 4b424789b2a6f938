//! What mail of other programs is imported from: mbox, line ends, names in a Maildir. The first byte chooses which.

use whimbrel_mailbox::{MailboxName, NAME_BYTES_MAX, NAME_DEPTH_MAX};
use whimbrel_transfer::{fuzz, names::Mapper};

/// Any input.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((0..=99, rest)) => fuzz::mbox(rest),
        Some((100..=139, rest)) => fuzz::message(rest),
        Some((140..=149, rest)) => fuzz::lines(rest),
        Some((_, rest)) => {
            // Within the limits of a server's import.
            let mapper = Mapper::new(NAME_BYTES_MAX, NAME_DEPTH_MAX, NAME_BYTES_MAX);
            for name in fuzz::names(rest, mapper) {
                let here = MailboxName::new(&name);
                assert_eq!(here.as_ref().map(MailboxName::as_str), Ok(&*name));
            }
        }
        None => {}
    }
}
