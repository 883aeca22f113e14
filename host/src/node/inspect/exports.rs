//! Describes and exports the func-images of functions, and collects what other nodes of the host
//! may use (`crate::shared`).

use std::sync::Arc;

use faasw_client::{FunctionName, ImageInfo, Initialisation};
use faasw_pool::{ExportError, ImageOrigin};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::Inspector;
use crate::{
    error::FunctionError,
    message::Body,
    registry::{RegistryError, VersionRecord},
    shared::SharedVersion,
};

/// Exports that make a piece at the same time, and imports under way. An import holds a module in
/// memory and space on disk until its image is in place or discarded.
const MOVES: usize = 4;

/// Permits for exports, or for imports. A request without a permit waits.
#[derive(Clone, Debug)]
pub(crate) struct TransferPermits(pub(in crate::node) Arc<Semaphore>);

impl Default for TransferPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOVES)))
    }
}

/// The description in an export of what the export contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExportManifest {
    /// The name under which the version was exported. Its memory contains that name, too.
    pub(crate) name: FunctionName,
    pub(crate) record: VersionRecord,
    /// The build and the machine that made the image.
    pub(crate) origin: ImageOrigin,
}

/// Advice if this node keeps no images.
const NONE_KEPT: &str = "this node stores none; use a data directory and an --image-disk above 0";

/// Advice if this function has no image.
const NONE_OF_IT: &str = "it is written after the seed is made: retry in a moment, or after \
     a request. None is written if it exceeds an eighth of --image-disk, if the warm-up failed, \
     or if less than a twentieth of the disk would stay free";

impl Inspector {
    /// Describes the image of a function's current version.
    pub(crate) async fn image(&self, name: &str) -> Result<ImageInfo, FunctionError> {
        let function = self.functions.require(name)?;
        let no_image = |why| FunctionError::NoImage {
            name: function.name.clone(),
            why,
        };
        if self.storage.images.is_none() {
            return Err(no_image(NONE_KEPT));
        }
        // Whether the image is usable depends on the function's code.
        let waking = function
            .version_cell
            .get_or_wake(self.versions.wake(&function));
        let version = waking.await?;
        match version.describe_image().await {
            Ok(Some(image)) => Ok(image),
            Ok(None) => Err(no_image(NONE_OF_IT)),
            Err(error) => Err(FunctionError::BadImage {
                name: function.name.clone(),
                error,
            }),
        }
    }

    /// Exports a function's current version for another node that has the same image key.
    pub(crate) async fn export(&self, name: &str) -> Result<Body, FunctionError> {
        let function = self.functions.require(name)?;
        let name = function.name.clone();
        let Some(images) = self.storage.images.clone() else {
            let why = NONE_KEPT;
            return Err(FunctionError::NoImage { name, why });
        };
        // Reading the image takes a permit, as making a piece does. The semaphore is never closed.
        let permits = self.exports.0.clone();
        let permit = permits.clone().acquire_owned().await;
        let manifest = ExportManifest {
            name: name.clone(),
            record: function.record.clone(),
            origin: images.origin(),
        };
        let digest = function.record.digest;
        let files = function.record.files.as_ref().map(|files| files.digest);
        let id = function.image();
        let exporting = self.storage.run(move |registry| {
            let module = registry.open_version(digest, files)?;
            let note = serde_json::to_vec(&manifest).map_err(std::io::Error::other);
            let note = note.map_err(|error| RegistryError::file("its options".as_ref(), error))?;
            let export = images.export(&id, &note, module);
            drop(permit);
            Ok(export)
        });
        match exporting.await? {
            Ok(export) => Ok(Body::export(export, permits)),
            Err(ExportError::NoImage) => {
                let why = NONE_OF_IT;
                Err(FunctionError::NoImage { name, why })
            }
            Err(ExportError::Image(error)) => Err(FunctionError::BadImage { name, error }),
            Err(error) => Err(FunctionError::NotExported { name, error }),
        }
    }

    /// Returns the current version of a function with everything that was made of it, once its
    /// images are written.
    pub(crate) async fn shared_version(&self, name: &str) -> Result<SharedVersion, FunctionError> {
        let function = self.functions.require(name)?;
        if let Some(version) = function.version_cell.get() {
            version.ensure_image().await;
        }
        let record = function.record.clone();
        let engine = record.engine.as_ref();
        let engine = engine.and_then(|engine| self.engines.record(&engine.name));
        let generation = self.backend.generation();
        let collecting = self.storage.run(move |registry| {
            let of = record.compiled_from();
            let code = registry.code_record(of, &generation)?;
            let bundle = match &record.files {
                Some(files) => registry.module(files.digest)?,
                None => Vec::new(),
            };
            let is_as_sent = !matches!(record.initialised, Some(Initialisation::AsModule { .. }));
            let module = if is_as_sent {
                Vec::new()
            } else {
                registry.module(record.digest)?
            };
            Ok(SharedVersion {
                code: code.ok_or(RegistryError::Module(of))?,
                record,
                engine,
                generation,
                module,
                bundle,
            })
        });
        Ok(collecting.await?)
    }
}
