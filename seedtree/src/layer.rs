//! Layers: guest memory in a file that ends up sealed.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{PageRange, PageSet};
use rustix::fs::{SealFlags, SeekFrom};
use rustix::io::Errno;

use crate::file::{held_bytes, memory_file, reopen_read_only, seal, write_at};
use crate::reading::LoadProgress;

/// Ranges that instances map of a root are widened to this unit, so that host and guest can use
/// huge pages.
const UNIT: NonZeroU32 = NonZeroU32::new((LARGE_PAGE / PAGE) as u32).unwrap();

/// Guest memory that is still writable.
#[derive(Debug)]
pub struct LayerBuilder {
    file: OwnedFd,
    bytes: u64,
}

impl LayerBuilder {
    /// Makes `bytes` of zeroed guest memory. Pages exist once they are touched.
    ///
    /// # Errors
    /// Returns the system's error, if it has no memory or descriptors left.
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
    /// Returns the error of `pwrite`, for example `FBIG` beyond the end.
    pub fn write(&self, offset: u64, content: &[u8]) -> Result<(), Errno> {
        write_at(&self.file, offset, content)
    }

    /// Makes the memory immutable as a root, whose instances map it wherever it has pages. No
    /// writable mapping of it may exist any more, or the kernel refuses the seal.
    ///
    /// # Errors
    /// Returns `BUSY` while a writable mapping exists, and other errors of the system.
    pub fn freeze(self, most_ranges: usize) -> Result<Layer, Errno> {
        let own = self.data()?.coalesced(UNIT, most_ranges);
        self.freeze_at(own)
    }

    /// Makes the memory immutable as a child, whose instances map `own` of it.
    ///
    /// # Errors
    /// Returns the errors of [`LayerBuilder::freeze`].
    pub fn freeze_at(self, own: PageSet) -> Result<Layer, Errno> {
        self.seal()?;
        let data = self.data()?;
        Ok(Layer {
            file: reopen_read_only(&self.file)?,
            bytes: self.bytes,
            data_bytes: data.bytes(),
            own,
            progress: LoadProgress::complete(),
        })
    }

    /// Returns a layer of which instances map `own`, while it is still being filled. It will have
    /// `data_bytes` in the end. `progress` reports when that is the case.
    ///
    /// # Errors
    /// Returns the error of `open`.
    pub(crate) fn partial_layer(
        &self,
        own: PageSet,
        data_bytes: u64,
        progress: LoadProgress,
    ) -> Result<Layer, Errno> {
        Ok(Layer {
            file: reopen_read_only(&self.file)?,
            bytes: self.bytes,
            data_bytes,
            own,
            progress,
        })
    }

    /// Seals the memory: it cannot be written any more.
    ///
    /// # Errors
    /// Returns `BUSY` while a writable mapping exists, and other errors of the system.
    pub(crate) fn seal(&self) -> Result<(), Errno> {
        seal(&self.file)
    }

    /// Returns the pages that exist.
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

/// Frozen guest memory. Its descriptor is read-only, and its file is sealed once it is fully
/// loaded.
#[derive(Debug)]
pub struct Layer {
    file: OwnedFd,
    bytes: u64,
    data_bytes: u64,
    own: PageSet,
    progress: LoadProgress,
}

impl Layer {
    /// Returns the size in bytes, holes included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of the pages that existed when the layer was frozen.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Returns the bytes of the pages that exist now. Reading a mapped hole fills it, so the value
    /// grows as instances read, up to all that they map.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        held_bytes(&self.file).unwrap_or(self.data_bytes)
    }

    /// Returns whether the layer is fully loaded, and its file sealed. Until then it must not be
    /// read. Instances may only map what is present, or wait for the rest.
    #[must_use]
    pub fn progress(&self) -> &LoadProgress {
        &self.progress
    }

    /// Returns the pages that an instance must map of the layer; all others are zeroes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_layer_keeps_its_contents_and_refuses_writes() {
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
