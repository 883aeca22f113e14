//! The pool: the interface that the node calls.

mod compiled_function;
mod compiling;
mod egress;
mod initialise;
mod invoke;
mod provisioning;
mod selection;
mod starting;

use std::sync::{Arc, Mutex, OnceLock};

use faasw_abi::isa::Isa;
use faasw_seedtree::image::ImageError;

pub use self::compiled_function::CompiledFunction;
pub use self::compiling::CompileOutput;
pub use self::egress::{Egress, EgressProcess, SpawnedConnector, SpawnedWorker};
pub use self::initialise::{InitialisationPlan, InitialisedModule};
use self::provisioning::Provisioning;
pub use self::starting::StartingPool;
use crate::ablation::Mechanism;
use crate::error::{PlatformError, SeedError, StartError};
use crate::fair_slots::FairSlots;
use crate::instances::{InstanceNumbers, Keeper};
use crate::invocation::{Admission, RelaySlots, ServedFunctions};
use crate::options::PoolOptions;
use crate::sandboxes::{EgressSpawner, FirstSandbox, ZygotePool};
use crate::seeds::{
    EarlierBuild, FreezeReport, FunctionSpec, FunctionVersion, LanguageEngine, SeedHold, SeedTree,
    register_existing,
};
use crate::stats::{PoolStats, SeedInfo};

#[derive(Debug)]
struct Inner {
    zygote_pool: Arc<ZygotePool>,
    egress_spawner: EgressSpawner,
    keeper: Arc<Keeper>,
    provisioning: Provisioning,
    tree: SeedTree,
    /// The first microVM on its way; `None` once [`Pool::started`] has taken it.
    first: Mutex<Option<FirstSandbox>>,
    options: PoolOptions,
    isa: Isa,
    /// Created by [`Pool::started`] or on first use: the system's memory limit for microVMs is not
    /// known before.
    admission: OnceLock<Admission>,
    compiling: Arc<FairSlots<String>>,
    relay: Arc<RelaySlots>,
    /// The functions that requests may come for.
    served: Arc<ServedFunctions>,
    instance_numbers: InstanceNumbers,
    processors: usize,
}

impl Inner {
    fn admission(&self) -> &Admission {
        self.admission.get_or_init(|| {
            let run_permits = if Mechanism::Turns.is_off() {
                usize::MAX
            } else {
                RUN_PERMITS_PER_PROCESSOR * self.processors
            };
            let mut memory = self.zygote_pool.memory();
            if let (None, Some(admitted)) = (memory.used, self.options.admitted_memory) {
                memory.max = memory.max.min(admitted);
            }
            let most = self.options.max_instances;
            Admission::new(most, memory, run_permits, self.served.clone())
        })
    }
}

/// A function version whose seed was just made. `V` is the handle of the version.
#[derive(Debug)]
pub struct SeededVersion<V = FunctionVersion> {
    /// The version.
    pub version: V,
    /// How its seed was frozen.
    pub report: FreezeReport,
}

/// Sandboxes, seeds and instances of one node. Clones share them.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

/// The number of run permits for each processor.
const RUN_PERMITS_PER_PROCESSOR: usize = 2;

impl Pool {
    /// Starts a pool. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns a [`StartError`] if this host cannot run guests; the message names the remedy.
    pub async fn start(options: PoolOptions) -> Result<Self, StartError> {
        let images = options.images.clone();
        let pool = Self::begin(options)?.with(images)?;
        pool.started().await?;
        Ok(pool)
    }

    /// Returns an identifier of what compiled code depends on in addition to its module. Code of
    /// another generation must not be loaded.
    #[must_use]
    pub fn generation(&self) -> String {
        format!("{}-{}", self.inner.isa, faasw_bundled::DIGEST)
    }

    /// Makes the seed that instances of a function are forked from.
    ///
    /// # Errors
    /// Returns a [`SeedError`] if the function cannot be loaded or instantiated, or if the platform
    /// fails.
    pub async fn make_seed(
        &self,
        spec: &FunctionSpec,
        function: &CompiledFunction,
    ) -> Result<SeededVersion, SeedError> {
        self.warm_engine_of(spec, function).await?;
        let (version, report, _) = self.make_and_hold(spec, function).await?;
        Ok(SeededVersion { version, report })
    }

