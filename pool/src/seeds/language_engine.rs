//! Language engines: components that take scripts.
//!
//! An engine is instantiated once, and its seed is what the seeds of all its scripts are made
//! of (AFaaS §4.3, Catalyzer §4.3). It has run nobody's script, so that all may share it.

use std::sync::Arc;

use faasw_seedtree::graph::Slot;
use faasw_seedtree::{Key, Owner};

use super::engine::EngineVersion;
use super::graph::Seeds;
use super::recipe::Recipe;
use crate::error::SeedError;
use crate::snapshots::{Frozen, KeptCode, describe};
use crate::stats::SeedInfo;

/// How many ancestors an engine has.
const LEVEL: u8 = 2;

/// An engine in the tree. Its seed may be evicted while none of its scripts has one.
#[derive(Debug)]
pub struct LanguageEngine {
    version: Arc<EngineVersion>,
    recipe: Arc<Recipe>,
    key: Key,
    slot: Slot<Frozen>,
    seeds: Arc<Seeds>,
}

impl Drop for LanguageEngine {
    fn drop(&mut self) {
        self.seeds.forget(self.key);
    }
}

impl LanguageEngine {
    /// An engine whose seed is made of `parent`.
    ///
    /// # Errors
    /// When the graph does not take it.
    pub(super) fn new(
        seeds: &Arc<Seeds>,
        parent: Key,
        version: EngineVersion,
    ) -> Result<Self, SeedError> {
        let version = Arc::new(version);
        let recipe = Recipe::Engine(version.clone());
        let defined = seeds.define(Some(parent), Owner::Shared, recipe)?;
        Ok(Self {
            version,
            recipe: defined.recipe,
            key: defined.key,
            slot: defined.slot,
            seeds: seeds.clone(),
        })
    }

    /// Its seed's name.
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Whether it is this code.
    pub(super) fn is_of(&self, code: &Arc<KeptCode>) -> bool {
        self.version.is_of(code)
    }

    /// Its compiled code, which its scripts share.
    pub(super) fn code(&self) -> &Arc<KeptCode> {
        self.version.code()
    }

    /// Whether its seed is in memory. It may not be made yet, or have been evicted.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.slot.look(|_| ()).is_some()
    }

    /// What its seed says of itself.
    pub(super) fn describe(&self) -> SeedInfo {
        let described = self.slot.look(|frozen| describe("", frozen));
        SeedInfo {
            name: self.version.name().to_owned(),
            level: LEVEL,
            is_shared: true,
            image_bytes: self.seeds.image_bytes(&self.recipe),
            ..described.unwrap_or_default()
        }
    }
}
