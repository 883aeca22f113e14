//! The progress of loading memory or code that guests may use before all of it is present.

use std::fmt;
use std::sync::{Arc, OnceLock};

use faasw_common::Lock;

type LoadCallback = Box<dyn FnOnce(bool) + Send>;

/// The state that all copies of a progress share.
#[derive(Default)]
struct Pending {
    /// Whether everything is present, once that is decided. Each request reads it.
    is_fully_loaded: OnceLock<bool>,
    /// The callbacks to call with that.
    callbacks: Lock<Vec<LoadCallback>>,
}

/// Whether memory or code is fully loaded. All copies report the same. `None` if it was loaded
/// before anything used it.
#[derive(Clone)]
pub struct LoadProgress(Option<Arc<Pending>>);

impl LoadProgress {
    /// Returns the progress of something that is fully loaded.
    #[must_use]
    pub const fn complete() -> Self {
        Self(None)
    }

    /// Returns the progress of something that is being loaded.
    #[must_use]
    pub fn pending() -> Self {
        Self(Some(Arc::default()))
    }

    /// Returns whether everything is fully loaded; `None` while it is being loaded.
    fn outcome(&self) -> Option<bool> {
        match &self.0 {
            Some(pending) => pending.is_fully_loaded.get().copied(),
            None => Some(true),
        }
    }

    /// Returns whether everything is present, and sealed. Until then only a user that waits for
    /// missing parts may use it.
    #[must_use]
    pub fn is_fully_loaded(&self) -> bool {
        self.outcome() == Some(true)
    }

    /// Returns whether some part can never be loaded: nothing may be made of the rest.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.outcome() == Some(false)
    }

    /// Calls `callback`, now or later, with `true` when everything is fully loaded, or with `false`
    /// when it never will be.
    pub fn on_decided(&self, callback: impl FnOnce(bool) + Send + 'static) {
        if let Some(pending) = &self.0 {
            let mut callbacks = pending.callbacks.lock();
            if self.outcome().is_none() {
                callbacks.push(Box::new(callback));
                return;
            }
        }
        callback(self.is_fully_loaded());
    }

    /// Records that everything is fully loaded, or never will be. Only the first call counts.
    pub(super) fn end(&self, is_fully_loaded: bool) {
        let Some(pending) = &self.0 else {
            return;
        };
        let callbacks = {
            let mut callbacks = pending.callbacks.lock();
            if pending.is_fully_loaded.set(is_fully_loaded).is_err() {
                return;
            }
            std::mem::take(&mut *callbacks)
        };
        for callback in callbacks {
            callback(is_fully_loaded);
        }
    }
}

impl fmt::Debug for LoadProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadProgress")
            .field(&self.outcome())
            .finish()
    }
}
