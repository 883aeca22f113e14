//! Layers: guest memory in a file that ends up sealed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use std::num::NonZeroU32;

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{PageRange, PageSet};
use rustix::fs::{Mode, OFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use crate::file::{memory_file, seal};

/// What instances map of a root is widened to this, so that both sides can map it huge.
const UNIT: NonZeroU32 = NonZeroU32::new((LARGE_PAGE / PAGE) as u32).unwrap();

/// Guest memory that is still being written.
#[derive(Debug)]
pub struct LayerBuilder {
    file: OwnedFd,
    bytes: u64,
}

impl LayerBuilder {
    /// `bytes` of zeroed guest memory. Pages exist once they are touched.
    ///
    /// # Errors
    /// The system's, when it has no memory or descriptors.
    pub fn new(name: &str, bytes: u64) -> Result<Self, Errno> {
        let file = memory_file(name)?;
        rustix::fs::ftruncate(&file, bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Self { file, bytes })
    }

    /// Size in bytes, holes included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes `content` at `offset`.
    ///
    /// # Errors
    /// The system's; `FBIG` or the like beyond the end.
    pub fn write(&self, mut offset: u64, mut content: &[u8]) -> Result<(), Errno> {
        while !content.is_empty() {
            let written = rustix::io::pwrite(&self.file, content, offset)?;
            content = content.get(written..).unwrap_or_default();
            offset += written as u64;
        }
        Ok(())
    }

    /// Makes it immutable: a root, whose instances map it wherever it has pages.
    /// Nobody may have it mapped for writing any more: the kernel refuses the seal
    /// otherwise.
    ///
    /// # Errors
    /// `BUSY` while a writable mapping exists; others of the system.
    pub fn freeze(self, most_ranges: usize) -> Result<Layer, Errno> {
        let own = self.data()?.coalesced(UNIT, most_ranges);
        self.freeze_at(own)
    }

    /// Makes it immutable: a child, whose instances map `own` of it.
    ///
    /// # Errors
    /// As [`LayerBuilder::freeze`].
    pub fn freeze_at(self, own: PageSet) -> Result<Layer, Errno> {
        seal(&self.file)?;
        let data = self.data()?;
        Ok(Layer {
            file: reopen_read_only(&self.file)?,
            bytes: self.bytes,
            data_bytes: data.bytes(),
            own,
        })
    }

    /// Where pages exist.
    fn data(&self) -> Result<PageSet, Errno> {
        let mut data = PageSet::new();
        let mut at = 0;
        while at < self.bytes {
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(errno) => return Err(errno),
            };
            let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?;
            data.push(PageRange::around(start, end));
            at = end;
        }
        Ok(data)
    }
}

impl AsFd for LayerBuilder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Frozen guest memory. Its descriptor is read-only and its file write-sealed.
#[derive(Debug)]
pub struct Layer {
    file: OwnedFd,
    bytes: u64,
    data_bytes: u64,
    own: PageSet,
}

impl Layer {
    /// Size in bytes, holes included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the pages that existed when it was frozen.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Bytes of the pages that exist now. Reading a hole where it is mapped fills it, so
    /// these become more as instances read, up to all that they map.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        /// As stat(2) counts, whatever the file's own blocks are.
        const BLOCK: u64 = 512;
        let blocks = rustix::fs::fstat(&self.file).map(|stat| stat.st_blocks);
        let blocks = blocks.ok().and_then(|blocks| u64::try_from(blocks).ok());
        blocks.map_or(self.data_bytes, |blocks| blocks.saturating_mul(BLOCK))
    }

    /// What an instance must map of the layer; elsewhere it is all zeroes.
    #[must_use]
    pub fn own(&self) -> &PageSet {
        &self.own
    }
}

impl AsFd for Layer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The same file through a descriptor that cannot write.
///
/// # Errors
/// The system's.
fn reopen_read_only(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd;
    rustix::fs::open(
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_layer_keeps_what_was_written_and_refuses_more() {
        let builder = LayerBuilder::new("test", 64 << 20).unwrap();
        builder.write(5 << 20, b"here").unwrap();
        builder.write(40 << 20, b"there").unwrap();
        let writer = builder.file.try_clone().unwrap();
        let layer = builder.freeze(16).unwrap();
        assert_eq!(
            layer.own().ranges(),
            [
                PageRange::of_bytes(4 << 20, 6 << 20),
                PageRange::of_bytes(40 << 20, 42 << 20)
            ]
        );
        assert_eq!((layer.data_bytes(), layer.held_bytes()), (8192, 8192));
        let mut read = [0; 4];
        rustix::io::pread(&layer, &mut read, 5 << 20).unwrap();
        assert_eq!(&read, b"here");
        assert_eq!(rustix::io::pwrite(&writer, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(&layer, b"x", 0), Err(Errno::BADF));
        assert!(rustix::fs::ftruncate(&writer, 0).is_err());
    }

    #[test]
    fn an_empty_layer_has_no_pages() {
        let layer = LayerBuilder::new("test", 4 << 20)
            .unwrap()
            .freeze(16)
            .unwrap();
        assert!(layer.own().is_empty());
        assert_eq!(layer.data_bytes(), 0);
    }

    #[test]
    fn nothing_can_be_written_beyond_the_end() {
        let builder = LayerBuilder::new("test", 4096).unwrap();
        assert!(builder.write(4090, b"0123456789").is_err());
    }
}
