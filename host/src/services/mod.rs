//! Services that the node provides to functions.

pub(crate) mod key_value;
pub(crate) mod outbound;
pub(crate) mod secrets;
pub(crate) mod trust;
