//! The identity of a snapshot's memory.

use std::fmt;

/// A digest of a snapshot's memory. A child that was frozen over a snapshot names it by this
/// digest, which no other snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Content(pub(crate) [u8; 32]);

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
