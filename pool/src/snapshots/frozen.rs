//! Snapshots as the pool has them.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use faasw_fri::messages::VcpuState;
use faasw_seedtree::graph::Beside;
use faasw_seedtree::{Owner, Snapshot};

use super::code::{Code, KeptCode};
use crate::stats::SeedInfo;

/// A snapshot of any depth, with a vCPU's state as shells tell it, and the code that its
/// instances run.
pub type Frozen = Snapshot<State>;

/// What goes with a snapshot's memory.
#[derive(Debug)]
pub struct State {
    vcpu: Box<VcpuState>,
    /// Nothing where no function's code has run.
    code: OnceLock<Held>,
}

/// Code that is in memory for a snapshot.
#[derive(Debug)]
struct Held {
    code: Arc<Code>,
    /// Where the snapshot's being there or not decides whether it is in memory.
    counted: Option<Arc<KeptCode>>,
}

impl State {
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
}

impl From<Box<VcpuState>> for State {
    fn from(vcpu: Box<VcpuState>) -> Self {
        Self {
            vcpu,
            code: OnceLock::new(),
        }
    }
}

impl Deref for State {
    type Target = VcpuState;

    fn deref(&self) -> &VcpuState {
        &self.vcpu
    }
}

impl Beside for State {
    fn bytes(&self) -> u64 {
        let held = self.code.get();
        held.filter(|held| held.counted.as_ref().is_some_and(|kept| kept.may_leave()))
            .map_or(0, |held| held.code.held_bytes())
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
        layer_bytes: frozen.bytes(),
        code_bytes: frozen.state().bytes(),
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
