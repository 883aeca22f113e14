//! Opening regular files for reading, and rejecting anything else in their place: opening a pipe or
//! a device may block forever or have side effects.
//!
//! [`open_file`] and [`open_buffered`] are for folders of the node's own. A [`TrustedFolder`] is
//! filled by the administrator, whom this process trusts, and writable to no other user.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};

/// The user who fills given folders.
const ROOT: u32 = 0;

/// The mode bits that let other users than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// Opening does not block and follows no link.
const CAREFULLY: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);

/// Opens a file for ordinary reads: at any position, and repeatedly.
///
/// # Errors
/// Returns the error of the system, or an error if it is not a regular file.
pub fn open_buffered(path: &Path) -> io::Result<File> {
    let flags = CAREFULLY.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(path);
    checked(opened?).map(|(file, _)| file)
}

/// As [`open_buffered`], for a file that root has written for other users to read, and to which
/// only root may write.
///
/// # Errors
/// Returns the error of the system, or an error if it is not a regular file, does not belong to
/// root, or is writable to other users.
pub fn open_trusted(path: &Path) -> io::Result<File> {
    let file = open_buffered(path)?;
    let known = file.metadata()?;
    is_owners(known.uid(), known.mode(), ROOT)?;
    Ok(file)
}

/// Opens a file to read it past the page cache, if the file system allows that, so that data that
/// the node keeps in memory itself is not there twice.
///
/// # Errors
/// Returns the error of the system, or an error if it is not a regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    let open = |flags: OFlags| {
        let flags = (CAREFULLY | flags).bits().cast_signed();
        File::options().read(true).custom_flags(flags).open(path)
    };
    checked(past_the_cache(open)?).map(|(file, _)| file)
}

/// Opens with `O_DIRECT`, or without it if the file system does not support it.
fn past_the_cache<T>(open: impl Fn(OFlags) -> io::Result<T>) -> io::Result<T> {
    match open(OFlags::DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(OFlags::empty()),
        opened => opened,
    }
}

fn checked(file: File) -> io::Result<(File, Metadata)> {
    let known = file.metadata()?;
    if known.is_file() {
        Ok((file, known))
    } else {
        Err(io::Error::other("it is not a file"))
    }
}

/// A folder that root has filled for other users to read. It stays the folder that was opened, even
/// if its name leads elsewhere later. A file is rejected if another user may have written it, or if
/// a link leads to it.
#[derive(Debug)]
pub struct TrustedFolder {
    folder: OwnedFd,
    owner: u32,
}

impl TrustedFolder {
    /// Opens the folder.
    ///
    /// # Errors
    /// Returns the error of the system, or an error if it is not a folder, does not belong to root,
    /// or is writable to other users.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of(path, ROOT)
    }

    /// Opens a folder of another owner.
    fn of(path: &Path, owner: u32) -> io::Result<Self> {
        Self::opened(CWD, path, owner)
    }

    fn opened(above: impl AsFd, path: &Path, owner: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(above, path, flags, Mode::empty())?;
        let status = rustix::fs::fstat(&folder)?;
        is_owners(status.st_uid, status.st_mode, owner)?;
        Ok(Self { folder, owner })
    }

    /// Opens a folder in it.
    ///
    /// # Errors
    /// Returns the errors of [`TrustedFolder::open`].
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        Self::opened(&self.folder, plain(name)?, self.owner)
    }

    /// Opens a file in it, to be read as by [`open_buffered`].
    ///
    /// # Errors
    /// Returns the error of the system, or an error if it is not a regular file, does not belong to
    /// root, or is writable to other users.
    pub fn open_buffered(&self, name: &str) -> io::Result<File> {
        self.checked(self.with(plain(name)?, OFlags::empty())?)
    }

    /// Opens a file in it, to be read as by [`open_file`].
    ///
    /// # Errors
    /// Returns the error of the system, or an error if it is not a regular file, does not belong to
    /// root, or is writable to other users.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let name = plain(name)?;
        self.checked(past_the_cache(|flags| self.with(name, flags))?)
    }

    fn with(&self, name: &Path, flags: OFlags) -> io::Result<File> {
        let flags = CAREFULLY | OFlags::RDONLY | OFlags::CLOEXEC | flags;
        let opened = rustix::fs::openat(&self.folder, name, flags, Mode::empty())?;
        Ok(opened.into())
    }

    fn checked(&self, file: File) -> io::Result<File> {
        let (file, known) = checked(file)?;
        is_owners(known.uid(), known.mode(), self.owner)?;
        Ok(file)
    }

    /// Returns the status of a directory entry, without following a link.
    ///
    /// # Errors
    /// Returns the error of the system, or `InvalidInput` if the name is not a plain one.
    pub(crate) fn status(&self, name: &str) -> io::Result<Stat> {
        let status = rustix::fs::statat(&self.folder, plain(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(status)
    }
}

/// Returns the name as a path if it leads to nothing outside of the folder.
fn plain(name: &str) -> io::Result<&Path> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        Err(io::ErrorKind::InvalidInput.into())
    } else {
        Ok(Path::new(name))
    }
}

