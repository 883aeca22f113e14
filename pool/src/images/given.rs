//! Images in a folder that another program fills ([`TrustedFolder`]). They are read, and the folder
//! is never changed. An image that turned out to be unusable is not read again.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use faasw_seedtree::image::{Sink, Source};

use super::disk::{Disk, DiskFile, Names, Room, Status};
use super::{Images, lock};
use crate::opening::{TrustedFolder, is_file};

impl Images {
    /// Opens the images in a given folder, sealed with a secret. No image is written or removed.
    #[must_use]
    pub fn given(folder: Arc<TrustedFolder>, secret: &[u8; Self::SECRET]) -> Self {
        let disk = Given {
            folder,
            refused: Mutex::default(),
        };
        Self {
            is_given: true,
            ..Self::on(Box::new(disk), PathBuf::new(), secret, 0)
        }
    }

    /// Returns whether another program writes the images.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given
    }
}

/// The given folder as a [`Disk`].
#[derive(Debug)]
struct Given {
    folder: Arc<TrustedFolder>,
    /// The names of the files that would have been removed from a folder of the node's own.
    refused: Mutex<HashSet<OsString>>,
}

impl Given {
    /// Returns the file's name, or `NotFound` if the file was refused before.
    fn name<'a>(&self, path: &'a Path) -> io::Result<&'a str> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        if lock(&self.refused).contains(name) {
            Err(io::ErrorKind::NotFound.into())
        } else {
            name.to_str().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }
}

fn not_written<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for Given {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.folder.file(self.name(path)?)?;
        Ok(Arc::new(GivenFile(file)))
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
            lock(&self.refused).insert(name.to_owned());
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

    fn room(&self, _folder: &Path) -> io::Result<Room> {
        Ok(Room { free: 0, all: 0 })
    }
}

#[derive(Debug)]
struct GivenFile(File);

impl Source for GivenFile {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        Source::read_exact_at(&self.0, out, offset)
    }
}

impl Sink for GivenFile {
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        not_written()
    }

    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        not_written()
    }
}

impl DiskFile for GivenFile {
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
