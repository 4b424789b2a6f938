//! The IMAP client's reader of responses: a server that says anything.

/// Any input.
pub fn run(data: &[u8]) {
    whimbrel_imap::fuzz::fuzz_client(data);
}
