//! See `faasw_fuzz::targets::script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    faasw_fuzz::run_once(&faasw_fuzz::targets::script::TARGET, data);
});
