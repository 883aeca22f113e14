//! A function that is deployed from a reference.

use std::collections::BTreeSet;

use bytes::Bytes;
use faasw::files::Files;
use faasw_client::{
    Client, DeployOutcome, FunctionLimits, FunctionName, FunctionOptions, OptionValue,
};
use faasw_oci::{Artifact, Reference, Registry, reference::TagOrDigest, registry::Action};

use super::{
    SCHEME, annotations,
    permissions::{ArtifactGrants, shown},
    registry,
};
use crate::{
    args::Registries,
    exit::Exit,
    files::{self, Folder},
    output::{self, print, print_json, say, size, stage_of, with_progress, with_stages},
};

/// A function that is deployed once, or each time that its tag leads elsewhere.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) client: Client,
    pub(super) name: FunctionName,
    pub(super) reference: Reference,
    pub(super) registries: Registries,
    pub(super) grants: ArtifactGrants,
    /// The options of the command line.
    pub(super) own: Vec<OptionValue>,
    pub(super) files: Option<Folder>,
    pub(super) is_json: bool,
}

impl Target {
    /// Returns a client of the repository, with the login that is stored now.
    pub(super) async fn registry(&self) -> Result<Registry, Exit> {
        registry(&self.reference, Action::Pull, &self.registries).await
    }

    /// Deploys the artifact to which a tag or a digest leads. Returns its digest.
    pub(super) async fn deploy(
        &mut self,
        registry: &Registry,
        which: &TagOrDigest,
    ) -> Result<faasw_client::Digest, Exit> {
        // This request comes before any download, because the node may not be running.
        let node = self.client.node().await?;
        let limit = node.module_limit as u64;
        let name = self.name.clone();
        let artifact = with_progress(&name, Artifact::find(registry, which)).await?;
        let options = self.options(&artifact, &node.defaults)?;
        let module = with_progress(&name, self.upload(registry, &artifact, limit)).await?;
        say(format_args!(
            "{name}: deploying {}…",
            size(module.len() as u64)
        ));
        let client = &self.client;
        let stage = async || stage_of(&name, client.deployments().await.ok()?);
        let deployed = with_stages(&name, client.deploy(&name, module, &options), stage)
            .await
            .map_err(|error| Exit::from(error).of(&name, "was not deployed"))?;
        self.print(&deployed)?;
        Ok(artifact.digest())
    }

    fn print(&self, deployed: &DeployOutcome) -> Result<(), Exit> {
        if self.is_json {
            print_json(deployed)
        } else {
            print(format!("{}\n", output::deployed(deployed)))
        }
    }

    /// Downloads the module and the files in front of it.
    async fn upload(
        &self,
        registry: &Registry,
        artifact: &Artifact,
        limit: u64,
    ) -> Result<Bytes, Exit> {
        let module = artifact.module(registry, limit).await?;
        if let Some(files) = &self.files {
            return files::prepend_files(&files.folder, &module);
        }
        if !artifact.has_files() {
            return Ok(module);
        }
        let mut its = Files::default();
        let add = |entry: faasw_oci::artifact::FilesEntry<'_>| {
            its.add(files::kind_of(entry.kind), entry.path, entry.content);
        };
        artifact.files(registry, files::LIMITS, add).await?;
        Ok(its.before(&module).into())
    }

    /// Returns the granted options of the artifact, overridden by those of the command line.
    fn options(
        &mut self,
        artifact: &Artifact,
        defaults: &FunctionLimits,
    ) -> Result<FunctionOptions, Exit> {
        let artifact_options = annotations::read(artifact.annotations()).map_err(Exit::failure)?;
        let artifact_options =
            without_overridden(artifact_options, &self.own, self.files.is_some());
        let taken = self
            .grants
            .apply(artifact_options, defaults)
            .map_err(|exit| exit.of(&self.name, "was not deployed"))?;
        let name = &self.name;
        if !taken.values.is_empty() {
            say(format_args!(
                "{name}: from its artifact: {}",
                shown(&taken.values)
            ));
        }
        if !taken.refused.is_empty() {
            say(format_args!(
                "{name}: not granted: {}",
                shown(&taken.refused)
            ));
        }
        let values = taken.values.iter().chain(&self.own);
        let options = FunctionOptions::from_values(values).map_err(Exit::failure)?;
        let from = artifact.reference(&self.reference);
        Ok(options.source(format!("{SCHEME}{from}")))
    }
}

/// Returns the artifact's options that the command line does not override. Variables and
/// configuration of the command line are added to those of the artifact, and override them by name.
fn without_overridden(
    artifact_options: Vec<OptionValue>,
    own: &[OptionValue],
    has_files: bool,
) -> Vec<OptionValue> {
    let named: BTreeSet<&str> = own.iter().map(OptionValue::name).collect();
    let kept = |value: &OptionValue| {
        // Other files may be at other paths, so the artifact's paths do not apply to them.
        let is_of_files = has_files && matches!(value.name(), "files-at" | "freeze-at");
        let is_own = named.contains(value.name()) && !value.definition.form.is_by_name();
        !is_own && !is_of_files
    };
    artifact_options.into_iter().filter(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_wins() {
        let value = |name: &str, text: &str| OptionValue::new(name, text).unwrap();
        let artifact_options = vec![
            value("env", "A=theirs"),
            value("env", "B=theirs"),
            value("memory", "65536"),
            value("arg", "theirs"),
            value("allow-outbound", "https://theirs.test"),
            value("files-at", "/theirs"),
            value("freeze", "before-init"),
        ];
        assert_eq!(
            without_overridden(artifact_options.clone(), &[], false),
            artifact_options
        );
        let own = [
            value("env", "A=ours"),
            value("memory", "131072"),
            value("arg", "ours"),
            value("allow-outbound", "https://ours.test"),
            value("freeze", "auto"),
        ];
        let mut left = without_overridden(artifact_options, &own, true);
        assert_eq!(left, [value("env", "A=theirs"), value("env", "B=theirs")]);
        left.extend(own);
        let options = FunctionOptions::from_values(&left).unwrap();
        let environment: BTreeSet<_> = options.environment().iter().cloned().collect();
        let expected = [("A", "ours"), ("B", "theirs")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(environment, expected.into());
        assert_eq!(
            (options.own_memory(), options.outbound().len()),
            (Some(131_072), 1)
        );
    }
}
