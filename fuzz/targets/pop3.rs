#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| whimbrel_fuzz::pop3::run(data));
