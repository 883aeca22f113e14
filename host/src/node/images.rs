//! Describes and exports the func-images of functions.

use std::sync::Arc;

use faasw_client::ImageInfo;
use faasw_pool::ExportError;
use tokio::sync::Semaphore;

use super::{
    core::{Core, blocking},
    deploy::ExportManifest,
};
use crate::{error::FunctionError, message::Body, registry::RegistryError};

/// Exports that make a piece at the same time, and imports under way. An import holds a module in
/// memory and space on disk until its image is in place or discarded.
const MOVES: usize = 4;

/// Permits for exports and imports. A request without a permit waits.
#[derive(Debug)]
pub(super) struct TransferPermits {
    exports: Arc<Semaphore>,
    pub(super) imports: Arc<Semaphore>,
}

impl Default for TransferPermits {
    fn default() -> Self {
        Self {
            exports: Arc::new(Semaphore::new(MOVES)),
            imports: Arc::new(Semaphore::new(MOVES)),
        }
    }
}

/// Advice if this node keeps no images.
const NONE_KEPT: &str = "this node stores none; use a data directory and an --image-disk above 0";

/// Advice if this function has no image.
const NONE_OF_IT: &str = "it is written after the seed is made: retry in a moment, or after \
     a request. None is written if it exceeds an eighth of --image-disk, if the warm-up failed, \
     or if less than a twentieth of the disk would stay free";

impl Core {
    /// Describes the image of a function's current version.
    pub(super) async fn image(&self, name: &str) -> Result<ImageInfo, FunctionError> {
        let function = self.require_function(name)?;
        let no_image = |why| FunctionError::NoImage {
            name: function.name.clone(),
            why,
        };
        if self.storage.images.is_none() {
            return Err(no_image(NONE_KEPT));
        }
        // Whether the image is usable depends on the function's code.
        let waking = function.version_cell.get_or_wake(self.wake(&function));
        let made = waking.await?;
        match made.describe_image().await {
            Ok(Some(image)) => Ok(image),
            Ok(None) => Err(no_image(NONE_OF_IT)),
            Err(error) => Err(FunctionError::BadImage {
                name: function.name.clone(),
                error,
            }),
        }
    }

    /// Exports a function's current version for another node that has the same image key.
    pub(super) async fn export(&self, name: &str) -> Result<Body, FunctionError> {
        let function = self.require_function(name)?;
        let name = function.name.clone();
        let Some(images) = self.storage.images.clone() else {
            let why = NONE_KEPT;
            return Err(FunctionError::NoImage { name, why });
        };
        // Reading the image takes a permit, as making a piece does. The semaphore is never closed.
        let turns = self.transfer_permits.exports.clone();
        let turn = turns.clone().acquire_owned().await;
        let manifest = ExportManifest {
            name: name.clone(),
            record: function.record.clone(),
            origin: images.origin(),
        };
        let (storage, digest) = (self.storage.clone(), function.record.digest);
        let files = function.record.files.as_ref().map(|files| files.digest);
        let id = function.record.image(&name);
        let exported = blocking(move || {
            let module = storage.registry.open_version(digest, files)?;
            let note = serde_json::to_vec(&manifest).map_err(std::io::Error::other);
            let note = note.map_err(|error| RegistryError::file("its options".as_ref(), error))?;
            let export = images.export(&id, &note, module);
            drop(turn);
            Ok(export)
        });
        match exported.await? {
            Ok(export) => Ok(Body::export(export, turns)),
            Err(ExportError::NoImage) => {
                let why = NONE_OF_IT;
                Err(FunctionError::NoImage { name, why })
            }
            Err(ExportError::Image(error)) => Err(FunctionError::BadImage { name, error }),
            Err(error) => Err(FunctionError::NotExported { name, error }),
        }
    }
}
