//! An entry as a pod has it: read only, and with the key of it.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use faasw_client::{Digest, FunctionName, FunctionOptions};
use faasw_pool::{GivenFolder, Images, Origin};

use super::{
    error::SharedError,
    note::{NotOpened, Note, Opened},
};

/// The file in it that says what it is of.
pub(super) const NOTE: &str = "note";
/// The folders in it.
pub(super) const ARTIFACTS: &str = "artifacts";
pub(super) const IMAGES: &str = "images";

/// What a host has made of a function: code, images and what was found out, for whoever serves it
/// ([`crate::NodeBuilder::shared`]). All of it is proven to be what root has sealed for this entry
/// before any of it is used; what turns out not to be is made by the node itself.
pub struct Entry {
    path: PathBuf,
    opened: Opened,
    artifacts: Arc<GivenFolder>,
    images: Arc<Images>,
}

impl Entry {
    /// Bytes of a key.
    pub const KEY: usize = Images::SECRET;

    /// Opens the entry in a folder, which is root's, with the key of it. From then on it is that
    /// folder, whatever has its name.
    ///
    /// # Errors
    /// When it is not there, somebody else may have written to it, or it was not sealed with this
    /// key.
    pub fn open(path: &Path, key: &[u8; Self::KEY]) -> Result<Self, SharedError> {
        let given = GivenFolder::open(path).map_err(|error| SharedError::file(path, error))?;
        let folder = |name: &str| {
            let folder = given.folder(name);
            folder.map_err(|error| SharedError::file(&path.join(name), error))
        };
        let images = Images::given(folder(IMAGES)?.into(), key);
        let failed = |error| SharedError::file(&path.join(NOTE), error);
        let note = given.to_look(NOTE).map_err(failed)?;
        let bytes = note.metadata().map_err(failed)?.len();
        let opened = Opened::read(&images, note, bytes).map_err(|error| match error {
            NotOpened::Parcel(error) => SharedError::Note {
                path: path.into(),
                error,
            },
            NotOpened::Senseless(why) => SharedError::Senseless {
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

    /// Where it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn note(&self) -> &Note {
        &self.opened.note
    }

    /// Its module, where that is another than was deployed.
    pub(crate) fn module(&self) -> &Bytes {
        &self.opened.module
    }

    /// Its files, packed.
    pub(crate) fn bundle(&self) -> &Bytes {
        &self.opened.bundle
    }

    pub(crate) fn artifacts(&self) -> &Arc<GivenFolder> {
        &self.artifacts
    }

    pub(crate) fn images(&self) -> &Arc<Images> {
        &self.images
    }

    /// Whether it is of this function, and good here.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn check(
        &self,
        name: &FunctionName,
        upload: Digest,
        options: &FunctionOptions,
    ) -> Result<(), &'static str> {
        self.note().check(name, upload, options, &Origin::here())
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({:?})", self.path)
    }
}
