//! Interrupts (SIGINT, SIGTERM) end a benchmark by an error, so that whatever it
//! started and made is cleaned up on the same way as after any other.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};

static CAME: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    CAME.store(true, Ordering::Relaxed);
}

/// From here on an interrupt does not end the process but is told by [`check`].
pub fn catch() {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler does nothing but store to an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Whether an interrupt came.
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// Errors after an interrupt.
pub fn check() -> Result<()> {
    ensure!(!came(), "interrupted");
    Ok(())
}
