//! Instances that are parked ahead of requests, so many of each function as
//! [`PoolOptions::min_parked`](crate::PoolOptions::min_parked) says (elsewhere called provisioned
//! concurrency; the pooling of AFaaS §4.2 for functions that nobody has called yet).
//!
//! One task makes what is missing, one instance after the other, each function's first before
//! any has its second, and behind what requests ask for: its shells are made when nothing else wants to
//! run, those that are ready are left to requests, and seeds that are being made for some are waited
//! for a while. What does not
//! fit the budgets is not made, since it would end others that are made again then; and what
//! comes to nothing is tried again ever more rarely.
//!
//! What is missing is looked for when a version begins to serve and once a second, so that
//! nobody has to say why an instance ended.

mod trouble;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use faasw_text::Line;
use tokio::sync::{Notify, oneshot};
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep, timeout};

use self::trouble::Trouble;
use super::{Inner, Pool};
use crate::error::PlatformError;
use crate::seeds::{FunctionVersion, Held, Origin, WeakVersion};
use crate::snapshots::Frozen;

/// How often what is missing is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// How long it is waited before each instance while more requests are at work than there are
/// processors, and how often at most: what they have begun with takes no longer, mostly.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSES: u32 = 10;

/// How long seeds that are made for requests are waited for before each instance, at most: their
/// functions' initialisations may take longer, and others have to have theirs.
const SEEDS: Duration = Duration::from_secs(1);

/// How long making one instance may take: its shell, and then its fork. Others wait for that.
const MAKING: Duration = Duration::from_secs(10);

/// The versions that have instances parked ahead of requests.
#[derive(Debug)]
pub(super) struct Provisioning {
    /// Nothing once the pool ends.
    queue: Mutex<Option<VecDeque<Arc<Provided>>>>,
    look: Arc<Notify>,
    /// Somebody may wait for one of them.
    is_waited_for: AtomicBool,
    /// With making shells: that is nobody's own.
    trouble: Mutex<Trouble>,
    /// It was said that not all of them fit.
    was_full: AtomicBool,
}

/// One of them.
#[derive(Debug)]
struct Provided {
    version: WeakVersion,
    trouble: Mutex<Trouble>,
    /// Who waits until it has what it is to have, or cannot have it now.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

/// What came of a look at one version.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// One instance more is parked.
    Made,
    /// None is missing, or can be made now.
    Nothing,
    /// No shell could be made, or requests wait for places: no version can have any now.
    Later,
}

/// What the keeper has said of its room: nothing while it was not asked. It is asked once for all
/// versions, since it reads what memory the machine has, and again once there are more or fewer.
type Said = Option<Option<&'static str>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Provided {
    /// Nothing more can be done for it now.
    fn settle(&self) -> Step {
        // Who waits hears that by their end.
        lock(&self.waiting).clear();
        Step::Nothing
    }

    /// Whether somebody still waits.
    fn is_waited_for(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|waiting| !waiting.is_closed());
        !waiting.is_empty()
    }

    /// The version and its seed, if that is in memory and has fewer instances than it is to have.
    fn lacking(&self) -> Option<(FunctionVersion, Held)> {
        let version = self.version.upgrade()?;
        let frozen = version.held()?;
        let lacks = version.lacks_instances(&frozen);
        lacks.then_some((version, frozen))
    }
}

impl Default for Provisioning {
    fn default() -> Self {
        Self {
            queue: Mutex::new(Some(VecDeque::new())),
            look: Arc::default(),
            is_waited_for: AtomicBool::new(false),
            trouble: Mutex::default(),
            was_full: AtomicBool::new(false),
        }
    }
}

impl Provisioning {
    /// The next one to look at: first those that somebody waits for.
    fn next(&self) -> Option<Arc<Provided>> {
        let mut queue = lock(&self.queue);
        let queue = queue.as_mut()?;
        let place = match self.is_waited_for.swap(false, Ordering::Relaxed) {
            true => {
                let mut all = queue.iter();
                let place = all.position(|provided| provided.is_waited_for());
                // There may be more of them.
                self.is_waited_for
                    .fetch_or(place.is_some(), Ordering::Relaxed);
                place
            }
            false => None,
        };
        let next = queue.remove(place.unwrap_or(0))?;
        queue.push_back(next.clone());
        Some(next)
    }

    /// How many there are.
    fn count(&self) -> usize {
        let mut queue = lock(&self.queue);
        queue.as_mut().map_or(0, |queue| {
            queue.retain(|provided| !provided.version.is_gone());
            queue.len()
        })
    }

    fn add(&self, version: &FunctionVersion) {
        if let Some(queue) = lock(&self.queue).as_mut() {
            queue.push_back(Arc::new(Provided {
                version: version.downgrade(),
                trouble: Mutex::default(),
                waiting: Mutex::default(),
            }));
        }
        self.look.notify_one();
    }

    fn wait_for(&self, version: &FunctionVersion) -> Option<oneshot::Receiver<()>> {
        let queue = lock(&self.queue);
        let mut all = queue.iter().flatten();
        let provided = all.find(|provided| provided.version.is(version))?;
        let (sender, settled) = oneshot::channel();
        lock(&provided.waiting).push(sender);
        self.is_waited_for.store(true, Ordering::Relaxed);
        self.look.notify_one();
        Some(settled)
    }

