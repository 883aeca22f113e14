//! The tree of seeds: those that all functions share, and the functions' own.
//!
//! Level 0 is a booted guest, level 1 the Wasm engine with every import linked. Both are made once,
//! from the provider's own code, and stay. Level 2 is a function version, or a language engine,
//! whose scripts are function versions below it (AFaaS §4.3, Catalyzer §4.3). A function whose seed
//! was evicted is served from the nearest ancestor by doing the missing steps (best-effort fork,
//! AFaaS §4.3). Meanwhile its seed is made again, once. A script waits for its own seed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use faasw_abi::wire::FunctionKind;
use faasw_common::Lock;
use faasw_seedtree::Owner;
use faasw_seedtree::graph::{Budget, SeedHandle};
use faasw_seedtree::image::ImageError;

use super::engine_step::EngineStep;
use super::function::{FunctionVersion, VersionState};
use super::function_memory::FunctionMemory;
use super::graph::{SeedHold, SeedPurpose, Seeds};
use super::language_engine::LanguageEngine;
use super::seed_step::SeedStep;
use super::slots::SeedSlots;
use super::spec::{EarlierBuild, FreezeReport, FunctionSpec};
use crate::error::{PlatformError, SeedError};
use crate::images::Images;
use crate::instances::Keeper;
use crate::sandboxes::ZygotePool;
use crate::snapshots::{CodeHandle, SeedSnapshot, describe};
use crate::stats::SeedInfo;

/// The tree searches for accounts of functions that no longer exist when the number of accounts has
/// doubled since the last search. It counts at least this many for the last search.
const ACCOUNTS_MIN: usize = 64;

/// All seeds of a pool, and the functions that own them.
#[derive(Debug)]
pub struct SeedTree {
    seeds: Arc<Seeds>,
    booted: SeedHandle<SeedSnapshot, SeedStep>,
    linked: SeedHandle<SeedSnapshot, SeedStep>,
    keeper: Arc<Keeper>,
    function_budget: u64,
    functions: Lock<Vec<Weak<VersionState>>>,
    engines: Lock<Vec<Weak<LanguageEngine>>>,
    /// The accounts by function name, for all versions; and how many there were after the last
    /// search for unused accounts, at least [`ACCOUNTS_MIN`].
    accounts: Lock<(BTreeMap<String, Weak<FunctionMemory>>, usize)>,
    /// Number of the next function.
    next_number: AtomicU64,
    /// Number of the next version.
    next_deployment: AtomicU64,
}

/// Converts an error of a guest without a function, which is always the platform's.
fn platform(error: SeedError) -> PlatformError {
    match error {
        SeedError::Platform(error) => error,
        other => PlatformError::Protocol(other.to_string()),
    }
}

impl SeedTree {
    /// Creates a tree without seeds. The functions' seeds may take `budget`; each function may hold
    /// `function_budget` bytes, warm instances included. Evicted seeds are read from `images` if
    /// they are stored there.
    ///
    /// # Errors
    /// Returns an error if the graph rejects a shared seed, which would be a bug.
    pub fn new(
        zygote_pool: &Arc<ZygotePool>,
        keeper: Arc<Keeper>,
        slots: Arc<SeedSlots>,
        budget: Budget,
        function_budget: u64,
        images: Option<Arc<Images>>,
    ) -> Result<Self, PlatformError> {
        let seeds = Seeds::new(zygote_pool, slots, budget, images);
        let booted = seeds.define(None, Owner::Shared, SeedStep::Boot)?;
        let linked = seeds.define(Some(booted.key), Owner::Shared, SeedStep::Link)?;
        Ok(Self {
            seeds,
            booted,
            linked,
            keeper,
            function_budget,
            functions: Lock::default(),
            engines: Lock::default(),
            accounts: Lock::new((BTreeMap::new(), ACCOUNTS_MIN)),
            next_number: AtomicU64::new(0),
            next_deployment: AtomicU64::new(0),
        })
    }

    /// Returns the seed from which functions descend; the first call makes it.
    ///
    /// # Errors
    /// Returns an error if the platform fails.
    pub async fn linked(&self) -> Result<Arc<SeedSnapshot>, PlatformError> {
        if let Some(frozen) = self.linked.slot.get() {
            return Ok(frozen);
        }
        let made = self.seeds.obtain(self.linked.key).await;
        // This seed is never evicted.
        made.map(|held| held.clone()).map_err(platform)
    }

