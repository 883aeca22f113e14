//! Language engines: components that take scripts.
//!
//! An engine is instantiated once, and the seeds of all its scripts are made of its seed (AFaaS
//! §4.3, Catalyzer §4.3). It has run no tenant's script, so all of them may share it.

use std::sync::Arc;

use faasw_seedtree::graph::Slot;
use faasw_seedtree::{Key, Owner};

use super::engine_step::EngineStep;
use super::graph::Seeds;
use super::seed_step::SeedStep;
use crate::error::SeedError;
use crate::snapshots::{CodeHandle, SeedSnapshot, describe};
use crate::stats::SeedInfo;

/// The number of ancestors of an engine's seed.
const LEVEL: u8 = 2;

/// An engine in the tree. Its seed may be evicted while none of its scripts has a seed in memory.
#[derive(Debug)]
pub struct LanguageEngine {
    step: Arc<EngineStep>,
    recipe: Arc<SeedStep>,
    key: Key,
    slot: Slot<SeedSnapshot>,
    seeds: Arc<Seeds>,
}

impl Drop for LanguageEngine {
    fn drop(&mut self) {
        self.seeds.forget(self.key);
    }
}

impl LanguageEngine {
    /// Creates an engine whose seed is made of `parent`.
    ///
    /// # Errors
    /// Returns an error if the graph rejects it.
    pub(super) fn new(
        seeds: &Arc<Seeds>,
        parent: Key,
        step: EngineStep,
    ) -> Result<Self, SeedError> {
        let step = Arc::new(step);
        let recipe = SeedStep::Engine(step.clone());
        let defined = seeds.define(Some(parent), Owner::Shared, recipe)?;
        Ok(Self {
            step,
            recipe: defined.recipe,
            key: defined.key,
            slot: defined.slot,
            seeds: seeds.clone(),
        })
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Returns whether it has this code.
    pub(super) fn is_of(&self, code: &Arc<CodeHandle>) -> bool {
        self.step.is_of(code)
    }

    /// Returns its compiled code, which its scripts share.
    pub(super) fn code(&self) -> &Arc<CodeHandle> {
        self.step.code()
    }

    /// Returns whether its seed is in memory. The seed may not have been made yet, or may have been
    /// evicted.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.slot.look(|_| ()).is_some()
    }

    pub(super) fn describe(&self) -> SeedInfo {
        let described = self.slot.look(|frozen| describe("", frozen));
        SeedInfo {
            name: self.step.name().to_owned(),
            level: LEVEL,
            is_shared: true,
            image_bytes: self.seeds.image_bytes(&self.recipe),
            ..described.unwrap_or_default()
        }
    }
}
