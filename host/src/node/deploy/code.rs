//! Code that seeds can be made of.

use std::{sync::Arc, time::Duration};

use crate::{engine::Code, registry::Artifact};

/// Code, and what the registry keeps of it.
pub(super) struct Ready {
    pub(super) code: Arc<dyn Code>,
    pub(super) artifact: Arc<Artifact>,
    /// What compiling took; nothing when the registry had it.
    pub(super) compile_time: Option<Duration>,
}
