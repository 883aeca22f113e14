//! The folder in which the shim is installed, and the search for the programs that it executes.
//!
//! ```text
//! VERSION/
//!   bin/containerd-shim-faasw-v1
//!   path/runc -> ../bin/containerd-shim-faasw-v1     first in the PATH of runc's shim
//!   root/                                            the root file system of the node's containers
//!     bin/faasw, lib…, and the mount points
//! state -> /var/lib/faasw-pods                       beside the versions; what their pods share
//! ```
//!
//! A shim belongs to the folder of its real path, whatever link was used to call it. When another
//! version is installed, running pods keep their own version.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use crate::error::Error;

/// The folder of an installed version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation(PathBuf);

impl Installation {
    /// Returns the installation that contains this program.
    ///
    /// # Errors
    /// Returns [`Error::Host`] if the node's program or the `runc` link is missing, and
    /// [`Error::Io`] if the path of this program is unknown.
    pub fn own() -> Result<Self, Error> {
        let program =
            env::current_exe().map_err(|error| Error::io("where this program is", error))?;
        let folder = program.parent().and_then(Path::parent);
        let own = Self(folder.unwrap_or(Path::new("/")).to_owned());
        for needed in [own.node(), own.path().join("runc")] {
            if !is_program(&needed) {
                return Err(Error::Host(format!(
                    "the installation is incomplete: there is no program {}",
                    needed.display()
                )));
            }
        }
        Ok(own)
    }

    /// Returns the root folder of the node's containers.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// Returns the path of this program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.0.join("bin/containerd-shim-faasw-v1")
    }

    /// Returns the folder in which this program has the name `runc`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.join("path")
    }

    /// Returns the version, which is the folder's name.
    #[must_use]
    pub fn version(&self) -> String {
        let name = self.0.file_name().unwrap_or(OsStr::new(""));
        name.to_string_lossy().into_owned()
    }

    /// Returns the folder of the state that pods of all versions share. Returns `None` if it does
    /// not exist or a user other than root can write to it.
    #[must_use]
    pub fn state(&self) -> Option<PathBuf> {
        let state = fs::canonicalize(self.0.parent()?.join("state")).ok()?;
        let found = fs::symlink_metadata(&state).ok()?;
        let is_ours = found.uid() == 0 && found.mode() & 0o022 == 0;
        (is_ours && state.join("shared").is_dir()).then_some(state)
    }

    /// Returns whether a folder is the root of this version or of one installed beside it.
    #[must_use]
    pub fn is_root_of_a_version(&self, root: &Path) -> bool {
        let version = root.parent().filter(|_| root.ends_with("root"));
        version.and_then(Path::parent) == self.0.parent() && self.0.parent().is_some()
    }

    fn node(&self) -> PathBuf {
        self.root().join("bin/faasw")
    }

    /// Returns a search path with [`path`](Self::path) before the given one.
    #[must_use]
    pub fn path_before(&self, path: &OsStr) -> OsString {
        let mut all = self.path().into_os_string();
        if !path.is_empty() {
            all.push(":");
            all.push(path);
        }
        all
    }
}

/// Finds an external program in a first folder or in the folders of a `PATH`. Never returns this
/// program, under whatever name.
///
/// # Errors
/// Returns [`Error::Host`] if there is no such program.
pub fn find(name: &str, first: Option<&Path>, path: &OsStr) -> Result<PathBuf, Error> {
    let own = fs::metadata("/proc/self/exe").map(|own| (own.dev(), own.ino()));
    let folders = first.map(Path::to_owned).into_iter();
    // A relative folder depends on the working directory, which is a container's folder.
    let folders = folders
        .chain(env::split_paths(path))
        .filter(|folder| folder.is_absolute());
    for folder in folders {
        let program = folder.join(name);
        let is_own = match (&own, fs::metadata(&program)) {
            (Ok(own), Ok(other)) => *own == (other.dev(), other.ino()),
            _ => false,
        };
        // The `runc` of another version is skipped as well.
        if !is_own && is_program(&program) && !is_of_an_installation(&program) {
            return Ok(program);
        }
    }
    Err(Error::Host(format!(
        "there is no {name}, neither beside containerd nor in its PATH"
    )))
}

/// Returns whether a program is the `runc` link of this or another version.
fn is_of_an_installation(program: &Path) -> bool {
    let Ok(program) = fs::canonicalize(program) else {
        return false;
    };
    program.file_name() == Some(OsStr::new("containerd-shim-faasw-v1"))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn no_version_of_the_shim_is_taken_for_runc() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        program(&at("old/bin/containerd-shim-faasw-v1"));
        program(&at("real/runc"));
        fs::create_dir_all(at("old/path")).unwrap();
        fs::create_dir_all(at("own")).unwrap();
        fs::create_dir_all(at("folder/runc")).unwrap();
        symlink("../bin/containerd-shim-faasw-v1", at("old/path/runc")).unwrap();
        symlink(env::current_exe().unwrap(), at("own/runc")).unwrap();
        let mut path = OsString::from("relative");
        for part in ["own", "old/path", "folder", "nowhere", "real"] {
            path.push(":");
            path.push(at(part));
        }
        assert_eq!(find("runc", None, &path).unwrap(), at("real/runc"));
        let none = find("runc", Some(&at("own")), OsStr::new("")).unwrap_err();
        assert!(none.to_string().contains("no runc"), "{none}");
    }

    #[test]
    fn the_own_folder_is_searched_first() {
        let installation = Installation("/opt/faasw/1".into());
        let before = |path: &str| installation.path_before(OsStr::new(path));
        assert_eq!(before("/bin"), "/opt/faasw/1/path:/bin");
        assert_eq!(before(""), "/opt/faasw/1/path");
        assert_eq!(installation.version(), "1");
    }
}
