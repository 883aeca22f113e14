//! The pool: the interface that the node calls.

mod compiling;
mod egress;
mod initialise;
mod provisioning;
mod selection;
mod starting;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use faasw_abi::channel::ChannelKind;
use faasw_abi::isa::Isa;
use faasw_abi::wire::FunctionKind;
use faasw_common::ImageInfo;
use faasw_common::text::Line;
use faasw_seedtree::image::ImageError;

pub use self::egress::{Egress, EgressProcess, SpawnedConnector, SpawnedWorker};
pub use self::initialise::InitialisationPlan;
use self::provisioning::Provisioning;
pub use self::starting::StartingPool;
use crate::ablation::Mechanism;
use crate::error::{InvokeError, PlatformError, SeedError, StartError};
use crate::fair_slots::FairSlots;
use crate::instances::{InstanceNumbers, Keeper};
use crate::invocation::{
    Admission, FinishedInvocation, IncomingBody, Invocation, InvocationConfig, InvocationPermits,
    InvocationRequest, RelaySlots, Reply, ReplyBody, ResponseRest, Secrets, ServedFunctions,
    StartOutcome, permit_request,
};
use crate::mailbox::LogLines;
use crate::options::PoolOptions;
use crate::sandboxes::{EgressSpawner, FirstSandbox, ZygotePool};
use crate::seeds::{
    EarlierBuild, FreezeReport, FunctionSpec, FunctionVersion, LanguageEngine, SeedHold, SeedTree,
    register_existing,
};
use crate::sink::Timing;
use crate::snapshots::{Code, CodeDigest, CodeHandle, CodeSource};
use crate::stats::{PoolStats, SeedInfo};

/// A compiled function.
#[derive(Clone, Debug)]
pub struct CompiledFunction {
    /// The kind of the function, which determines how it is called.
    pub kind: FunctionKind,
    /// Full names of its imports; empty if the code was loaded instead of compiled.
    pub imports: Vec<String>,
    /// CPU time that compiling took; zero if the code was loaded.
    pub cpu: Duration,
    /// Whether it is a module with the export by which Wizer initialises modules.
    pub has_initialiser: bool,
    /// Whether it is a component with the exports of a language engine.
    pub is_engine: bool,
    /// The result of making it initialisable by Wizer, if that was requested.
    pub initialising: Option<InitialisationPlan>,
    pub(crate) code: Arc<CodeHandle>,
}

impl CompiledFunction {
    /// Returns code of this size and digest that is stored, and that is not read before it is
    /// needed. It leaves memory when nothing that is made of it exists any more. If `here` has the
    /// code in memory, it need not be read.
    #[must_use]
    pub fn stored(
        kind: FunctionKind,
        source: Arc<dyn CodeSource>,
        bytes: u64,
        digest: CodeDigest,
        here: Option<&Arc<Code>>,
    ) -> Self {
        Self::of(kind, CodeHandle::stored(source, bytes, digest, here))
    }

    fn of(kind: FunctionKind, code: CodeHandle) -> Self {
        Self {
            kind,
            imports: Vec::new(),
            cpu: Duration::ZERO,
            has_initialiser: false,
            is_engine: false,
            initialising: None,
            code: Arc::new(code),
        }
    }

    /// Notes that the code is stored by now, so it may leave memory as code of
    /// [`CompiledFunction::stored`] does.
    pub fn is_stored_at(&self, source: Arc<dyn CodeSource>, digest: CodeDigest) {
        self.code.is_stored_at(source, digest);
    }

    /// Returns the code if it is in memory.
    #[must_use]
    pub fn code(&self) -> Option<Arc<Code>> {
        self.code.in_memory()
    }

    /// Returns a copy of the artifact, for storing.
    ///
    /// # Errors
    /// Returns an error if the code is not in memory, or an error of the operating system if it
    /// cannot be read.
    pub fn bytes(&self) -> std::io::Result<Vec<u8>> {
        let code = self.code.in_memory();
        let code = code.ok_or_else(|| std::io::Error::other("the code is not in memory"))?;
        Ok(code.read()?)
    }

