//! Fuzz targets: whatever reads bytes that a guest, a sandbox, the compile helper, a registry or
//! whoever has the disk wrote.
//!
//! Each target is a function of bytes that panics when a rule is broken, and says how
//! much memory it may take. The same functions run in two ways:
//!
//! - as ordinary tests, on any machine, for a stated number of executions: seeds,
//!   mutated at random. What repeats a run is printed, and can be given.
//!
//!   ```sh
//!   cargo test -p faasw-fuzz
//!   FAASW_FUZZ_EXECUTIONS=10000000 cargo test --release -p faasw-fuzz -- mailbox
//!   FAASW_TEST_SEED=… cargo test -p faasw-fuzz -- mailbox
//!   FAASW_FUZZ_INPUT=…/mailbox.failed cargo test -p faasw-fuzz -- mailbox
//!   ```
//!
//! - led by coverage, by cargo-fuzz, with a nightly toolchain and a C++ compiler:
//!
//!   ```sh
//!   cargo +nightly fuzz run --features libfuzzer mailbox fuzz/corpus/mailbox fuzz/seeds/mailbox
//!   ```
//!
//!   or without either sanitizers or nightly, by `.ci/fuzz mailbox`.
//!
//! `seeds/` has what good sides send; `cargo run -p faasw-fuzz --bin seeds` writes it
//! anew when a format changes.

mod executions;
mod input;
mod meter;
mod mutate;
pub mod seeds;
pub mod targets;

pub use executions::{once, run};

#[global_allocator]
static METER: meter::Meter = meter::Meter;

/// Something that reads bytes of another side.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Reads; panics when a rule is broken. Whether a good side could have sent them.
    pub read: fn(&[u8]) -> bool,
    /// Bytes of memory that it may have at once, beside [`Target::per_byte`].
    pub memory: usize,
    /// Bytes of memory that it may have at once for each byte of input.
    pub per_byte: usize,
    /// Times that it is run as a test.
    pub executions: u64,
}
