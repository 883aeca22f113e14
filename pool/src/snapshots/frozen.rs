//! Snapshots as the pool has them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use faasw_fri::messages::VcpuState;
use faasw_seedtree::{Owner, Snapshot};
use tokio::sync::oneshot;

use super::pager::Pager;
use crate::stats::SeedInfo;

/// A snapshot of any depth.
pub type Frozen = Snapshot<Box<Beside>>;

/// What belongs to a snapshot beside its memory.
#[derive(Debug)]
pub struct Beside {
    /// The vCPU's, as shells tell it.
    vcpu: VcpuState,
    /// Who brings the rest of the memory, as long as some of it is missing.
    pager: Mutex<Weak<Pager>>,
    /// What guests had to wait for, once it is whole.
    late_pages: AtomicU64,
}

impl Beside {
    /// What belongs to one with a vCPU's state.
    pub fn of(vcpu: &VcpuState) -> Box<Self> {
        Box::new(Self {
            vcpu: *vcpu,
            pager: Mutex::default(),
            late_pages: AtomicU64::new(0),
        })
    }

    /// How often a guest touched a page that had to be read first.
    pub fn late_pages(&self) -> u64 {
        self.late_pages.load(Ordering::Relaxed)
    }

    /// All of it is there, and so often a guest had to wait.
    pub fn is_brought(&self, late_pages: u64) {
        self.late_pages.store(late_pages, Ordering::Relaxed);
    }

    /// The state of its vCPU.
    pub fn vcpu(&self) -> &VcpuState {
        &self.vcpu
    }

    /// This one brings the rest of its memory.
    pub fn is_brought_by(&self, pager: &Arc<Pager>) {
        *self.pager.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(pager);
    }

    /// Who brings the rest of its memory, if somebody does.
    pub fn pager(&self) -> Option<Arc<Pager>> {
        let pager = self.pager.lock().unwrap_or_else(PoisonError::into_inner);
        pager.upgrade()
    }
}

/// Waits until all of a snapshot's own memory is there; says whether it is, or never will be.
pub async fn whole(frozen: &Frozen) -> bool {
    let (teller, told) = oneshot::channel();
    frozen.layer().when_whole(move |is_whole| {
        // Whoever has gone away does not listen.
        let _ = teller.send(is_whole);
    });
    told.await.unwrap_or(false)
}

/// What a snapshot says of itself.
pub fn describe(name: &str, frozen: &Frozen) -> SeedInfo {
    let working_set = frozen.working_set().current();
    SeedInfo {
        name: name.to_owned(),
        level: level(frozen.depth()),
        is_shared: frozen.owner() == Owner::Shared,
        is_in_memory: true,
        is_whole: frozen.layer().is_whole(),
        late_pages: frozen.state().late_pages(),
        layer_bytes: frozen.bytes(),
        windows: frozen.windows().len(),
        changed_pages: frozen.layer().own().count(),
        written_pages: working_set.written.count(),
        read_pages: working_set.read.count(),
        forks: frozen.forks(),
        ..SeedInfo::default()
    }
}

/// A depth as it is told.
fn level(depth: u32) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}
