//! The third stage: a module becomes code of this machine, where it was not before.

use std::time::Instant;

use bytes::Bytes;
use faasw_control::{Digest, FreezePolicy, FunctionName, FunctionOptions, Initialised};
use faasw_pool::FreezeReport;

use super::{code::Ready, detect::Detected, prepare::Prepared};
use crate::{
    error::DeployError,
    log::Event,
    node::core::{Core, blocking},
    registry::{Artifact, RegistryError},
};

/// A module and its code.
pub(super) struct Compiled {
    pub(super) detected: Detected,
    pub(super) digest: Digest,
    pub(super) ready: Ready,
    /// How it was initialised, if it was.
    pub(super) initialised: Option<Initialised>,
    /// What that drew, if it is part of the module now.
    pub(super) drew: Option<FreezeReport>,
}

/// By what a module is to be initialised.
#[derive(Debug)]
pub(in crate::node) enum Initialiser {
    /// By what it has for that.
    Found,
    /// By this export.
    Named(String),
}

impl Initialiser {
    /// What a function with these options is to be initialised by, if by anything.
    pub(super) fn of(options: &FunctionOptions) -> Option<Self> {
        match (options.init_export(), options.freeze_policy()) {
            (Some(export), _) => Some(Self::Named(export.to_owned())),
            // Nothing that it does before a request is to be shared.
            (None, FreezePolicy::BeforeInit) => None,
            (None, _) => Some(Self::Found),
        }
    }
}

impl Core {
    /// Compiles what has not been compiled.
    pub(super) async fn compile(&self, prepared: Prepared) -> Result<Compiled, DeployError> {
        let Prepared {
            detected,
            digest,
            stored,
        } = prepared;
        let ready = match stored {
            Some(ready) => ready,
            None => {
                let module = detected.module.clone();
                let initialiser = Initialiser::of(&detected.options);
                self.compile_module(&detected.name, module, initialiser)
                    .await?
            }
        };
        Ok(Compiled {
            detected,
            digest,
            ready,
            initialised: None,
            drew: None,
        })
    }

    /// Compiles a module, so that it can be initialised where it is to be.
    pub(super) async fn compile_module(
        &self,
        name: &FunctionName,
        module: Bytes,
        initialiser: Option<Initialiser>,
    ) -> Result<Ready, DeployError> {
        self.observer.tell(Event::Compiling {
            function: name,
            module_bytes: module.len(),
        });
        self.compile_code(module, initialiser).await
    }

    /// The same, and nobody is told.
    pub(in crate::node) async fn compile_code(
        &self,
        module: Bytes,
        initialiser: Option<Initialiser>,
    ) -> Result<Ready, DeployError> {
        let begun = Instant::now();
        let compiling = match initialiser {
            None => self.engine.compile(module),
            Some(Initialiser::Found) => self.engine.compile_to_initialise(module, None),
            Some(Initialiser::Named(export)) => {
                self.engine.compile_to_initialise(module, Some(export))
            }
        };
        let code = compiling.await?;
        let compile_time = Some(begun.elapsed());
        let artifact = {
            let code = code.clone();
            blocking(move || {
                let bytes = code.bytes();
                Ok(Artifact {
                    kind: code.kind(),
                    imports: code.imports().to_vec(),
                    has_initialiser: code.has_initialiser(),
                    code: bytes.map_err(|error| RegistryError::file("its code".as_ref(), error))?,
                })
            })
            .await?
        };
        Ok(Ready::new(code, artifact, compile_time))
    }
}
