//! Where the shim is installed, and where the programs are that it becomes.
//!
//! ```text
//! VERSION/
//!   bin/containerd-shim-faasw-v1
//!   path/runc -> ../bin/containerd-shim-faasw-v1     first in the PATH of runc's shim
//!   root/                                            what the node's containers have for a root
//!     bin/faasw, lib…, and what is mounted upon
//! state -> /var/lib/faasw-pods                       beside the versions, where their pods share anything
//! ```
//!
//! A shim belongs to its folder, whatever link it was called by: when another version is installed,
//! pods that run go on with theirs.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use crate::error::Error;

/// The folder of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation(PathBuf);

impl Installation {
    /// The one that this program is in.
    ///
    /// # Errors
    /// When it is not installed as it has to be.
    pub fn own() -> Result<Self, Error> {
        let program =
            env::current_exe().map_err(|error| Error::io("where this program is", error))?;
        let folder = program.parent().and_then(Path::parent);
        let own = Self(folder.unwrap_or(Path::new("/")).to_owned());
        for needed in [own.node(), own.path().join("runc")] {
            if !is_program(&needed) {
                return Err(Error::Host(format!(
                    "there is no program {}: the installation is not whole",
                    needed.display()
                )));
            }
        }
        Ok(own)
    }

    /// The root of the node's containers.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// This program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.0.join("bin/containerd-shim-faasw-v1")
    }

    /// The folder in which this program is called `runc`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.join("path")
    }

    /// The version, as the folder is called.
    #[must_use]
    pub fn version(&self) -> String {
        let name = self.0.file_name().unwrap_or(OsStr::new(""));
        name.to_string_lossy().into_owned()
    }

    /// The folder of what is kept for pods, of whatever version; nothing where nothing is, or
    /// somebody else than root can write to it.
    #[must_use]
    pub fn state(&self) -> Option<PathBuf> {
        let state = fs::canonicalize(self.0.parent()?.join("state")).ok()?;
        let found = fs::symlink_metadata(&state).ok()?;
        let is_ours = found.uid() == 0 && found.mode() & 0o022 == 0;
        (is_ours && state.join("shared").is_dir()).then_some(state)
    }

    /// Whether a folder is the root of a version beside this one, or of this one.
    #[must_use]
    pub fn is_root_of_a_version(&self, root: &Path) -> bool {
        let version = root.parent().filter(|_| root.ends_with("root"));
        version.and_then(Path::parent) == self.0.parent() && self.0.parent().is_some()
    }

    fn node(&self) -> PathBuf {
        self.root().join("bin/faasw")
    }

    /// Where programs are looked for, this one as `runc` first.
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

/// A program of others, in one folder or one of a `PATH`: never this program, whatever it is called
/// there.
///
/// # Errors
/// When there is none.
pub fn find(name: &str, first: Option<&Path>, path: &OsStr) -> Result<PathBuf, Error> {
    let own = fs::metadata("/proc/self/exe").map(|own| (own.dev(), own.ino()));
    let folders = first.map(Path::to_owned).into_iter();
    // What is relative depends on where one stands, which is a folder of a container.
    let folders = folders
        .chain(env::split_paths(path))
        .filter(|folder| folder.is_absolute());
    for folder in folders {
        let program = folder.join(name);
        let is_own = match (&own, fs::metadata(&program)) {
            (Ok(own), Ok(other)) => *own == (other.dev(), other.ino()),
            _ => false,
        };
        // Another version of this one is one, too.
        if !is_own && is_program(&program) && !is_of_an_installation(&program) {
            return Ok(program);
        }
    }
    Err(Error::Host(format!(
        "there is no {name}, neither beside containerd nor in its PATH"
    )))
}

/// Whether it is a `runc` of this or another version.
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
    fn neither_this_program_nor_another_version_of_it_is_the_real_runc() {
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
    fn its_own_folder_is_the_first() {
        let installation = Installation("/opt/faasw/1".into());
        let before = |path: &str| installation.path_before(OsStr::new(path));
        assert_eq!(before("/bin"), "/opt/faasw/1/path:/bin");
        assert_eq!(before(""), "/opt/faasw/1/path");
        assert_eq!(installation.version(), "1");
    }
}
