//! Images that are sent to another node or received from one. In neither direction is a whole image
//! in memory. An export is read piece by piece as its receiver requests more. An import is written
//! piece by piece into a file beside the images, which has no image's name until it is complete.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use faasw_common::text::Line;
use faasw_fri::messages::VcpuState;
use faasw_seedtree::image::{Image, ImageError, Opening, ParcelError, ParcelPart, Sealing};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::runtime::Handle;
use zerocopy::FromBytes;

use super::disk::DiskFile;
use super::{ImageId, ImageIdentity, ImageKind, Images, SHARE, host, is_next};
use crate::opening::open_buffered;
use crate::snapshots::SeedSnapshot;

/// The build that makes images and the machine that they run on, by digest. Images of another
/// origin are not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageOrigin {
    /// This build of faasw.
    pub build: String,
    /// The processor and system.
    pub machine: String,
}

impl ImageOrigin {
    /// Returns the origin of this build, on this processor and system.
    #[must_use]
    pub fn here() -> Self {
        Self {
            build: host::digest(&host::build()),
            machine: host::digest(&host::machine()),
        }
    }
}

/// Why a function is not exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// There is no image of the function.
    #[error("it has no func-image")]
    NoImage,
    /// The function's image is damaged or cannot be read.
    #[error("its func-image is not used: {0}")]
    Image(#[from] ImageError),
    /// The parcel cannot be sealed.
    #[error(transparent)]
    Parcel(#[from] ParcelError),
}

/// An image that is being received from another node. It takes disk space from the first write.
/// Dropping it removes its file. Inside a Tokio runtime, a blocking thread of the runtime does
/// that. Each of its methods blocks.
#[derive(Debug)]
pub struct ImageImport {
    /// `None` once it has been placed or dropped.
    part: Option<PartialFile>,
}

/// The part that has arrived. On drop, the name is removed first, then the file is closed, which
/// frees its blocks, and then its bytes are released.
#[derive(Debug)]
struct PartialFile {
    images: Arc<Images>,
    path: PathBuf,
    /// `None` once the file has been renamed to its final name.
    file: Option<Arc<dyn DiskFile>>,
    /// The bytes that it takes of the budget: those written and those being written.
    bytes: u64,
}

impl Images {
    /// Returns the origin of these images.
    #[must_use]
    pub fn origin(&self) -> ImageOrigin {
        ImageOrigin::here()
    }

    /// Seals a note and two parts in one file that nodes with the same key can open.
    ///
    /// # Errors
    /// Returns an error if the contents are too large, or if the system has no randomness.
    pub fn seal(&self, note: &[u8], parts: [ParcelPart; 2]) -> Result<Sealing, ParcelError> {
        Sealing::new(&self.key, note, parts)
    }

    /// Seals a module and the image of a function version, with a note on them, in one file that
    /// nodes with the same key can open. `module` holds the module's size in bytes and its reader.
    /// The whole image is read once to verify it, and again when it is sent.
    ///
    /// # Errors
    /// Returns [`ExportError::NoImage`] if there is no image, [`ExportError::Image`] if it is
    /// damaged or cannot be read, and [`ExportError::Parcel`] if it cannot be sealed.
    pub fn export(
        &self,
        id: &ImageId,
        note: &[u8],
        module: (u64, Box<dyn Read + Send + Sync>),
    ) -> Result<Sealing, ExportError> {
        let path = self.path(&ImageKind::Function(*id));
        let file = match open_buffered(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ExportError::NoImage);
            }
            Err(error) => return Err(ImageError::from(error).into()),
        };
        let bytes = file.metadata().map_err(ImageError::from)?.len();
        // A damaged image must not be passed on.
        let sound = file.try_clone().map_err(ImageError::from)?;
        Image::open(sound, &self.key)?.verify()?;
        Ok(Sealing::new(
            &self.key,
            note,
            [module, (bytes, Box::new(file))],
        )?)
    }

    /// Begins to open a file that [`Images::export`] or [`Images::seal`] has made, from its first
    /// [`Opening::BEGIN`] bytes.
    ///
    /// # Errors
    /// Returns an error if these bytes do not begin such a file.
    pub fn open_export(&self, begin: &[u8]) -> Result<Opening, ParcelError> {
        Opening::new(&self.key, begin)
    }

    /// Creates a file for an image of `bytes` bytes from another node, if there is room for it.
    ///
    /// # Errors
    /// Returns `StorageFull` if there is no room, or the error of the disk.
    pub fn receive(self: &Arc<Self>, bytes: u64) -> Result<ImageImport, ImageError> {
        let _writing = self.writing.lock();
        self.tidy_up()?;
        if bytes > self.budget / SHARE || !self.has_room_for(bytes)? {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        let number = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let mut name = self.unfinished.as_os_str().to_owned();
        name.push(format!("-{number}"));
        let path = PathBuf::from(name);
        let file = self.disk.create(&path)?;
        let part = PartialFile {
            images: self.clone(),
            path,
            file: Some(file),
            bytes: 0,
        };
        Ok(ImageImport { part: Some(part) })
    }

    /// Returns whether the name is that of a file that is being received now.
    pub(super) fn is_being_received(&self, name: &str) -> bool {
        let own = self.unfinished.file_name().and_then(|own| own.to_str());
        let rest = own.and_then(|own| name.strip_prefix(own));
        rest.is_some_and(|rest| rest.starts_with('-'))
    }

    /// Checks that there is a valid image for this seed over this parent. Reads all of the image,
    /// and makes nothing of it.
    ///
    /// # Errors
    /// Returns the reason why the image cannot be used.
    pub(crate) fn check(
        &self,
        of: &ImageIdentity,
        parent: &Arc<SeedSnapshot>,
    ) -> Result<(), ImageError> {
        let image = Image::open(self.disk.open(&self.path(&of.kind))?, &self.key)?;
        if image.purpose() != self.purpose(of) {
            return Err(ImageError::Purpose);
        }
        if image.parent().is_none() || image.parent() != parent.content() {
            return Err(ImageError::Parent);
        }
        let state = VcpuState::read_from_bytes(image.state());
        if !state.is_ok_and(|state| is_next(parent.state().vcpu(), &state)) {
            return Err(ImageError::Senseless("its vCPU state is invalid"));
        }
        image.verify()
    }
}

