//! See `faasw_fuzz::targets::working_set`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    faasw_fuzz::run_once(&faasw_fuzz::targets::working_set::TARGET, data);
});
