//! Properties of a snapshot that the graph requires.

use std::sync::Arc;

/// A snapshot from the graph's view.
pub trait Resident: Sized {
    /// Returns the snapshot that this one was forked from and holds for its whole lifetime.
    fn parent(&self) -> Option<&Arc<Self>>;

    /// Returns the bytes that the snapshot and its companion state take now, without its parent.
    /// The graph counts them when the snapshot is built, and at each [`super::Graph::recount`].
    fn bytes(&self) -> u64;
}

/// State that accompanies a snapshot's memory, from the graph's view.
pub trait CompanionState {
    /// Returns the bytes that are in memory for as long as the snapshot is.
    fn bytes(&self) -> u64;
}
