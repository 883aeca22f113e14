//! Instances that are warm ahead of requests, as many of each function as
//! [`PoolOptions::min_warm`](crate::PoolOptions::min_warm) says. Elsewhere this is called
//! provisioned concurrency; it is the pooling of AFaaS §4.2 for functions without requests so far.
//!
//! A single task makes missing instances, one after the other: the first of each function before
//! the second of any. Requests go first: sandboxes are made when nothing else wants to run, ready
//! sandboxes are left to requests, and the task waits a while for seeds that are being made for
//! requests. An instance that does not fit the budgets is not made, because it would end others
//! that are then made again. Failures are retried at growing intervals.
//!
//! If the seed of a version is not in memory, it is made, if the budget of all seeds has room for
//! it. What is missing, and why, is kept for queries, and is logged once for each reason.
//!
//! The task looks for missing instances when a version begins to serve, and once a second. So the
//! end of an instance need not be reported.

mod failure_backoff;
mod queue;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use faasw_common::text::Line;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep, timeout};

pub use self::queue::Provisioning;
use self::queue::{LackingVersion, ProvisionedVersion, lock};
use super::{Inner, Pool};
use crate::error::PlatformError;
use crate::seeds::{ForkOrigin, FunctionVersion};
use crate::snapshots::SeedSnapshot;
use crate::stats::{ShortfallCause, WarmShortfall};

/// How often the task looks for missing instances.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long, and how often at most, the task pauses before each instance while more requests are at
/// work than there are processors. Most requests take no longer than that.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSES: u32 = 10;

/// How long the task waits before each instance, at most, for seeds that are made for requests.
/// Their functions' initialisations may take longer, and other functions need their instances.
const SEED_WAIT: Duration = Duration::from_secs(1);

/// How long each of the two steps of making an instance may take, its sandbox and its fork: other
/// instances wait for it.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a look at one version.
#[derive(Debug, PartialEq, Eq)]
enum ProvisionStep {
    /// An instance was made and is warm.
    Made,
    /// No instance is missing, or none can be made now.
    Nothing,
    /// No sandbox could be made, or requests wait for permits: no version can have an instance now.
    Postpone,
}

/// The keeper's answer about its room; `None` while it has not been queried. One answer serves all
/// versions, because the keeper reads the machine's memory for it. It is discarded when the number
/// of instances changes.
type CachedShortfall = Option<Option<ShortfallCause>>;

impl Pool {
    /// Keeps as many instances of a function warm ahead of requests as
    /// [`PoolOptions::min_warm`](crate::PoolOptions::min_warm) says, as far as they fit the
    /// budgets and for as long as the version exists. The first request to a version has the same
    /// effect. If the version's seed is not in memory, it is made in the background.
    pub fn provision(&self, version: &FunctionVersion) {
        if self.inner.options.min_warm > 0 && version.warm_instances().set_provisioned() {
            self.inner.provisioning.add(version);
        }
    }

    /// Calls [`Pool::provision`] and waits until the instances are warm, or as many as are possible
    /// for now.
    pub async fn provision_and_wait(&self, version: &FunctionVersion) {
        self.provision(version);
        if let Some(settled) = self.inner.provisioning.wait_for(version) {
            // The channel ends without a value.
            let _ = settled.await;
        }
    }

    /// Returns how many of its instances ahead of requests a version lacks, and why they cannot be
    /// made. Returns `None` if it lacks none, or if they are being made.
    #[must_use]
    pub fn shortfall(&self, version: &FunctionVersion) -> Option<WarmShortfall> {
        self.inner.provisioning.shortfall_of(version)
    }

    /// Returns for how many functions the instances ahead of requests fit the limit of warm
    /// instances. The number is rounded up, so some instances of the last function may not fit.
    #[must_use]
    pub fn provided_functions(&self) -> usize {
        let options = &self.inner.options;
        match options.min_warm {
            0 => 0,
            least => options.max_warm.div_ceil(least),
        }
    }

