//! The input of a deployment, and the checks that cost next to nothing.

use bytes::Bytes;
use faasw_abi::files::upload;
use faasw_client::{EngineUse, FunctionName, FunctionOptions};
use faasw_pool::ImageImport;
use tokio::sync::OwnedSemaphorePermit;

use super::Deployer;
use crate::{
    error::{DeployError, FilesRefused},
    node::content::PackedFiles,
    registry::VersionRecord,
};

/// A module or a script that is to become a version, with everything that was made of it before.
/// The compile helper parses modules; of a script the node reads only the paths of its files.
pub(super) struct DeploymentInput {
    pub(super) name: FunctionName,
    pub(super) module: Bytes,
    pub(super) options: FunctionOptions,
    pub(super) files: Option<InputFiles>,
    /// The bytes that the deployment holds in memory.
    pub(super) bytes: usize,
    /// The version as it was made before, if it was.
    pub(super) earlier: Option<EarlierVersion>,
}

/// The files of a function. The node reads only lengths. The compile helper and the guest that uses
/// the files parse their contents.
pub(super) enum InputFiles {
    /// The files as they are in front of the module in an upload.
    Sent(Bytes),
    Packed(PackedFiles),
}

/// A version that was made before, on another node.
pub(super) struct EarlierVersion {
    pub(super) record: VersionRecord,
    pub(super) image: EarlierImage,
}

/// The func-image of a version that was made before.
pub(super) enum EarlierImage {
    Exported(ExportedImage),
    /// The image is among those of the host's shared entry, which the node reads.
    Shared,
}

/// The image in an export of another node.
pub(super) struct ExportedImage {
    /// The image, which is not placed among this node's images yet, or the reason why it is not
    /// used.
    pub(super) image: Result<ImageImport, String>,
    /// Held until the image is placed or discarded, because modules that wait are in memory, too.
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

impl DeploymentInput {
    /// Returns a module or a script without files.
    pub(super) fn of_module(name: FunctionName, module: Bytes, options: FunctionOptions) -> Self {
        Self {
            name,
            bytes: module.len(),
            module,
            options,
            files: None,
            earlier: None,
        }
    }

    /// Splits an upload into its module and the files in front of it.
    pub(super) fn of_upload(
        name: FunctionName,
        upload: Bytes,
        options: FunctionOptions,
    ) -> Result<Self, DeployError> {
        let refused = |error| DeployError::Files(FilesRefused::Upload(error));
        let split = upload::split(&upload).map_err(refused)?;
        let mut input = Self::of_module(name, upload, options);
        if let Some((files, module)) = split {
            input.files = Some(InputFiles::Sent(input.module.slice(files)));
            input.module = input.module.slice(module);
        }
        Ok(input)
    }
}

impl Deployer {
    /// Checks whether an input can be a function here at all, and returns the engine if it is a
    /// script.
    pub(super) fn detect(&self, input: &DeploymentInput) -> Result<Option<EngineUse>, DeployError> {
        let options = &input.options;
        options.check()?;
        self.functions.check_hosts(&input.name, options)?;
        let (size, limit) = (input.module.len(), self.limits.module);
        if size > limit {
            return Err(DeployError::TooLarge { size, limit });
        }
        let engine = self.engines.engine_for(&input.module, options)?;
        let names_files = options.own_files_at().or(options.own_freeze_at()).is_some();
        match &input.files {
            _ if engine.is_some() && options.own_freeze_at().is_some() => {
                Err(DeployError::Files(FilesRefused::FreezePointOfScript))
            }
            None if names_files => Err(DeployError::Files(FilesRefused::Missing)),
            _ => Ok(engine),
        }
    }
}
