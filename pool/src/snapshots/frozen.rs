//! Snapshots as the pool has them.

use faasw_fri::messages::VcpuState;
use faasw_seedtree::{Owner, Snapshot};

use crate::stats::SeedInfo;

/// A snapshot of any depth, with a vCPU's state as shells tell it.
pub type Frozen = Snapshot<Box<VcpuState>>;

/// What a snapshot says of itself.
pub fn describe(name: &str, frozen: &Frozen) -> SeedInfo {
    let working_set = frozen.working_set().current();
    SeedInfo {
        name: name.to_owned(),
        level: level(frozen.depth()),
        is_shared: frozen.owner() == Owner::Shared,
        is_in_memory: true,
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
