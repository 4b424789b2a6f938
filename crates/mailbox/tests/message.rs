//! A small message, where it does not matter which.

use whimbrel_mailbox::*;

pub(crate) const BLOB: BlobName = BlobName {
    hash: [1; 32],
    upload: [2; 16],
};

pub(crate) fn message(blob: BlobName) -> NewMessage {
    NewMessage {
        flags: Flags::none(),
        blob,
        size: 5,
        open_end: false,
        date: Date {
            seconds: 1,
            zone_minutes: 0,
        },
        content: b"summary".to_vec(),
    }
}
