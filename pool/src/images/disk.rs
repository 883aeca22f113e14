//! The disk operations that images need, and their implementation. Tests have others, which fail.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use faasw_seedtree::image::{Sink, Source};

use crate::opening::open_file;

/// The status of a directory entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    /// Whether it is a regular file.
    pub is_file: bool,
    pub bytes: u64,
    /// When it was last used, as far as the writers of the folder report it correctly.
    pub used: SystemTime,
    /// The identity that no other file has while this one exists.
    pub identity: (u64, u64),
}

impl From<fs::Metadata> for Status {
    fn from(metadata: fs::Metadata) -> Self {
        Self {
            is_file: metadata.is_file(),
            bytes: metadata.len(),
            used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            identity: (metadata.dev(), metadata.ino()),
        }
    }
}

/// The space on a disk, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskSpace {
    pub free: u64,
    pub all: u64,
}

/// The names in a folder, in no order.
pub(super) type Names = Box<dyn Iterator<Item = io::Result<OsString>>>;

/// An open file.
pub(super) trait DiskFile: Source + Sink + Debug + Send + Sync {
    fn status(&self) -> io::Result<Status>;
    /// Records that the file was used at this time.
    fn note_use(&self, now: SystemTime) -> io::Result<()>;
    /// Waits until the written data survives a power failure.
    fn sync(&self) -> io::Result<()>;
}

/// A disk. Every operation may fail.
pub(super) trait Disk: Debug + Send + Sync {
    /// Opens a regular file for reading; rejects anything else.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a file that only its owner may read. Returns an error if the path exists.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Returns the status of the entry itself, without following a link.
    fn status(&self, path: &Path) -> io::Result<Status>;
    /// Removes a name that is not a folder's.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Atomically renames a file, replacing an existing one.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn names(&self, folder: &Path) -> io::Result<Names>;
    /// Waits until the names in a folder survive a power failure.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Makes a folder that only its owner may read.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    fn space(&self, folder: &Path) -> io::Result<DiskSpace>;
}

/// The disk of the operating system.
#[derive(Debug)]
pub(super) struct SystemDisk;

impl DiskFile for File {
    fn status(&self) -> io::Result<Status> {
        Ok(self.metadata()?.into())
    }

    fn note_use(&self, now: SystemTime) -> io::Result<()> {
        self.set_modified(now)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Disk for SystemDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(open_file(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        Ok(Arc::new(options.open(path)?))
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        Ok(fs::symlink_metadata(path)?.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::rename(from, to) {
            // An empty folder in the way is removed; one with contents stays.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                fs::remove_dir(to)?;
                fs::rename(from, to)
            }
            renamed => renamed,
        }
    }

    fn names(&self, folder: &Path) -> io::Result<Names> {
        let entries = fs::read_dir(folder)?;
        Ok(Box::new(entries.map(|entry| Ok(entry?.file_name()))))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(folder)
    }

    fn space(&self, folder: &Path) -> io::Result<DiskSpace> {
        let metadata = rustix::fs::statvfs(folder)?;
        Ok(DiskSpace {
            free: metadata.f_bavail.saturating_mul(metadata.f_frsize),
            all: metadata.f_blocks.saturating_mul(metadata.f_frsize),
        })
    }
}