    /// Returns the number of instances that each function is to have at all times.
    #[must_use]
    pub fn min_warm(&self) -> usize {
        self.inner.options.min_warm
    }

    /// Starts the task that looks for missing instances for as long as the pool exists. Must be
    /// called inside a tokio runtime.
    pub(super) fn start_provisioning(&self) {
        if self.inner.options.min_warm > 0 {
            tokio::spawn(run_provisioning(Arc::downgrade(&self.inner)));
        }
    }

    /// Makes the missing instances that can be made now. Returns whether any may be missing later.
    async fn provision_all(&self) -> bool {
        let provisioning = &self.inner.provisioning;
        // The loop ends after this many versions in a row for which there was nothing to do.
        let mut left = provisioning.count();
        let mut cached = None;
        while left > 0 && !self.inner.keeper.has_stopped() {
            let Some(provided) = provisioning.next() else {
                break;
            };
            match self.provision_one(&provided, &mut cached).await {
                ProvisionStep::Made => left = provisioning.count(),
                ProvisionStep::Nothing => left -= 1,
                ProvisionStep::Postpone => {
                    provisioning.notify_all_waiting();
                    break;
                }
            }
            // Thousands of versions may lack nothing.
            consume_budget().await;
        }
        provisioning.count() > 0
    }

    /// Returns the reason, if there is one, that keeps instances of any function from being made.
    fn full(&self, cached: &mut CachedShortfall) -> Option<ShortfallCause> {
        *cached.get_or_insert_with(|| {
            let (at_work, keeper) = (self.inner.admission().taken(), &self.inner.keeper);
            keeper.shortfall_cause(at_work, self.inner.provisioning.count())
        })
    }

    /// Returns whether a version lacks an instance that it can have now. Notes what it lacks and
    /// cannot have.
    fn must_make_one(
        &self,
        provided: &Arc<ProvisionedVersion>,
        cached: &mut CachedShortfall,
    ) -> bool {
        let Some(version) = provided.version.upgrade() else {
            return false;
        };
        if version.warm_instances().sweep() > 0 {
            *cached = None;
            self.note(&version, provided, "they ended by themselves");
        }
        let frozen = version.hold_seed();
        let instances = version.missing_instances(frozen.as_deref().map(|frozen| &**frozen));
        let is_missing = instances > 0;
        let is_backing_off = lock(&provided.backoff).is_paused(Instant::now());
        let why = match &frozen {
            _ if !is_missing => None,
            _ if is_backing_off => Some(provided.why().unwrap_or(ShortfallCause::Failures)),
            Some(frozen) => self.why_no_instance(&version, frozen, cached),
            None => self.why_no_seed(&version, provided),
        };
        provided.note_shortfall(why.map(|why| WarmShortfall { instances, why }));
        if let Some(why) = why {
            self.warn_of_shortfall(&version, WarmShortfall { instances, why });
        }
        is_missing && why.is_none() && frozen.is_some()
    }

    /// Returns what keeps one more instance of a version from being made, if anything does.
    fn why_no_instance(
        &self,
        version: &FunctionVersion,
        frozen: &SeedSnapshot,
        cached: &mut CachedShortfall,
    ) -> Option<ShortfallCause> {
        let full = |cached: &mut CachedShortfall| {
            self.full(cached)
                .or_else(|| version.instance_shortfall_cause(frozen))
        };
        let why = full(cached)?;
        // An instance that would not be warm again after a request makes room for one that would.
        let generation = frozen.working_set().current().generation;
        if !version.warm_instances().end_outdated(generation) {
            return Some(why);
        }
        *cached = None;
        full(cached)
    }