impl ImageImport {
    /// Writes the next piece. If there is no room for it, other images are evicted.
    ///
    /// # Errors
    /// Returns `StorageFull` if there is no room, or the error of the disk. In both cases there is
    /// no image.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), ImageError> {
        self.part.as_mut().map_or(Ok(()), |part| part.write(piece))
    }

    /// Atomically makes the file the image of this version. Its contents are checked when it is
    /// read.
    ///
    /// # Errors
    /// Returns the error of the disk.
    pub fn place(mut self, id: &ImageId) -> Result<(), ImageError> {
        self.part.take().map_or(Ok(()), |part| part.place(id))
    }
}

impl Drop for ImageImport {
    fn drop(&mut self) {
        // Removing a large file takes time.
        if let Some(part) = self.part.take()
            && let Ok(runtime) = Handle::try_current()
        {
            // A runtime that has ended drops the closure at once.
            runtime.spawn_blocking(move || drop(part));
        }
    }
}

impl PartialFile {
    fn write(&mut self, mut piece: &[u8]) -> Result<(), ImageError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let (mut at, bytes) = (self.bytes, piece.len() as u64);
        // The bytes count before they are written.
        self.images.account.lock().reserve(bytes);
        self.bytes = at.saturating_add(bytes);
        if !self.images.make_room_within(bytes)? {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        while !piece.is_empty() {
            let written = match file.write_at(piece, at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                written => written?,
            };
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            at += written as u64;
            piece = piece.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    fn place(mut self, id: &ImageId) -> Result<(), ImageError> {
        if let Some(file) = &self.file {
            file.sync()?;
        }
        let images = self.images.clone();
        let name = images.file_name_of(id);
        {
            let mut gone = images.gone.lock();
            gone.remove(id);
            images
                .disk
                .replace(&self.path, &images.folder.join(&name))?;
            self.file = None;
            let mut account = images.account.lock();
            let bytes = std::mem::take(&mut self.bytes);
            account.release(bytes);
            account.note(&name, bytes);
        }
        // The image is there; after a power failure it may be missing.
        if let Err(error) = images.disk.sync_folder(&images.folder) {
            let error = Line(&error);
            tracing::warn!(%error, "a func-image may not outlive a power failure");
        }
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else {
            return;
        };
        if let Err(error) = self.images.disk.remove(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            // The file is removed at the next start.
            let error = Line(&error);
            tracing::warn!(%error, "an incomplete func-image cannot be removed");
        }
        drop(file);
        self.images.account.lock().release(self.bytes);
    }
}
