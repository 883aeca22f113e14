//! Ending a guest that does not stop by itself, on a thread of a program.
//!
//! A guest in a loop leaves `KVM_RUN` for nothing but a signal to its thread. The usual
//! way is a handler that does nothing, and it has two faults: handlers belong to the
//! whole program, which may want that signal itself; and a signal that is handled just
//! before `KVM_RUN` is lost. So no handler is installed. [`STOP`] is blocked on the
//! thread throughout, but for the mask that KVM puts in force inside `KVM_RUN` and takes
//! back before it leaves (`KVM_SET_SIGNAL_MASK`; since Linux 4.15 the signal counts as
//! blocked in between, too). A signal that is sent once, at any moment, is never
//! delivered and stays pending: the `KVM_RUN` under way ends with `EINTR`, or the next
//! one at once. The flag that says why was set before; a thread that waits for the node
//! instead finds its socket shut.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::io::Errno;

use crate::vm::Vm;
use crate::vm::ioctls::KVM_SET_SIGNAL_MASK;

/// The signal that a sandbox's thread is called out of `KVM_RUN` with. Linux never sends
/// it, and programs hardly do; and, unlike a real-time signal, it needs no room in a
/// queue.
pub const STOP: libc::c_int = libc::SIGSTKFLT;

/// Signals that are a thread's own doing, which stay as the program has them.
const OWN_DOING: [libc::c_int; 7] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGTRAP,
];

/// Where a signal is in a mask of the kernel's.
pub fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Has the calling thread get none of the program's signals, nor [`STOP`]; answers with
/// its mask.
pub fn block() -> Result<u64, Errno> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sets are written before they are read, each by the call for it.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in OWN_DOING {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        let failed = libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
        if failed != 0 {
            return Err(Errno::from_raw_os_error(failed));
        }
        // As it is: those that the C library keeps for itself were left out.
        let failed = libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr());
        if failed != 0 {
            return Err(Errno::from_raw_os_error(failed));
        }
        let blocked = blocked.assume_init();
        Ok((1..=64)
            .filter(|signal| libc::sigismember(&raw const blocked, *signal) == 1)
            .map(bit)
            .sum())
    }
}

impl Vm {
    /// Has [`Vm::run`] end with `INTR` once `stop` is set and [`STOP`] was sent to the
    /// thread that runs it, whose mask is `blocked`, as [`block`] says.
    ///
    /// # Errors
    /// KVM's.
    pub(crate) fn stop_with(&mut self, stop: Arc<AtomicBool>, blocked: u64) -> Result<(), Errno> {
        mask_in_run(self.vcpu.as_raw_fd(), blocked & !bit(STOP))?;
        self.stop = Some(stop);
        Ok(())
    }
}

/// Has these signals be blocked in `KVM_RUN` of this vCPU, and no others.
///
/// # Errors
/// KVM's.
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
    // SAFETY: the call reads a length and a set that is so long.
    let done = unsafe { libc::ioctl(vcpu, KVM_SET_SIGNAL_MASK as libc::Ioctl, &raw const mask) };
    if done < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(())
}
