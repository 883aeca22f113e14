//! Making a snapshot of what a guest has become, and finding out what is known of it from then
//! on.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use faasw_abi::pages::PageSet;
use rustix::io::Errno;

use crate::content::Content;
use crate::difference::Difference;
use crate::key::Owner;
use crate::layer::Layer;
use crate::overlay::{Window, laid_over};
use crate::prepared::prepared;
use crate::snapshot::{Snapshot, Sorted};
use crate::working_set::WorkingSet;

/// What an image says of its snapshot's memory.
pub(crate) struct Told {
    pub monotonic_nanoseconds: u64,
    pub difference: Difference,
    pub sorted: Sorted,
    pub content: Content,
}

impl<S> Snapshot<S> {
    /// What a guest that was forked from `parent`, if it was, has become: its own memory,
    /// its vCPU, and the monotonic time as it counted it, in nanoseconds. It counts as one
    /// that all share until [`Snapshot::owned_by`] says whose it is.
    ///
    /// # Errors
    /// The system's.
    pub fn new(
        parent: Option<Arc<Self>>,
        layer: Layer,
        state: S,
        monotonic_nanoseconds: u64,
    ) -> Result<Self, Errno> {
        let (depth, windows) = match &parent {
            None => (0, laid_over(&[], layer.own(), 0)),
            Some(parent) => {
                let depth = parent.depth + 1;
                (depth, laid_over(&parent.windows, layer.own(), depth))
            }
        };
        let mut snapshot = Self {
            parent,
            depth,
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
        };
        if let Some(parent) = &snapshot.parent {
            let private = parent.prepared()?.clone();
            snapshot.difference = Difference::of(&snapshot, private)?;
        }
        Ok(snapshot)
    }

    /// What it was when its image was made: laid out so, and different from its parent there. Its
    /// layer may be filled later: none of the pages that the image has is looked at.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn restored(
        parent: Option<Arc<Self>>,
        layer: Layer,
        windows: Vec<Window>,
        state: S,
        told: Told,
    ) -> Result<Self, Errno> {
        let Told {
            monotonic_nanoseconds,
            difference,
            sorted,
            content,
        } = told;
        let private = match &parent {
            None => PageSet::new(),
            Some(parent) => parent.prepared()?.clone(),
        };
        Ok(Self {
            depth: parent.as_ref().map_or(0, |parent| parent.depth + 1),
            parent,
            layer,
            state,
            monotonic_nanoseconds,
            windows,
            difference: Difference {
                private,
                ..difference
            },
            prepared: OnceLock::new(),
            sorted: Some(sorted),
            owner: Owner::Shared,
            working_set: WorkingSet::of(Owner::Shared),
            forks: AtomicU64::new(0),
            content: OnceLock::from(content),
        })
    }

    /// Says whose code it has run. Where that is one function's, what its instances use is
    /// learnt from now on; where it is everybody's, never.
    #[must_use]
    pub fn owned_by(self, owner: Owner) -> Self {
        Self {
            owner,
            working_set: WorkingSet::of(owner),
            ..self
        }
    }

    /// What a sandbox has as private pages that is preset with it. Found out when it is asked
    /// for first: most snapshots are no parents.
    ///
    /// # Errors
    /// The system's.
    pub fn prepared(&self) -> Result<&PageSet, Errno> {
        if let Some(known) = self.prepared.get() {
            return Ok(known);
        }
        // Whoever else finds it out meanwhile finds the same.
        let found = prepared(self)?;
        Ok(self.prepared.get_or_init(|| found))
    }
}