    /// Returns what keeps a version's seed from being made, if anything does. Otherwise has it made
    /// in the background.
    fn why_no_seed(
        &self,
        version: &FunctionVersion,
        provided: &Arc<ProvisionedVersion>,
    ) -> Option<ShortfallCause> {
        if let Some(cause) = version.seed_shortfall_cause() {
            return Some(cause);
        }
        if provided.has_seed_made.swap(true, Ordering::Relaxed) {
            return None;
        }
        let making = version.prewarm_for_instances();
        let (provided, look) = (provided.clone(), self.inner.provisioning.look.clone());
        tokio::spawn(async move {
            let made = making.await;
            if let Err(why) = made
                && let Some(version) = provided.version.upgrade()
            {
                let instances = version.missing_instances(None);
                provided
                    .note_shortfall((instances > 0).then_some(WarmShortfall { instances, why }));
                // The seed may be evicted as soon as it is made, so the next attempt has to wait.
                lock(&provided.backoff).note(Instant::now());
            }
            provided.has_seed_made.store(false, Ordering::Relaxed);
            look.notify_one();
        });
        None
    }

    /// Makes one instance of a version, if it lacks any and can have it.
    async fn provision_one(
        &self,
        provided: &Arc<ProvisionedVersion>,
        cached: &mut CachedShortfall,
    ) -> ProvisionStep {
        let keeper = &self.inner.keeper;
        if !self.must_make_one(provided, cached) {
            return nothing_to_do(provided);
        }
        if lock(&self.inner.provisioning.backoff).is_paused(Instant::now()) {
            provided.note_failing();
            return ProvisionStep::Postpone;
        }
        // No version or seed is held during these waits.
        self.inner.tree.wait_for_foreground(SEED_WAIT).await;
        if !self.let_requests_go_first().await {
            return ProvisionStep::Postpone;
        }
        let Some(lacking) = self.recheck_missing(provided) else {
            return nothing_to_do(provided);
        };
        let LackingVersion { version, seed } = lacking;
        let (warm_instances, now) = (version.warm_instances(), Instant::now());
        let had_failed = lock(&provided.backoff).is_recent(now);
        match self.warm_one(&version, &seed, provided).await {
            Ok(true) => {
                *cached = None;
                if warm_instances.has_surplus() {
                    warm_instances.end_outdated(seed.working_set().current().generation);
                }
                drop(seed);
                if had_failed {
                    // First the task must see whether this instance stays.
                    nothing_to_do(provided)
                } else {
                    ProvisionStep::Made
                }
            }
            // The pool ends, or requests left the missing instances warm.
            Ok(false) => nothing_to_do(provided),
            Err(_) if keeper.has_stopped() => nothing_to_do(provided),
            Err(ProvisionError::Sandbox(error)) => {
                let is_first = lock(&self.inner.provisioning.backoff).note(Instant::now());
                if is_first {
                    tracing::warn!(
                        error = %Line(&error),
                        "a sandbox for an instance ahead of requests could not be made; the node \
                             retries with a growing backoff"
                    );
                }
                provided.note_failing();
                ProvisionStep::Postpone
            }
            Err(ProvisionError::Function(error)) => {
                self.note(&version, provided, &error.to_string());
                nothing_to_do(provided)
            }
        }
    }

    /// Returns a version that still lacks an instance and has room for it, with its seed. Requests
    /// may have changed that during a wait.
    fn recheck_missing(&self, provided: &ProvisionedVersion) -> Option<LackingVersion> {
        let lacking = provided.version_with_missing_instances()?;
        let full = self
            .full(&mut None)
            .or_else(|| lacking.version.instance_shortfall_cause(&lacking.seed));
        full.is_none().then_some(lacking)
    }

