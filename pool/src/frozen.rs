//! A seed as the pool keeps it: frozen memory and state, what its instances use
//! of it, and how often it was forked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use faasw_fri::messages::VcpuState;
use faasw_seedtree::{Seed, Window};
use rustix::io::Errno;

use crate::difference::Difference;
use crate::working_set::WorkingSet;

/// A seed of any level.
#[derive(Debug)]
pub struct Frozen {
    /// Memory and state.
    pub seed: Arc<Seed<Box<VcpuState>>>,
    /// Where instances map which layer.
    pub windows: Vec<Window>,
    /// Where it differs from its parent.
    pub difference: Difference,
    /// What instances use.
    pub working_set: WorkingSet,
    forks: AtomicU64,
}

impl Frozen {
    /// Takes a seed up.
    ///
    /// # Errors
    /// The system's.
    pub fn new(seed: Seed<Box<VcpuState>>) -> Result<Self, Errno> {
        Ok(Self {
            windows: seed.windows(),
            difference: Difference::of(&seed)?,
            seed: Arc::new(seed),
            working_set: WorkingSet::default(),
            forks: AtomicU64::new(0),
        })
    }

    /// Bytes that a new instance has as its own, before it has run, at most.
    pub fn bytes_of_new(&self) -> u64 {
        let working_set = self.working_set.current();
        self.difference.private_bytes(&working_set.written)
    }

    /// Size of the pages of its own layer, in bytes.
    pub fn bytes(&self) -> u64 {
        self.seed.layer.data_bytes()
    }

    /// It was forked once more.
    pub fn count_fork(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was forked.
    pub fn forks(&self) -> u64 {
        self.forks.load(Ordering::Relaxed)
    }
}
