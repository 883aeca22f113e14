//! Position of a search for seeds that can be evicted.

use crate::key::{Key, Owner};

/// Progress of the search for a seed that can be evicted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    /// The node that was examined last.
    pub at: Option<(Owner, Key)>,
}
