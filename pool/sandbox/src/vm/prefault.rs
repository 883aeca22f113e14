//! Filling second-level page tables before the guest runs.
//!
//! `KVM_PRE_FAULT_MEMORY` exists where the hardware walks the tables (EPT, NPT). It does not break
//! copy-on-write: pages that are still shared are mapped read-only. So pages that the guest will
//! write must be private before (Spice §3.3.1 keeps pages that are written apart from those that
//! are only read, for the same reason).

use std::os::fd::AsRawFd;

use kvm_bindings::{KVM_CAP_PRE_FAULT_MEMORY, kvm_pre_fault_memory};
use kvm_ioctls::{Kvm, VcpuFd};

use crate::vm::ioctls::KVM_PRE_FAULT_MEMORY;

/// Whether this host has the call.
pub fn is_offered(kvm: &Kvm) -> bool {
    kvm.check_extension_raw(u64::from(KVM_CAP_PRE_FAULT_MEMORY)) > 0
}

/// Fills the tables of `vcpu` for a range of guest-physical space, both ends page-aligned. Stops
/// early if the host cannot continue.
pub fn fill(vcpu: &VcpuFd, start: u64, bytes: u64) {
    let mut order = kvm_pre_fault_memory {
        gpa: start,
        size: bytes,
        ..kvm_pre_fault_memory::default()
    };
    // Each call does a part, and returns the rest in the structure.
    while order.size > 0 {
        let before = order.size;
        // SAFETY: the call reads and writes one structure of this type.
        let done = unsafe {
            libc::ioctl(
                vcpu.as_raw_fd(),
                KVM_PRE_FAULT_MEMORY as libc::Ioctl,
                &raw mut order,
            )
        };
        let interrupted = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if order.size == before && !(done < 0 && interrupted) {
            return;
        }
    }
}
