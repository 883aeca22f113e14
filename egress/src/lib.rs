//! How functions reach out.

pub mod cell;
