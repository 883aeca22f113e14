//! Deploys a function from what the host has made before (`crate::shared`), without compiling or
//! initialising what is usable here. If the host's entry is not usable, the deployment is like any
//! other, and the log says why.

use std::{error::Error, sync::Arc};

use bytes::Bytes;
use faasw_client::{FunctionName, FunctionOptions};
use faasw_common::text::Line;

use super::{
    Deployer,
    input::{DeploymentInput, EarlierImage, EarlierVersion, InputFiles},
    seed::SeededFunction,
};
use crate::{
    log::FunctionLog,
    node::{carried_engine::CarriedEngine, content::PackedFiles, storage::digest_of},
    shared::Entry,
};

/// Why an entry is not used.
type EntryUnusable = Box<dyn Error + Send + Sync>;

impl Deployer {
    /// Returns a function that could serve, made of the host's entry. Returns `None` if the node
    /// has no entry that it can use.
    pub(super) async fn build_shared(
        &self,
        name: &FunctionName,
        upload: &Bytes,
        options: &FunctionOptions,
        log: &Arc<FunctionLog>,
    ) -> Option<SeededFunction> {
        let entry = self.storage.take_shared()?;
        let building = async {
            let input = self.shared_input(&entry, name, upload, options).await?;
            Ok::<_, EntryUnusable>(self.build(input, log).await?)
        };
        match building.await {
            Ok(seeded) => {
                match seeded.rebuilt {
                    None => tracing::info!(function = %name, "the shared entry is used"),
                    Some(_) => tracing::warn!(
                        function = %name,
                        "the shared func-image is invalid; the seed was made here"
                    ),
                }
                Some(seeded)
            }
            Err(why) => {
                tracing::warn!(function = %name, why = %Line(why), "the shared entry is not used; \
                     the function is made here");
                None
            }
        }
    }

    /// Checks an entry, takes its code over, and returns what a deployment of it starts from.
    async fn shared_input(
        &self,
        entry: &Entry,
        name: &FunctionName,
        upload: &Bytes,
        options: &FunctionOptions,
    ) -> Result<DeploymentInput, EntryUnusable> {
        entry.check(name, digest_of(upload).await?, options)?;
        let note = entry.note();
        if note.generation != self.code.generation() {
            return Err("the code is for another instruction set".into());
        }
        self.register_entry_code(entry).await?;
        let mut input = DeploymentInput::of_upload(name.clone(), upload.clone(), options.clone())?;
        if !entry.module().is_empty() {
            input.module = entry.module().clone();
        }
        if digest_of(&input.module).await? != note.record.digest {
            return Err("its module differs from its description".into());
        }
        if self.engines.engine_for(&input.module, options)? != note.record.engine {
            return Err("its language engine differs here".into());
        }
        input.files = match &note.record.files {
            Some(_) => {
                let files = PackedFiles::of(entry.bundle().clone()).await?;
                Some(InputFiles::Packed(files))
            }
            None => None,
        };
        input.earlier = Some(EarlierVersion {
            record: note.record.clone(),
            image: EarlierImage::Shared,
        });
        Ok(input)
    }

    /// Takes the code of an entry over into the registry: a function's code, or that of its engine
    /// with the engine's record.
    async fn register_entry_code(&self, entry: &Entry) -> Result<(), EntryUnusable> {
        let note = entry.note().clone();
        let engine = note.record.engine.zip(note.engine);
        if let Some((engine, record)) = &engine
            && (CarriedEngine::find(&engine.name, engine.digest).is_none()
                || record.digest != engine.digest)
        {
            return Err("it is a script of an engine that this faasw does not carry".into());
        }
        let compiled = engine.as_ref().map(|(engine, _)| engine.digest);
        let compiled = compiled.unwrap_or(note.record.digest);
        let taken = engine.clone();
        let registering = self.storage.run(move |registry| {
            if let Some((engine, record)) = &taken {
                registry.register_engine(&engine.name, record)?;
            }
            registry.register_given_code(compiled, &note.generation, &note.code)
        });
        registering.await?;
        if let Some((engine, record)) = engine {
            self.engines.insert(engine.name, record);
        }
        Ok(())
    }
}
