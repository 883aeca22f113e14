//! Deploys a function from what the host has made before (`crate::shared`), without compiling or
//! initialising what is usable here. If the host's entry is not usable, the deployment is like any
//! other, and the log says why.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use faasw_client::{DeployStage, Digest, FunctionName, FunctionOptions};
use faasw_common::text::Line;
use faasw_pool::{EarlierBuild, ScriptFiles, SeedError};

use super::{code::Whose, compile::Compiled, files::Packed, import::drew, seed::Seeded};
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
struct Taken {
    seeded: Seeded,
    /// Whether its seed was read from the image rather than made.
    is_read: bool,
    slot: DeploymentSlot,
}

/// Why an entry is not used.
enum Unused {
    /// The entry is of another function, or lacks something.
    Unfit(&'static str),
    /// Using the entry failed.
    Failed(DeployError),
}

impl From<DeployError> for Unused {
    fn from(error: DeployError) -> Self {
        Self::Failed(error)
    }
}

impl From<RegistryError> for Unused {
    fn from(error: RegistryError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SeedError> for Unused {
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
    ) -> Option<(Seeded, DeploymentSlot)> {
        let entry = self.storage.take_shared()?;
        let why = match self.of_entry(&entry, name, upload, options, log).await {
            Ok(Taken {
                seeded,
                is_read,
                slot,
            }) => {
                if is_read {
                    tracing::info!(function = %name, "it is as the host has made it before")
                } else {
                    tracing::warn!(
                        function = %name,
                        "its seed was made here: the image that the host has made of it was not \
                         good"
                    )
                }
                return Some((seeded, slot));
            }
            Err(Unused::Unfit(why)) => why.to_owned(),
            Err(Unused::Failed(error)) => error.to_string(),
        };
        tracing::warn!(function = %name, why = %Line(why), "what the host has made is not used; it \
             is made here");
        None
    }

    async fn of_entry(
        self: &Arc<Self>,
        entry: &Entry,
        name: &FunctionName,
        upload: &Bytes,
        options: &FunctionOptions,
        log: &Arc<FunctionLog>,
    ) -> Result<Taken, Unused> {
        let begun = Instant::now();
        let digest = digest(upload).await?;
        entry.check(name, digest, options).map_err(Unused::Unfit)?;
        let note = entry.note();
        if note.generation != self.backend.generation() {
            return Err(Unused::Unfit("it was compiled for another instruction set"));
        }
        let slot = self.deployments.begin(name, upload.len()).await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown.into());
        }
        self.take_code(entry).await?;
        let module = if entry.module().is_empty() {
            Self::split(upload)?.0
        } else {
            entry.module().clone()
        };
        if self::digest(&module).await? != note.record.digest {
            return Err(Unused::Unfit("its module is another than its note says"));
        }
        let has_files = note.record.files.is_some();
        let mut detected = self.detect(name, module, options.clone(), has_files)?;
        if detected.engine != note.record.engine {
            return Err(Unused::Unfit("its language engine is another here"));
        }
        if has_files {
            detected.files = Some(Packed::of(entry.bundle().clone()).await?);
        }
        let ready = match &detected.engine {
            Some(engine) => self.engine_code(engine).await?,
            None => {
                let whose = Whose::Function(name.clone());
                let stored = self.stored_code(note.record.digest, whose).await?;
                stored.ok_or(Unused::Unfit("it has no code"))?
            }
        };
        let compiled = Compiled {
            detected,
            digest: note.record.digest,
            ready,
            initialised: note.record.initialised.clone(),
            drew: drew(&note.record),
        };
        let mut record = compiled.record();
        record.imaged = Some(note.record.made());
        record.freeze = note.record.freeze.clone();
        slot.progress().enter(DeployStage::Initialising);
        self.observer.tell(Event::MakingSeed { function: name });
        let Compiled {
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
        let made = ready.code.adopt(&spec, known).await?;
        let is_read = made.have().await?;
        let seeded = Seeded {
            function: self.unnumbered(name, record, log, made),
            module: detected.module,
            files: detected.files,
            ready,
            seed_time: begun.elapsed(),
        };
        Ok(Taken {
            seeded,
            is_read,
            slot,
        })
    }

    /// Takes the code of an entry over into the registry: a function's code, or that of its engine
    /// with the engine's record.
    async fn take_code(&self, entry: &Entry) -> Result<(), Unused> {
        let note = entry.note().clone();
        let engine = note.record.engine.clone().zip(note.engine);
        if let Some((engine, record)) = &engine
            && (is_carried(&engine.name, engine.digest).is_none() || record.digest != engine.digest)
        {
            return Err(Unused::Unfit(
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
                registry.take_engine(&engine.name, record)?;
            }
            registry.take_code(of, &note.generation, &note.code)
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