    /// No version can have more now.
    fn settle_all(&self) {
        for provided in lock(&self.queue).iter().flatten() {
            provided.settle();
        }
    }

    /// Nothing is parked any more.
    pub(super) fn stop(&self) {
        let stopped = lock(&self.queue).take();
        // Who waits hears of it.
        drop(stopped);
        self.look.notify_one();
    }
}

impl Drop for Provisioning {
    fn drop(&mut self) {
        self.look.notify_one();
    }
}

impl Pool {
    /// Has as many instances of a function parked ahead of requests from now on as
    /// [`PoolOptions::min_parked`](crate::PoolOptions::min_parked) says, as far as they fit the
    /// budgets, for as long as somebody has the version. A version that is requested is from then
    /// on. Its seed is not made for that.
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

    /// Of how many functions all that is to be parked ahead of requests may be parked together.
    #[must_use]
    pub fn provided_functions(&self) -> usize {
        let options = &self.inner.options;
        match options.min_parked {
            0 => 0,
            least => options.max_parked.div_ceil(least),
        }
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
    fn full(&self, said: &mut Said) -> Option<&'static str> {
        *said.get_or_insert_with(|| {
            let (at_work, keeper) = (self.inner.admission().taken(), &self.inner.keeper);
            keeper.is_full(at_work, self.inner.provisioning.count())
        })
    }

    /// Whether a version lacks an instance that it can have.
    fn is_to_be_made(&self, provided: &Provided, said: &mut Said) -> bool {
        let Some(version) = provided.version.upgrade() else {
            return false;
        };
        let parking = version.parking();
        if parking.sweep() > 0 {
            *said = None;
            self.note(&version, provided, "they ended by themselves");
        }
        let Some((_, frozen)) = provided.lacking() else {
            return false;
        };
        if lock(&provided.trouble).holds(Instant::now()) {
            return false;
        }
        let full = |said: &mut Said| self.full(said).or_else(|| version.is_full(&frozen));
        let Some(mut budget) = full(said) else {
            return true;
        };
        // One that will not come back from a request makes room for one that will.
        if parking.end_outdated(frozen.working_set().current().generation) {
            *said = None;
            match full(said) {
                Some(still) => budget = still,
                None => return true,
            }
        }
        self.say_full(&version, budget);
        false
    }

    /// Makes one instance of a version, if it lacks any and can have it.
    async fn provide_one(&self, provided: &Provided, said: &mut Said) -> Step {
        let keeper = &self.inner.keeper;
        if !self.is_to_be_made(provided, said) {
            return provided.settle();
        }
        if lock(&self.inner.provisioning.trouble).holds(Instant::now()) {
            return Step::Later;
        }
        // Nobody's version or seed is kept for that.
        self.inner.tree.behind_requests(SEEDS).await;
        if !self.lets_requests_go_first().await {
            return Step::Later;
        }
        let Some((version, frozen)) = provided.lacking() else {
            return provided.settle();
        };
        let (parking, now) = (version.parking(), Instant::now());
        let had_trouble = lock(&provided.trouble).is_there(now);
        match self.park_one(&version, &frozen).await {
            Ok(true) => {
                *said = None;
                if parking.has_surplus() {
                    parking.end_outdated(frozen.working_set().current().generation);
                }
                drop(frozen);
                match had_trouble {
                    // Whether this one stays is to be seen first.
                    true => provided.settle(),
                    false => Step::Made,
                }
            }
            // The pool ends.
            Ok(false) => provided.settle(),
            Err(_) if keeper.has_stopped() => provided.settle(),
            Err(Failed::Shell(error)) => {
                let is_first = lock(&self.inner.provisioning.trouble).note(Instant::now());
                if is_first {
                    tracing::warn!(error = %Line(&error), "no shell could be made for an instance ahead of requests; it is tried again later, ever more rarely");
                }
                Step::Later
            }
            Err(Failed::Own(error)) => {
                self.note(&version, provided, &error.to_string());
                provided.settle()
            }
        }
    }

    /// Parks one more instance; `false` where none is parked any more.
    async fn park_one(
        &self,
        version: &FunctionVersion,
        frozen: &Arc<Frozen>,
    ) -> Result<bool, Failed> {
        if self.inner.keeper.has_stopped() || self.inner.options.max_reuse == 0 {
            return Ok(false);
        }
        let origin = Origin::own(frozen.clone());
        let making = self.inner.stock.make_for(origin.parent());
        let ready = in_time("making a shell", making).await?;
        let ready = ready.map_err(Failed::Shell)?;
        // Requests wait for it from now on: not for its shell, which comes when nothing else runs.
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
            tracing::warn!(function, %why, "instances ahead of requests failed; they are made again later, ever more rarely");
        }
    }

    /// Not all that is to be parked fits: said once.
    fn say_full(&self, version: &FunctionVersion, budget: &str) {
        if !self
            .inner
            .provisioning
            .was_full
            .swap(true, Ordering::Relaxed)
        {
            let function = version.name();
            tracing::warn!(
                function,
                budget,
                "there is no room to park as many instances ahead of requests as --min-parked says"
            );
        }
    }
}

/// Why an instance was not made.
enum Failed {
    /// No shell can be made, for whatever function.
    Shell(PlatformError),
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
        match has_any {
            true => {
                // Late or early makes no difference.
                let _ = timeout(LOOK, look.notified()).await;
            }
            false => look.notified().await,
        }
    }
}