    /// Makes a seed as [`Pool::make_seed`] does. It is not evicted while the returned [`SeedHold`]
    /// exists.
    async fn make_and_hold(
        &self,
        spec: &FunctionSpec,
        function: &CompiledFunction,
    ) -> Result<(FunctionVersion, FreezeReport, SeedHold), SeedError> {
        let time_limit = self.inner.options.instantiation_time;
        let tree = &self.inner.tree;
        tree.make(spec, function.kind, &function.code, time_limit)
            .await
    }

    /// Makes the engine's seed if the function is a script, so that the next script need not wait
    /// for it.
    async fn warm_engine_of(
        &self,
        spec: &FunctionSpec,
        function: &CompiledFunction,
    ) -> Result<(), SeedError> {
        match &spec.script {
            Some(script) => self.warm_engine(&script.engine, function).await,
            None => Ok(()),
        }
    }

    /// Makes the seed that the seeds of an engine's scripts are made of, unless it is there. It may
    /// stay while the engine's code exists, and while the engine has scripts.
    ///
    /// # Errors
    /// Returns a [`SeedError`] if the engine cannot be loaded or instantiated, or if the platform
    /// fails.
    pub async fn warm_engine(&self, name: &str, code: &CompiledFunction) -> Result<(), SeedError> {
        let engine = self.engine(name, code)?;
        self.inner.tree.warm(&engine).await?;
        // Concurrent calls have the same engine.
        code.engine.get_or_init(|| engine);
        Ok(())
    }

    /// Returns what an engine's scripts share. No seed is made.
    fn engine(
        &self,
        name: &str,
        code: &CompiledFunction,
    ) -> Result<Arc<LanguageEngine>, SeedError> {
        let time_limit = self.inner.options.instantiation_time;
        self.inner.tree.engine(name, &code.code, time_limit)
    }

    /// Adds a function with a seed that was made before, by this pool or another. Requests can come
    /// at once: the first one that needs the seed has it made.
    ///
    /// # Errors
    /// Returns a [`SeedError`] if its memory or configuration is more than a guest can have.
    pub fn register_existing(
        &self,
        spec: &FunctionSpec,
        function: &CompiledFunction,
        known: EarlierBuild,
    ) -> Result<FunctionVersion, SeedError> {
        if let Some(script) = &spec.script {
            let engine = self.engine(&script.engine, function)?;
            function.engine.get_or_init(|| engine);
        }
        register_existing(
            &self.inner.tree,
            spec,
            function.kind,
            &function.code,
            self.inner.options.instantiation_time,
            known,
        )
    }

    /// Adds a function whose image was put in its place from elsewhere
    /// ([`ImageImport::place`](crate::ImageImport::place)). If the image is valid here, its seed is
    /// in memory afterwards, without initialisation. Otherwise returns an [`ImageError`] as the
    /// inner result, and no function is added.
    ///
    /// # Errors
    /// Returns a [`SeedError`] if its memory or configuration is more than a guest can have, or if
    /// the platform fails.
    pub async fn restore(
        &self,
        spec: &FunctionSpec,
        function: &CompiledFunction,
        known: EarlierBuild,
    ) -> Result<Result<FunctionVersion, ImageError>, SeedError> {
        self.warm_engine_of(spec, function).await?;
        let time_limit = self.inner.options.instantiation_time;
        let tree = &self.inner.tree;
        let restoring = tree.restore(spec, function.kind, &function.code, time_limit, known);
        let restored = restoring.await?;
        if let Ok(version) = &restored {
            version.shrink_to_budget();
        }
        Ok(restored)
    }

