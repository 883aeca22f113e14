//! The first stage: whether what was sent can be a function here at all.

use bytes::Bytes;
use faasw_control::{FunctionName, FunctionOptions};

use crate::{error::DeployError, node::core::Core};

/// A module within the node's limits, with options that make sense. What it is by its
/// bytes is for the compile helper to say: the node parses nothing of a tenant's.
pub(super) struct Detected {
    pub(super) name: FunctionName,
    pub(super) module: Bytes,
    pub(super) options: FunctionOptions,
}

impl Core {
    /// Checks what costs nothing to check.
    pub(super) fn detect(
        &self,
        name: &FunctionName,
        module: Bytes,
        options: FunctionOptions,
    ) -> Result<Detected, DeployError> {
        options.check()?;
        self.check_hosts(name, &options)?;
        let (size, limit) = (module.len(), self.limits.module);
        if size > limit {
            return Err(DeployError::TooLarge { size, limit });
        }
        Ok(Detected {
            name: name.clone(),
            module,
            options,
        })
    }
}
