//! The graph of seeds, without a guest: its rules one by one, and all of them in whatever
//! order things happen.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod building;
mod common;
mod evicting;
mod random;
