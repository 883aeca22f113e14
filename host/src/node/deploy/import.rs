//! Imports versions that another node has exported. An import is a deployment of the export's
//! contents. If the image is usable here, it replaces the initialisation.

use std::{fmt::Display, pin::Pin, sync::Arc, time::Instant};

use faasw_client::{DeployStage, FunctionName, ImportOutcome, Initialisation};
use faasw_common::text::Line;
use faasw_pool::{EarlierBuild, FreezeReport, ImageError, ImageImport, ImageOrigin, ScriptFiles};
use serde::{Deserialize, Serialize};

use super::{
    code::CodeOwner,
    compile::CompiledModule,
    export_receiver::{ReceivedExport, not_written},
    seed::SeededFunction,
};
use crate::{
    error::{DeployError, ImportError},
    log::{Event, FunctionLog},
    node::core::Core,
    registry::{FreezeRecord, RegistryError, VersionRecord},
};

/// The description in an export of what the export contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::node) struct ExportManifest {
    /// The name under which the version was exported. Its memory contains that name, too.
    pub(in crate::node) name: FunctionName,
    pub(in crate::node) record: VersionRecord,
    /// The build and the machine that made the image.
    pub(in crate::node) origin: ImageOrigin,
}

/// The advice if a node's shared seeds are not those that an image was made over.
const SHARED: &str = "the seeds that all functions share are not the same on this node; \
     docs/func-image.md describes how nodes get the same ones";

impl Core {
    /// Makes a version of an export of another node.
    pub(in crate::node) async fn import<B>(
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
        let arrived = self.receive(&images, export, name).await?;
        let name = arrived.name.clone();
        let log = self.log_of(&name);
        let imported = self.import_version(arrived, &log).await;
        let deployed = imported.as_ref().map(|imported| &imported.deployed);
        self.conclude(&name, &log, deployed).await;
        Ok(imported?)
    }

    async fn import_version(
        self: &Arc<Self>,
        arrived: ReceivedExport,
        log: &Arc<FunctionLog>,
    ) -> Result<ImportOutcome, DeployError> {
        let ReceivedExport {
            name,
            manifest,
            module,
            files,
            image,
            turn: arrival,
        } = arrived;
        let (name, manifest) = (&name, &manifest);
        self.add_carried_engine_for(&module).await?;
        let options = manifest.record.options.clone();
        let mut detected = self.detect(name, module, options, files.is_some())?;
        detected.files = files;
        let slot = self.deployments.begin(name, detected.module.len()).await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown);
        }
        detected.progress = slot.progress();
        detected.progress.enter(DeployStage::Compiling);
        let digest = manifest.record.digest;
        let ready = match detected.engine {
            Some(_) => {
                // The engine may have been replaced while this deployment waited for its slot.
                detected.engine = self.engine_of(&detected.module, &detected.options)?;
                match &detected.engine {
                    Some(engine) => Some(self.engine_code(engine).await?),
                    None => None,
                }
            }
            // An initialisation that rewrote the module is part of it already.
            None => {
                let owner = CodeOwner::Function(name.clone());
                self.usable_stored_code(digest, owner).await?
            }
        };
        let ready = match ready {
            Some(ready) => ready,
            None => {
                let module = detected.module.clone();
                self.compile_module(name, module, None, None).await?
            }
        };
        let compiled = CompiledModule {
            detected,
            digest,
            ready,
            initialised: manifest.record.initialised.clone(),
            drawn_report: initialisation_report(&manifest.record),
        };
        let restored = match image {
            Ok(image) => self.restored(&compiled, manifest, image, log).await?,
            Err(why) => Err(why),
        };
        // The image's file is in place or removed by now. The rest is a deployment like any other.
        drop(arrival);
        let (seeded, rebuilt) = match restored {
            Ok(seeded) => (seeded, None),
            Err(why) => (self.seed(compiled, log.clone()).await?, Some(why)),
        };
        if let Some(why) = &rebuilt {
            tracing::info!(function = %name, why = %Line(why), "a func-image was not used");
        }
        Ok(ImportOutcome {
            deployed: self.commit(seeded, slot).await?,
            rebuilt,
        })
    }

    /// Returns a function whose seed comes from the image, or the reason why the image is not used.
    async fn restored(
        &self,
        compiled: &CompiledModule,
        manifest: &ExportManifest,
        image: ImageImport,
        log: &Arc<FunctionLog>,
    ) -> Result<Result<SeededFunction, String>, DeployError> {
        let name = &compiled.detected.name;
        let begun = Instant::now();
        let mut record = compiled.record();
        record.imaged = Some(manifest.record.made());
        record.freeze = manifest.record.freeze.clone();
        let id = record.image(name);
        let placing = tokio::task::spawn_blocking(move || image.place(&id));
        if let Err(error) = placing.await.map_err(|_| RegistryError::Interrupted)? {
            return Ok(Err(not_written(error)));
        }
        let progress = &compiled.detected.progress;
        progress.enter(DeployStage::Initialising);
        self.observer.notify(Event::MakingSeed { function: name });
        let script = record.engine.is_some();
        let script_files = script.then(|| ScriptFiles::InMemory(compiled.detected.module.clone()));
        let given = compiled.detected.files.as_ref();
        let given = given.map(|files| files.files(&record.options));
        let spec = self.spec(name, &record, script_files, given, log);
        let known = EarlierBuild {
            after_init: record.freeze.after_init,
            instantiation: record.freeze.instantiation,
            layer_bytes: record.freeze.layer_bytes,
        };
        let restoring = self.backend.restore(&spec, &compiled.ready.code, known);
        let made = match restoring.await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => {
                self.remove_unused_image(name, id).await;
                return Ok(Err(describe_image_error(&error, script)));
            }
            Err(error) => {
                self.remove_unused_image(name, id).await;
                return Err(error.into());
            }
        };
        Ok(Ok(SeededFunction {
            function: self.build_version(name, record, log, made),
            module: compiled.detected.module.clone(),
            files: compiled.detected.files.clone(),
            ready: compiled.ready.clone(),
            seed_time: begun.elapsed(),
        }))
    }
}

