//! What is round a sandbox, and what all processes here do as they begin: names, descriptors, and
//! the signals of children.
//!
//! [`jail`] is what a sandbox may ask the kernel for and [`outer`] what all of them may,
//! [`priority`] whose turn it is; [`programs`] are what other programs are started from; [`ending`]
//! is how a sandbox ends that has no memory left.

pub mod ending;
pub mod jail;
pub mod outer;
pub mod priority;
pub mod processors;
pub mod programs;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Names this process, for those who look at a list of processes.
pub fn name_process(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: i32) {
    // SAFETY: nothing in this process owns descriptors there that it would use again.
    unsafe {
        libc::close_range(first as libc::c_uint, libc::c_uint::MAX, 0);
    }
}

/// A descriptor that becomes readable when a child has ended.
pub fn child_signal() -> io::Result<OwnedFd> {
    // SAFETY: `set` is a plain bit set that the calls fill in; the descriptor is new.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Takes what such a descriptor has.
pub fn drain_signal(ended: impl AsFd) {
    let mut record = [0; size_of::<libc::signalfd_siginfo>()];
    let fd: BorrowedFd<'_> = ended.as_fd();
    while rustix::io::read(fd, &mut record).is_ok_and(|read| read > 0) {}
}
