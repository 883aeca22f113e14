//! What the graph has to know of a snapshot.

use std::sync::Arc;

/// A snapshot as the graph sees it.
pub trait Resident: Sized {
    /// What it was forked from: it holds that for as long as it lives.
    fn parent(&self) -> Option<&Arc<Self>>;

    /// Bytes that it and what is beside it take, its parent aside, now. They are counted when it is
    /// built, and whenever [`super::Graph::recount`] says so.
    fn bytes(&self) -> u64;
}

/// What goes with a snapshot's memory, as the graph sees it.
pub trait Beside {
    /// Bytes that are in memory for as long as the snapshot is.
    fn bytes(&self) -> u64;
}
