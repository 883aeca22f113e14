//! How often KVM had to fix a page fault of a vCPU, from its binary statistics.
//!
//! Layout: `struct kvm_stats_header`, then descriptors of 16 bytes and a name
//! each, then the data (Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD).

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;

use crate::vm::ioctls::KVM_GET_STATS_FD;

/// Faults that ended with a mapping in place.
const FAULTS_FIXED: &[u8] = b"pf_fixed";
const HEADER_BYTES: usize = 24;
const DESCRIPTOR_BYTES: usize = 16;

/// The fault counter of one vCPU.
#[derive(Debug)]
pub struct FaultCounter {
    file: File,
    offset: u64,
}

impl AsRawFd for FaultCounter {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_ne_bytes(*word)).ok()
}

impl FaultCounter {
    /// The counter of the vCPU behind `vcpu`; `None` where this KVM has none.
    pub fn of(vcpu: &impl AsRawFd) -> Option<Self> {
        let vcpu: RawFd = vcpu.as_raw_fd();
        // SAFETY: the call takes no argument and answers with a new descriptor.
        let fd = unsafe { libc::ioctl(vcpu, KVM_GET_STATS_FD as libc::Ioctl, 0) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the descriptor is new and has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).ok()?;
        let (name_bytes, count) = (word(&header, 4)?, word(&header, 8)?);
        let (descriptors, data) = (word(&header, 16)?, word(&header, 20)?);
        let mut descriptor = vec![0; DESCRIPTOR_BYTES + name_bytes];
        for index in 0..count {
            let at = descriptors + index * descriptor.len();
            file.read_exact_at(&mut descriptor, at as u64).ok()?;
            let name = descriptor.get(DESCRIPTOR_BYTES..)?;
            if name
                .strip_prefix(FAULTS_FIXED)
                .is_some_and(|rest| rest.first() == Some(&0))
            {
                let offset = data + word(&descriptor, 8)?;
                return Some(Self {
                    file,
                    offset: offset as u64,
                });
            }
        }
        None
    }

    /// Its value now.
    pub fn read(&self) -> u64 {
        let mut value = [0; 8];
        match self.file.read_exact_at(&mut value, self.offset) {
            Ok(()) => u64::from_ne_bytes(value),
            Err(_) => 0,
        }
    }
}
