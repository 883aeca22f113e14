//! See `faasw_fuzz::targets::mailbox`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    faasw_fuzz::run_once(&faasw_fuzz::targets::mailbox::TARGET, data);
});
