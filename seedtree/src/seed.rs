//! Seeds: what instances are forked from.

use crate::layer::Layer;

/// How far a seed has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The guest is booted.
    Guest,
    /// A language engine or other shared state is loaded.
    Engine,
    /// A user's function is loaded and, unless its freeze policy says
    /// otherwise, instantiated.
    Function,
}

/// A frozen snapshot: memory and the state of the vCPU that goes with it.
///
/// `S` is that state; the tree stores it without looking at it.
#[derive(Debug)]
pub struct Seed<S> {
    /// How far it has come.
    pub level: Level,
    /// Its memory.
    pub layer: Layer,
    /// The vCPU at the freeze point.
    pub state: S,
    /// Monotonic time at the freeze, in nanoseconds, as the guest counted it.
    pub monotonic_nanoseconds: u64,
}
