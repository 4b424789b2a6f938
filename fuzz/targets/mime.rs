#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| whimbrel_fuzz::mime::run(data));
