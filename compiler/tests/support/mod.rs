//! What the tests of the compile helper share.

pub mod fixtures;
pub mod generate;
pub mod helper;
pub mod random;
