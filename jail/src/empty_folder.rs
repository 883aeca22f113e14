//! An empty folder without a name, in which nothing can be created: a root for processes without a
//! mount namespace.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::descriptors::dup_to_high_fd;

/// Where the folder is created for a moment: the first of these that is writable. Containers with a
/// read-only root have at least `/dev/shm`.
const PLACES: [&str; 4] = ["/tmp", "/run", "/dev/shm", "/var/tmp"];

/// Creates the folder. Its only name is removed again before it is used.
///
/// # Errors
/// Returns the error of the last place, if none of them is writable.
pub(crate) fn empty_folder() -> Result<OwnedFd, Errno> {
    let mut last = Errno::NOENT;
    for place in PLACES {
        match make_in(place) {
            Ok(folder) => return dup_to_high_fd(folder),
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

fn make_in(place: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let at = rustix::fs::openat(CWD, place, flags, Mode::empty())?;
    let name = format!("faasw-root-{}", rustix::process::getpid().as_raw_nonzero());
    // The users of jails enter it. If the name exists, that is an error.
    rustix::fs::mkdirat(&at, &name, Mode::XUSR | Mode::XGRP | Mode::XOTH)?;
    let folder = rustix::fs::openat(&at, &name, flags | OFlags::PATH, Mode::empty());
    rustix::fs::unlinkat(&at, &name, AtFlags::REMOVEDIR)?;
    let folder = folder?;
    check_is_removed(folder.as_fd())?;
    Ok(folder)
}

/// Checks that the folder was removed: the kernel creates nothing in such a folder.
fn check_is_removed(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    match rustix::fs::mkdirat(folder, "x", Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
        Ok(()) => Err(Errno::EXIST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_empty_and_removed() {
        let folder = empty_folder().unwrap();
        assert_eq!(check_is_removed(folder.as_fd()), Ok(()));
        let flags = OFlags::RDWR | OFlags::CREATE;
        let made = rustix::fs::openat(&folder, "x", flags, Mode::RUSR);
        assert_eq!(made.map(|_| ()), Err(Errno::NOENT));
        let name = format!("faasw-root-{}", std::process::id());
        for place in PLACES {
            assert!(!std::path::Path::new(place).join(&name).exists());
        }
        // The name is free again.
        empty_folder().unwrap();
    }

    #[test]
    fn a_folder_that_still_has_a_name_is_refused() {
        let name = format!("faasw-named-{}", std::process::id());
        let named = std::env::temp_dir().join(name);
        std::fs::create_dir(&named).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::PATH;
        let folder = rustix::fs::open(&named, flags, Mode::empty()).unwrap();
        let checked = check_is_removed(folder.as_fd());
        std::fs::remove_dir_all(&named).unwrap();
        assert_eq!(checked, Err(Errno::EXIST));
    }
}
