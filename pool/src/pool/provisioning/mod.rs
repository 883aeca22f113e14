//! Instances that are parked ahead of requests, so many of each function as
//! [`PoolOptions::min_parked`](crate::PoolOptions::min_parked) says (elsewhere called provisioned
//! concurrency; the pooling of AFaaS §4.2 for functions that nobody has called yet).
//!
//! One task makes what is missing, one instance after the other, each function's first before any
//! has its second, and behind what requests ask for: its sandboxes are made when nothing else wants
//! to run, those that are ready are left to requests, and seeds that are being made for some are
//! waited for a while. What does not fit the budgets is not made, since it would end others that
//! are made again then; and what comes to nothing is tried again ever more rarely.
//!
//! A version whose seed is not in memory has it made, as far as all that seeds may take has room
//! for it; what lacks for which reason is kept for whoever asks, and said once for each reason.
//!
//! What is missing is looked for when a version begins to serve and once a second, so that
//! nobody has to say why an instance ended.

mod queue;
mod trouble;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use faasw_common::text::Line;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep, timeout};

pub use self::queue::Provisioning;
use self::queue::{Provided, lock};
use super::{Inner, Pool};
use crate::error::PlatformError;
use crate::seeds::{FunctionVersion, Held, Origin};
use crate::snapshots::Frozen;
use crate::stats::{Lack, Lacking};

/// How often what is missing is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// How long it is waited before each instance while more requests are at work than there are
/// processors, and how often at most: what they have begun with takes no longer, mostly.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSES: u32 = 10;

/// How long seeds that are made for requests are waited for before each instance, at most: their
/// functions' initialisations may take longer, and others have to have theirs.
const SEEDS: Duration = Duration::from_secs(1);

/// How long making one instance may take: its sandbox, and then its fork. Others wait for that.
const MAKING: Duration = Duration::from_secs(10);

/// What came of a look at one version.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// One instance more is parked.
    Made,
    /// None is missing, or can be made now.
    Nothing,
    /// No sandbox could be made, or requests wait for places: no version can have any now.
    Later,
}

/// What the keeper has said of its room: nothing while it was not asked. It is asked once for all
/// versions, since it reads what memory the machine has, and again once there are more or fewer.
type Said = Option<Option<Lack>>;

impl Pool {
    /// Has as many instances of a function parked ahead of requests from now on as
    /// [`PoolOptions::min_parked`](crate::PoolOptions::min_parked) says, as far as they fit the
    /// budgets, for as long as somebody has the version. A version that is requested is from then
    /// on. Where its seed is in no memory, it is made for that in the background.
    pub fn provide(&self, version: &FunctionVersion) {
        if self.inner.options.min_parked > 0 && version.parking().begin_to_provide() {
            self.inner.provisioning.add(version);
        }
    }

    /// The same, and waits until they are there, or as many of them as can be for now.
    pub async fn provided(&self, version: &FunctionVersion) {
        self.provide(version);
        if let Some(settled) = self.inner.provisioning.wait_for(version) {
            // It has an end and no value.
            let _ = settled.await;
        }
    }

    /// What a version lacks of the instances that are to be parked of it ahead of requests, and
    /// what keeps them from being made; nothing where it has all, or they are being made.
    #[must_use]
    pub fn lacking(&self, version: &FunctionVersion) -> Option<Lacking> {
        self.inner.provisioning.lacking_of(version)
    }

    /// Of how many functions all that is to be parked ahead of requests may be parked together.
    #[must_use]
    pub fn provided_functions(&self) -> usize {
        let options = &self.inner.options;
        match options.min_parked {
            0 => 0,
            least => options.max_parked.div_ceil(least),
        }
    }

    /// Instances that each function is to have at all times.
    #[must_use]
    pub fn min_parked(&self) -> usize {
        self.inner.options.min_parked
    }

    /// Starts looking for what is missing, for as long as the pool exists. Must be called inside a
    /// tokio runtime.
    pub(super) fn start_providing(&self) {
        if self.inner.options.min_parked > 0 {
            tokio::spawn(look_after(Arc::downgrade(&self.inner)));
        }
    }

    /// Makes what is missing, as far as it can be made now; says whether anything may be missing
    /// later.
    async fn provide_all(&self) -> bool {
        let provisioning = &self.inner.provisioning;
        // Versions to look at until nothing was to be done for any of them in a row.
        let mut left = provisioning.count();
        let mut said = None;
        while left > 0 && !self.inner.keeper.has_stopped() {
            let Some(provided) = provisioning.next() else {
                break;
            };
            match self.provide_one(&provided, &mut said).await {
                Step::Made => left = provisioning.count(),
                Step::Nothing => left -= 1,
                Step::Later => {
                    provisioning.settle_all();
                    break;
                }
            }
            // There may be thousands that have all that they are to have.
            consume_budget().await;
        }
        provisioning.count() > 0
    }

