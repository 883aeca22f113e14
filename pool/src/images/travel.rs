//! Images that go to another node, and come from one. Neither way one of them is in memory: it
//! goes piece by piece as whoever takes it asks for more, and comes piece by piece into a file
//! beside the images, which has no name of one before it is whole.

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
use super::{ImageId, ImageOf, Images, SHARE, What, host, is_next, lock};
use crate::opening::open_to_look;
use crate::snapshots::Frozen;

/// What makes images and what they run on, by digest: those of another origin are not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// This build of faasw.
    pub build: String,
    /// Processor and system.
    pub machine: String,
}

impl Origin {
    /// Of this build, on this processor and system.
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
    /// There is no image of it.
    #[error("there is no image of it")]
    NoImage,
    /// Its image is damaged, or cannot be read.
    #[error("its image is not used: {0}")]
    Image(#[from] ImageError),
    /// It cannot be sealed.
    #[error(transparent)]
    Parcel(#[from] ParcelError),
}

/// An image that comes from another node, as far as it is there. It takes room on the disk from
/// when it is written; dropping it leaves nothing behind, and where there is a runtime that is done
/// by a thread of it that may wait for the disk. Each of its calls blocks.
#[derive(Debug)]
pub struct Arriving {
    /// Until it is placed or dropped.
    part: Option<Part>,
}

/// What there is of it. Its name goes, then the file, which gives its blocks back, and then it
/// counts no more.
#[derive(Debug)]
struct Part {
    name: Unfinished,
    file: Arc<dyn DiskFile>,
    taken: Taken,
}

/// The name of a file that is no image yet.
#[derive(Debug)]
struct Unfinished {
    images: Arc<Images>,
    path: PathBuf,
    /// Whether the file has a name of its own by now.
    is_placed: bool,
}

/// What it takes of the budget: what it has, and what is being written.
#[derive(Debug)]
struct Taken {
    images: Arc<Images>,
    bytes: u64,
}

impl Images {
    /// What its images are made by, and on.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin::here()
    }

    /// A note and two parts in one file that whoever has the same key can open.
    ///
    /// # Errors
    /// When it is too large; when the system has no randomness.
    pub fn seal(&self, note: &[u8], parts: [ParcelPart; 2]) -> Result<Sealing, ParcelError> {
        Sealing::new(&self.key, note, parts)
    }

    /// A module, which has so many bytes, and the image of a function version, with a note on them,
    /// in one sealed file that nodes with the same key can open. All of the image is read, to see
    /// that it is sound, and once more when it is sent.
    ///
    /// # Errors
    /// When there is no image, or it is damaged; the disk's.
    pub fn export(
        &self,
        id: &ImageId,
        note: &[u8],
        module: (u64, Box<dyn Read + Send + Sync>),
    ) -> Result<Sealing, ExportError> {
        let path = self.path(&What::Function(*id));
        let file = match open_to_look(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ExportError::NoImage);
            }
            Err(error) => return Err(ImageError::from(error).into()),
        };
        let bytes = file.metadata().map_err(ImageError::from)?.len();
        // Nobody is to carry a damaged one about.
        let sound = file.try_clone().map_err(ImageError::from)?;
        Image::open(sound, &self.key)?.verify()?;
        Ok(Sealing::new(
            &self.key,
            note,
            [module, (bytes, Box::new(file))],
        )?)
    }

    /// Begins to open what [`Images::export`] or [`Images::seal`] has made, by its first
    /// [`Opening::BEGIN`] bytes.
    ///
    /// # Errors
    /// What it is instead.
    pub fn open_export(&self, begin: &[u8]) -> Result<Opening, ParcelError> {
        Opening::new(&self.key, begin)
    }

    /// A file for an image of so many bytes that comes from elsewhere, if there may be room for
    /// that.
    ///
    /// # Errors
    /// When there is none; the disk's.
    pub fn receive(self: &Arc<Self>, bytes: u64) -> Result<Arriving, ImageError> {
        let _writing = lock(&self.writing);
        self.tidy_up()?;
        if bytes > self.budget / SHARE || !self.has_room_for(bytes)? {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        let number = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let mut name = self.unfinished.as_os_str().to_owned();
        name.push(format!("-{number}"));
        let path = PathBuf::from(name);
        let file = self.disk.create(&path)?;
        let images = self.clone();
        let part = Part {
            name: Unfinished {
                images: images.clone(),
                path,
                is_placed: false,
            },
            file,
            taken: Taken { images, bytes: 0 },
        };
        Ok(Arriving { part: Some(part) })
    }

    /// Whether a file is one that arrives now, by its name.
    pub(super) fn is_arriving(&self, name: &str) -> bool {
        let own = self.unfinished.file_name().and_then(|own| own.to_str());
        let rest = own.and_then(|own| name.strip_prefix(own));
        rest.is_some_and(|rest| rest.starts_with('-'))
    }

    /// Whether there is an image that is good for this over this parent: all of it is read, and
    /// nothing is made of it.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn check(&self, of: &ImageOf, parent: &Arc<Frozen>) -> Result<(), ImageError> {
        let image = Image::open(self.disk.open(&self.path(&of.what))?, &self.key)?;
        if image.purpose() != self.purpose(of) {
            return Err(ImageError::Purpose);
        }
        if image.parent().is_none() || image.parent() != parent.content() {
            return Err(ImageError::Parent);
        }
        let state = VcpuState::read_from_bytes(image.state());
        if !state.is_ok_and(|state| is_next(parent.state().vcpu(), &state)) {
            return Err(ImageError::Senseless("its vCPU's state"));
        }
        image.verify()
    }
}

