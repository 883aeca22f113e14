//! The folder for the admin socket of a node without a data directory, as `up` without `--data-dir`
//! runs it.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use super::exit::Exit;

/// Maximum number of existing folders with this process's id that are skipped. Earlier processes or
/// other users may have left them.
const TRIES: u32 = 100;

/// A private folder, which is removed on drop.
#[derive(Debug)]
pub struct AdminFolder(PathBuf);

impl AdminFolder {
    /// Makes the folder in `$XDG_RUNTIME_DIR`, or in the system's folder for temporary files.
    pub fn new() -> Result<Self, Exit> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let parent = runtime
            .filter(|path| path.is_absolute())
            .unwrap_or_else(std::env::temp_dir);
        Self::below(&parent).map_err(|error| {
            Exit::failure(format_args!(
                "cannot create a folder for the admin socket in {}: {error}",
                parent.display()
            ))
            .hint("choose another place with --data-dir DIR")
        })
    }

    fn below(parent: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        let mut number = 0;
        loop {
            let path = parent.join(format!("faasw-up-{pid}-{number}"));
            // An existing folder is never used, because another user may have made it.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Err(error) if number == TRIES => return Err(error),
                Err(_) => number += 1,
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for AdminFolder {
    fn drop(&mut self) {
        // A remaining folder is harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_folder_is_new_private_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let first = AdminFolder::below(parent.path()).unwrap();
        let second = AdminFolder::below(parent.path()).unwrap();
        assert_ne!(first.path(), second.path());
        let mode = fs::metadata(first.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(first.path().join("socket"), "").unwrap();
        drop((first, second));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
