//! Layers: guest memory in a file that ends up sealed.

use std::fmt;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{PageRange, PageSet};
use rustix::fs::{SealFlags, SeekFrom};
use rustix::io::Errno;

use crate::file::{memory_file, reopen_read_only, seal};

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
        self.seal()?;
        let data = self.data()?;
        Ok(Layer {
            file: reopen_read_only(&self.file)?,
            bytes: self.bytes,
            data_bytes: data.bytes(),
            own,
            backing: Backing::Memory,
        })
    }

    /// A layer of which instances map `own`, while it is still being filled: `data_bytes` of it,
    /// in the end. How far that is `progress` is told.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn lend(
        &self,
        own: PageSet,
        data_bytes: u64,
        progress: Arc<Progress>,
    ) -> Result<Layer, Errno> {
        Ok(Layer {
            file: reopen_read_only(&self.file)?,
            bytes: self.bytes,
            data_bytes,
            own,
            backing: Backing::Image(progress),
        })
    }

    /// Nobody writes to it any more.
    ///
    /// # Errors
    /// As [`LayerBuilder::freeze`].
    pub(crate) fn seal(&self) -> Result<(), Errno> {
        seal(&self.file)
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

/// What a layer's pages come from.
#[derive(Debug)]
enum Backing {
    /// All of them are in memory, and sealed.
    Memory,
    /// Some come from an image yet.
    Image(Arc<Progress>),
}

/// How far the filling of a layer is.
#[derive(Default)]
pub(crate) struct Progress {
    /// Whether the layer is whole, once that is known: asked by each request.
    is_whole: OnceLock<bool>,
    /// Whoever is told of it.
    told: Mutex<Vec<Told>>,
}

type Told = Box<dyn FnOnce(bool) + Send>;

impl Progress {
    /// The layer is whole, or will never be. Only the first word counts.
    pub fn end(&self, is_whole: bool) {
        let told = {
            let mut told = self.told();
            if self.is_whole.set(is_whole).is_err() {
                return;
            }
            std::mem::take(&mut *told)
        };
        told.into_iter().for_each(|told| told(is_whole));
    }

    /// Whether the layer is whole; nothing as long as it is filled.
    fn outcome(&self) -> Option<bool> {
        self.is_whole.get().copied()
    }

    fn tell(&self, told: Told) {
        let mut all = self.told();
        match self.outcome() {
            None => all.push(told),
            Some(is_whole) => {
                drop(all);
                told(is_whole);
            }
        }
    }

    fn told(&self) -> MutexGuard<'_, Vec<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Progress").field(&self.outcome()).finish()
    }
}

/// Frozen guest memory. Its descriptor is read-only and its file write-sealed, once all of it is
/// there.
#[derive(Debug)]
pub struct Layer {
    file: OwnedFd,
    bytes: u64,
    data_bytes: u64,
    own: PageSet,
    backing: Backing,
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

    /// Whether all of its pages are there, and its file is sealed. Until then nobody reads it, and
    /// instances may only map what is there, or wait for what is not.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match &self.backing {
            Backing::Memory => true,
            Backing::Image(progress) => progress.outcome() == Some(true),
        }
    }

    /// Whether some of its pages will never be there: nothing is to be forked from it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match &self.backing {
            Backing::Memory => false,
            Backing::Image(progress) => progress.outcome() == Some(false),
        }
    }

    /// Has `told` called, now or later, when all of its pages are there; with `false` when they
    /// will never be.
    pub fn when_whole(&self, told: impl FnOnce(bool) + Send + 'static) {
        match &self.backing {
            Backing::Memory => told(true),
            Backing::Image(progress) => progress.tell(Box::new(told)),
        }
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