impl Arriving {
    /// Writes what comes next of it. Others have to go before where there is no room for it.
    ///
    /// # Errors
    /// When there is no room; the disk's. There is no image then.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), ImageError> {
        self.part.as_mut().map_or(Ok(()), |part| part.write(piece))
    }

    /// Puts it where the image of this version is looked for, whole or not at all. Whether it is
    /// one, and good, is seen when it is read.
    ///
    /// # Errors
    /// The disk's.
    pub fn place(mut self, id: &ImageId) -> Result<(), ImageError> {
        self.part.take().map_or(Ok(()), |part| part.place(id))
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // Removing a large file takes its time.
        if let Some(part) = self.part.take()
            && let Ok(runtime) = Handle::try_current()
        {
            // One that has ended drops it at once.
            runtime.spawn_blocking(move || drop(part));
        }
    }
}

impl Part {
    fn write(&mut self, mut piece: &[u8]) -> Result<(), ImageError> {
        let images = &self.taken.images;
        let (mut at, bytes) = (self.taken.bytes, piece.len() as u64);
        // It counts before it is there.
        lock(&images.account).reserve(bytes);
        self.taken.bytes = at.saturating_add(bytes);
        if !images.make_room_within(bytes)? {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        while !piece.is_empty() {
            let written = match self.file.write_at(piece, at) {
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
        self.file.sync()?;
        let images = self.taken.images.clone();
        let name = images.file_name_of(id);
        {
            let mut gone = images.gone();
            gone.remove(id);
            let path = images.folder.join(&name);
            images.disk.replace(&self.name.path, &path)?;
            self.name.is_placed = true;
            let mut account = lock(&images.account);
            let bytes = std::mem::take(&mut self.taken.bytes);
            account.release(bytes);
            account.note(&name, bytes);
        }
        // It is there: what a power failure may leave instead is none.
        if let Err(error) = images.disk.sync_folder(&images.folder) {
            let error = Line(&error);
            tracing::warn!(%error, "a func-image may not outlive a power failure");
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_placed
            && let Err(error) = self.images.disk.remove(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            // It goes at the next start.
            let error = Line(&error);
            tracing::warn!(%error, "a part of a func-image cannot be removed");
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        lock(&self.images.account).release(self.bytes);
    }
}