    /// What keeps instances from being made, as far as that is nothing of their function's.
    fn full(&self, said: &mut Said) -> Option<Lack> {
        *said.get_or_insert_with(|| {
            let (at_work, keeper) = (self.inner.admission().taken(), &self.inner.keeper);
            keeper.is_full(at_work, self.inner.provisioning.count())
        })
    }

    /// Whether a version lacks an instance that it can have now. What it lacks and cannot have is
    /// noted.
    fn is_to_be_made(&self, provided: &Arc<Provided>, said: &mut Said) -> bool {
        let Some(version) = provided.version.upgrade() else {
            return false;
        };
        if version.parking().sweep() > 0 {
            *said = None;
            self.note(&version, provided, "they ended by themselves");
        }
        let frozen = version.held();
        let instances = version.missing_instances(frozen.as_deref().map(|frozen| &**frozen));
        let is_missing = instances > 0;
        let has_trouble = lock(&provided.trouble).holds(Instant::now());
        let why = match &frozen {
            _ if !is_missing => None,
            _ if has_trouble => Some(provided.why().unwrap_or(Lack::Failures)),
            Some(frozen) => self.lacks_room(&version, frozen, said),
            None => self.lacks_seed(&version, provided),
        };
        provided.note_lacking(why.map(|why| Lacking { instances, why }));
        if let Some(why) = why {
            self.say_lacking(&version, Lacking { instances, why });
        }
        is_missing && why.is_none() && frozen.is_some()
    }

    /// What keeps one more instance of a version from being made, if anything does.
    fn lacks_room(
        &self,
        version: &FunctionVersion,
        frozen: &Frozen,
        said: &mut Said,
    ) -> Option<Lack> {
        let full = |said: &mut Said| self.full(said).or_else(|| version.is_full(frozen));
        let why = full(said)?;
        // One that will not come back from a request makes room for one that will.
        let generation = frozen.working_set().current().generation;
        if !version.parking().end_outdated(generation) {
            return Some(why);
        }
        *said = None;
        full(said)
    }

    /// What keeps a version's seed from being made, if anything does; else it is, in the
    /// background.
    fn lacks_seed(&self, version: &FunctionVersion, provided: &Arc<Provided>) -> Option<Lack> {
        if let Some(lack) = version.has_no_room_for_seed() {
            return Some(lack);
        }
        if provided.has_seed_made.swap(true, Ordering::Relaxed) {
            return None;
        }
        let making = version.made_for_instances();
        let (provided, look) = (provided.clone(), self.inner.provisioning.look.clone());
        tokio::spawn(async move {
            let made = making.await;
            if let Err(why) = made
                && let Some(version) = provided.version.upgrade()
            {
                let instances = version.missing_instances(None);
                provided.note_lacking((instances > 0).then_some(Lacking { instances, why }));
                // It may be made only to go at once.
                lock(&provided.trouble).note(Instant::now());
            }
            provided.has_seed_made.store(false, Ordering::Relaxed);
            look.notify_one();
        });
        None
    }

    /// Makes one instance of a version, if it lacks any and can have it.
    async fn provide_one(&self, provided: &Arc<Provided>, said: &mut Said) -> Step {
        let keeper = &self.inner.keeper;
        if !self.is_to_be_made(provided, said) {
            return settled(provided);
        }
        if lock(&self.inner.provisioning.trouble).holds(Instant::now()) {
            provided.fails();
            return Step::Later;
        }
        // Nobody's version or seed is kept for that.
        self.inner.tree.behind_clients(SEEDS).await;
        if !self.lets_requests_go_first().await {
            return Step::Later;
        }
        let Some((version, frozen)) = self.still_lacking(provided) else {
            return settled(provided);
        };
        let (parking, now) = (version.parking(), Instant::now());
        let had_trouble = lock(&provided.trouble).is_there(now);
        match self.park_one(&version, &frozen, provided).await {
            Ok(true) => {
                *said = None;
                if parking.has_surplus() {
                    parking.end_outdated(frozen.working_set().current().generation);
                }
                drop(frozen);
                if had_trouble {
                    // Whether this one stays is to be seen first.
                    settled(provided)
                } else {
                    Step::Made
                }
            }
            // The pool ends, or requests have parked what was missing.
            Ok(false) => settled(provided),
            Err(_) if keeper.has_stopped() => settled(provided),
            Err(Failed::Sandbox(error)) => {
                let is_first = lock(&self.inner.provisioning.trouble).note(Instant::now());
                if is_first {
                    tracing::warn!(error = %Line(&error), "no sandbox could be made for an instance \
                         ahead of requests; it is tried again later, ever more rarely");
                }
                provided.fails();
                Step::Later
            }
            Err(Failed::Own(error)) => {
                self.note(&version, provided, &error.to_string());
                settled(provided)
            }
        }
    }

