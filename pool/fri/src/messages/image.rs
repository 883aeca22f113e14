//! What a shell becomes: memory, and the state to start from.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most windows that the layers of an instance can have: those of the root, and
/// for each extent of a descendant itself and the part of a window behind it.
pub const WINDOWS_MAX: usize = ROOT_MAX + 2 * (LAYERS_MAX - 1) * OWN_MAX;

/// Most extents of a root.
pub const ROOT_MAX: usize = 8;

/// Most layers of an instance: one a level.
pub const LAYERS_MAX: usize = 3;

/// Most extents that a new seed can have of its own.
pub const OWN_MAX: usize = 12;

/// Most stretches of a read or write set.
pub const SET_MAX: usize = 256;

/// Most pages of a read or write set: what a request uses beyond that is its own
/// doing, and is not to cost every other one.
pub const SET_PAGES_MAX: u64 = 4096;

/// A stretch of guest-physical RAM, in bytes; `end` is exclusive.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FriExtent {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// A stretch of guest-physical RAM and the layer that it is mapped from.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FriWindow {
    /// The stretch.
    pub extent: FriExtent,
    /// The layer's place in the chain, the root being 0.
    pub layer: u64,
}

/// A vCPU's state, as the bytes of KVM's own structures. The node keeps it
/// unread: it comes from a shell and goes to shells of the same function.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VcpuState {
    /// `struct kvm_regs`.
    pub regs: [u8; 144],
    /// `struct kvm_sregs`.
    pub sregs: [u8; 312],
    /// `struct kvm_xcrs`.
    pub xcrs: [u8; 392],
    /// `struct kvm_xsave`, without AVX-512 and later state, which guests do not have.
    pub xsave: [u8; 4096],
}

impl std::fmt::Debug for VcpuState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VcpuState")
    }
}

/// A seed: layers, what instances use of them, and the state to start from.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Image {
    /// RAM of the guest, in bytes.
    pub ram_bytes: u64,
    /// How many of `windows` count.
    pub window_count: u64,
    /// Where the layers are mapped; everything else is fresh zeroed memory.
    pub windows: [FriWindow; WINDOWS_MAX],
    /// How many of `write_set` count.
    pub write_set_count: u64,
    /// Pages to make private before the guest runs, because it will write them.
    pub write_set: [FriExtent; SET_MAX],
    /// How many of `read_set` count.
    pub read_set_count: u64,
    /// Pages to map before the guest runs, because it will read them.
    pub read_set: [FriExtent; SET_MAX],
    /// State to start from.
    pub state: VcpuState,
}

impl Image {
    /// Fresh zeroed memory, without layers or sets.
    #[must_use]
    pub fn empty(ram_bytes: u64, state: &VcpuState) -> Self {
        Self {
            ram_bytes,
            window_count: 0,
            windows: [FriWindow::default(); WINDOWS_MAX],
            write_set_count: 0,
            write_set: [FriExtent::default(); SET_MAX],
            read_set_count: 0,
            read_set: [FriExtent::default(); SET_MAX],
            state: *state,
        }
    }
}
