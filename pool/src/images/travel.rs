//! Images that go to another node, and come from one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use faasw_fri::messages::VcpuState;
use faasw_seedtree::image::{Image, ImageError, Parcel, ParcelError, open_parcel, seal_parcel};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zerocopy::FromBytes;

use super::{ImageId, ImageOf, Images, What, host, is_next, lock};
use crate::snapshots::Frozen;

/// What makes images and what they run on, by digest: those of another origin are not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// This build of faasw.
    pub build: String,
    /// Processor and system.
    pub machine: String,
}

/// Why a function is not exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// There is no image of it.
    #[error("there is no image of it")]
    NoImage,
    /// Its image has more bytes than that.
    #[error("its image is {bytes} bytes; at most {most} are exported")]
    TooLarge {
        /// Of its image.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// Its image is damaged, or cannot be read.
    #[error("its image is not used: {0}")]
    Image(#[from] ImageError),
    /// It cannot be sealed.
    #[error(transparent)]
    Parcel(#[from] ParcelError),
}

/// What came from another node: sealed by somebody who has the same key, and no more than that.
#[derive(Debug)]
pub struct Exported {
    /// What it is, in the words of whoever made it.
    pub note: Vec<u8>,
    /// The module, or the script.
    pub module: Vec<u8>,
    /// The image.
    pub image: Vec<u8>,
}

/// Opens an image to look at, and nothing else that may stand there: as other files are read, for
/// whoever looks reads where it likes, and no request waits for it.
fn open_to_look(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no file")),
    }
}

impl Images {
    /// What its images are made by, and on.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin {
            build: host::digest(&host::build()),
            machine: host::digest(&host::machine()),
        }
    }

    /// A module and the image of a function version, with a note on them, in one sealed file
    /// that nodes with the same key can open. The image may have `most` bytes.
    ///
    /// # Errors
    /// When there is no image, it is damaged or too large; the disk's.
    pub fn export(
        &self,
        id: &ImageId,
        note: &[u8],
        mut module: &[u8],
        most: u64,
    ) -> Result<Vec<u8>, ExportError> {
        let path = self.path(&What::Function(*id));
        let mut file = match open_to_look(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ExportError::NoImage);
            }
            Err(error) => return Err(ImageError::from(error).into()),
        };
        let bytes = file.metadata().map_err(ImageError::from)?.len();
        if bytes > most {
            return Err(ExportError::TooLarge { bytes, most });
        }
        // Nobody is to carry a damaged one about.
        let sound = file.try_clone().map_err(ImageError::from)?;
        Image::open(sound, &self.key)?.verify()?;
        let parts: [(u64, &mut dyn Read); 2] =
            [(module.len() as u64, &mut module), (bytes, &mut file)];
        Ok(seal_parcel(&self.key, note, parts)?)
    }

    /// Opens what [`Images::export`] has made.
    ///
    /// # Errors
    /// What it is instead.
    pub fn open_export(&self, bytes: Vec<u8>) -> Result<Exported, ParcelError> {
        let Parcel { note, parts } = open_parcel(&self.key, bytes)?;
        let [module, image] = parts;
        Ok(Exported {
            note,
            module,
            image,
        })
    }

    /// Puts an image that came from elsewhere where that of this version is looked for, whole or
    /// not at all. Whether it is one, and good, is seen when it is read.
    ///
    /// # Errors
    /// When there is no room for it; the disk's.
    pub fn place(&self, id: &ImageId, image: &[u8]) -> Result<(), ImageError> {
        let _writing = lock(&self.writing);
        let placed = self.put(id, image);
        if placed.is_err() {
            self.remove_unfinished();
        }
        placed
    }

    fn put(&self, id: &ImageId, image: &[u8]) -> Result<(), ImageError> {
        self.tidy_up()?;
        let (name, bytes) = (self.file_name_of(id), image.len() as u64);
        if !self.make_room_for(&name, bytes)? {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        // What could not be removed when it was to be.
        self.remove_unfinished();
        let file = self.disk.create(&self.unfinished)?;
        let (mut at, mut rest) = (0, image);
        while !rest.is_empty() {
            let written = file.write_at(rest, at)?;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            at += written as u64;
            rest = rest.get(written..).unwrap_or_default();
        }
        file.sync()?;
        {
            let mut gone = self.gone();
            gone.remove(id);
            let path = self.folder.join(&name);
            self.disk.replace(&self.unfinished, &path)?;
            lock(&self.account).note(&name, bytes);
        }
        Ok(self.disk.sync_folder(&self.folder)?)
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
