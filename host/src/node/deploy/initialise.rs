//! The stage between compiling and seeding: initialises a function before its first request.
//!
//! If Wizer can, it rewrites the upload to a module that starts in the state that the initialising
//! export has left, and the deployment continues with that module. Otherwise the export is called
//! in the microVM in which the seed is made, each time a seed is made.

use std::sync::Arc;

use bytes::Bytes;
use faasw_abi::state::INITIALISER;
use faasw_client::{DeployStage, FunctionName, FunctionOptions, Initialisation};
use faasw_pool::{
    CompileError, FunctionSpec, InitialisationPlan, InitialiseError, InitialisedModule,
};

use super::{Deployer, compile::CompiledModule, input::DeploymentInput, prepare::PreparedInput};
use crate::{
    error::DeployError,
    log::{Event, FunctionLog},
    node::code::DeployableCode,
    registry::FreezeRecord,
};

impl Deployer {
    /// Initialises the module if it has an initialiser.
    pub(super) async fn initialise(
        &self,
        compiled: CompiledModule,
        log: &Arc<FunctionLog>,
    ) -> Result<CompiledModule, DeployError> {
        let input = &compiled.input;
        let (export, rewritten) = match &compiled.ready.code.initialising {
            None => return Ok(compiled),
            Some(InitialisationPlan::Refused { export, reason }) => {
                (export.clone(), Err(reason.clone()))
            }
            Some(InitialisationPlan::By(export)) => {
                let files = input.files.as_ref();
                let spec = FunctionSpec {
                    files: files.map(|files| files.files(&input.options)),
                    ..self
                        .versions
                        .spec_of(&input.name, &input.options, None, log)
                };
                let rewriting = self.rewrite(input, &compiled.ready, spec);
                (export.clone(), rewriting.await?)
            }
        };
        let reason = match rewritten {
            Ok(InitialisedModule { module, report }) => {
                let (export, upload) = (export.clone(), input.digest);
                let initialised = Initialisation::AsModule { export, upload };
                let continuing = self.continue_with(&compiled, module, initialised);
                match continuing.await {
                    Err(DeployError::Compile(error)) if is_the_modules(&error) => error.to_string(),
                    continued => {
                        let freeze = Some(FreezeRecord::from(&report));
                        return continued.map(|compiled| CompiledModule { freeze, ..compiled });
                    }
                }
            }
            Err(reason) => reason,
        };
        let initialised = Initialisation::InMemory { export, reason };
        if compiled.ready.code.only_reports_state() {
            let module = input.module.clone();
            return self.continue_with(&compiled, module, initialised).await;
        }
        Ok(CompiledModule {
            initialised: Some(initialised),
            ..compiled
        })
    }

    /// Returns the module that starts in the state that the export has left, or the reason why
    /// there is no such module.
    async fn rewrite(
        &self,
        input: &PreparedInput,
        ready: &DeployableCode,
        spec: FunctionSpec,
    ) -> Result<Result<InitialisedModule, String>, DeployError> {
        let (name, module) = (&input.name, &input.module);
        input.slot.enter(DeployStage::Initialising);
        self.observer.notify(Event::Initialising { function: name });
        let most_bytes = self.limits.module;
        let initialising = self
            .backend
            .initialise(&spec, &ready.code, module, most_bytes);
        match initialising.await {
            Ok(rewritten) => Ok(Ok(rewritten)),
            Err(InitialiseError::Refused(reason)) => Ok(Err(reason)),
            Err(InitialiseError::Seed(error)) => Err(error.into()),
            Err(InitialiseError::Compile(error)) => Err(error.into()),
        }
    }

    /// Continues the same deployment with this module, which is not to be initialised again.
    async fn continue_with(
        &self,
        compiled: &CompiledModule,
        module: Bytes,
        initialised: Initialisation,
    ) -> Result<CompiledModule, DeployError> {
        compiled.input.slot.enter(DeployStage::Compiling);
        let input = compiled.input.with_module(module).await?;
        let ready = match self.stored_code(&input, None).await? {
            Some(ready) => ready,
            None => {
                // The upload was compiled just now, and nearly all of this module is the same.
                let cache = Some(compiled.ready.cache.clone()).filter(|cache| !cache.is_empty());
                let (name, module) = (&input.name, input.module.clone());
                let compiling = self.code.compile_module(name, module, None, cache);
                compiling.await?
            }
        };
        Ok(CompiledModule {
            input,
            ready,
            initialised: Some(initialised),
            freeze: None,
        })
    }

    /// Returns the module as a deployment of `module` would rewrite it. Nothing is deployed.
    pub(crate) async fn wizen(
        &self,
        module: Bytes,
        options: FunctionOptions,
    ) -> Result<Bytes, DeployError> {
        let name = FunctionName::new("wizen")?;
        // The log belongs to no function: the observer receives its lines, and none is stored.
        let log = Arc::new(FunctionLog::new(name.clone(), None, self.observer.clone()));
        let input = DeploymentInput::of_module(name, module, options);
        let engine = self.detect(&input)?;
        if engine.is_some() {
            let why = "a script is not a module: its engine initialises it at deployment";
            return Err(DeployError::NotInitialised(why.to_owned()));
        }
        let slot = self.deployments.begin(&input.name, input.bytes).await?;
        let input = self.prepare(input, engine, slot).await?;
        let (initialiser, module) = (input.initialiser(), input.module.clone());
        let compiling = self
            .code
            .compile_module(&input.name, module, initialiser, None);
        let ready = compiling.await?;
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
                    ..self
                        .versions
                        .spec_of(&input.name, &input.options, None, &log)
                };
                let rewritten = self.rewrite(&input, &ready, spec).await?;
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
