//! A function version as the tree holds it: a handle of its seed, its warm instances, and its
//! counters.
//!
//! By the freeze policy a seed is frozen either after instantiation or before it, because entropy
//! drawn by an initialisation would otherwise be shared by all requests. A deployment instantiates
//! the function once in any case, so that a function that cannot be instantiated is rejected. A
//! function that is known from an earlier making is added without an instantiation: its seed is
//! made later (`background_build`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use faasw_common::{ImageInfo, ShortfallCause};
use faasw_seedtree::Key;
use faasw_seedtree::graph::{Resident, Slot};
use faasw_seedtree::image::ImageError;

use super::function_memory::FunctionMemory;
use super::function_step::FunctionStep;
use super::graph::{SeedHold, Seeds};
use super::language_engine::LanguageEngine;
use super::seed_step::SeedStep;
use crate::error::PlatformError;
use crate::instances::WarmInstances;
use crate::sink::Served;
use crate::snapshots::{Code, SeedSnapshot, describe, has_failed};
use crate::stats::SeedInfo;

/// The number of ancestors of a function's seed: the booted guest and the linked imports; a script
/// has its engine, too.
const LEVEL: u8 = 2;

/// A function version that instances can be made of. Clones share it. Its seed is in memory, or was
/// evicted for others and is made again when it is used.
#[derive(Clone, Debug)]
pub struct FunctionVersion(Arc<VersionState>);

impl std::ops::Deref for FunctionVersion {
    type Target = Arc<VersionState>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FunctionVersion {
    /// Wraps a version of the tree.
    pub(super) fn new(function: Arc<VersionState>) -> Self {
        Self(function)
    }

    /// Returns a weak reference.
    pub(crate) fn downgrade(&self) -> WeakFunctionVersion {
        WeakFunctionVersion(Arc::downgrade(&self.0))
    }
}

/// A weak reference to a function version.
#[derive(Debug)]
pub struct WeakFunctionVersion(Weak<VersionState>);

impl WeakFunctionVersion {
    /// Returns the version, if it still exists.
    pub fn upgrade(&self) -> Option<FunctionVersion> {
        self.0.upgrade().map(FunctionVersion)
    }

    /// Returns whether the version no longer exists.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Returns whether it refers to this version.
    pub fn is(&self, version: &FunctionVersion) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&version.0))
    }
}

/// A function version as the tree holds it. Each deployment has a seed of its own, even with the
/// same inputs as another.
#[derive(Debug)]
pub struct VersionState {
    step: Arc<FunctionStep>,
    recipe: Arc<SeedStep>,
    key: Key,
    slot: Slot<SeedSnapshot>,
    seeds: Arc<Seeds>,
    /// The engine that a script descends from; it stays as long as the script does.
    engine: Option<Arc<LanguageEngine>>,
    warm_instances: Arc<WarmInstances>,
    function_memory: Arc<FunctionMemory>,
    busy: AtomicUsize,
    served: [AtomicU64; Served::ALL.len()],
    page_faults: AtomicU64,
    /// The bytes that its seed takes of the budget of all seeds, as far as known.
    seed_bytes: AtomicU64,
}

impl Drop for VersionState {
    fn drop(&mut self) {
        self.seeds.forget(self.key);
    }
}

impl VersionState {
    /// Creates a version whose seed `recipe` makes of `parent`, or of `engine` if it is a script.
    /// `recipe` has to be a version's.
    ///
    /// # Errors
    /// Returns [`PlatformError::Protocol`] if there can be no such seed.
    pub(super) fn new(
        seeds: &Arc<Seeds>,
        parent: Key,
        engine: Option<Arc<LanguageEngine>>,
        recipe: SeedStep,
        warm_instances: Arc<WarmInstances>,
        function_memory: Arc<FunctionMemory>,
    ) -> Result<Self, PlatformError> {
        let parent = engine.as_ref().map_or(parent, |engine| engine.key());
        let defined = seeds.define(Some(parent), function_memory.owner(), recipe)?;
        let Some(step) = defined.recipe.function_step().cloned() else {
            seeds.forget(defined.key);
            let what = "a function's seed is made by another step".to_owned();
            return Err(PlatformError::Protocol(what));
        };
        Ok(Self {
            seed_bytes: AtomicU64::new(step.expected_bytes()),
            step,
            recipe: defined.recipe,
            key: defined.key,
            slot: defined.slot,
            seeds: seeds.clone(),
            engine,
            warm_instances,
            function_memory,
            busy: AtomicUsize::new(0),
            served: Default::default(),
            page_faults: AtomicU64::new(0),
        })
    }