    /// A version that still lacks an instance, for which there still is room, with its seed:
    /// requests have gone on while it was waited for something.
    fn still_lacking(&self, provided: &Provided) -> Option<(FunctionVersion, Held)> {
        let (version, frozen) = provided.lacking()?;
        let full = self.full(&mut None).or_else(|| version.is_full(&frozen));
        full.is_none().then_some((version, frozen))
    }

    /// Parks one more instance; `false` where none is parked any more.
    async fn park_one(
        &self,
        version: &FunctionVersion,
        frozen: &Arc<Frozen>,
        provided: &Provided,
    ) -> Result<bool, Failed> {
        if self.inner.keeper.has_stopped() || self.inner.options.max_reuse == 0 {
            return Ok(false);
        }
        let origin = Origin::own(frozen.clone());
        let making = self.inner.stock.make_for(origin.parent());
        let ready = in_time("making a sandbox", making).await?;
        let ready = ready.map_err(Failed::Sandbox)?;
        // A sandbox comes when nothing else wants to run. One that is not wanted any more ends: an
        // instance would be made only to end, or to end another.
        if self.still_lacking(provided).is_none() {
            return Ok(false);
        }
        // Requests wait for it from now on: not for its sandbox, which comes when nothing else
        // runs.
        let Some(coming) = version.parking().announce(0) else {
            return Ok(false);
        };
        let forking = Self::fork_ahead(version, ready, origin);
        let instance = in_time("forking an instance", forking).await?;
        let instance = instance.map_err(Failed::Own)?;
        // At once private, before it runs.
        coming.park(instance, frozen.bytes_of_new(), Instant::now().into_std());
        Ok(true)
    }

    /// Waits a moment for requests that are at work; `false` where some wait for places.
    async fn lets_requests_go_first(&self) -> bool {
        let admission = self.inner.admission();
        for _ in 0..PAUSES {
            if admission.taken() <= self.inner.processors && admission.waiting() == 0 {
                return true;
            }
            sleep(PAUSE).await;
        }
        admission.waiting() == 0
    }

    /// Something was wrong with a version's instances.
    fn note(&self, version: &FunctionVersion, provided: &Provided, why: &str) {
        let is_first = lock(&provided.trouble).note(Instant::now());
        if is_first && !self.inner.keeper.has_stopped() {
            let (function, why) = (version.name(), Line(why));
            tracing::warn!(function, %why, "instances ahead of requests failed; they are made \
                 again later, ever more rarely");
        }
    }

    /// Not all that is to be parked is there: said once for each reason.
    fn say_lacking(&self, version: &FunctionVersion, lacking: Lacking) {
        // Of what failed it is said what.
        if lacking.why == Lack::Failures {
            return;
        }
        {
            let mut said = lock(&self.inner.provisioning.said);
            if said.contains(&lacking.why) {
                return;
            }
            said.push(lacking.why);
        }
        let (function, missing, budget) = (version.name(), lacking.instances, lacking.why.told());
        tracing::warn!(
            function,
            missing,
            budget,
            "there is no room to park as many instances ahead of requests as --min-parked says; \
             `faasw stats` tells how many are missing, `faasw inspect` of which function"
        );
    }
}

/// Nothing more can be done for one of them now.
fn settled(provided: &Provided) -> Step {
    provided.settle();
    Step::Nothing
}

/// Why an instance was not made.
enum Failed {
    /// No sandbox can be made, for whatever function.
    Sandbox(PlatformError),
    /// It may be something of its function's.
    Own(PlatformError),
}

/// Gives a making up that takes too long. It may be its function's doing, so that others go on.
async fn in_time<T>(what: &'static str, making: impl Future<Output = T>) -> Result<T, Failed> {
    let made = timeout(MAKING, making).await;
    made.map_err(|_| {
        let limit = MAKING;
        Failed::Own(PlatformError::TimedOut { what, limit })
    })
}

/// Keeps looking for as long as the pool exists.
async fn look_after(pool: Weak<Inner>) {
    loop {
        let Some(inner) = pool.upgrade() else {
            return;
        };
        let pool = Pool { inner };
        if pool.inner.keeper.has_stopped() {
            return;
        }
        let has_any = pool.provide_all().await;
        // Waits without keeping the pool: whoever drops it notifies.
        let look = pool.inner.provisioning.look.clone();
        drop(pool);
        if has_any {
            // Late or early makes no difference.
            let _ = timeout(LOOK, look.notified()).await;
        } else {
            look.notified().await
        }
    }
}
