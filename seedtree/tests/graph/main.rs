//! The graph of seeds, without a guest: its rules one by one, and all of them under random
//! operations.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod building;
mod common;
mod evicting;
mod random;
