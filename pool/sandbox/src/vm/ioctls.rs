//! KVM's calls: their errors, and the numbers (`linux/kvm.h`) of calls that no library makes, or
//! that the system-call filter allows by number.

use std::os::fd::RawFd;

use kvm_bindings::{
    KVMIO, kvm_debugregs, kvm_ioeventfd, kvm_msrs, kvm_pre_fault_memory, kvm_regs, kvm_signal_mask,
    kvm_sregs, kvm_userspace_memory_region, kvm_xcrs, kvm_xsave,
};
use rustix::io::Errno;
use vmm_sys_util::ioctl::{_IOC_NONE, _IOC_READ, _IOC_WRITE, ioctl_expr};

/// Converts an error of the KVM library to the system's error number.
pub fn errno(error: kvm_ioctls::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

const fn call(number: u32) -> u32 {
    ioctl_expr(_IOC_NONE, KVMIO, number, 0) as u32
}

const fn reads<T>(number: u32) -> u32 {
    ioctl_expr(_IOC_READ, KVMIO, number, size_of::<T>() as u32) as u32
}

const fn writes<T>(number: u32) -> u32 {
    ioctl_expr(_IOC_WRITE, KVMIO, number, size_of::<T>() as u32) as u32
}

const fn reads_and_writes<T>(number: u32) -> u32 {
    ioctl_expr(_IOC_READ | _IOC_WRITE, KVMIO, number, size_of::<T>() as u32) as u32
}

pub const KVM_SET_USER_MEMORY_REGION: u32 = writes::<kvm_userspace_memory_region>(0x46);
pub const KVM_IOEVENTFD: u32 = writes::<kvm_ioeventfd>(0x79);
pub const KVM_RUN: u32 = call(0x80);
pub const KVM_GET_REGS: u32 = reads::<kvm_regs>(0x81);
pub const KVM_SET_REGS: u32 = writes::<kvm_regs>(0x82);
pub const KVM_GET_SREGS: u32 = reads::<kvm_sregs>(0x83);
pub const KVM_SET_SREGS: u32 = writes::<kvm_sregs>(0x84);
pub const KVM_GET_MSRS: u32 = reads_and_writes::<kvm_msrs>(0x88);
pub const KVM_SET_SIGNAL_MASK: u32 = writes::<kvm_signal_mask>(0x8b);
pub const KVM_GET_DEBUGREGS: u32 = reads::<kvm_debugregs>(0xa1);
pub const KVM_GET_XSAVE: u32 = reads::<kvm_xsave>(0xa4);
pub const KVM_SET_XSAVE: u32 = writes::<kvm_xsave>(0xa5);
pub const KVM_GET_XCRS: u32 = reads::<kvm_xcrs>(0xa6);
pub const KVM_SET_XCRS: u32 = writes::<kvm_xcrs>(0xa7);
pub const KVM_GET_STATS_FD: u32 = call(0xce);
pub const KVM_PRE_FAULT_MEMORY: u32 = reads_and_writes::<kvm_pre_fault_memory>(0xd5);

/// Sets the signals that are blocked in `KVM_RUN` of this vCPU; all others are not.
///
/// # Errors
/// Returns the error of `KVM_SET_SIGNAL_MASK`.
pub fn mask_in_run(vcpu: RawFd, blocked: u64) -> Result<(), Errno> {
    /// `struct kvm_signal_mask` with its set.
    #[repr(C, packed)]
    struct SignalMask {
        bytes: u32,
        set: u64,
    }
    let mask = SignalMask {
        bytes: size_of::<u64>() as u32,
        set: blocked,
    };
    // SAFETY: the call reads a length and a set of that length.
    let done = unsafe { libc::ioctl(vcpu, KVM_SET_SIGNAL_MASK as libc::Ioctl, &raw const mask) };
    if done < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(())
}