    pub(super) fn step(&self) -> &Arc<FunctionStep> {
        &self.step
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn seeds(&self) -> &Arc<Seeds> {
        &self.seeds
    }

    /// Returns its seed, if that is in memory. It is not evicted while the caller holds it.
    pub(crate) fn frozen(&self) -> Option<Arc<SeedSnapshot>> {
        let frozen = self.slot.get();
        frozen.filter(|frozen| !has_failed(frozen))
    }

    /// As [`Self::frozen`], for a caller without an instance of it, which may hold it for long.
    pub(crate) fn hold_seed(&self) -> Option<SeedHold> {
        let frozen = self.frozen()?;
        Some(SeedHold::new(&self.seeds, frozen))
    }

    /// Returns the result of `look` on its seed, if that is in memory. This does not count as a use
    /// of the seed.
    fn with_seed<V>(&self, look: impl FnOnce(&SeedSnapshot) -> V) -> Option<V> {
        let look = |frozen: &SeedSnapshot| (!has_failed(frozen)).then(|| look(frozen));
        self.slot.look(look).flatten()
    }

    /// Returns whether its seed is in memory.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.with_seed(|_| ()).is_some()
    }

    /// Returns the memory limit of its guests, in bytes.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.step.memory_limit()
    }

    /// Returns the RAM of its guests, in bytes.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.step.ram_bytes()
    }

    pub(crate) fn warm_instances(&self) -> &Arc<WarmInstances> {
        &self.warm_instances
    }

    /// Returns the account of what all its versions hold in memory.
    pub(crate) fn function_memory(&self) -> &FunctionMemory {
        &self.function_memory
    }

    /// Counts again what the function holds in memory. Ends warm instances and evicts unused seeds
    /// until the rest fits its budget.
    pub fn shrink_to_budget(&self) {
        self.function_memory.fit();
    }

    /// Returns the function's name.
    pub(crate) fn name(&self) -> &str {
        self.step.name()
    }

    /// Returns whether it is a script.
    pub(super) fn is_script(&self) -> bool {
        self.step.is_script()
    }

    /// Returns whether only its own seed can be forked for it.
    pub(crate) fn requires_own_seed(&self) -> bool {
        self.step.requires_own_seed()
    }

    /// Returns whether it is a script of this engine.
    pub(super) fn is_of(&self, engine: &Arc<LanguageEngine>) -> bool {
        let own = self.engine.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, engine))
    }

    /// Returns how many instances it lacks of those that it is to have at all times. `frozen` is
    /// its seed, or `None` if the seed is not in memory, so that nothing can be forked from it.
    pub(crate) fn missing_instances(&self, frozen: Option<&SeedSnapshot>) -> usize {
        if let Some(frozen) = frozen {
            // The bytes that making it again will take.
            self.record_seed_bytes(frozen);
        }
        let generation = frozen.map_or(0, |frozen| frozen.working_set().current().generation);
        self.warm_instances.missing(generation, self.busy())
    }

    /// Returns what prevents one more instance of it from being warm ahead of requests, if
    /// anything does: the function's own memory, or that of the seeds.
    pub(crate) fn instance_shortfall_cause(&self, frozen: &SeedSnapshot) -> Option<ShortfallCause> {
        // Instances at work will be warm again. There has to be room for them, too, so that
        // neither the new instance nor others are ended for lack of memory then.
        let more = 1 + self.busy() as u64;
        if self.function_memory.free_budget() < more.saturating_mul(frozen.bytes_of_new().max(1)) {
            return Some(ShortfallCause::FunctionMemory);
        }
        // A further instance would prevent the seed's eviction.
        self.seeds
            .is_over_budget()
            .then_some(ShortfallCause::SeedMemory)
    }

    /// Records the bytes that its seed takes when it is made again.
    pub(crate) fn record_seed_bytes(&self, frozen: &SeedSnapshot) {
        let bytes = Resident::bytes(frozen);
        self.seed_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns what prevents its seed from being made for instances ahead of requests, if anything
    /// does. The seed has to fit the budget of all seeds and that of its function.
    pub(crate) fn seed_shortfall_cause(&self) -> Option<ShortfallCause> {
        let bytes = self.seed_bytes.load(Ordering::Relaxed).max(1);
        if self.function_memory.free_budget() < bytes {
            return Some(ShortfallCause::FunctionMemory);
        }
        (self.seeds.free_budget() < bytes).then_some(ShortfallCause::SeedMemory)
    }

    /// Returns whether the function's budget has room for one more new instance.
    pub(crate) fn has_budget_for_instance(&self, frozen: &SeedSnapshot) -> bool {
        self.function_memory.free_budget() >= frozen.bytes_of_new().max(1)
    }

    /// Returns the best snapshot to fork while its seed is not in memory (best-effort fork, AFaaS
    /// §4.3).
    ///
    /// # Errors
    /// Returns [`PlatformError::Protocol`] if not even a shared seed is in memory, and
    /// [`PlatformError::CodeGone`] if its code cannot be loaded.
    pub(crate) async fn nearest(&self) -> Result<ForkOrigin, PlatformError> {
        let code = self.step.code().get().await?;
        let nearest = self.seeds.nearest(self.key);
        let (from, missing) = nearest.ok_or_else(|| {
            let what = "there is no seed that a function descends from".to_owned();
            PlatformError::Protocol(what)
        })?;
        let code = Some(code);
        Ok(ForkOrigin {
            from,
            missing,
            code,
        })
    }

    /// Writes its image anew, because more is known of its seed than when it was made. Its code may
    /// be gathered into large pages from now on.
    pub(crate) fn rewrite_image(&self, frozen: &Arc<SeedSnapshot>) {
        self.seeds.queue_image_write(&self.recipe, frozen);
        self.seeds.gather_code(self.key, &self.recipe, frozen);
    }

    /// Returns the size of its image, as noted when it was written or read. Returns `None` if there
    /// is no image. Reads no file.
    #[must_use]
    pub fn image_bytes(&self) -> Option<u64> {
        self.seeds.image_bytes(&self.recipe)
    }

    /// Describes its image, if there is one. Reads the whole image.
    ///
    /// # Errors
    /// Returns an [`ImageError`] if the image cannot be read or verified.
    pub async fn describe_image(&self) -> Result<Option<ImageInfo>, ImageError> {
        let Some(image_store) = self.seeds.image_store() else {
            return Ok(None);
        };
        let seed_hold = self.hold_seed();
        let frozen = seed_hold.as_deref().cloned();
        let parent = match &frozen {
            Some(frozen) => frozen.parent().cloned(),
            None => {
                let nearest = self.seeds.nearest(self.key);
                let parent = nearest.filter(|(_, missing)| missing.len() == 1);
                parent.map(|(from, _)| from)
            }
        };
        let parent = parent.and_then(|parent| parent.content());
        image_store.describe(&self.recipe, parent, frozen).await
    }

    /// Checks that its image is valid over this parent.
    ///
    /// # Errors
    /// Returns the reason why it is not.
    pub(super) async fn check_image(&self, parent: &Arc<SeedSnapshot>) -> Result<(), ImageError> {
        match self.seeds.image_store() {
            Some(image_store) => image_store.check(&self.recipe, parent).await,
            None => Err(std::io::Error::from(std::io::ErrorKind::NotFound).into()),
        }
    }

    /// Returns the engine that it is a script of, if it is one.
    pub(super) fn engine(&self) -> Option<&Arc<LanguageEngine>> {
        self.engine.as_ref()
    }

    /// Returns the number of its instances at work, being reset or being ended.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Counts a request that is served by such a sandbox, until the result is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>, served: Served) -> BusyGuard {
        self.slot.note_use(Instant::now());
        if let Some(count) = self.served.get(served as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.busy.fetch_add(1, Ordering::Relaxed);
        BusyGuard {
            function: self.clone(),
            served,
        }
    }

    /// Adds the page faults that an instance took for its request.
    pub(crate) fn count_faults(&self, page_faults: u64) {
        self.page_faults.fetch_add(page_faults, Ordering::Relaxed);
    }

    pub(super) fn describe(&self) -> SeedInfo {
        let count = |served: Served| {
            let count = self.served.get(served as usize);
            count.map_or(0, |count| count.load(Ordering::Relaxed))
        };
        let all: u64 = Served::ALL.map(count).iter().sum();
        SeedInfo {
            name: self.step.name().to_owned(),
            level: LEVEL + u8::from(self.is_script()),
            warm: self.warm_instances.count(),
            warm_bytes: self.warm_instances.bytes(),
            busy: self.busy(),
            requests: all,
            hits: count(Served::Warm),
            page_faults: self.page_faults.load(Ordering::Relaxed),
            image_bytes: self.image_bytes(),
            ..self
                .with_seed(|frozen| describe("", frozen))
                .unwrap_or_default()
        }
    }
}

