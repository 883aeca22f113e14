//! A folder that the program packs. Its files are listed and read without following links out of
//! it.
//!
//! A user who may write to the folder can replace a file, or a folder on the way to it, by a link
//! after the program has listed it and before the program opens it. The program may run as root and
//! would pack a file that this user cannot read. So it opens every file beneath the descriptor of
//! the folder without following links, and takes type, size and content from the descriptor that it
//! has opened.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// An open folder.
pub struct SourceFolder<'a> {
    root: OwnedFd,
    path: PathBuf,
    lookup: Lookup,
    /// Called with a path before it is opened. Tests use it to change the folder.
    before_open: &'a dyn Fn(&str),
}

/// An entry of a folder, as it was when the folder was listed.
pub struct Entry {
    pub name: String,
    pub kind: FileType,
    pub bytes: u64,
}

/// The way in which paths beneath the folder are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookup {
    /// With `openat2` (Linux 5.6), which rejects links anywhere in the path.
    Kernel,
    /// Component by component, each without following a link. For kernels without `openat2`, and
    /// for system-call filters without it, as `up --watch` and older container engines have.
    Components,
}

/// Flags for opening any path: do not wait for a pipe, do not acquire a terminal, do not follow a
/// link.
const OPEN_FLAGS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

const FOLDER_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

impl SourceFolder<'static> {
    /// Opens the folder. The path itself may be a link, because the caller chose it.
    ///
    /// # Errors
    /// Returns the system's error if the path cannot be opened or is not a folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(path, FOLDER_FLAGS | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            lookup: Lookup::of_system(&root)?,
            root,
            path: path.to_owned(),
            before_open: &|_| (),
        })
    }
}

#[cfg(test)]
impl<'a> SourceFolder<'a> {
    /// Returns the folder with a hook that is called before each opening.
    pub fn with_open_hook(self, before_open: &'a dyn Fn(&str)) -> Self {
        Self {
            before_open,
            ..self
        }
    }

    /// Returns the folder as on a system without `openat2`.
    pub fn without_openat2(self) -> Self {
        Self {
            lookup: Lookup::Components,
            ..self
        }
    }
}

impl SourceFolder<'_> {
    /// Returns the path by which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lists the folder at `within`, or this folder if `within` is empty.
    ///
    /// # Errors
    /// Returns an error if the folder no longer exists, or a name is not UTF-8.
    pub fn entries(&self, within: &str) -> io::Result<Vec<Entry>> {
        let folder = match within {
            "" => rustix::fs::openat(&self.root, ".", FOLDER_FLAGS | OPEN_FLAGS, Mode::empty())?,
            _ => self.open_beneath(within, FOLDER_FLAGS)?,
        };
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(name) = name.to_str() else {
                let path = self.path.join(within).join(name.to_string_lossy().as_ref());
                return Err(io::Error::other(format!("{path:?} is not UTF-8")));
            };
            let status = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            entries.push(Entry {
                name: name.to_owned(),
                kind: FileType::from_raw_mode(status.st_mode),
                bytes: u64::try_from(status.st_size).unwrap_or(0),
            });
        }
        Ok(entries)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if the path no longer leads to a regular file without passing a link, or if
    /// the file has more than `most` bytes.
    pub fn read(&self, within: &str, most: u64) -> io::Result<Vec<u8>> {
        let file = self.open_beneath(within, OFlags::RDONLY)?;
        let status = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(changed_during_read());
        }
        let mut content = Vec::new();
        // Reading one byte more detects a file that is too large.
        File::from(file)
            .take(most.saturating_add(1))
            .read_to_end(&mut content)?;
        if content.len() as u64 > most {
            return Err(io::Error::other(format!("it has more than {most} bytes")));
        }
        Ok(content)
    }

    /// Reads the target of a link without following it.
    ///
    /// # Errors
    /// Returns an error if the path no longer leads to a link without passing another link.
    pub fn read_link(&self, within: &str) -> io::Result<Vec<u8>> {
        let (folder, name) = within.rsplit_once('/').unwrap_or((".", within));
        let folder = match folder {
            "." => self.root.try_clone()?,
            _ => self.open_beneath(folder, OFlags::PATH | OFlags::DIRECTORY)?,
        };
        (self.before_open)(within);
        let target = rustix::fs::readlinkat(&folder, name, Vec::new()).map_err(to_io_error)?;
        Ok(target.into_bytes())
    }

    /// Opens a relative path beneath the folder.
    fn open_beneath(&self, within: &str, flags: OFlags) -> io::Result<OwnedFd> {
        (self.before_open)(within);
        let flags = flags | OPEN_FLAGS;
        let opened = match self.lookup {
            Lookup::Kernel => open_by_kernel(&self.root, within, flags),
            Lookup::Components => open_by_components(&self.root, within, flags),
        };
        opened.map_err(to_io_error)
    }
}

