//! For tests alone: another program in the spawner's place, and pagers that wait.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static SPAWNER: Mutex<Option<(PathBuf, String)>> = Mutex::new(None);

static ARE_PAGERS_HELD: AtomicBool = AtomicBool::new(false);

/// Holds all pagers for as long as it exists: they bring what guests wait for and nothing else. So
/// it does not depend on who is faster which pages a guest has to wait for.
#[derive(Debug)]
pub struct HeldPagers(());

impl HeldPagers {
    /// Holds them from now on.
    #[must_use]
    pub fn new() -> Self {
        ARE_PAGERS_HELD.store(true, Ordering::Relaxed);
        Self(())
    }
}

impl Default for HeldPagers {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for HeldPagers {
    fn drop(&mut self) {
        ARE_PAGERS_HELD.store(false, Ordering::Relaxed);
    }
}

/// Whether pagers are held.
pub(crate) fn are_pagers_held() -> bool {
    ARE_PAGERS_HELD.load(Ordering::Relaxed)
}

/// Has every spawner from now on be this program, started with this argument.
pub fn use_spawner(program: PathBuf, argument: String) {
    *SPAWNER.lock().unwrap_or_else(PoisonError::into_inner) = Some((program, argument));
}

/// The program that is to be started, and its argument.
///
/// # Errors
/// When it cannot be opened.
pub fn spawner() -> io::Result<Option<(OwnedFd, String)>> {
    let spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    match &*spawner {
        Some((path, argument)) => Ok(Some((File::open(path)?.into(), argument.clone()))),
        None => Ok(None),
    }
}
