//! Imports versions that another node has exported. An import is a deployment of the export's
//! contents. If the image is usable here, it replaces the initialisation.

use std::{fmt::Display, pin::Pin, sync::Arc};

use faasw_client::{FunctionName, ImportOutcome};
use faasw_common::text::Line;

use super::{Deployer, input::DeploymentInput};
use crate::{
    error::{DeployError, ImportError},
    log::FunctionLog,
};
#[cfg(any(test, feature = "fuzzing"))]
use crate::{
    node::inspect::ExportManifest,
    registry::{FreezeRecord, VersionRecord},
};

impl Deployer {
    /// Makes a version of an export of another node.
    pub(crate) async fn import<B>(
        self: &Arc<Self>,
        export: Pin<&mut B>,
        name: Option<FunctionName>,
    ) -> Result<ImportOutcome, ImportError>
    where
        B: http_body::Body,
        B::Error: Display,
    {
        let Some(images) = self.storage.images.clone() else {
            return Err(ImportError::NoKey);
        };
        let input = self.receive(&images, export, name).await?;
        let name = input.name.clone();
        let log = self.functions.log_of(&name);
        let imported = self.deploy_received(input, &log).await;
        let deployed = imported.as_ref().map(|imported| &imported.deployed);
        self.conclude(&name, &log, deployed).await;
        Ok(imported?)
    }

    async fn deploy_received(
        self: &Arc<Self>,
        input: DeploymentInput,
        log: &Arc<FunctionLog>,
    ) -> Result<ImportOutcome, DeployError> {
        let mut seeded = self.build(input, log).await?;
        let rebuilt = seeded.rebuilt.take();
        if let Some(why) = &rebuilt {
            let function = &seeded.function.name;
            tracing::info!(%function, why = %Line(why), "a func-image was not used");
        }
        Ok(ImportOutcome {
            deployed: self.commit(seeded).await?,
            rebuilt,
        })
    }
}

/// Decodes a note and encodes it again. Returns `None` for a note that is rejected.
#[cfg(feature = "fuzzing")]
pub(crate) fn export_note(note: &[u8]) -> Option<Vec<u8>> {
    let manifest: ExportManifest = serde_json::from_slice(note).ok()?;
    manifest.record.options.check().ok()?;
    // Computing the image's identifier must succeed for every note.
    let _ = manifest.record.image(&manifest.name);
    serde_json::to_vec(&manifest).ok()
}

/// Returns the note of an export of this module under this name.
#[cfg(feature = "fuzzing")]
pub(crate) fn note_of(module: &[u8], name: &str) -> Option<Vec<u8>> {
    serde_json::to_vec(&manifest_of(module, name)?).ok()
}

/// Returns the manifest of an export of this module under this name.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn manifest_of(module: &[u8], name: &str) -> Option<ExportManifest> {
    Some(ExportManifest {
        name: FunctionName::new(name).ok()?,
        record: VersionRecord {
            digest: faasw_client::Digest::of(module),
            engine: None,
            files: None,
            initialised: None,
            kind: faasw_client::FunctionKind::HttpComponent,
            options: faasw_client::FunctionOptions::default().env("A", "b"),
            deployed: std::time::SystemTime::UNIX_EPOCH,
            imaged: None,
            freeze: FreezeRecord::default(),
            imports: Vec::new(),
            module_bytes: module.len() as u64,
            code_bytes: 9,
        },
        origin: faasw_pool::ImageOrigin {
            build: "b".into(),
            machine: "m".into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn an_export_manifest_round_trips() {
        let manifest = manifest_of(b"module", "f").unwrap();
        let note = serde_json::to_vec(&manifest).unwrap();
        let read: ExportManifest = serde_json::from_slice(&note).unwrap();
        assert_eq!(
            (&read.record, &read.origin),
            (&manifest.record, &manifest.origin)
        );
        // An imported version has the same image identifier when it is exported again.
        let name = &read.name;
        let moved = VersionRecord {
            deployed: SystemTime::now(),
            imaged: Some(read.record.made()),
            ..read.record.clone()
        };
        assert_eq!(moved.image(name), read.record.image(name));
        assert_ne!(
            moved.image(name),
            moved.image(&FunctionName::new("g").unwrap())
        );
    }
}
