//! The content of a seed besides code: a script for its engine, and the files of a function. Both
//! are in memory, or stored in the registry and read when the seed is made.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use faasw_abi::files::bundle::Summary;
use faasw_client::{Digest, FunctionOptions};
use faasw_pool::{CompileError, FunctionFiles, LoadFuture, ScriptFiles, ScriptSource};

use super::storage::{Storage, digest_of};
use crate::{
    error::{DeployError, FilesRefused},
    registry::{FilesRecord, VersionRecord},
};

/// Where a function finds its files, unless its options name another path.
pub(super) const ROOT: &str = "/";

/// The script and the files of a version.
#[derive(Debug)]
pub(crate) struct SeedContent {
    /// The files of the script, if it is one.
    pub(super) script: Option<ScriptFiles>,
    /// The files that the function reads, if it has any.
    pub(super) files: Option<FunctionFiles>,
}

impl SeedContent {
    /// Returns the content of a version that is not stored yet.
    pub(super) fn in_memory(
        record: &VersionRecord,
        module: &Bytes,
        files: Option<&PackedFiles>,
    ) -> Self {
        let is_script = record.engine.is_some();
        Self {
            script: is_script.then(|| ScriptFiles::InMemory(module.clone())),
            files: files.map(|files| files.files(&record.options)),
        }
    }

    /// Returns the content of a stored version, to be read when its seed has to be made.
    pub(super) fn stored(storage: &Arc<Storage>, record: &VersionRecord) -> Self {
        let stored = |digest| {
            let storage = Arc::downgrade(storage);
            ScriptFiles::Stored(Arc::new(StoredContent { storage, digest }))
        };
        let files = |files: &FilesRecord| {
            let bundle = stored(files.digest);
            function_files(&record.options, files.bundle_bytes, bundle)
        };
        Self {
            script: record.engine.as_ref().map(|_| stored(record.digest)),
            files: record.files.as_ref().map(files),
        }
    }
}

/// A bundle that was packed here.
#[derive(Clone, Debug)]
pub(crate) struct PackedFiles {
    pub(super) bundle: Bytes,
    pub(super) record: FilesRecord,
}

impl PackedFiles {
    /// Returns the files as part of the specification of a function that is not stored yet.
    pub(super) fn files(&self, options: &FunctionOptions) -> FunctionFiles {
        let bundle = ScriptFiles::InMemory(self.bundle.clone());
        function_files(options, self.bundle.len() as u64, bundle)
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
        let record = FilesRecord {
            digest: digest_of(&bundle).await?,
            bundle_bytes: bundle.len() as u64,
            entries: summary.entries,
            bytes: summary.contents,
        };
        Ok(Self { bundle, record })
    }
}

fn function_files(options: &FunctionOptions, bytes: u64, bundle: ScriptFiles) -> FunctionFiles {
    FunctionFiles {
        mount: options.own_files_at().unwrap_or(ROOT).to_owned(),
        freeze_at: options.own_freeze_at().map(ToOwned::to_owned),
        bytes,
        bundle,
    }
}

/// A script or a bundle in the registry. The pool holds it, so the reference is weak.
#[derive(Debug)]
struct StoredContent {
    storage: Weak<Storage>,
    digest: Digest,
}

impl ScriptSource for StoredContent {
    fn read(&self) -> LoadFuture<'_, Result<Bytes, String>> {
        Box::pin(async {
            let storage = self.storage.upgrade().ok_or("the node has ended")?;
            let digest = self.digest;
            let reading = storage.run(move |registry| registry.module(digest));
            let read = reading.await.map_err(|error| error.to_string())?;
            Ok(read.into())
        })
    }
}
