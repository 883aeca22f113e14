//! Snapshots as the pool has them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use faasw_fri::messages::VcpuState;
use faasw_seedtree::graph::Beside;
use faasw_seedtree::{Owner, Snapshot};
use tokio::sync::oneshot;

use super::code::{Code, KeptCode};
use super::pager::Pager;
use crate::stats::SeedInfo;

/// A snapshot of any depth, with a vCPU's state as sandboxes tell it, and the code that its
/// instances run.
pub type Frozen = Snapshot<State>;

/// What belongs to a snapshot beside its memory.
#[derive(Debug)]
pub struct State {
    /// The vCPU's, as sandboxes tell it.
    vcpu: Box<VcpuState>,
    /// Nothing where no function's code has run.
    code: OnceLock<Held>,
    /// Who brings the rest of memory and code, as long as some of it is missing.
    pager: Mutex<Weak<Pager>>,
    /// What guests had to wait for, once it is whole.
    late_pages: AtomicU64,
}

/// Code that is in memory for a snapshot.
#[derive(Debug)]
struct Held {
    code: Arc<Code>,
    /// Where the snapshot's being there or not decides whether it is in memory.
    counted: Option<Arc<KeptCode>>,
}

impl State {
    /// The state of its vCPU.
    pub fn vcpu(&self) -> &VcpuState {
        &self.vcpu
    }

    /// From now on this code is in memory for as long as the snapshot is. It counts for it,
    /// once it may leave memory, unless it is there for an ancestor that counts it.
    pub fn hold(&self, code: Arc<Code>, counted: Option<Arc<KeptCode>>) {
        // It is the same that another may have set.
        let _ = self.code.set(Held { code, counted });
    }

    /// The code that its instances run.
    pub fn code(&self) -> Option<&Arc<Code>> {
        self.code.get().map(|held| &held.code)
    }

    /// How often a guest touched a page that had to be read first.
    pub fn late_pages(&self) -> u64 {
        self.late_pages.load(Ordering::Relaxed)
    }

    /// All of it is there, and so often a guest had to wait.
    pub fn is_brought(&self, late_pages: u64) {
        self.late_pages.store(late_pages, Ordering::Relaxed);
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

impl From<Box<VcpuState>> for State {
    fn from(vcpu: Box<VcpuState>) -> Self {
        Self {
            vcpu,
            code: OnceLock::new(),
            pager: Mutex::default(),
            late_pages: AtomicU64::new(0),
        }
    }
}

impl Beside for State {
    fn bytes(&self) -> u64 {
        let held = self.code.get();
        held.filter(|held| held.counted.as_ref().is_some_and(|kept| kept.may_leave()))
            .map_or(0, |held| held.code.held_bytes())
    }
}

/// A snapshot and what it descends from, itself first.
fn line(frozen: &Frozen) -> impl Iterator<Item = &Frozen> {
    std::iter::successors(Some(frozen), |frozen| {
        frozen.parent().map(|parent| &**parent)
    })
}

/// Whether all of a snapshot's memory is there, its ancestors' with it, and of its code. Until then
/// its instances may only have what is there, or wait for what is not.
pub fn is_whole(frozen: &Frozen) -> bool {
    let code = frozen.state().code();
    line(frozen).all(|frozen| frozen.layer().is_whole()) && code.is_none_or(|code| code.is_whole())
}

/// Whether some of that will never be there: nothing is to be forked from it.
pub fn has_failed(frozen: &Frozen) -> bool {
    line(frozen).any(|frozen| {
        let code = frozen.state().code();
        frozen.layer().has_failed() || code.is_some_and(|code| code.has_failed())
    })
}

/// Waits until all of it is there; says whether it is, or never will be.
pub async fn whole(frozen: &Frozen) -> bool {
    for frozen in line(frozen) {
        let (teller, told) = oneshot::channel();
        frozen.layer().when_whole(move |is_whole| {
            // Whoever has gone away does not listen.
            let _ = teller.send(is_whole);
        });
        if !told.await.unwrap_or(false) {
            return false;
        }
    }
    match frozen.state().code() {
        Some(code) => code.whole().await,
        None => true,
    }
}

/// What a snapshot says of itself.
pub fn describe(name: &str, frozen: &Frozen) -> SeedInfo {
    let working_set = frozen.working_set().current();
    SeedInfo {
        name: name.to_owned(),
        level: level(frozen.depth()),
        is_shared: frozen.owner() == Owner::Shared,
        is_in_memory: true,
        is_whole: is_whole(frozen),
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

/// A depth as it is told.
fn level(depth: u32) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}
