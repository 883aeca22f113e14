//! The environment of a sandbox, and the first steps of every process here: names, descriptors, and
//! the signals of children.
//!
//! [`jail`] has the system calls that a sandbox may make, and [`outer`] those that all processes
//! may make. [`priority`] sets scheduling priorities, and `processors` the processors that a
//! process may use. [`programs`] holds the programs that the spawner starts. [`exit_on_oom`] ends a
//! sandbox whose heap is used up.

pub mod exit_on_oom;
pub mod jail;
pub mod outer;
pub mod priority;
pub mod processors;
pub mod programs;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Names this process, as lists of processes show it.
pub fn name_process(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: i32) {
    // SAFETY: nothing in this process owns descriptors in that range that it uses again.
    unsafe {
        libc::close_range(first as libc::c_uint, libc::c_uint::MAX, 0);
    }
}

/// Returns a descriptor that becomes readable when a child has ended.
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

/// Reads all pending signals from such a descriptor.
pub fn drain_signal(ended: impl AsFd) {
    let mut record = [0; size_of::<libc::signalfd_siginfo>()];
    let fd: BorrowedFd<'_> = ended.as_fd();
    while rustix::io::read(fd, &mut record).is_ok_and(|read| read > 0) {}
}
