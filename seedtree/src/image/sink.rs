//! Destinations of an image: a file, or in tests a disk that fails.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The operations on an initially empty file that writing an image needs.
pub trait Sink {
    /// Writes `bytes`, or a first part of them, at `offset`, and returns how many were written.
    ///
    /// # Errors
    /// Returns the error of the disk.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Sets the length of the file; added bytes are zeroes.
    ///
    /// # Errors
    /// Returns the error of the disk.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
}

impl Sink for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// Returns the error of the disk, and `WriteZero` if the disk writes nothing without an error.
pub(super) fn write_all_at(
    sink: &(impl Sink + ?Sized),
    mut bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match sink.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