/// Checks that only the owner may write.
fn is_owners(uid: u32, mode: u32, owner: u32) -> io::Result<()> {
    if uid != owner {
        let error = format!("it belongs to user {uid} instead of {owner}");
        return Err(io::Error::other(error));
    }
    match mode & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(io::Error::other(
            "users other than its owner may write there, so it is not used",
        )),
    }
}

/// Returns whether the entry is a regular file.
pub(crate) fn is_file(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use rustix::fs::mknodat;
    use tempfile::TempDir;

    use super::*;

    fn place() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("given");
        fs::create_dir(&path).unwrap();
        fs::create_dir(path.join("below")).unwrap();
        for file in ["file", "below/file"] {
            fs::write(path.join(file), "content").unwrap();
        }
        (folder, path)
    }

    fn given(path: &Path) -> io::Result<TrustedFolder> {
        TrustedFolder::of(path, rustix::process::geteuid().as_raw())
    }

    fn content(file: io::Result<File>) -> String {
        let mut content = String::new();
        file.unwrap().read_to_string(&mut content).unwrap();
        content
    }

    fn put(path: &Path, kind: FileType) {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, path, kind, mode, 0).unwrap();
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (_folder, path) = place();
        assert_eq!(content(open_buffered(&path.join("file"))), "content");
        assert!(open_file(&path.join("file")).is_ok());
        let (pipe, socket, link) = (path.join("pipe"), path.join("socket"), path.join("link"));
        put(&pipe, FileType::Fifo);
        put(&socket, FileType::Socket);
        symlink("file", &link).unwrap();
        for path in [&pipe, &socket, &link, &path, Path::new("/dev/zero")] {
            assert!(
                open_file(path).is_err() && open_buffered(path).is_err(),
                "{path:?}"
            );
        }
        let given = given(&path).unwrap();
        assert_eq!(content(given.open_buffered("file")), "content");
        assert!(given.file("file").is_ok());
        for name in ["pipe", "socket", "link", "below", "gone"] {
            assert!(
                given.file(name).is_err() && given.open_buffered(name).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn no_name_leads_out_of_a_trusted_folder() {
        let (folder, path) = place();
        symlink("given", folder.path().join("link")).unwrap();
        assert!(given(&folder.path().join("link")).is_err());
        symlink("below", path.join("link")).unwrap();
        let given = given(&path).unwrap();
        let below = given.folder("below").unwrap();
        assert_eq!(content(below.open_buffered("file")), "content");
        for name in ["link", "file", "gone", "", ".", "..", "below/..", "/"] {
            assert!(given.folder(name).is_err(), "{name}");
            assert!(given.file(name).is_err() || name == "file", "{name}");
            assert!(given.status(name).is_ok() == ["link", "file"].contains(&name));
        }
        assert!(given.file("below/file").is_err());
    }

    #[test]
    fn files_that_other_users_may_have_written_are_rejected() {
        let (_folder, path) = place();
        let chmod = |name: &str, mode: u32| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(path.join(name), mode).unwrap();
        };
        for mode in [0o777, 0o775, 0o757] {
            chmod("", mode);
            assert!(given(&path).is_err(), "{mode:o}");
        }
        chmod("", 0o755);
        let folder = given(&path).unwrap();
        for mode in [0o664, 0o646, 0o606] {
            chmod("file", mode);
            assert!(folder.file("file").is_err(), "{mode:o}");
        }
        chmod("file", 0o444);
        assert!(folder.file("file").is_ok());
        chmod("below", 0o777);
        assert!(folder.folder("below").is_err());
        let error = TrustedFolder::of(&path, u32::MAX - 2).unwrap_err();
        assert!(error.to_string().contains("belongs to user"), "{error}");
    }

    /// The name may belong to another folder by then.
    #[test]
    fn a_folder_stays_the_one_that_was_opened() {
        let (folder, path) = place();
        let given = given(&path).unwrap();
        fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "another").unwrap();
        assert_eq!(content(given.open_buffered("file")), "content");
        fs::remove_dir_all(folder.path().join("elsewhere")).unwrap();
        let error = given.file("file").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
