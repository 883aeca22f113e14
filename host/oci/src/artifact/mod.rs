//! Finds the module among the layers of an artifact, and reads the layers.
//!
//! Two forms are accepted. One is an artifact of the CNCF's Wasm layout, or with any other config,
//! with one layer that is WebAssembly. The other is an image with one layer, a tar archive, in
//! which one file is named `….wasm` (`FROM scratch`, `COPY`). Of an index, the manifest for WASI is
//! selected, or the only manifest. Anything else is rejected instead of guessing.

pub(crate) mod layer;
pub(crate) mod manifest;

use std::{collections::BTreeMap, fs::File, io::Read as _};

use bytes::Bytes;
use faasw_client::Digest;

pub use layer::{FileKind, FilesEntry, FilesLimits, read_files, write_files};
use manifest::{Content, Document};
pub use manifest::{FILES_LAYER, WASM_CONFIG, WASM_LAYER, os_of};

use crate::{OciError, Reference, Registry, reference::TagOrDigest, registry::Manifest};

/// An artifact as its manifest describes it. Its layers are not downloaded yet.
#[derive(Debug)]
pub struct Artifact {
    digest: Digest,
    content: Content,
    annotations: BTreeMap<String, String>,
}

impl Artifact {
    /// Finds the artifact of a reference.
    ///
    /// # Errors
    /// Returns an error if there is no such artifact or it is not a module.
    pub async fn find(registry: &Registry, which: &TagOrDigest) -> Result<Self, OciError> {
        let Manifest { bytes, digest } = registry.manifest(which).await?;
        let mut document = Document::read(&bytes)?;
        if let Some(of_wasi) = document.of_wasi()? {
            let one = registry.manifest(&TagOrDigest::Digest(of_wasi)).await?;
            document = Document::read(&one.bytes)?;
        }
        Ok(Self {
            // The digest that was requested: the selected manifest is a part of it.
            digest,
            content: document.content()?,
            annotations: document.annotations(),
        })
    }

    /// Returns the digest of the manifest to which the reference led.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns a reference that always leads to this artifact.
    #[must_use]
    pub fn reference(&self, of: &Reference) -> Reference {
        of.at(self.digest)
    }

    /// Returns the annotations of the manifest.
    #[must_use]
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// Returns whether the artifact has files beside the module.
    #[must_use]
    pub fn has_files(&self) -> bool {
        matches!(&self.content, Content::Module { files: Some(_), .. })
    }

    /// Downloads the module, which may have at most `limit` bytes.
    ///
    /// # Errors
    /// Returns an error if the download fails or is damaged, if the module is too large, or if the
    /// layer has no module or several.
    pub async fn module(&self, registry: &Registry, limit: u64) -> Result<Bytes, OciError> {
        let module = match &self.content {
            Content::Module { module, .. } => {
                module.check_size(limit, "the module")?;
                let mut file = registry.blob(&module.blob()?, "the module").await?;
                read_whole(&mut file)?
            }
            Content::Image(layer) => {
                // A compressed layer may be smaller than the module, but hardly larger.
                layer.check_size(limit.saturating_add(layer::AROUND_MAX), "the layer")?;
                let file = registry.blob(&layer.blob()?, "the layer").await?;
                layer::module_of(file, limit)?
            }
        };
        // A node also accepts scripts and bundles of files with a module, but an artifact must
        // have neither here.
        match os_of(&module) {
            Some(_) => Ok(module),
            None => Err(OciError::artifact(
                "what it has does not begin as WebAssembly does",
            )),
        }
    }

    /// Downloads the files beside the module, if there are any, and passes them on one by one.
    ///
    /// # Errors
    /// Returns an error if the download fails or is damaged, or if the files exceed the limits.
    pub async fn files(
        &self,
        registry: &Registry,
        limits: FilesLimits,
        each: impl FnMut(FilesEntry<'_>),
    ) -> Result<(), OciError> {
        let Content::Module {
            files: Some(files), ..
        } = &self.content
        else {
            return Ok(());
        };
        files.check_size(
            limits.bytes.saturating_add(layer::AROUND_MAX),
            "the layer of files",
        )?;
        let file = registry.blob(&files.blob()?, "the layer of files").await?;
        layer::read_files(file, limits, each)
    }
}

fn read_whole(file: &mut File) -> Result<Bytes, OciError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes.into())
}
