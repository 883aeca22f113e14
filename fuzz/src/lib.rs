//! Fuzz targets for all code that reads bytes of a guest, a sandbox, the compile helper or a
//! registry, or bytes of the disk.
//!
//! Each target is a function of bytes that panics when a rule is broken. It also states how much
//! memory it may take. The same functions run in two ways:
//!
//! - as ordinary tests, on any machine, for a stated number of executions, on seeds that are
//!   mutated at random. A run prints the variable that repeats it.
//!
//!   ```sh
//!   cargo test -p faasw-fuzz
//!   FAASW_FUZZ_EXECUTIONS=10000000 cargo test --release -p faasw-fuzz -- mailbox
//!   FAASW_TEST_SEED=… cargo test -p faasw-fuzz -- mailbox
//!   FAASW_FUZZ_INPUT=…/mailbox.failed cargo test -p faasw-fuzz -- mailbox
//!   ```
//!
//! - guided by coverage, by cargo-fuzz, with a nightly toolchain and a C++ compiler:
//!
//!   ```sh
//!   cargo +nightly fuzz run --features libfuzzer mailbox fuzz/corpus/mailbox fuzz/seeds/mailbox
//!   ```
//!
//!   or without either sanitizers or nightly, by `.ci/fuzz mailbox`.
//!
//! `seeds/` has valid messages of good sides. When a format changes,
//! `cargo run -p faasw-fuzz --bin seeds` writes them anew.

mod executions;
mod input;
mod meter;
mod mutate;
pub mod seeds;
pub mod targets;

pub use executions::{run, run_once};

#[global_allocator]
static ALLOCATOR: meter::CountingAllocator = meter::CountingAllocator;

/// A reader of bytes of another side, with its limits.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target.
    pub name: &'static str,
    /// Reads the bytes and panics if a rule is broken. Returns whether a good side could have sent
    /// them.
    pub read: fn(&[u8]) -> bool,
    /// Bytes of memory that the target may have at once, beside [`Target::per_byte`].
    pub memory: usize,
    /// Bytes of memory that the target may have at once for each byte of input.
    pub per_byte: usize,
    /// How many times a test runs the target.
    pub executions: u64,
}
