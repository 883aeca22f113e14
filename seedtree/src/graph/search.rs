//! Where a search for seeds that can go has got to.

use crate::key::{Key, Owner};

/// How far the search for something that can go is: behind the last that was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    /// The last that was looked at.
    pub at: Option<(Owner, Key)>,
}
