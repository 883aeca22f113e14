//! Files with what only their user may know, read while they can be.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use zeroize::Zeroizing;

use super::exit::Exit;

/// What a file has to be for its user alone.
const OTHERS: u32 = 0o077;

/// A file, and what it is called in what is said of it.
#[derive(Clone, Copy, Debug)]
pub struct PrivateFile<'a> {
    /// Such as "the key of images".
    pub what: &'a str,
    pub path: &'a Path,
    /// How to make one.
    pub hint: &'a str,
}

impl PrivateFile<'_> {
    /// What is wrong with it.
    pub fn wrong(&self, why: impl Display) -> Exit {
        let (what, path) = (self.what, self.path.display());
        Exit::failure(format_args!("{what}, {path}, {why}"))
    }

    /// The same where the system says so.
    pub fn failed(&self, error: &io::Error) -> Exit {
        self.wrong(format_args!("cannot be read: {error}"))
            .hint(self.hint)
    }

    /// Reads it: at most `most` bytes and one more, which says that there are too many.
    ///
    /// # Errors
    /// When it is no file, cannot be read, or others can read or write it.
    pub fn read(&self, most: usize) -> Result<Zeroizing<Vec<u8>>, Exit> {
        let failed = |error: io::Error| self.failed(&error);
        // Whoever waits for a pipe waits for ever.
        let mut file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.path)
            .map_err(failed)?;
        let known = file.metadata().map_err(failed)?;
        if !known.is_file() {
            return Err(self.wrong("is no file"));
        }
        if known.mode() & OTHERS != 0 {
            return Err(self
                .wrong("can be read or written by others")
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
