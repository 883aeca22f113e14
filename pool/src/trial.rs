//! For tests alone: another program in the spawner's place.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

static SPAWNER: Mutex<Option<(PathBuf, String)>> = Mutex::new(None);

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