    /// Returns the size of the artifact in bytes.
    #[must_use]
    pub fn code_bytes(&self) -> u64 {
        self.code.bytes()
    }
}

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

    /// Returns the instruction set that functions are compiled for.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.inner.isa
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
    ) -> Result<(FunctionVersion, FreezeReport), SeedError> {
        let (version, report, _) = self.make_and_hold(spec, function).await?;
        Ok((version, report))
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

    /// Makes the seed that the seeds of an engine's scripts are made of, unless it is there. It may
    /// stay while the returned handle exists, and while the engine has scripts.
    ///
    /// # Errors
    /// Returns a [`SeedError`] if the engine cannot be loaded or instantiated, or if the platform
    /// fails.
    pub async fn make_engine_seed(
        &self,
        name: &str,
        engine: &CompiledFunction,
    ) -> Result<Arc<LanguageEngine>, SeedError> {
        let engine = self.engine(name, engine)?;
        self.inner.tree.warm(&engine).await?;
        Ok(engine)
    }

    /// Returns a handle of what an engine's scripts share. No seed is made.
    ///
    /// # Errors
    /// Returns a [`SeedError`] if the seed graph does not accept the engine.
    pub fn engine(
        &self,
        name: &str,
        engine: &CompiledFunction,
    ) -> Result<Arc<LanguageEngine>, SeedError> {
        let time_limit = self.inner.options.instantiation_time;
        self.inner.tree.engine(name, &engine.code, time_limit)
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
        let time_limit = self.inner.options.instantiation_time;
        let tree = &self.inner.tree;
        let restoring = tree.restore(spec, function.kind, &function.code, time_limit, known);
        let restored = restoring.await?;
        if let Ok(version) = &restored {
            version.function_memory().fit();
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
        version.function_memory().fit();
        Ok(is_read)
    }

    /// Makes a function's seed in the background, unless a request needs it before, or half of the
    /// memory for seeds is used by then.
    pub fn prewarm_seed(&self, version: &FunctionVersion) {
        version.prewarm_seed();
    }

    /// Counts again what a function holds in memory. Ends warm instances and evicts unused seeds
    /// until the rest fits its limit. Called once the function's code is stored.
    pub fn fit(&self, version: &FunctionVersion) {
        version.function_memory().fit();
    }

    /// Writes an image of a function's seed in the background, if there is no valid image. For
    /// that, the seed is made or read if it is not in memory, and is evicted afterwards.
    pub async fn ensure_image(&self, version: &FunctionVersion) {
        version.ensure_image().await;
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

    /// Returns whether a function's seed is in memory.
    #[must_use]
    pub fn has_seed_in_memory(&self, version: &FunctionVersion) -> bool {
        version.is_in_memory()
    }

    /// Returns the size of the image of a function's seed, as noted when it was written or read.
    /// Returns `None` if there is no image. Reads no file.
    #[must_use]
    pub fn image_bytes(&self, version: &FunctionVersion) -> Option<u64> {
        version.image_bytes()
    }

    /// Describes the image of a function's seed, if there is one. Reads the whole image.
    ///
    /// # Errors
    /// Returns an [`ImageError`] if the image cannot be read or verified.
    pub async fn describe_image(
        &self,
        version: &FunctionVersion,
    ) -> Result<Option<ImageInfo>, ImageError> {
        version.describe_image().await
    }

    /// Runs one request in an instance that is exactly in the state of its seed: a warm one, one
    /// that is just being reset, or a sandbox that is forked now.
    ///
    /// Dropping the future ends the instance.
    ///
    /// # Errors
    /// Returns an [`InvokeError`] that says why there is no response.
    pub async fn invoke(
        &self,
        version: &FunctionVersion,
        call: InvocationRequest,
    ) -> Result<Reply, InvokeError> {
        let arrived = Instant::now();
        // Waits for the seed before it takes a permit, so that other requests can use the permit
        // meanwhile.
        let waited_for = version
            .seed_if_required(call.limits.begins_within())
            .await?;
        let request = permit_request(version);
        let permit = match call.client.calling_function {
            None => self.inner.admission().admit(request).await?,
            Some(share) => self.inner.admission().admit_nested(share, request)?,
        };
        let head = call.head.encode();
        self.provision(version);
        // Short requests run one after the other: all are done sooner than if they took each
        // other's processors, and fewer instances are needed.
        let run_permit = match call.client.calling_function {
            None => Some(self.inner.admission().run_permit(request).await),
            // The invocation that waits for this one may have the last permit.
            Some(_) => self.inner.admission().try_run_permit(request),
        };
        // Steps that few requests take are boxed: each future in this one is moved with it, whether
        // it runs or not.
        let (mut instance, served) = match Self::take_warm(version).await {
            Some(warm) => {
                waited_for.into_iter().for_each(SeedHold::leave_to_instance);
                warm
            }
            None => Box::pin(self.take(version, waited_for)).await?,
        };
        let busy = version.begin_request(served);
        let incoming = IncomingBody::new(call.body);
        let is_whole = incoming.has_ended();
        let warm_instances = version.warm_instances();
        let active_request = warm_instances.polling().begin();
        let polls_for_end = instance.is_claimed
            && active_request.is_alone()
            && warm_instances.arrivals().is_quick()
            && !Mechanism::NodeLooks.is_off();
        // The sandbox of a claimed instance polls for its order first.
        let tells_end = !polls_for_end && (instance.is_claimed || self.is_quiet());
        instance
            .mailbox
            .open(ChannelKind::Invocation, &head, is_whole, tells_end)?;
        let calls = call.outbound.as_ref().map_or(0, |_| call.limits.calls);
        let secrets = call.secrets.as_ref().map(Secrets::bytes);
        let has_store = call.store.is_some();
        instance.mailbox.open_beside(has_store, secrets, calls)?;
        let number = self.inner.instance_numbers.next();
        let timing = Timing {
            instance: number,
            queue: arrived.elapsed(),
            served,
            ..Timing::default()
        };
        let mut invocation = Invocation::new(
            instance,
            version.clone(),
            LogLines::new(call.log, number),
            incoming,
            InvocationConfig {
                limits: call.limits,
                client: call.client,
                waits: self.inner.admission().waits(),
                relay: self.inner.relay.clone(),
                active_request,
                store: call.store,
                secrets: call.secrets,
                outbound: call.outbound,
                polls_for_end,
            },
            timing,
            InvocationPermits {
                admission: permit,
                busy,
                caller: call.caller_permit,
            },
        );
        if let Some(permit) = run_permit {
            invocation.set_run_permit(permit);
        }
        let mut started = invocation.start().await;
        if let Err(InvokeError::Platform(error)) = &started
            && Box::pin(invocation.end_if_untouched()).await
        {
            let error = Line(error);
            tracing::debug!(number, %error, "a request begins again in another microVM");
            started = Box::pin(self.start_again(&mut invocation, version, &head)).await;
        }
        let followed = match started {
            Ok(StartOutcome::Streaming(head)) => {
                return Ok(invocation.into_streaming_reply(head, None));
            }
            Ok(StartOutcome::Finished(done)) => match invocation.room_for_rest(&done) {
                Ok(Some(room)) => Ok((done, room)),
                // The client has enough to read: it receives the rest as it reads.
                Ok(None) => match invocation.take_head() {
                    Ok(head) => return Ok(invocation.into_streaming_reply(head, Some(done))),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let FinishedInvocation {
            rest,
            result,
            timing,
            log,
        } = invocation.finish(followed).await;
        match rest {
            Some(ResponseRest {
                head: Some(head),
                bytes,
                trailers,
            }) => {
                // The response counts; a later failure is reported separately.
                if let Err(error) = &result {
                    log.sink().stream_ended(Err(error));
                }
                Ok(Reply {
                    head,
                    body: ReplyBody::Whole { bytes, trailers },
                    timing,
                })
            }
            _ => Err(result.err().unwrap_or(InvokeError::NoResponse)),
        }
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
    pub fn has_room(&self, version: &FunctionVersion) -> bool {
        self.inner.admission().has_room(version)
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

    /// Returns the source of sandboxes, and the seed that zygotes are specialised for.
    ///
    /// # Errors
    /// Returns a [`PlatformError`] if a guest without a function does not start.
    #[cfg(any(feature = "measuring", feature = "trial"))]
    pub(crate) async fn sandboxes(
        &self,
    ) -> Result<(Arc<ZygotePool>, Arc<crate::snapshots::SeedSnapshot>), PlatformError> {
        let linked = self.inner.tree.linked().await?;
        Ok((self.inner.zygote_pool.clone(), linked))
    }

    /// Ends every process and thread of this pool, and waits until they are gone.
    pub async fn shutdown(&self) {
        self.inner.keeper.stop();
        self.inner.provisioning.stop();
        self.inner.egress_spawner.stop().await;
        self.inner.zygote_pool.stop().await;
    }
}
