//! The third stage: a module becomes code of this machine, where it was not before.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use faasw_control::{Digest, FunctionName};

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
                self.compile_module(&detected.name, module).await?
            }
        };
        Ok(Compiled {
            detected,
            digest,
            ready,
        })
    }

    /// Has the engine compile a module.
    pub(super) async fn compile_module(
        &self,
        name: &FunctionName,
        module: Bytes,
    ) -> Result<Ready, DeployError> {
        let begun = Instant::now();
        self.observer.tell(Event::Compiling {
            function: name,
            module_bytes: module.len(),
        });
        let code = self.engine.compile(module).await?;
        let compile_time = Some(begun.elapsed());
        let artifact = {
            let code = code.clone();
            blocking(move || {
                let bytes = code.bytes();
                Ok(Artifact {
                    kind: code.kind(),
                    imports: code.imports().to_vec(),
                    code: bytes.map_err(|error| RegistryError::file("its code".as_ref(), error))?,
                })
            })
            .await?
        };
        Ok(Ready {
            code,
            artifact: Arc::new(artifact),
            compile_time,
        })
    }
}
