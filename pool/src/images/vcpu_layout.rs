//! The layout of a vCPU's state in an image: KVM's own structures, one after the other.

use std::mem::offset_of;

use faasw_fri::messages::VcpuState;
use kvm_bindings::{kvm_regs, kvm_sregs, kvm_xcrs, kvm_xsave};

/// The position of CR2 in `struct kvm_sregs`; the CPU writes the address of page faults there.
pub(super) const CR2: std::ops::Range<usize> = 232..240;

/// Stops the build if the layout of the state in an image would change.
macro_rules! pinned {
    ($($is:expr => $was:expr),* $(,)?) => {
        $(const _: () = assert!(
            $is == $was,
            concat!(
                stringify!($is),
                " is not what it is in func-images: raise FORMAT in \
                 seedtree/src/image/header/mod.rs, and pin what it is now"
            )
        );)*
    };
}

pinned! {
    size_of::<VcpuState>() => 4944,
    offset_of!(VcpuState, regs) => 0,
    offset_of!(VcpuState, sregs) => 144,
    offset_of!(VcpuState, xcrs) => 456,
    offset_of!(VcpuState, xsave) => 848,
    size_of::<kvm_regs>() => 144,
    size_of::<kvm_sregs>() => 312,
    size_of::<kvm_xcrs>() => 392,
    size_of::<kvm_xsave>() => 4096,
    offset_of!(kvm_sregs, cr2) => CR2.start,
    CR2.end - CR2.start => size_of::<u64>(),
}