impl Lookup {
    /// Returns the way that the kernel and this process's system-call filter allow.
    fn of_system(root: &OwnedFd) -> io::Result<Self> {
        match open_by_kernel(root, ".", FOLDER_FLAGS | OPEN_FLAGS) {
            Ok(_) => Ok(Self::Kernel),
            // The kernel lacks the call, or a filter of an older container engine rejects it.
            Err(Errno::NOSYS | Errno::PERM) => Ok(Self::Components),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn open_by_kernel(root: &OwnedFd, within: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, within, flags, Mode::empty(), resolve)
}

fn open_by_components(root: &OwnedFd, within: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let open = |folder: BorrowedFd<'_>, name: &str, flags| match name {
        // A path beneath a folder has no part that leads up or stays in place.
        "" | "." | ".." => Err(Errno::XDEV),
        _ => rustix::fs::openat(folder, name, flags, Mode::empty()),
    };
    let (folders, name) = match within.rsplit_once('/') {
        Some((folders, name)) => (Some(folders), name),
        None => (None, within),
    };
    let mut folder: Option<OwnedFd> = None;
    for part in folders.iter().flat_map(|folders| folders.split('/')) {
        let above = folder.as_ref().map_or(root.as_fd(), OwnedFd::as_fd);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OPEN_FLAGS;
        folder = Some(open(above, part, flags)?);
    }
    let above = folder.as_ref().map_or(root.as_fd(), OwnedFd::as_fd);
    open(above, name, flags)
}

/// Converts an error number. Those that a change of the folder causes get an explanation.
fn to_io_error(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::INVAL | Errno::XDEV | Errno::NXIO => {
            changed_during_read()
        }
        errno => errno.into(),
    }
}

fn changed_during_read() -> io::Error {
    io::Error::other(
        "it was replaced by a link or another kind of file while the folder was read; pack a \
         folder that nobody changes meanwhile",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        cell::Cell,
        fs,
        os::unix::{fs::symlink, net::UnixListener},
    };

    /// Makes a folder with a file in a subfolder, and a secret beside it.
    fn temporary_source() -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        let at = |path: &str| temp.path().join(path);
        fs::create_dir_all(at("packed/lib")).unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("packed/lib/a"), "harmless").unwrap();
        fs::write(at("elsewhere/a"), "secret").unwrap();
        temp
    }

    /// Opens the folder once for each way of opening paths.
    fn by_each_lookup(path: &Path) -> [SourceFolder<'static>; 2] {
        let open = || SourceFolder::open(path).unwrap();
        [open(), open().without_openat2()]
    }

    #[test]
    fn files_and_folders_are_read() {
        let temp = temporary_source();
        symlink("lib/a", temp.path().join("packed/link")).unwrap();
        for source in by_each_lookup(&temp.path().join("packed")) {
            assert_eq!(source.read("lib/a", 8).unwrap(), b"harmless");
            assert!(source.read("lib/a", 7).is_err());
            assert_eq!(source.read_link("link").unwrap(), b"lib/a");
            let mut names: Vec<_> = source.entries("").unwrap();
            names.sort_by(|one, other| one.name.cmp(&other.name));
            let names: Vec<_> = names.iter().map(|entry| entry.name.as_str()).collect();
            assert_eq!(names, ["lib", "link"]);
            assert_eq!(source.entries("lib").unwrap()[0].bytes, 8);
        }
    }

    #[test]
    fn a_link_that_appears_before_the_opening_is_not_followed() {
        // A file, or a folder on the way to one, becomes a link: an absolute one, or one that stays
        // within the folder.
        for (replaced, target) in [
            ("packed/lib/a", "../../elsewhere/a"),
            ("packed/lib", "../elsewhere"),
            ("packed/lib/a", "ABSOLUTE/elsewhere/a"),
            ("packed/lib", "ABSOLUTE/elsewhere"),
            ("packed/lib", "other"),
        ] {
            for index in 0..2 {
                let temp = temporary_source();
                let target = target.replace("ABSOLUTE", temp.path().to_str().unwrap());
                fs::create_dir(temp.path().join("packed/other")).unwrap();
                fs::write(temp.path().join("packed/other/a"), "other").unwrap();
                let replaced = temp.path().join(replaced);
                let is_replaced = Cell::new(false);
                let replace = |_: &str| {
                    if !is_replaced.replace(true) {
                        fs::rename(&replaced, temp.path().join("aside")).unwrap();
                        symlink(&target, &replaced).unwrap();
                    }
                };
                let [by_kernel, by_components] = by_each_lookup(&temp.path().join("packed"));
                let source = [by_kernel, by_components].into_iter().nth(index).unwrap();
                let source = source.with_open_hook(&replace);
                let error = source.read("lib/a", 100).unwrap_err().to_string();
                assert!(is_replaced.get(), "{target}");
                assert!(
                    error.contains("was replaced by a link"),
                    "{target}: {error}"
                );
            }
        }
    }

    #[test]
    fn a_folder_that_becomes_a_link_is_not_listed() {
        for index in 0..2 {
            let temp = temporary_source();
            let lib = temp.path().join("packed/lib");
            let replace = |_: &str| {
                fs::rename(&lib, temp.path().join("aside")).unwrap();
                symlink("../elsewhere", &lib).unwrap();
            };
            let [by_kernel, by_components] = by_each_lookup(&temp.path().join("packed"));
            let source = [by_kernel, by_components].into_iter().nth(index).unwrap();
            let source = source.with_open_hook(&replace);
            let Err(error) = source.entries("lib") else {
                panic!("a link is listed");
            };
            assert!(
                error.to_string().contains("was replaced by a link"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_that_became_a_pipe_or_folder_is_not_read() {
        let temp = temporary_source();
        let at = |path: &str| temp.path().join(path);
        let _socket = UnixListener::bind(at("packed/socket")).unwrap();
        let pipe = at("packed/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for source in by_each_lookup(&at("packed")) {
            for path in ["socket", "pipe", "lib"] {
                let error = source.read(path, 100).unwrap_err().to_string();
                assert!(error.contains("was replaced"), "{path}: {error}");
            }
            assert!(source.read_link("lib/a").is_err());
            // Nor is what is beside the folder.
            for path in ["../elsewhere/a", "lib/../../elsewhere/a", "/etc/hostname"] {
                assert!(source.read(path, 100).is_err(), "{path}");
            }
        }
    }
}
