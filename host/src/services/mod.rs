//! What the node does for functions beside running them.

pub(crate) mod key_value;
pub(crate) mod outbound;
pub(crate) mod secrets;
pub(crate) mod trust;
