//! Images in a folder that another program fills ([`TrustedFolder`]). They are read, and the folder
//! is never changed. An image that turned out to be unusable is not read again.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use faasw_common::Lock;
use faasw_seedtree::image::{Sink, Source};

use super::Images;
use super::disk::{Disk, DiskFile, DiskSpace, Names, Status};
use crate::opening::{TrustedFolder, is_file};

impl Images {
    /// Opens the images in a given folder, sealed with a secret. No image is written or removed.
    #[must_use]
    pub fn read_only(folder: Arc<TrustedFolder>, secret: &[u8; Self::SECRET]) -> Self {
        let disk = ReadOnlyDisk {
            folder,
            rejected: Lock::default(),
        };
        Self {
            is_read_only: true,
            ..Self::on(Box::new(disk), PathBuf::new(), secret, 0)
        }
    }

    /// Returns whether another program writes the images.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}

/// The given folder as a [`Disk`].
#[derive(Debug)]
struct ReadOnlyDisk {
    folder: Arc<TrustedFolder>,
    /// The names of the files that would have been removed from a folder of the node's own.
    rejected: Lock<HashSet<OsString>>,
}

impl ReadOnlyDisk {
    /// Returns the file's name, or `NotFound` if the file was refused before.
    fn name<'a>(&self, path: &'a Path) -> io::Result<&'a str> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        if self.rejected.lock().contains(name) {
            Err(io::ErrorKind::NotFound.into())
        } else {
            name.to_str().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }
}

fn not_written<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for ReadOnlyDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.folder.file(self.name(path)?)?;
        Ok(Arc::new(ReadOnlyFile(file)))
    }

    fn create(&self, _path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        not_written()
    }

    fn status(&self, path: &Path) -> io::Result<Status> {
        let status = self.folder.status(self.name(path)?)?;
        let since = Duration::from_secs(u64::try_from(status.st_mtime).unwrap_or(0));
        Ok(Status {
            is_file: is_file(&status),
            bytes: u64::try_from(status.st_size).unwrap_or(0),
            used: SystemTime::UNIX_EPOCH + since,
            identity: (status.st_dev, status.st_ino),
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if let Some(name) = path.file_name() {
            self.rejected.lock().insert(name.to_owned());
        }
        Ok(())
    }

    fn replace(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        not_written()
    }

    fn names(&self, _folder: &Path) -> io::Result<Names> {
        Ok(Box::new(std::iter::empty()))
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        not_written()
    }

    fn make_folder(&self, _folder: &Path) -> io::Result<()> {
        not_written()
    }

    fn space(&self, _folder: &Path) -> io::Result<DiskSpace> {
        Ok(DiskSpace { free: 0, all: 0 })
    }
}

#[derive(Debug)]
struct ReadOnlyFile(File);

impl Source for ReadOnlyFile {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        Source::read_exact_at(&self.0, out, offset)
    }
}

impl Sink for ReadOnlyFile {
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        not_written()
    }

    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        not_written()
    }
}

impl DiskFile for ReadOnlyFile {
    fn status(&self) -> io::Result<Status> {
        DiskFile::status(&self.0)
    }

    /// The use is not recorded, because the owner of the folder does not need it.
    fn note_use(&self, _now: SystemTime) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        not_written()
    }
}