    /// Brings the seed of an adopted function into memory: reads it from its image, or makes it if
    /// there is no valid image. Returns whether it was read.
    ///
    /// # Errors
    /// Returns a [`SeedError`] if the seed cannot be made, or if the platform fails.
    pub async fn ensure_in_memory(&self, version: &FunctionVersion) -> Result<bool, SeedError> {
        let is_read = self.inner.tree.ensure_in_memory(version).await?;
        version.shrink_to_budget();
        Ok(is_read)
    }

    /// Waits until the seed that all functions descend from exists and its image is written.
    /// Returns an identifier of its content, if it has an image. Images of functions build on that
    /// content and are useless once it changes.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if the seed cannot be made.
    pub async fn shared_content(&self) -> Result<Option<String>, PlatformError> {
        let linked = self.inner.tree.linked().await?;
        self.inner.tree.wait_for_image_writes().await;
        Ok(linked.content().map(|content| content.to_string()))
    }

    /// Notes that requests may come for a function with this memory limit, whether it was made here
    /// or not. While there are several functions, none is admitted to all of the capacity.
    pub fn note_function_added(&self, memory_limit: u64) {
        self.inner.served.add(memory_limit);
    }

    /// Notes that no more requests come for a function that was added with this memory limit.
    pub fn note_function_removed(&self, memory_limit: u64) {
        self.inner.served.remove(memory_limit);
    }

    /// Returns whether a request of the function would be admitted now.
    #[must_use]
    pub fn has_free_permit(&self, version: &FunctionVersion) -> bool {
        self.inner.admission().has_free_permit(version)
    }

    /// Evicts the invocation of this function that has waited longest for its client. Returns
    /// whether there was one.
    #[must_use]
    pub fn evict(&self, version: &FunctionVersion) -> bool {
        self.inner.admission().evict(version)
    }

    /// Returns every seed as it is now, parents before children.
    #[must_use]
    pub fn tree(&self) -> Vec<SeedInfo> {
        self.inner.tree.describe()
    }

    /// Returns how many microVMs there are now, and what functions hold in memory.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let (seed_bytes, warm_bytes) = self.inner.tree.bytes_in_memory();
        // Reading statistics early must not create the admission: the system's limits may not be
        // known yet.
        let admission = self.inner.admission.get();
        PoolStats {
            confinement: self.inner.options.confinement,
            seed_bytes,
            warm_bytes,
            seed_budget: self.inner.options.seed_memory,
            function_budget: self.inner.options.function_memory,
            zygotes: self.inner.zygote_pool.ready(),
            specialised: self.inner.zygote_pool.specialised(),
            zygote_pool: self.inner.zygote_pool.stats(),
            groups: self.inner.zygote_pool.groups(),
            memory: self.inner.zygote_pool.memory(),
            warm: self.inner.keeper.count(),
            shortfall: self.inner.provisioning.shortfall(),
            polling: self.inner.keeper.polling().stats(),
            resets: self.inner.keeper.resets().stats(),
            busy: admission.map_or(0, Admission::taken),
            waiting: admission.map_or(0, Admission::waiting),
            evicted: admission.map_or(0, Admission::evicted),
            memory_taken: admission.map_or(0, Admission::memory_taken),
            forbidden_calls: self.inner.zygote_pool.forbidden_calls()
                + self.inner.egress_spawner.forbidden_calls(),
        }
    }

    /// Returns the source of sandboxes.
    #[cfg(any(feature = "measuring", feature = "trial"))]
    pub(crate) fn zygote_pool(&self) -> Arc<ZygotePool> {
        self.inner.zygote_pool.clone()
    }

    /// Returns the seed that zygotes are specialised for.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if a guest without a function does not start.
    #[cfg(any(feature = "measuring", feature = "trial"))]
    pub(crate) async fn linked(
        &self,
    ) -> Result<Arc<crate::snapshots::SeedSnapshot>, PlatformError> {
        self.inner.tree.linked().await
    }

    /// Ends every process and thread of this pool, and waits until they are gone.
    pub async fn shutdown(&self) {
        self.inner.keeper.stop();
        self.inner.provisioning.stop();
        self.inner.egress_spawner.stop().await;
        self.inner.zygote_pool.stop().await;
    }
}
