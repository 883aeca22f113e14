//! Which of an artifact's layers is the module, and what is in them.
//!
//! Taken are an artifact of the CNCF's Wasm layout, or of any other config, with one layer that is
//! WebAssembly; and an image with one layer, a tar archive, in which one file is called `….wasm`
//! (`FROM scratch`, `COPY`). Of an index it is the one for WASI, or the only one. An artifact of
//! anything else is refused rather than guessed at.

pub(crate) mod layer;
pub(crate) mod manifest;

use std::{collections::BTreeMap, fs::File, io::Read as _};

use bytes::Bytes;
use faasw_client::Digest;

pub use layer::{FileKind, FilesEntry, FilesLimits, read_files, write_files};
use manifest::{Content, Document};
pub use manifest::{FILES_LAYER, WASM_CONFIG, WASM_LAYER};

use crate::{OciError, Reference, Registry, push::os_of, reference::Which, registry::Manifest};

/// An artifact, as its manifest has it. Its layers are at the registry still.
#[derive(Debug)]
pub struct Artifact {
    digest: Digest,
    content: Content,
    annotations: BTreeMap<String, String>,
}

impl Artifact {
    /// The artifact of a reference.
    ///
    /// # Errors
    /// When there is none, or it is no module.
    pub async fn find(registry: &Registry, which: &Which) -> Result<Self, OciError> {
        let Manifest { bytes, digest } = registry.manifest(which).await?;
        let mut document = Document::read(&bytes)?;
        if let Some(of_wasi) = document.of_wasi()? {
            let one = registry.manifest(&Which::Digest(of_wasi)).await?;
            document = Document::read(&one.bytes)?;
        }
        Ok(Self {
            // What was asked for, of which the other is a part.
            digest,
            content: document.content()?,
            annotations: document.annotations(),
        })
    }

    /// The digest of the manifest that the reference led to.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// A reference to it that leads nowhere else ever.
    #[must_use]
    pub fn reference(&self, of: &Reference) -> Reference {
        of.at(self.digest)
    }

    /// What its maker has written to it.
    #[must_use]
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// Whether there are files beside the module.
    #[must_use]
    pub fn has_files(&self) -> bool {
        matches!(&self.content, Content::Module { files: Some(_), .. })
    }

    /// The module, of `limit` bytes at most.
    ///
    /// # Errors
    /// When it does not come whole, or is too large, or its layer has none or several.
    pub async fn module(&self, registry: &Registry, limit: u64) -> Result<Bytes, OciError> {
        let module = match &self.content {
            Content::Module { module, .. } => {
                module.hold(limit, "the module")?;
                let mut file = registry.blob(&module.blob()?, "the module").await?;
                read_whole(&mut file)?
            }
            Content::Image(layer) => {
                // Packed it may be smaller, and hardly larger.
                layer.hold(limit.saturating_add(layer::AROUND_MAX), "the layer")?;
                let file = registry.blob(&layer.blob()?, "the layer").await?;
                layer::module_of(file, limit)?
            }
        };
        // A node takes other things, too: scripts, and files in front of a module.
        match os_of(&module) {
            Some(_) => Ok(module),
            None => Err(OciError::artifact(
                "what it has does not begin as WebAssembly does",
            )),
        }
    }

    /// The files beside the module, if there are some, one after the other.
    ///
    /// # Errors
    /// When they do not come whole, or are too many or too large.
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
        files.hold(
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
