//! Making a snapshot of a guest's state, and computing the data that belongs to it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use faasw_abi::pages::PageSet;
use rustix::io::Errno;

use crate::content::Content;
use crate::difference::Difference;
use crate::key::Owner;
use crate::layer::Layer;
use crate::overlay::{Window, overlay_layer};
use crate::prepared::prepared;
use crate::snapshot::{Snapshot, Sorted};
use crate::working_set::WorkingSet;

/// The data of an image about its snapshot's memory.
pub(crate) struct SnapshotMetadata {
    pub monotonic_nanoseconds: u64,
    pub difference: Difference,
    pub sorted: Sorted,
    pub content: Content,
}

/// Returns the windows of a snapshot that maps `own` of its layer over its parent's.
pub(crate) fn windows_over<S>(parent: Option<&Snapshot<S>>, own: &PageSet) -> Vec<Window> {
    match parent {
        None => overlay_layer(&[], own, 0),
        Some(parent) => overlay_layer(&parent.windows, own, parent.depth + 1),
    }
}

impl<S> Snapshot<S> {
    /// Makes a snapshot of a guest: its own memory, its vCPU, and its monotonic time in
    /// nanoseconds. `parent` is the snapshot that the guest was forked from, if any. The snapshot
    /// counts as shared until [`Snapshot::owned_by`] sets its owner.
    ///
    /// # Errors
    /// Returns the system's error, if a layer cannot be read for the comparison with the parent.
    pub fn new(
        parent: Option<Arc<Self>>,
        layer: Layer,
        state: S,
        monotonic_nanoseconds: u64,
    ) -> Result<Self, Errno> {
        let windows = windows_over(parent.as_deref(), layer.own());
        let mut snapshot = Self::over(parent, layer, windows, state, monotonic_nanoseconds);
        if let Some(parent) = &snapshot.parent {
            let private = parent.prepared()?.clone();
            snapshot.difference = Difference::of(&snapshot, private)?;
        }
        Ok(snapshot)
    }

    /// Makes the snapshot of an image, with the layout and the difference from its parent that the
    /// image records. Its layer may be filled later: none of the pages that the image has is read
    /// here.
    ///
    /// # Errors
    /// Returns the system's error, if the parent's prepared pages cannot be computed.
    pub(crate) fn restored(
        parent: Option<Arc<Self>>,
        layer: Layer,
        windows: Vec<Window>,
        state: S,
        metadata: SnapshotMetadata,
    ) -> Result<Self, Errno> {
        let private = match &parent {
            None => PageSet::new(),
            Some(parent) => parent.prepared()?.clone(),
        };
        let time = metadata.monotonic_nanoseconds;
        Ok(Self {
            difference: Difference {
                private,
                ..metadata.difference
            },
            sorted: Some(metadata.sorted),
            content: OnceLock::from(metadata.content),
            ..Self::over(parent, layer, windows, state, time)
        })
    }

    /// Returns a shared snapshot without a difference from its parent.
    fn over(
        parent: Option<Arc<Self>>,
        layer: Layer,
        windows: Vec<Window>,
        state: S,
        monotonic_nanoseconds: u64,
    ) -> Self {
        Self {
            depth: parent.as_ref().map_or(0, |parent| parent.depth + 1),
            parent,
            layer,
            state,
            monotonic_nanoseconds,
            windows,
            difference: Difference::default(),
            prepared: OnceLock::new(),
            sorted: None,
            owner: Owner::Shared,
            working_set: WorkingSet::of(Owner::Shared),
            forks: AtomicU64::new(0),
            content: OnceLock::new(),
        }
    }

    /// Sets the owner, whose code the snapshot has run. If that is one function, the working set of
    /// its instances is learnt from now on. That of a shared snapshot is never learnt.
    #[must_use]
    pub fn owned_by(self, owner: Owner) -> Self {
        Self {
            owner,
            working_set: WorkingSet::of(owner),
            ..self
        }
    }

    /// Returns the private pages of a zygote that is specialised for this snapshot. They are
    /// computed at the first call, because most snapshots are no parents.
    ///
    /// # Errors
    /// Returns the system's error, if a layer cannot be read.
    pub fn prepared(&self) -> Result<&PageSet, Errno> {
        if let Some(known) = self.prepared.get() {
            return Ok(known);
        }
        // Other threads that compute it at the same time have the same result.
        let found = prepared(self)?;
        Ok(self.prepared.get_or_init(|| found))
    }
}
