//! Snapshots: what instances are forked from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::content::Content;
use crate::difference::Difference;
use crate::graph::{Beside, Resident};
use crate::key::Owner;
use crate::layer::Layer;
use crate::overlay::Window;
use crate::working_set::WorkingSet;
use faasw_abi::pages::PageSet;

/// A snapshot's own pages, by what an image has of them. All others are zeroes.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    /// Those that differ from the parent's, and have something in them: they are in the image.
    pub stored: PageSet,
    /// Those that are as the parent has them, which has something in them.
    pub inherited: PageSet,
}

/// A frozen guest: memory, the state of the vCPU that goes with it, and what is known of
/// its instances.
///
/// A snapshot holds only what it changed of its parent, and what it added; the rest
/// is mapped from its ancestors' layers, whose physical pages all share (AFaaS §4).
/// It keeps its ancestors for as long as it lives.
///
/// `S` is the vCPU's state; the tree stores it without looking at it.
#[derive(Debug)]
pub struct Snapshot<S> {
    pub(crate) parent: Option<Arc<Self>>,
    pub(crate) depth: u32,
    pub(crate) owner: Owner,
    pub(crate) layer: Layer,
    pub(crate) state: S,
    pub(crate) monotonic_nanoseconds: u64,
    pub(crate) windows: Vec<Window>,
    pub(crate) difference: Difference,
    pub(crate) prepared: OnceLock<PageSet>,
    /// As its image has it, where it was restored.
    pub(crate) sorted: Option<Sorted>,
    pub(crate) working_set: WorkingSet,
    pub(crate) forks: AtomicU64,
    pub(crate) content: OnceLock<Content>,
}

impl<S> Snapshot<S> {
    /// What it was forked from.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// How many ancestors it has.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Whose code it has run.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Its own memory.
    #[must_use]
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// The vCPU at the freeze point.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Monotonic time at the freeze, in nanoseconds, as the guest counted it.
    #[must_use]
    pub fn monotonic_nanoseconds(&self) -> u64 {
        self.monotonic_nanoseconds
    }

    /// Its layers, the root's first and its own last.
    #[must_use]
    pub fn layers(&self) -> Vec<&Layer> {
        let line = std::iter::successors(Some(self), |snapshot| snapshot.parent.as_deref());
        let mut layers: Vec<&Layer> = line.map(|snapshot| &snapshot.layer).collect();
        layers.reverse();
        layers
    }

    /// Where an instance maps which of [`Snapshot::layers`]; elsewhere it is all zeroes.
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Where it differs from its parent.
    #[must_use]
    pub fn difference(&self) -> &Difference {
        &self.difference
    }

    /// What instances use.
    #[must_use]
    pub fn working_set(&self) -> &WorkingSet {
        &self.working_set
    }

    /// Bytes that a new instance has as its own, before it has run, at most.
    #[must_use]
    pub fn bytes_of_new(&self) -> u64 {
        let working_set = self.working_set.current();
        self.difference.private_bytes(&working_set.written)
    }

    /// Size of the pages that its own layer has now, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layer.held_bytes()
    }

    /// Bytes of holes that instances may fill at most, by touching them, in its own layer and
    /// in its ancestors'.
    #[must_use]
    pub fn hole_bytes(&self) -> u64 {
        let line = std::iter::successors(Some(self), |snapshot| snapshot.parent.as_deref());
        let layers = line.map(|snapshot| &snapshot.layer);
        let holes = layers.map(|layer| layer.own().bytes().saturating_sub(layer.held_bytes()));
        holes.sum()
    }

    /// What its memory is, where there is an image of it.
    #[must_use]
    pub fn content(&self) -> Option<Content> {
        self.content.get().copied()
    }

    /// There is an image of this content: its children can have images from now on.
    pub fn has_content(&self, content: Content) {
        // Another working set has put its pages in another order since it was told first; its
        // memory is what it was.
        let _ = self.content.set(content);
    }

    /// It was forked once more.
    pub fn count_fork(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was forked.
    #[must_use]
    pub fn forks(&self) -> u64 {
        self.forks.load(Ordering::Relaxed)
    }
}

impl<S: Beside> Resident for Snapshot<S> {
    fn parent(&self) -> Option<&Arc<Self>> {
        self.parent()
    }

    fn bytes(&self) -> u64 {
        self.bytes().saturating_add(self.state.bytes())
    }
}
