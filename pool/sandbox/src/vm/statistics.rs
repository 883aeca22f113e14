//! Numbers of page faults: KVM's for a vCPU, from its binary statistics, and the kernel's for the
//! thread that runs it.
//!
//! The layout of KVM's statistics: `struct kvm_stats_header`, then descriptors of 16 bytes and a
//! name each, then the data (Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD).

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::vm::ioctls::KVM_GET_STATS_FD;

/// The counter of faults that ended with a mapping in place.
const FAULTS_FIXED: &[u8] = b"pf_fixed";
const HEADER_BYTES: usize = 24;
const DESCRIPTOR_BYTES: usize = 16;

/// The page faults so far. If the counts have not changed, there was no new fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultCount {
    /// Faults of the calling thread, including those that KVM took on its behalf.
    thread: u64,
    /// Faults of the vCPU.
    vcpu: u64,
}

impl FaultCount {
    /// Returns the faults of the calling thread together with `vcpu`, the faults of the vCPU that
    /// it runs.
    ///
    /// # Errors
    /// Returns the error of `getrusage`.
    pub fn with(vcpu: u64) -> Result<Self, Errno> {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: the call fills in the structure, or fails.
        let usage = unsafe {
            if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) < 0 {
                let error = std::io::Error::last_os_error();
                return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
            usage.assume_init()
        };
        // Neither count ever falls, so a rise of one shows in the sum.
        let [minor, major] = [usage.ru_minflt, usage.ru_majflt].map(i64::cast_unsigned);
        Ok(Self {
            thread: minor.wrapping_add(major),
            vcpu,
        })
    }
}

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
    /// Returns the counter of the vCPU with the descriptor `vcpu`; `None` if this KVM has none.
    pub fn of(vcpu: &impl AsRawFd) -> Option<Self> {
        let vcpu: RawFd = vcpu.as_raw_fd();
        // SAFETY: the call takes no argument and returns a new descriptor.
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

    /// Returns the current value, if it can be read.
    pub fn read(&self) -> Option<u64> {
        let mut value = [0; 8];
        let read = self.file.read_exact_at(&mut value, self.offset);
        read.ok().map(|()| u64::from_ne_bytes(value))
    }
}
