//! Uses a func-image that was made before, instead of an initialisation.

use std::sync::Arc;

use faasw_client::FunctionName;
use faasw_pool::{ImageError, ImageOrigin};

use super::{
    Deployer,
    compile::CompiledModule,
    input::{EarlierImage, EarlierVersion, ExportedImage},
    seed::ReadyVersion,
};
use crate::{
    error::DeployError,
    log::FunctionLog,
    node::{inspect::ExportManifest, storage::blocking, versions::earlier_build},
    registry::VersionRecord,
};

/// The advice if a node's shared seeds are not those that an image was made over.
const SHARED: &str = "the seeds that all functions share are not the same on this node; \
     docs/func-image.md describes how nodes get the same ones";

impl Deployer {
    /// Returns a version whose seed comes from its image, or the reason why the image is not used.
    pub(super) async fn restore(
        &self,
        compiled: &CompiledModule,
        earlier: EarlierVersion,
        log: &Arc<FunctionLog>,
    ) -> Result<Result<ReadyVersion, String>, DeployError> {
        let EarlierVersion { record, image } = earlier;
        let record = VersionRecord {
            imaged: Some(record.made()),
            freeze: record.freeze,
            ..compiled.record()
        };
        match image {
            EarlierImage::Exported(image) => {
                self.restore_exported(compiled, record, image, log).await
            }
            EarlierImage::Shared => self.restore_shared(compiled, record, log).await.map(Ok),
        }
    }

    async fn restore_exported(
        &self,
        compiled: &CompiledModule,
        record: VersionRecord,
        exported: ExportedImage,
        log: &Arc<FunctionLog>,
    ) -> Result<Result<ReadyVersion, String>, DeployError> {
        let (name, id) = (&compiled.input.name, record.image(&compiled.input.name));
        let image = match exported.image {
            Ok(image) => image,
            Err(why) => return Ok(Err(why)),
        };
        let placing = blocking(move || Ok(image.place(&id)));
        if let Err(error) = placing.await? {
            return Ok(Err(not_written(error)));
        }
        let spec = self
            .versions
            .spec(name, &record, compiled.content(&record), log);
        let known = earlier_build(&record.freeze);
        let restoring = self.backend.restore(&spec, &compiled.ready.code, known);
        let why = match restoring.await {
            Ok(Ok(version)) => {
                let rebuilt = None;
                return Ok(Ok(ReadyVersion {
                    record,
                    version,
                    rebuilt,
                }));
            }
            Ok(Err(error)) => Ok(Err(describe_image_error(&error, record.engine.is_some()))),
            Err(error) => Err(error.into()),
        };
        self.remove_unused_image(name, id).await;
        why
    }

    /// Returns a version whose seed was read from the host's image, or made here if that is
    /// invalid.
    async fn restore_shared(
        &self,
        compiled: &CompiledModule,
        record: VersionRecord,
        log: &Arc<FunctionLog>,
    ) -> Result<ReadyVersion, DeployError> {
        let (name, content) = (&compiled.input.name, compiled.content(&record));
        let spec = self.versions.spec(name, &record, content, log);
        let known = earlier_build(&record.freeze);
        let code = &compiled.ready.code;
        let registering = self.backend.register_existing(&spec, code, known);
        let version = registering.await?;
        let is_read = version.ensure_in_memory().await?;
        let why = "the shared func-image is invalid";
        Ok(ReadyVersion {
            record,
            version,
            rebuilt: (!is_read).then(|| why.to_owned()),
        })
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

/// Describes why an image is not used that cannot be written here.
pub(super) fn not_written(error: ImageError) -> String {
    format!("it was not written to this node's disk: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::deploy::import::manifest_of;

    #[test]
    fn an_unusable_image_is_reported_with_the_reason() {
        let manifest = manifest_of(b"module", "f").unwrap();
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
}