    /// Starts making or reading that seed, unless it is there or under way.
    pub fn begin_linked(&self) {
        self.seeds
            .start_making(self.linked.key, SeedPurpose::Clients);
    }

    /// Waits until no seed that clients wait for needs a processor, but at most this long.
    pub async fn wait_for_foreground(&self, most: Duration) {
        self.seeds.slots().foreground_done(most).await;
    }

    /// Returns how many makings are queued before that of a function's seed, or `None` if none of
    /// its seeds waits for a slot.
    pub fn queued_behind(&self, name: &str) -> Option<usize> {
        self.seeds.queued_behind(name)
    }

    /// Waits until the images of all seeds made so far are written.
    pub async fn wait_for_image_writes(&self) {
        self.seeds.wait_for_image_writes().await;
    }

    /// Creates a function version without adding it to the tree.
    ///
    /// # Errors
    /// Returns an error if its memory, configuration or warm-up requests exceed the limits of a
    /// guest, or if the graph rejects it.
    pub(super) fn new_function(
        &self,
        spec: &FunctionSpec,
        kind: FunctionKind,
        code: &Arc<CodeHandle>,
        time_limit: Duration,
        known: Option<EarlierBuild>,
    ) -> Result<Arc<VersionState>, SeedError> {
        let deployment = self.next_deployment.fetch_add(1, Ordering::Relaxed);
        let engine = match &spec.script {
            Some(script) => Some(self.engine(&script.engine, code, time_limit)?),
            None => None,
        };
        // All scripts of an engine use one code, whichever deployment brought it.
        let code = engine.as_ref().map_or(code, |engine| engine.code());
        let recipe = SeedStep::function(spec, kind, code, time_limit, known, deployment)?;
        if let Some(version) = recipe.function_step().filter(|_| known.is_some()) {
            self.seeds.note_stored_image(version);
        }
        let (warm_instances, function_memory) = (
            self.keeper.warm_instances(spec.poll),
            self.function_memory(&spec.name),
        );
        let (seeds, linked) = (&self.seeds, self.linked.key);
        let function = VersionState::new(
            seeds,
            linked,
            engine,
            recipe,
            warm_instances,
            function_memory,
        )?;
        Ok(Arc::new(function))
    }

    /// Returns the language engine with this code. All scripts with the same engine code share one
    /// engine; its seed is made with that of the first script.
    ///
    /// # Errors
    /// Returns an error if the graph rejects it.
    pub fn engine(
        &self,
        name: &str,
        code: &Arc<CodeHandle>,
        time_limit: Duration,
    ) -> Result<Arc<LanguageEngine>, SeedError> {
        let mut engines = self.engines.lock();
        engines.retain(|engine| engine.strong_count() > 0);
        let known = engines.iter().filter_map(Weak::upgrade);
        if let Some(engine) = known.into_iter().find(|engine| engine.is_of(code)) {
            return Ok(engine);
        }
        let number = self.next_deployment.fetch_add(1, Ordering::Relaxed);
        let version = EngineStep::new(name, number, code, time_limit)?;
        let engine = LanguageEngine::new(&self.seeds, self.linked.key, version)?;
        let engine = Arc::new(engine);
        engines.push(Arc::downgrade(&engine));
        Ok(engine)
    }

    /// Makes an engine's seed, unless it is there.
    ///
    /// # Errors
    /// Returns an error if the engine cannot be instantiated, or if the platform fails.
    pub async fn warm(&self, engine: &LanguageEngine) -> Result<(), SeedError> {
        self.seeds.obtain(engine.key()).await?;
        Ok(())
    }

    /// Makes a seed by the function's freeze policy. The seed stays in memory as long as the result
    /// is held.
    ///
    /// # Errors
    /// Returns an error if the function fails to load or instantiate within `time_limit`, or if the
    /// platform fails.
    pub async fn make(
        &self,
        spec: &FunctionSpec,
        kind: FunctionKind,
        code: &Arc<CodeHandle>,
        time_limit: Duration,
    ) -> Result<(FunctionVersion, FreezeReport, SeedHold), SeedError> {
        let function = self.new_function(spec, kind, code, time_limit, None)?;
        let frozen = self.seeds.obtain(function.key()).await?;
        function.record_seed_bytes(&frozen);
        let report = function.step().report(&frozen);
        self.add(&function);
        Ok((FunctionVersion::new(function), report, frozen))
    }

