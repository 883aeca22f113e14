//! See `faasw_fuzz::targets::sandbox_words`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    faasw_fuzz::run_once(&faasw_fuzz::targets::sandbox_words::TARGET, data);
});