/// The snapshot that an instance is forked from, and the steps that its guest has to do before it
/// is the function.
#[derive(Debug)]
pub struct ForkOrigin {
    /// The snapshot.
    pub from: Arc<SeedSnapshot>,
    /// The missing steps, in order.
    pub missing: Vec<Arc<SeedStep>>,
    /// The function's code.
    pub code: Option<Arc<Code>>,
}

impl ForkOrigin {
    /// Returns the origin for a fork of the function's own seed.
    pub fn own(frozen: Arc<SeedSnapshot>) -> Self {
        Self {
            code: frozen.state().code().cloned(),
            from: frozen,
            missing: Vec::new(),
        }
    }

    /// Returns the seed for which zygotes are to be specialised for forks of this kind. An ancestor
    /// that stands in for the function's seed does so for other functions, too.
    pub fn parent(&self) -> &Arc<SeedSnapshot> {
        if self.is_own() {
            self.from.parent().unwrap_or(&self.from)
        } else {
            &self.from
        }
    }

    /// Returns whether it is the function's own seed.
    pub fn is_own(&self) -> bool {
        self.missing.is_empty()
    }
}

/// A request under way. Dropping it marks its instance as free again.
#[derive(Debug)]
pub struct BusyGuard {
    function: Arc<VersionState>,
    served: Served,
}

impl BusyGuard {
    /// Records that another kind of sandbox serves the request after all.
    pub(crate) fn set_served(&mut self, served: Served) {
        let counts = &self.function.served;
        if let Some(count) = counts.get(self.served as usize) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(count) = counts.get(served as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.served = served;
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.function.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
