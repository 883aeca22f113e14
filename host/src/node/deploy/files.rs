//! The files that a function is deployed with. In an upload they are in front of the module; from
//! then on they are a bundle. The node reads only lengths. The compile helper and the guest that
//! uses the files parse their contents.

use std::sync::Arc;

use bytes::Bytes;
use faasw_abi::files::{bundle::Summary, upload};
use faasw_client::{Digest, FunctionName, FunctionOptions};
use faasw_pool::{CompileError, FunctionFiles, ScriptFiles};

use super::code::StoredScript;
use crate::{
    error::{DeployError, FilesRefused},
    node::core::{Core, blocking},
    registry::{FilesRecord, VersionRecord},
};

/// Where a function finds its files, unless its options name another path.
pub(in crate::node) const ROOT: &str = "/";

/// A bundle that was packed here.
#[derive(Clone, Debug)]
pub(super) struct PackedFiles {
    pub(super) bundle: Bytes,
    pub(super) record: FilesRecord,
}

impl PackedFiles {
    /// Returns the files as part of the specification of a function that is not stored yet.
    pub(super) fn files(&self, options: &FunctionOptions) -> FunctionFiles {
        FunctionFiles {
            mount: mount(options),
            freeze_at: options.own_freeze_at().map(ToOwned::to_owned),
            bytes: self.bundle.len() as u64,
            bundle: ScriptFiles::InMemory(self.bundle.clone()),
        }
    }

    /// Returns a packed bundle with its record.
    ///
    /// # Errors
    /// Returns `FilesRefused::Bundle` if the bytes do not start with the header of a bundle, and a
    /// registry error if the hashing task is interrupted.
    pub(super) async fn of(bundle: Bytes) -> Result<Self, DeployError> {
        let none = || {
            let what = "what it has packed is no bundle".to_owned();
            DeployError::Files(FilesRefused::Bundle(CompileError::Helper(what)))
        };
        let summary = Summary::of(&bundle).ok_or_else(none)?;
        let digest = {
            let bundle = bundle.clone();
            blocking(move || Ok(Digest::of(&bundle))).await?
        };
        let record = FilesRecord {
            digest,
            bundle_bytes: bundle.len() as u64,
            entries: summary.entries,
            bytes: summary.contents,
        };
        Ok(Self { bundle, record })
    }
}

fn mount(options: &FunctionOptions) -> String {
    options.own_files_at().unwrap_or(ROOT).to_owned()
}

/// Checks whether the function's kind and options permit it to have files, or to have none.
pub(super) fn check_files(
    has_files: bool,
    options: &FunctionOptions,
    is_script: bool,
) -> Result<(), DeployError> {
    let are_named = options.own_files_at().or(options.own_freeze_at()).is_some();
    if has_files && is_script {
        return Err(DeployError::Files(FilesRefused::OfScript));
    }
    if !has_files && are_named {
        return Err(DeployError::Files(FilesRefused::Missing));
    }
    Ok(())
}

impl Core {
    /// Splits an upload into its module and the files in front of it.
    pub(super) fn split(upload: &Bytes) -> Result<(Bytes, Option<Bytes>), DeployError> {
        let refused = |error| DeployError::Files(FilesRefused::Upload(error));
        Ok(match upload::split(upload).map_err(refused)? {
            Some((files, module)) => (upload.slice(module), Some(upload.slice(files))),
            None => (upload.clone(), None),
        })
    }

    /// Sends a function's files to the backend, which packs them.
    pub(super) async fn pack(
        &self,
        name: &FunctionName,
        files: Option<Bytes>,
    ) -> Result<Option<PackedFiles>, DeployError> {
        let Some(files) = files else {
            return Ok(None);
        };
        let packed = self.backend.pack(name.as_str(), files).await;
        let bundle = packed.map_err(|error| DeployError::Files(FilesRefused::Bundle(error)))?;
        PackedFiles::of(bundle).await.map(Some)
    }

    /// Returns the files of a stored version. They are read when its seed has to be made.
    pub(in crate::node) fn stored_files(&self, record: &VersionRecord) -> Option<FunctionFiles> {
        record.files.as_ref().map(|files| FunctionFiles {
            mount: mount(&record.options),
            freeze_at: record.options.own_freeze_at().map(ToOwned::to_owned),
            bytes: files.bundle_bytes,
            bundle: ScriptFiles::Stored(Arc::new(StoredScript {
                storage: Arc::downgrade(&self.storage),
                digest: files.digest,
            })),
        })
    }
}