    /// Makes one more warm instance. Returns `false` if none can be warm or none is missing any
    /// more.
    async fn warm_one(
        &self,
        version: &FunctionVersion,
        frozen: &Arc<SeedSnapshot>,
        provided: &ProvisionedVersion,
    ) -> Result<bool, ProvisionError> {
        if self.inner.keeper.has_stopped() || self.inner.options.max_reuse == 0 {
            return Ok(false);
        }
        let origin = ForkOrigin::own(frozen.clone());
        let making = self.inner.zygote_pool.make_for(origin.parent());
        let ready = in_time("making a sandbox", making).await?;
        let ready = ready.map_err(ProvisionError::Sandbox)?;
        // A sandbox is made when nothing else wants to run, so time has passed. If it is not needed
        // any more, it ends: an instance would be made only to end, or to end another.
        if self.recheck_missing(provided).is_none() {
            return Ok(false);
        }
        // From now on requests wait for the instance. They did not wait for its sandbox, because
        // that is made only when nothing else runs.
        let Some(pending) = version.warm_instances().announce(0) else {
            return Ok(false);
        };
        let forking = Self::fork_without_request(version, ready, origin);
        let instance = in_time("forking an instance", forking).await?;
        let instance = instance.map_err(ProvisionError::Function)?;
        // The bytes that are private at once, before the instance runs.
        pending.keep_warm(instance, frozen.bytes_of_new(), Instant::now().into_std());
        Ok(true)
    }

    /// Waits a moment for requests that are at work. Returns `false` if some wait for permits.
    async fn let_requests_go_first(&self) -> bool {
        let admission = self.inner.admission();
        for _ in 0..PAUSES {
            if admission.taken() <= self.inner.processors && admission.waiting() == 0 {
                return true;
            }
            sleep(PAUSE).await;
        }
        admission.waiting() == 0
    }

    /// Notes a failure of a version's instances.
    fn note(&self, version: &FunctionVersion, provided: &ProvisionedVersion, why: &str) {
        let is_first = lock(&provided.backoff).note(Instant::now());
        if is_first && !self.inner.keeper.has_stopped() {
            let (function, why) = (version.name(), Line(why));
            tracing::warn!(function, %why, "instances ahead of requests failed; the node retries \
                 with a growing backoff");
        }
    }

    /// Logs that instances ahead of requests are missing, once for each reason.
    fn warn_of_shortfall(&self, version: &FunctionVersion, shortfall: WarmShortfall) {
        // Failures are logged where they happen.
        if shortfall.why == ShortfallCause::Failures {
            return;
        }
        {
            let mut reported = lock(&self.inner.provisioning.reported);
            if reported.contains(&shortfall.why) {
                return;
            }
            reported.push(shortfall.why);
        }
        let (function, missing, budget) = (
            version.name(),
            shortfall.instances,
            shortfall.why.description(),
        );
        tracing::warn!(
            function,
            missing,
            budget,
            "there is no room to keep as many instances warm as --min-warm says; \
             `faasw stats` tells how many are missing, `faasw inspect` of which function"
        );
    }
}

/// Notes that nothing more can be done for a version now.
fn nothing_to_do(provided: &ProvisionedVersion) -> ProvisionStep {
    provided.notify_waiting();
    ProvisionStep::Nothing
}

/// Why an instance was not made.
enum ProvisionError {
    /// No sandbox can be made for any function.
    Sandbox(PlatformError),
    /// The function may be the cause.
    Function(PlatformError),
}

/// Ends an attempt that takes too long. The function may be the cause, so other functions go on.
async fn in_time<T>(
    what: &'static str,
    making: impl Future<Output = T>,
) -> Result<T, ProvisionError> {
    let made = timeout(STEP_TIMEOUT, making).await;
    made.map_err(|_| {
        let limit = STEP_TIMEOUT;
        ProvisionError::Function(PlatformError::TimedOut { what, limit })
    })
}

/// Looks for missing instances for as long as the pool exists.
async fn run_provisioning(pool: Weak<Inner>) {
    loop {
        let Some(inner) = pool.upgrade() else {
            return;
        };
        let pool = Pool { inner };
        if pool.inner.keeper.has_stopped() {
            return;
        }
        let has_any = pool.provision_all().await;
        // Waits without holding the pool: dropping it notifies.
        let look = pool.inner.provisioning.look.clone();
        drop(pool);
        if has_any {
            // A timeout and a notification have the same effect.
            let _ = timeout(CHECK_INTERVAL, look.notified()).await;
        } else {
            look.notified().await
        }
    }
}
