//! The image that a sandbox becomes: memory, and the state to start from.

use faasw_abi::pages::Ranges;
use faasw_seedtree::Windows;
use faasw_seedtree::limits::{SET_MAX, WINDOWS_MAX};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A vCPU's state, as the bytes of KVM's own structures. The node does not parse it: the state
/// comes from a sandbox and goes to sandboxes of the same function.
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
    /// The windows through which the layers are mapped; all other memory is fresh and zero.
    pub windows: Windows<WINDOWS_MAX>,
    /// Pages to make private before the guest runs, because it will write them.
    pub write_set: Ranges<SET_MAX>,
    /// Pages to map before the guest runs, because it will read them.
    pub read_set: Ranges<SET_MAX>,
    /// State to start from.
    pub state: VcpuState,
}

impl Image {
    /// Returns an image of fresh zeroed memory, without layers or sets.
    #[must_use]
    pub fn empty(ram_bytes: u64, state: &VcpuState) -> Self {
        Self {
            ram_bytes,
            windows: Windows::default(),
            write_set: Ranges::default(),
            read_set: Ranges::default(),
            state: *state,
        }
    }
}
