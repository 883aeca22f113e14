//! Snapshots: what instances are forked from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::content::Content;
use crate::difference::Difference;
use crate::graph::{CompanionState, Resident};
use crate::key::Owner;
use crate::layer::Layer;
use crate::overlay::Window;
use crate::working_set::WorkingSet;
use faasw_abi::pages::PageSet;

/// A snapshot's own pages, classified by how its image stores them. All others are zeroes.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    /// Pages that differ from the parent's and are not zero: the image contains them.
    pub stored: PageSet,
    /// Pages that are equal to the parent's and not zero.
    pub inherited: PageSet,
}

/// A frozen guest: memory, the state of its vCPU, and data about its instances.
///
/// A snapshot holds only the pages that it changed or added to its parent's. The rest is mapped
/// from its ancestors' layers, whose physical pages all share (AFaaS §4.3). It keeps its ancestors
/// for its whole lifetime.
///
/// `S` is the vCPU's state, which the tree stores without interpreting it.
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
    /// The image's classification of its pages, if the snapshot was restored.
    pub(crate) sorted: Option<Sorted>,
    pub(crate) working_set: WorkingSet,
    pub(crate) forks: AtomicU64,
    pub(crate) content: OnceLock<Content>,
}

impl<S> Snapshot<S> {
    /// Returns the snapshot that this one was forked from.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// Iterates over the snapshot and its ancestors, upwards.
    pub(crate) fn line(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |snapshot| snapshot.parent.as_deref())
    }

    /// Returns the number of ancestors.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the owner: whose code the snapshot has run.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the snapshot's own memory.
    #[must_use]
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Returns the state of the vCPU at the freeze point.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the monotonic time at the freeze, in nanoseconds, as the guest counted it.
    #[must_use]
    pub fn monotonic_nanoseconds(&self) -> u64 {
        self.monotonic_nanoseconds
    }

    /// Returns the layers, from the root's to its own.
    #[must_use]
    pub fn layers(&self) -> Vec<&Layer> {
        let mut layers: Vec<&Layer> = self.line().map(Self::layer).collect();
        layers.reverse();
        layers
    }

    /// Returns the ranges that an instance maps of [`Snapshot::layers`]; all other pages are
    /// zeroes.
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Returns the difference from its parent.
    #[must_use]
    pub fn difference(&self) -> &Difference {
        &self.difference
    }

    /// Returns the working set of its instances.
    #[must_use]
    pub fn working_set(&self) -> &WorkingSet {
        &self.working_set
    }

    /// Returns the maximum bytes of private memory of a new instance before it runs.
    #[must_use]
    pub fn bytes_of_new(&self) -> u64 {
        let working_set = self.working_set.current();
        self.difference.private_bytes(&working_set.written)
    }

    /// Returns the size of the pages that its own layer has now, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layer.held_bytes()
    }

    /// Returns the maximum bytes of holes that instances can fill by touching them, in its own
    /// layer and in its ancestors'.
    #[must_use]
    pub fn hole_bytes(&self) -> u64 {
        let layers = self.line().map(Self::layer);
        let holes = layers.map(|layer| layer.own().bytes().saturating_sub(layer.held_bytes()));
        holes.sum()
    }

    /// Returns the digest of its memory, if there is an image of it.
    #[must_use]
    pub fn content(&self) -> Option<Content> {
        self.content.get().copied()
    }

    /// Records that there is an image of this content, so that its children can have images.
    pub fn set_content(&self, content: Content) {
        // Only the first call has an effect. Another working set changes the order of the pages in
        // a later image, but the memory is the same, so the first digest stays.
        let _ = self.content.set(content);
    }

    /// Counts a fork.
    pub fn count_fork(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of forks.
    #[must_use]
    pub fn forks(&self) -> u64 {
        self.forks.load(Ordering::Relaxed)
    }
}

impl<S: CompanionState> Resident for Snapshot<S> {
    fn parent(&self) -> Option<&Arc<Self>> {
        self.parent()
    }

    fn bytes(&self) -> u64 {
        self.bytes().saturating_add(self.state.bytes())
    }
}
