//! Signals of children.

/// Unblocks all signals in a child.
pub fn unblock_signals() {
    // SAFETY: `set` is a plain bit set that the first call fills in.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}
