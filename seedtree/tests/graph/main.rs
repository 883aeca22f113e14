//! The graph of seeds, without a guest: its rules one by one, and all of them in whatever
//! order things happen.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod building;
mod common;
#[path = "../../../pool/tests/support/dice.rs"]
#[expect(dead_code, reason = "other tests throw dice for bytes as well")]
mod dice;
mod evicting;
mod random;
