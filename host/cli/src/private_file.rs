//! Private files, read before the node gives up the right to read them.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use zeroize::Zeroizing;

use super::exit::Exit;

/// The permissions that a private file must not grant.
const OTHERS: u32 = 0o077;

/// A file, and its name for messages.
#[derive(Clone, Copy, Debug)]
pub struct PrivateFile<'a> {
    /// The name, for example "the key of images".
    pub what: &'a str,
    pub path: &'a Path,
    /// How to create such a file.
    pub hint: &'a str,
}

impl PrivateFile<'_> {
    /// Returns the failure that something is wrong with the file.
    pub fn wrong(&self, why: impl Display) -> Exit {
        let (what, path) = (self.what, self.path.display());
        Exit::failure(format_args!("{what}, {path}, {why}"))
    }

    /// Returns the failure that the file cannot be read.
    pub fn failed(&self, error: &io::Error) -> Exit {
        self.wrong(format_args!("cannot be read: {error}"))
            .hint(self.hint)
    }

    /// Reads at most `most` bytes and one more, which reveals a file that is too large.
    ///
    /// # Errors
    /// Returns an error if the file is not a regular file, cannot be read, or grants permissions to
    /// other users.
    pub fn read(&self, most: usize) -> Result<Zeroizing<Vec<u8>>, Exit> {
        let failed = |error: io::Error| self.failed(&error);
        // Without this flag, opening a pipe could wait for ever.
        let mut file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.path)
            .map_err(failed)?;
        let known = file.metadata().map_err(failed)?;
        if !known.is_file() {
            return Err(self.wrong("is not a file"));
        }
        if known.mode() & OTHERS != 0 {
            return Err(self
                .wrong("is accessible to other users")
                .hint(format_args!("chmod 600 {}", self.path.display())));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(most.saturating_add(1)));
        (&mut file)
            .take(most as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        Ok(bytes)
    }
}
