//! An entry as a pod sees it: read only, with its key.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use faasw_client::{Digest, FunctionName, FunctionOptions};
use faasw_pool::{ImageOrigin, Images, TrustedFolder};

use super::{
    error::SharedError,
    note::{Note, NoteError, OpenedNote},
};

/// The name of the note in an entry.
pub(super) const NOTE: &str = "note";
/// The names of the folders in an entry.
pub(super) const ARTIFACTS: &str = "artifacts";
pub(super) const IMAGES: &str = "images";

/// The shared results of a host's work for a function: code, images and the note, for the node that
/// serves it ([`crate::NodeBuilder::shared`]). Each part is authenticated with the entry's key
/// before it is used. The node makes parts itself that fail this check.
pub struct Entry {
    path: PathBuf,
    opened: OpenedNote,
    artifacts: Arc<TrustedFolder>,
    images: Arc<Images>,
}

impl Entry {
    /// Length of a key in bytes.
    pub const KEY: usize = Images::SECRET;

    /// Opens the entry in a folder, which belongs to root, with its key. From then on the entry is
    /// that folder, even if its path leads elsewhere.
    ///
    /// # Errors
    /// Returns an error if the folder or a part of it is missing, or if a user other than root may
    /// have written to it. Also returns an error if the note was not sealed with this key or is not
    /// valid.
    pub fn open(path: &Path, key: &[u8; Self::KEY]) -> Result<Self, SharedError> {
        let given = TrustedFolder::open(path).map_err(|error| SharedError::file(path, error))?;
        let folder = |name: &str| {
            let folder = given.folder(name);
            folder.map_err(|error| SharedError::file(&path.join(name), error))
        };
        let images = Images::read_only(folder(IMAGES)?.into(), key);
        let failed = |error| SharedError::file(&path.join(NOTE), error);
        let note = given.open_buffered(NOTE).map_err(failed)?;
        let bytes = note.metadata().map_err(failed)?.len();
        let opened = OpenedNote::read(&images, note, bytes).map_err(|error| match error {
            NoteError::Parcel(error) => SharedError::Note {
                path: path.into(),
                error,
            },
            NoteError::Senseless(why) => SharedError::Senseless {
                path: path.into(),
                why,
            },
        })?;
        Ok(Self {
            path: path.into(),
            opened,
            artifacts: folder(ARTIFACTS)?.into(),
            images: images.into(),
        })
    }

    /// Returns the path that the entry was opened at.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn note(&self) -> &Note {
        &self.opened.note
    }

    /// Returns the module, if it differs from the one that was deployed.
    pub(crate) fn module(&self) -> &Bytes {
        &self.opened.module
    }

    /// Returns the packed files.
    pub(crate) fn bundle(&self) -> &Bytes {
        &self.opened.bundle
    }

    pub(crate) fn artifacts(&self) -> &Arc<TrustedFolder> {
        &self.artifacts
    }

    pub(crate) fn images(&self) -> &Arc<Images> {
        &self.images
    }

    /// Checks that the entry is of this function and can be used here.
    ///
    /// # Errors
    /// Returns the reason if it is not, or cannot.
    pub(crate) fn check(
        &self,
        name: &FunctionName,
        upload: Digest,
        options: &FunctionOptions,
    ) -> Result<(), &'static str> {
        self.note()
            .check(name, upload, options, &ImageOrigin::here())
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({:?})", self.path)
    }
}
