//! Support for the tests of the compile helper.

pub mod fixtures;
pub mod generate;
pub mod helper;
pub mod random;
