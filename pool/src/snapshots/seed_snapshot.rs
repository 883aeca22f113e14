//! Snapshots with the pool's data.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use faasw_common::Lock;
use faasw_fri::messages::VcpuState;
use faasw_seedtree::graph::CompanionState;
use faasw_seedtree::reading::LoadProgress;
use faasw_seedtree::{Owner, Snapshot};

use super::code::{Code, CodeHandle};
use super::loading::wait_loaded;
use super::pager::Pager;
use crate::stats::SeedInfo;

/// A snapshot of any depth, with the state of a vCPU as sandboxes report it, and the code that its
/// instances run.
pub type SeedSnapshot = Snapshot<SnapshotState>;

/// The data of a snapshot beside its memory.
#[derive(Debug)]
pub struct SnapshotState {
    /// The state of the vCPU, as sandboxes report it.
    vcpu: Box<VcpuState>,
    /// Unset if no function's code has run.
    code: OnceLock<HeldCode>,
    /// The pager that reads the rest of memory and code, as long as some of it is missing.
    pager: Lock<Weak<Pager>>,
    /// How often guests had to wait for a page, once the snapshot is complete.
    late_pages: AtomicU64,
}

/// Code that is in memory for a snapshot.
#[derive(Debug)]
struct HeldCode {
    code: Arc<Code>,
    /// The code that counts with this snapshot, if the snapshot decides whether it is in memory.
    counted: Option<Arc<CodeHandle>>,
}

impl SnapshotState {
    /// Returns the state of its vCPU.
    pub fn vcpu(&self) -> &VcpuState {
        &self.vcpu
    }

    /// Keeps this code in memory as long as the snapshot. With `counted`, it counts with the
    /// snapshot once it may leave memory; without, an ancestor counts it.
    pub fn hold(&self, code: Arc<Code>, counted: Option<Arc<CodeHandle>>) {
        // A concurrent caller sets the same code.
        let _ = self.code.set(HeldCode { code, counted });
    }

    /// Returns the code that its instances run.
    pub fn code(&self) -> Option<&Arc<Code>> {
        self.code.get().map(|held| &held.code)
    }

    /// Returns how often a guest touched a page that had to be read first.
    pub fn late_pages(&self) -> u64 {
        self.late_pages.load(Ordering::Relaxed)
    }

    /// Records that all of it is present, and how often guests had to wait.
    pub fn record_fully_loaded(&self, late_pages: u64) {
        self.late_pages.store(late_pages, Ordering::Relaxed);
    }

    /// Sets the pager that reads the rest of its memory.
    pub fn set_pager(&self, pager: &Arc<Pager>) {
        *self.pager.lock() = Arc::downgrade(pager);
    }

    /// Returns the pager that reads the rest of its memory, if there is one.
    pub fn pager(&self) -> Option<Arc<Pager>> {
        let pager = self.pager.lock();
        pager.upgrade()
    }
}

impl From<Box<VcpuState>> for SnapshotState {
    fn from(vcpu: Box<VcpuState>) -> Self {
        Self {
            vcpu,
            code: OnceLock::new(),
            pager: Lock::default(),
            late_pages: AtomicU64::new(0),
        }
    }
}

impl CompanionState for SnapshotState {
    fn bytes(&self) -> u64 {
        let code = self.code.get();
        code.filter(|code| {
            code.counted
                .as_ref()
                .is_some_and(|kept| kept.can_be_evicted())
        })
        .map_or(0, |code| code.code.held_bytes())
    }
}

/// Iterates over a snapshot and its ancestors, itself first.
fn lineage(frozen: &SeedSnapshot) -> impl Iterator<Item = &SeedSnapshot> {
    std::iter::successors(Some(frozen), |frozen| {
        frozen.parent().map(|parent| &**parent)
    })
}

/// Iterates over the progress of the memory of a snapshot and its ancestors, and of its code.
fn progress(frozen: &SeedSnapshot) -> impl Iterator<Item = &LoadProgress> {
    let memory = lineage(frozen).map(|frozen| frozen.layer().progress());
    memory.chain(frozen.state().code().map(|code| code.progress()))
}

/// Returns whether all memory of a snapshot and its ancestors is present, and its code. Until then,
/// its instances may only use what is present, or have to wait for the rest.
pub fn is_fully_loaded(frozen: &SeedSnapshot) -> bool {
    progress(frozen).all(LoadProgress::is_fully_loaded)
}

/// Returns whether some of that will never be present: nothing may be forked from it.
pub fn has_failed(frozen: &SeedSnapshot) -> bool {
    lineage(frozen).any(|frozen| {
        let code = frozen.state().code();
        let code_has_failed = code.is_some_and(|code| code.progress().has_failed());
        frozen.layer().progress().has_failed() || code_has_failed
    })
}

/// Waits until all of it is present. Returns false if it never will be.
pub async fn wait_fully_loaded(frozen: &SeedSnapshot) -> bool {
    for progress in progress(frozen) {
        if !wait_loaded(progress).await {
            return false;
        }
    }
    true
}

/// Returns the description of a snapshot for reports.
pub fn describe(name: &str, frozen: &SeedSnapshot) -> SeedInfo {
    let working_set = frozen.working_set().current();
    SeedInfo {
        name: name.to_owned(),
        level: level(frozen.depth()),
        is_shared: frozen.owner() == Owner::Shared,
        is_in_memory: true,
        is_whole: is_fully_loaded(frozen),
        late_pages: frozen.state().late_pages(),
        layer_bytes: frozen.bytes(),
        code_bytes: frozen.state().bytes(),
        windows: frozen.windows().len(),
        changed_pages: frozen.layer().own().count(),
        written_pages: working_set.written.count(),
        read_pages: working_set.read.count(),
        code_pages: working_set.code.count(),
        forks: frozen.forks(),
        ..SeedInfo::default()
    }
}

/// Converts a depth to the type of reports.
fn level(depth: u32) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}