    /// Adds a function whose image was received from another node, if the image is valid here: its
    /// seed is then in memory without an initialisation. The inner error is the reason why the
    /// image is not valid; nothing was made then.
    ///
    /// # Errors
    /// Returns an error if the function exceeds the limits of a guest, if its parent's seed cannot
    /// be made, or if the platform fails.
    pub async fn restore(
        &self,
        spec: &FunctionSpec,
        kind: FunctionKind,
        code: &Arc<CodeHandle>,
        time_limit: Duration,
        known: EarlierBuild,
    ) -> Result<Result<FunctionVersion, ImageError>, SeedError> {
        let function = self.new_function(spec, kind, code, time_limit, Some(known))?;
        let engine = match function.engine() {
            Some(engine) => Some(self.seeds.obtain(engine.key()).await?),
            None => None,
        };
        let parent = match &engine {
            Some(engine) => Arc::clone(engine),
            None => self.linked().await?,
        };
        if let Err(error) = function.check_image(&parent).await {
            return Ok(Err(error));
        }
        self.seeds.obtain(function.key()).await?;
        if !function.step().is_restored() {
            // The image was removed or damaged since the check.
            return Ok(Err(ImageError::CutOff));
        }
        self.add(&function);
        Ok(Ok(FunctionVersion::new(function)))
    }

    /// Loads or makes a function's seed. Returns whether it came from its image.
    ///
    /// # Errors
    /// Returns an error if the seed cannot be made, or if the platform fails.
    pub async fn ensure_in_memory(&self, function: &VersionState) -> Result<bool, SeedError> {
        self.seeds.obtain(function.key()).await?;
        Ok(function.step().is_restored())
    }

    /// Returns the account of the versions of one function.
    fn function_memory(&self, name: &str) -> Arc<FunctionMemory> {
        let (accounts, kept) = &mut *self.accounts.lock();
        if let Some(function_memory) = accounts.get(name).and_then(Weak::upgrade) {
            return function_memory;
        }
        if accounts.len() >= 2 * *kept {
            accounts.retain(|_, function_memory| function_memory.strong_count() > 0);
            *kept = accounts.len().max(ACCOUNTS_MIN);
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let function_memory = FunctionMemory::new(number, self.function_budget, self.seeds.clone());
        accounts.insert(name.to_owned(), Arc::downgrade(&function_memory));
        function_memory
    }

    pub(super) fn add(&self, function: &Arc<VersionState>) {
        let mut functions = self.functions.lock();
        // The list is searched when it is full, so the more functions there are, the rarer is the
        // search.
        if functions.len() == functions.capacity() {
            functions.retain(|function| function.strong_count() > 0);
        }
        functions.push(Arc::downgrade(function));
        function
            .function_memory()
            .add(function.key(), function.warm_instances());
    }

    /// Returns the bytes of functions' seeds, and of the private pages of their warm instances.
    pub fn bytes_in_memory(&self) -> (u64, u64) {
        let functions = self.functions();
        let warm = functions
            .iter()
            .map(|function| function.warm_instances().bytes());
        (self.seeds.bytes(), warm.sum())
    }

    /// Describes every seed in its present state, parents before children.
    pub fn describe(&self) -> Vec<SeedInfo> {
        let shared = [&self.booted, &self.linked].into_iter();
        let mut all: Vec<SeedInfo> = shared
            .filter_map(|seed| {
                let name = seed.recipe.name();
                let described = seed.slot.look(|frozen| describe(name, frozen))?;
                Some(SeedInfo {
                    image_bytes: self.seeds.image_bytes(&seed.recipe),
                    ..described
                })
            })
            .collect();
        // Functions are listed before engines, so that the engine of a listed function is not
        // missing.
        let functions = self.functions();
        let engines: Vec<_> = self
            .engines
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for engine in &engines {
            let its = functions.iter().filter(|function| function.is_of(engine));
            all.push(engine.describe());
            all.extend(its.map(|function| function.describe()));
        }
        let others = functions.iter().filter(|function| !function.is_script());
        all.extend(others.map(|function| function.describe()));
        all
    }

    fn functions(&self) -> Vec<Arc<VersionState>> {
        let functions = self.functions.lock();
        functions.iter().filter_map(Weak::upgrade).collect()
    }
}
