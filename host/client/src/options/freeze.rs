//! Options for the freeze of a function, and for its work before that.

use faasw_abi::files::is_mount;
use faasw_common::FreezePolicy;

use super::{FunctionOptions, OptionsError, inputs::excerpt};
use crate::WarmUpRequest;

/// Maximum length of the name of an initialising export in bytes.
pub(super) const LONGEST_EXPORT: usize = 1024;

/// Maximum size of the texts of all warm-up requests together in bytes.
pub(super) const LARGEST_WARM_UPS: usize = 16 << 10;

impl FunctionOptions {
    /// Sets when the function's seed is frozen.
    #[must_use]
    pub fn freeze(mut self, policy: FreezePolicy) -> Self {
        self.freeze = policy;
        self
    }

    /// Returns the requested freeze policy.
    #[must_use]
    pub fn freeze_policy(&self) -> FreezePolicy {
        self.freeze
    }

    /// Sets an export that initialises the function at its deployment. It has neither parameters
    /// nor results. Every request starts from the state that the export leaves. An export of a
    /// component's interface has the name `interface#name`. Unless the freeze policy is
    /// [`FreezePolicy::AfterInit`], the export must not draw randomness, and must not read a clock
    /// unless the instantiation has read one.
    #[must_use]
    pub fn init(mut self, export: impl Into<String>) -> Self {
        self.init = Some(export.into());
        self
    }

    /// Returns the export that initialises the function, if there is one.
    #[must_use]
    pub fn init_export(&self) -> Option<&str> {
        self.init.as_deref()
    }

    /// Adds a warm-up request, which the function answers before its seed is frozen, after its
    /// initialisation and the earlier warm-up requests. Every request starts from the state that
    /// the warm-up leaves. If the answer has a status of 500 or above, the deployment fails. Unless
    /// the freeze policy is [`FreezePolicy::AfterInit`], the function must not draw randomness. An
    /// instance that is made while there is no seed is not warmed up.
    #[must_use]
    pub fn warm_up(mut self, request: WarmUpRequest) -> Self {
        self.warm_ups.push(request);
        self
    }

    /// Returns the warm-up requests in their order.
    #[must_use]
    pub fn warm_ups(&self) -> &[WarmUpRequest] {
        &self.warm_ups
    }

    /// Freezes the function when it opens one of its files, named by an absolute path. The
    /// function's work before that is done only once. A command reads the variables of its request
    /// from the file, each followed by a zero byte.
    #[must_use]
    pub fn freeze_at(mut self, path: impl Into<String>) -> Self {
        self.freeze_at = Some(path.into());
        self
    }

    /// Returns the file whose opening freezes the function, if one is set.
    #[must_use]
    pub fn own_freeze_at(&self) -> Option<&str> {
        self.freeze_at.as_deref()
    }

    /// Checks constraints that the types do not express.
    pub(super) fn check_freezing(&self) -> Result<(), OptionsError> {
        let is_file = |path: &&String| path.as_str() != "/" && is_mount(path);
        if let Some(path) = self.freeze_at.as_ref().filter(|path| !is_file(path)) {
            return Err(OptionsError::FreezeAt(excerpt(path)));
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
