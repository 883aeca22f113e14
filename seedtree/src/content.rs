//! What a snapshot's memory is.

use std::fmt;

/// What a snapshot's memory is, by digest: of what a child was frozen over, and what no other
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Content(pub(crate) [u8; 32]);

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
