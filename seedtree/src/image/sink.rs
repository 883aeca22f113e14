//! Where an image is written to: a file, or in tests a disk that fails.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What writing an image takes of a file, which is empty before.
pub trait Sink {
    /// Writes `bytes` at `offset`, or the first of them; says how many.
    ///
    /// # Errors
    /// The disk's.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Has the file end there: what is missing is zeroes.
    ///
    /// # Errors
    /// The disk's.
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
/// The disk's; `WriteZero` where it takes nothing more and does not say why.
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
