//! The sources that images are read from.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::error::ImageError;

/// A source that an image is read from.
pub trait Source: fmt::Debug + Send + Sync {
    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the source ends too early, and the errors of the disk.
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, out, offset)
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(out, offset)
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(out, offset)
    }
}

/// Fills `out` from an offset on. Reads whole pages if both ends are page-aligned.
pub(super) fn read(source: &impl Source, out: &mut [u8], offset: u64) -> Result<(), ImageError> {
    match source.read_exact_at(out, offset) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ImageError::CutOff),
        read => Ok(read?),
    }
}
