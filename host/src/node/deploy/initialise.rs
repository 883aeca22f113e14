//! The stage between compiling and seeding: initialises a function before its first request.
//!
//! If Wizer can, it rewrites the upload to a module that starts in the state that the initialising
//! export has left, and the deployment continues with that module. Otherwise the export is called
//! in the microVM in which the seed is made, each time a seed is made.

use std::sync::Arc;

use bytes::Bytes;
use faasw_abi::state::INITIALISER;
use faasw_client::{DeployStage, Digest, FunctionName, FunctionOptions, Initialisation};
use faasw_pool::{
    CompileError, FunctionSpec, InitialisationPlan, InitialiseError, InitialisedModule,
};

use super::{
    code::{CodeOwner, DeployableCode},
    compile::CompiledModule,
    detect::DetectedUpload,
};
use crate::{
    error::DeployError,
    log::{Event, FunctionLog},
    node::core::{Core, blocking},
};

impl Core {
    /// Initialises the module if it has an initialiser.
    pub(super) async fn initialise(
        &self,
        compiled: CompiledModule,
        log: &Arc<FunctionLog>,
    ) -> Result<CompiledModule, DeployError> {
        let (export, rewritten) = match &compiled.ready.code.initialising {
            None => return Ok(compiled),
            Some(InitialisationPlan::Refused { export, reason }) => {
                (export.clone(), Err(reason.clone()))
            }
            Some(InitialisationPlan::By(export)) => {
                let CompiledModule {
                    detected, ready, ..
                } = &compiled;
                let files = detected.files.as_ref();
                let spec = FunctionSpec {
                    files: files.map(|files| files.files(&detected.options)),
                    ..self.spec_of(&detected.name, &detected.options, None, log)
                };
                (export.clone(), self.rewritten(detected, ready, spec).await?)
            }
        };
        let reason = match rewritten {
            Ok(InitialisedModule { module, report }) => {
                let export = export.clone();
                let upload = compiled.digest;
                let initialised = Initialisation::AsModule { export, upload };
                match self
                    .continue_with_module(&compiled, module, initialised)
                    .await
                {
                    Err(DeployError::Compile(error)) if is_the_modules(&error) => error.to_string(),
                    other => {
                        return other.map(|compiled| CompiledModule {
                            drawn_report: Some(report),
                            ..compiled
                        });
                    }
                }
            }
            Err(reason) => reason,
        };
        let initialised = Initialisation::InMemory { export, reason };
        if compiled.ready.code.only_reports_state() {
            let module = compiled.detected.module.clone();
            return self
                .continue_with_module(&compiled, module, initialised)
                .await;
        }
        Ok(CompiledModule {
            initialised: Some(initialised),
            ..compiled
        })
    }

    /// Returns the module that starts in the state that the export has left, or the reason why
    /// there is no such module.
    async fn rewritten(
        &self,
        detected: &DetectedUpload,
        ready: &DeployableCode,
        spec: FunctionSpec,
    ) -> Result<Result<InitialisedModule, String>, DeployError> {
        let DetectedUpload { name, module, .. } = detected;
        detected.progress.enter(DeployStage::Initialising);
        self.observer.notify(Event::Initialising { function: name });
        let most_bytes = self.limits.module;
        let initialising = self
            .backend
            .initialise(&spec, &ready.code, module, most_bytes);
        match initialising.await {
            Ok(made) => Ok(Ok(made)),
            Err(InitialiseError::Refused(reason)) => Ok(Err(reason)),
            Err(InitialiseError::Seed(error)) => Err(error.into()),
            Err(InitialiseError::Compile(error)) => Err(error.into()),
        }
    }

    /// Continues the same deployment with this module, which is not to be initialised again.
    async fn continue_with_module(
        &self,
        CompiledModule {
            detected, ready, ..
        }: &CompiledModule,
        module: Bytes,
        initialised: Initialisation,
    ) -> Result<CompiledModule, DeployError> {
        // The upload was compiled just now, and nearly all of this module is the same.
        let cache = Some(ready.cache.clone()).filter(|cache| !cache.is_empty());
        let detected = DetectedUpload {
            name: detected.name.clone(),
            module,
            engine: None,
            options: detected.options.clone(),
            files: detected.files.clone(),
            progress: detected.progress.clone(),
        };
        detected.progress.enter(DeployStage::Compiling);
        let digest = {
            let module = detected.module.clone();
            blocking(move || Ok(Digest::of(&module))).await?
        };
        let owner = CodeOwner::Function(detected.name.clone());
        let stored = self.usable_stored_code(digest, owner).await?;
        let ready = match stored {
            Some(ready) => ready,
            None => {
                let module = detected.module.clone();
                self.compile_module(&detected.name, module, None, cache)
                    .await?
            }
        };
        Ok(CompiledModule {
            detected,
            digest,
            ready,
            initialised: Some(initialised),
            drawn_report: None,
        })
    }

    /// Returns the module as a deployment of `module` would rewrite it. Nothing is deployed.
    pub(in crate::node) async fn wizen(
        self: &Arc<Self>,
        module: Bytes,
        options: FunctionOptions,
    ) -> Result<Bytes, DeployError> {
        let name = FunctionName::new("wizen")?;
        // The log belongs to no function: the observer receives its lines, and none is stored.
        let log = Arc::new(FunctionLog::new(name.clone(), None, self.observer.clone()));
        let detected = self.detect(&name, module, options, false)?;
        if detected.engine.is_some() {
            let why = "a script is not a module: its engine initialises it at deployment";
            return Err(DeployError::NotInitialised(why.to_owned()));
        }
        let _slot = self.deployments.begin(&name, detected.module.len()).await;
        if self.has_ended() {
            return Err(DeployError::ShuttingDown);
        }
        let initialiser = detected.initialiser();
        let module = detected.module.clone();
        let ready = self
            .compile_module(&name, module, initialiser, None)
            .await?;
        match &ready.code.initialising {
            None => Err(DeployError::NotInitialised(format!(
                "it is no module that exports {INITIALISER}, and no other export was named to \
                 initialise it"
            ))),
            Some(InitialisationPlan::Refused { reason, .. }) => {
                Err(DeployError::NotInitialised(reason.clone()))
            }
            Some(InitialisationPlan::By(_)) => {
                let spec = FunctionSpec {
                    // This name is no function's, so the initialisation has an account of its own.
                    name: "wizen.wasm".to_owned(),
                    ..self.spec_of(&name, &detected.options, None, &log)
                };
                let rewritten = self.rewritten(&detected, &ready, spec).await?;
                let rewritten = rewritten.map_err(DeployError::NotInitialised)?;
                Ok(rewritten.module)
            }
        }
    }
}

/// Whether the error is a property of the module, so that it occurs again.
fn is_the_modules(error: &CompileError) -> bool {
    !matches!(error, CompileError::Helper(_) | CompileError::Platform(_))
}