/// Returns why an image of this manifest cannot be used here under this name, as far as the
/// manifest alone shows it.
pub(super) fn manifest_mismatch(
    manifest: &ExportManifest,
    name: &FunctionName,
    here: &ImageOrigin,
) -> Option<String> {
    let there = &manifest.origin;
    if manifest.name != *name {
        let theirs = &manifest.name;
        return Some(format!("it is of {theirs}, and its memory knows that name"));
    }
    if there.build != here.build {
        return Some("another build of faasw has made it".to_owned());
    }
    (there.machine != here.machine)
        .then(|| "it was made on another processor, or by another kernel".to_owned())
}

/// Describes why an image that was checked is not used.
fn describe_image_error(error: &ImageError, is_script: bool) -> String {
    match error {
        ImageError::Purpose => {
            "it was made from other code, or under other limits of the node".to_owned()
        }
        ImageError::Parent if is_script => {
            format!("its language engine's seed is another here: {SHARED}")
        }
        ImageError::Parent => SHARED.to_owned(),
        other => other.to_string(),
    }
}

/// Returns the freeze report of an initialisation that is part of the module, if there is one.
pub(super) fn initialisation_report(record: &VersionRecord) -> Option<FreezeReport> {
    let FreezeRecord {
        after_init,
        at_entry,
        drew_entropy,
        drawn,
        instantiation,
        layer_bytes,
    } = record.freeze.clone();
    let is_part = matches!(record.initialised, Some(Initialisation::AsModule { .. }));
    is_part.then_some(FreezeReport {
        after_init,
        at_entry,
        drew_entropy,
        drawn,
        instantiation,
        layer_bytes,
    })
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
fn manifest_of(module: &[u8], name: &str) -> Option<ExportManifest> {
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
        origin: ImageOrigin {
            build: "b".into(),
            machine: "m".into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use faasw_client::Digest;

    use super::*;

    fn manifest() -> ExportManifest {
        manifest_of(b"module", "f").unwrap()
    }

    #[test]
    fn an_export_manifest_round_trips() {
        let note = serde_json::to_vec(&manifest()).unwrap();
        let read: ExportManifest = serde_json::from_slice(&note).unwrap();
        assert_eq!(
            (&read.record, &read.origin),
            (&manifest().record, &manifest().origin)
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

    #[test]
    fn an_unusable_image_is_reported_with_the_reason() {
        let manifest = manifest();
        let (name, here) = (&manifest.name, &manifest.origin);
        assert_eq!(manifest_mismatch(&manifest, name, here), None);
        let other = FunctionName::new("g").unwrap();
        assert!(
            manifest_mismatch(&manifest, &other, here)
                .unwrap()
                .contains("is of f")
        );
        let mut build = here.clone();
        build.build.clear();
        assert!(
            manifest_mismatch(&manifest, name, &build)
                .unwrap()
                .contains("build")
        );
        let mut machine = here.clone();
        machine.machine.clear();
        let why = manifest_mismatch(&manifest, name, &machine).unwrap();
        assert!(why.contains("processor"), "{why}");
        assert!(describe_image_error(&ImageError::Parent, true).contains("language engine"));
        assert!(describe_image_error(&ImageError::Parent, false).contains("docs/func-image.md"));
    }

    #[test]
    fn an_initialisation_that_is_part_of_the_module_is_reported() {
        let mut record = manifest().record;
        record.freeze.drawn = "a clock".into();
        assert!(initialisation_report(&record).is_none());
        record.initialised = Some(Initialisation::AsModule {
            export: "init".into(),
            upload: Digest::of(b""),
        });
        assert_eq!(initialisation_report(&record).unwrap().drawn, "a clock");
    }
}
