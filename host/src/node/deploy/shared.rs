//! Deploys a function from what the host has made before (`crate::shared`), without compiling or
//! initialising what is usable here. If the host's entry is not usable, the deployment is like any
//! other, and the log says why.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use faasw_client::{DeployStage, Digest, FunctionName, FunctionOptions};
use faasw_common::text::Line;
use faasw_pool::{EarlierBuild, ScriptFiles, SeedError};

use super::{
    code::CodeOwner, compile::CompiledModule, files::PackedFiles, import::initialisation_report,
    seed::SeededFunction,
};
use crate::{
    error::DeployError,
    log::{Event, FunctionLog},
    node::{
        carried::is_carried,
        core::{Core, blocking},
        deployments::DeploymentSlot,
    },
    registry::RegistryError,
    shared::Entry,
};

/// The result of a deployment from an entry.
struct SharedDeployment {
    seeded: SeededFunction,
    /// Whether its seed was read from the image rather than made.
    is_read: bool,
    slot: DeploymentSlot,
}

/// Why an entry is not used.
enum EntryUnusable {
    /// The entry is of another function, or lacks something.
    Unfit(&'static str),
    /// Using the entry failed.
    Failed(DeployError),
}

impl From<DeployError> for EntryUnusable {
    fn from(error: DeployError) -> Self {
        Self::Failed(error)
    }
}

impl From<RegistryError> for EntryUnusable {
    fn from(error: RegistryError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SeedError> for EntryUnusable {
    fn from(error: SeedError) -> Self {
        Self::Failed(error.into())
    }
}

impl Core {
    /// Returns a function that could serve, made of the host's entry, and its deployment's slot.
    /// Returns `None` if the node has no entry that it can use.
    pub(super) async fn take_shared(
        self: &Arc<Self>,
        name: &FunctionName,
        upload: &Bytes,
        options: &FunctionOptions,
        log: &Arc<FunctionLog>,
    ) -> Option<(SeededFunction, DeploymentSlot)> {
        let entry = self.storage.take_shared()?;
        let why = match self.of_entry(&entry, name, upload, options, log).await {
            Ok(SharedDeployment {
                seeded,
                is_read,
                slot,
            }) => {
                if is_read {
                    tracing::info!(function = %name, "the shared entry is used")
                } else {
                    tracing::warn!(
                        function = %name,
                        "the shared func-image is invalid; the seed was made here"
                    )
                }
                return Some((seeded, slot));
            }
            Err(EntryUnusable::Unfit(why)) => why.to_owned(),
            Err(EntryUnusable::Failed(error)) => error.to_string(),
        };
        tracing::warn!(function = %name, why = %Line(why), "the shared entry is not used; the \
             function is made here");
        None
    }

    async fn of_entry(
        self: &Arc<Self>,
        entry: &Entry,
        name: &FunctionName,
        upload: &Bytes,
        options: &FunctionOptions,
        log: &Arc<FunctionLog>,
    ) -> Result<SharedDeployment, EntryUnusable> {
        let begun = Instant::now();
        let digest = digest(upload).await?;
        entry
            .check(name, digest, options)
            .map_err(EntryUnusable::Unfit)?;
        let note = entry.note();
        if note.generation != self.backend.generation() {
            return Err(EntryUnusable::Unfit(
                "the code is for another instruction set",
            ));
        }
        let slot = self.deployments.begin(name, upload.len()).await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown.into());
        }
        self.register_entry_code(entry).await?;
        let module = if entry.module().is_empty() {
            Self::split(upload)?.0
        } else {
            entry.module().clone()
        };
        if self::digest(&module).await? != note.record.digest {
            return Err(EntryUnusable::Unfit(
                "its module differs from its description",
            ));
        }
        let has_files = note.record.files.is_some();
        let mut detected = self.detect(name, module, options.clone(), has_files)?;
        if detected.engine != note.record.engine {
            return Err(EntryUnusable::Unfit("its language engine differs here"));
        }
        if has_files {
            detected.files = Some(PackedFiles::of(entry.bundle().clone()).await?);
        }
        let ready = match &detected.engine {
            Some(engine) => self.engine_code(engine).await?,
            None => {
                let owner = CodeOwner::Function(name.clone());
                let stored = self.stored_code(note.record.digest, owner).await?;
                stored.ok_or(EntryUnusable::Unfit("it has no code"))?
            }
        };
        let compiled = CompiledModule {
            detected,
            digest: note.record.digest,
            ready,
            initialised: note.record.initialised.clone(),
            drawn_report: initialisation_report(&note.record),
        };
        let mut record = compiled.record();
        record.imaged = Some(note.record.made());
        record.freeze = note.record.freeze.clone();
        slot.progress().enter(DeployStage::Initialising);
        self.observer.notify(Event::MakingSeed { function: name });
        let CompiledModule {
            detected, ready, ..
        } = compiled;
        let script = record.engine.is_some();
        let script = script.then(|| ScriptFiles::InMemory(detected.module.clone()));
        let files = detected.files.as_ref();
        let files = files.map(|files| files.files(&record.options));
        let spec = self.spec(name, &record, script, files, log);
        let known = EarlierBuild {
            after_init: record.freeze.after_init,
            instantiation: record.freeze.instantiation,
            layer_bytes: record.freeze.layer_bytes,
        };
        let registering = self.backend.register_existing(&spec, &ready.code, known);
        let made = registering.await?;
        let is_read = made.ensure_in_memory().await?;
        let seeded = SeededFunction {
            function: self.build_version(name, record, log, made),
            module: detected.module,
            files: detected.files,
            ready,
            seed_time: begun.elapsed(),
        };
        Ok(SharedDeployment {
            seeded,
            is_read,
            slot,
        })
    }

    /// Takes the code of an entry over into the registry: a function's code, or that of its engine
    /// with the engine's record.
    async fn register_entry_code(&self, entry: &Entry) -> Result<(), EntryUnusable> {
        let note = entry.note().clone();
        let engine = note.record.engine.clone().zip(note.engine);
        if let Some((engine, record)) = &engine
            && (is_carried(&engine.name, engine.digest).is_none() || record.digest != engine.digest)
        {
            return Err(EntryUnusable::Unfit(
                "it is a script of an engine that this faasw does not carry",
            ));
        }
        let storage = self.storage.clone();
        let of = engine
            .as_ref()
            .map_or(note.record.digest, |(_, record)| record.digest);
        let taken = engine.clone();
        blocking(move || {
            let registry = &storage.registry;
            if let Some((engine, record)) = &taken {
                registry.register_engine(&engine.name, record)?;
            }
            registry.register_given_code(of, &note.generation, &note.code)
        })
        .await?;
        if let Some((engine, record)) = engine {
            self.engines.change(|table| {
                table.insert(engine.name, record);
            });
        }
        Ok(())
    }
}

async fn digest(bytes: &Bytes) -> Result<Digest, RegistryError> {
    let bytes = bytes.clone();
    blocking(move || Ok(Digest::of(&bytes))).await
}
