//! Reads files of a project, and only those that its owner could read.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

/// The bit of a mode that lets every user read a file.
const OTHERS_READ: u32 = 0o004;

/// Reads files by their real paths.
#[derive(Debug)]
pub struct Reader {
    root: PathBuf,
    /// The owner of the project's folder.
    owner: u32,
}

impl Reader {
    /// Creates a reader for a project's folder, whose path has no links.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            owner: root.metadata()?.uid(),
        })
    }

    /// Reads a file of at most `limit` bytes. `path` has no links. Returns `None` if it is larger.
    ///
    /// The file at the path may be replaced by a link after the path was resolved, so the opened
    /// file must still have that path. A file outside of the project must be readable for the
    /// project's owner, because this process may be root.
    pub fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)?;
        let status = file.metadata()?;
        if !status.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        if opened_path(&file)? != path {
            return Err(io::Error::other("it was replaced by a link meanwhile"));
        }
        let is_readable = status.uid() == self.owner || status.mode() & OTHERS_READ != 0;
        if !path.starts_with(&self.root) && !is_readable {
            return Err(io::Error::other(format!(
                "it is outside of {} and not readable for its owner",
                self.root.display()
            )));
        }
        let mut content = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut content)?;
        Ok((content.len() <= limit).then_some(content))
    }
}

/// Returns the path of an open file.
fn opened_path(file: &File) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
