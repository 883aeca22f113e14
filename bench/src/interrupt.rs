//! Interrupts (SIGINT, SIGTERM) end a benchmark by an error, so that everything that it started or
//! created is cleaned up as after any other error.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Installs handlers: from now on an interrupt does not end the process, but [`check`] reports it.
pub fn catch() {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler does nothing but store to an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Returns whether an interrupt came.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Returns an error after an interrupt.
pub fn check() -> Result<()> {
    ensure!(!is_interrupted(), "interrupted");
    Ok(())
}
