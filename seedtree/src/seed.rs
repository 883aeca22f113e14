//! Seeds: what instances are forked from.

use std::sync::Arc;

use crate::layer::Layer;
use crate::overlay::{Window, overlay};

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

impl Level {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Guest => 0,
            Self::Engine => 1,
            Self::Function => 2,
        }
    }
}

/// A frozen snapshot: memory and the state of the vCPU that goes with it.
///
/// A seed holds only what it changed of its parent, and what it added; the rest
/// is mapped from its ancestors' layers, whose physical pages all share (AFaaS §4).
/// It keeps its ancestors for as long as it lives.
///
/// `S` is the vCPU's state; the tree stores it without looking at it.
#[derive(Debug)]
pub struct Seed<S> {
    /// How far it has come.
    pub level: Level,
    /// What it was forked from.
    pub parent: Option<Arc<Self>>,
    /// Its own memory.
    pub layer: Layer,
    /// The vCPU at the freeze point.
    pub state: S,
    /// Monotonic time at the freeze, in nanoseconds, as the guest counted it.
    pub monotonic_nanoseconds: u64,
}

impl<S> Seed<S> {
    /// Its layers, the root's first and its own last.
    #[must_use]
    pub fn layers(&self) -> Vec<&Layer> {
        let mut layers = match &self.parent {
            Some(parent) => parent.layers(),
            None => Vec::new(),
        };
        layers.push(&self.layer);
        layers
    }

    /// Where an instance maps which of [`Seed::layers`]; elsewhere it is all zeroes.
    #[must_use]
    pub fn windows(&self) -> Vec<Window> {
        overlay(self.layers().iter().map(|layer| layer.extents()))
    }
}
