#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| whimbrel_fuzz::encodings::run(data));
