//! When a function is frozen, and what it does before that.

use faasw_abi::files::is_mount;
use faasw_common::FreezePolicy;

use super::{FunctionOptions, OptionsError};
use crate::WarmUpRequest;

/// Longest name of an export that initialises, in bytes.
pub(super) const LONGEST_EXPORT: usize = 1024;

/// Most bytes of the texts of all requests that warm a function up.
pub(super) const LARGEST_WARM_UPS: usize = 16 << 10;

impl FunctionOptions {
    /// Sets when the function's seed is frozen.
    #[must_use]
    pub fn freeze(mut self, policy: FreezePolicy) -> Self {
        self.freeze = policy;
        self
    }

    /// The freeze policy that is asked for.
    #[must_use]
    pub fn freeze_policy(&self) -> FreezePolicy {
        self.freeze
    }

    /// Has an export without parameters and results initialise the function when it is
    /// deployed: every request begins with what that left. One of a component's exported
    /// interface is named `interface#name`. It may not draw randomness, nor read a clock
    /// first, unless the freeze policy is [`FreezePolicy::AfterInit`].
    #[must_use]
    pub fn init(mut self, export: impl Into<String>) -> Self {
        self.init = Some(export.into());
        self
    }

    /// The export that initialises the function, if there is one.
    #[must_use]
    pub fn init_export(&self) -> Option<&str> {
        self.init.as_deref()
    }

    /// Has the function answer a request that nobody made before its seed is frozen, behind its
    /// initialisation and those given before: every request begins with what that left. It is
    /// answered well, with a status below 500, or the deployment fails. It may not have
    /// randomness drawn, unless the freeze policy is [`FreezePolicy::AfterInit`]. An instance that
    /// is made while there is no seed does without.
    #[must_use]
    pub fn warm_up(mut self, request: WarmUpRequest) -> Self {
        self.warm_ups.push(request);
        self
    }

    /// The requests that warm the function up, in their order.
    #[must_use]
    pub fn warm_ups(&self) -> &[WarmUpRequest] {
        &self.warm_ups
    }

    /// Has the function be frozen where it opens this of its files, by its absolute path: what it
    /// did before is done once. A command finds the variables of its request in it, each with a
    /// zero byte behind it.
    #[must_use]
    pub fn freeze_at(mut self, path: impl Into<String>) -> Self {
        self.freeze_at = Some(path.into());
        self
    }

    /// Which of its files it is to be frozen at, if at one.
    #[must_use]
    pub fn own_freeze_at(&self) -> Option<&str> {
        self.freeze_at.as_deref()
    }

    /// Checks what the types cannot.
    pub(super) fn check_freezing(&self) -> Result<(), OptionsError> {
        let is_file = |path: &&String| path.as_str() != "/" && is_mount(path);
        if let Some(path) = self.freeze_at.as_ref().filter(|path| !is_file(path)) {
            return Err(OptionsError::FreezeAt(path.clone()));
        }
        let warm_ups = self.warm_ups.iter().map(|request| request.as_str().len());
        if warm_ups.sum::<usize>() > LARGEST_WARM_UPS {
            return Err(OptionsError::WarmUps(
                "warm-up requests take 16 KiB at most, all together",
            ));
        }
        if !self.warm_ups.is_empty() && self.freeze == FreezePolicy::BeforeInit {
            return Err(OptionsError::WarmUps(
                "what warmed up is frozen afterwards: before-init and warm-up requests exclude \
                 each other",
            ));
        }
        if let Some(export) = &self.init {
            if export.is_empty() || export.len() > LONGEST_EXPORT {
                return Err(OptionsError::Init(
                    "the export that initialises is named by 1 to 1024 bytes",
                ));
            }
            if self.freeze == FreezePolicy::BeforeInit {
                return Err(OptionsError::Init(
                    "what initialises at deployment is frozen afterwards: before-init and an \
                     initialising export exclude each other",
                ));
            }
        }
        Ok(())
    }
}
