//! The IMAP client's reader of responses: a server that says anything.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| whimbrel_imap::fuzz::fuzz_client(data));
