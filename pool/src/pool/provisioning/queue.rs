//! The versions that have instances warm ahead of requests, what each lacks, and the callers that
//! wait for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::failure_backoff::FailureBackoff;
use crate::seeds::{FunctionVersion, SeedHold, WeakFunctionVersion};
use crate::stats::{ShortfallCause, ShortfallStats, WarmShortfall};

/// The versions that have instances warm ahead of requests.
#[derive(Debug)]
pub struct Provisioning {
    /// `None` once the pool ends.
    queue: Mutex<Option<VecDeque<Arc<ProvisionedVersion>>>>,
    pub look: Arc<Notify>,
    /// Callers may wait for one of the versions.
    is_waited_for: AtomicBool,
    /// Failures to make sandboxes, which concern all versions.
    pub backoff: Mutex<FailureBackoff>,
    /// The reasons for missing instances that were logged.
    pub reported: Mutex<Vec<ShortfallCause>>,
}

/// A version that has instances warm ahead of requests.
#[derive(Debug)]
pub struct ProvisionedVersion {
    pub version: WeakFunctionVersion,
    /// Failures of the version's instances, or of its seed.
    pub backoff: Mutex<FailureBackoff>,
    /// The instances that the version lacked at the last look and could not get.
    shortfall: Mutex<Option<WarmShortfall>>,
    /// The seed of the version is being made for its instances.
    pub has_seed_made: AtomicBool,
    /// The callers that wait until the version has its instances, or cannot have them now.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

/// A version that lacks an instance.
#[derive(Debug)]
pub struct LackingVersion {
    pub version: FunctionVersion,
    /// The version's seed, which is not evicted meanwhile.
    pub seed: SeedHold,
}

/// Locks a mutex, poisoned or not: no code here panics halfway through a change.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProvisionedVersion {
    /// Notes that nothing more can be done for the version now.
    pub fn notify_waiting(&self) {
        // The closed channels notify the callers.
        lock(&self.waiting).clear();
    }

    /// Sets how many instances the version lacks, and why.
    pub fn note_shortfall(&self, shortfall: Option<WarmShortfall>) {
        *lock(&self.shortfall) = shortfall;
    }

    /// Returns why the version lacks instances, as far as that is known.
    pub fn why(&self) -> Option<ShortfallCause> {
        lock(&self.shortfall).map(|shortfall| shortfall.why)
    }

    /// Notes that the missing instances cannot be made, because making sandboxes fails.
    pub fn note_failing(&self) {
        let missing = self.version_with_missing_instances();
        let missing = missing.map(|it| it.version.missing_instances(Some(&it.seed)));
        let why = ShortfallCause::Failures;
        self.note_shortfall(missing.map(|instances| WarmShortfall { instances, why }));
    }

    /// Returns whether a caller still waits.
    fn is_waited_for(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|waiting| !waiting.is_closed());
        !waiting.is_empty()
    }

    /// Returns the version and its seed, if that is in memory and has fewer instances than
    /// required.
    pub fn version_with_missing_instances(&self) -> Option<LackingVersion> {
        let version = self.version.upgrade()?;
        let seed = version.hold_seed()?;
        let are_missing = version.missing_instances(Some(&seed)) > 0;
        are_missing.then_some(LackingVersion { version, seed })
    }
}

impl Default for Provisioning {
    fn default() -> Self {
        Self {
            queue: Mutex::new(Some(VecDeque::new())),
            look: Arc::default(),
            is_waited_for: AtomicBool::new(false),
            backoff: Mutex::default(),
            reported: Mutex::default(),
        }
    }
}

impl Provisioning {
    /// Returns the next version to look at: first those that callers wait for.
    pub fn next(&self) -> Option<Arc<ProvisionedVersion>> {
        let mut queue = lock(&self.queue);
        let queue = queue.as_mut()?;
        let place = if self.is_waited_for.swap(false, Ordering::Relaxed) {
            let mut all = queue.iter();
            let place = all.position(|provided| provided.is_waited_for());
            // Callers may wait for further versions.
            self.is_waited_for
                .fetch_or(place.is_some(), Ordering::Relaxed);
            place
        } else {
            None
        };
        let next = queue.remove(place.unwrap_or(0))?;
        queue.push_back(next.clone());
        Some(next)
    }

    /// Removes versions that are gone. Returns how many are left.
    pub fn count(&self) -> usize {
        let mut queue = lock(&self.queue);
        queue.as_mut().map_or(0, |queue| {
            queue.retain(|provided| !provided.version.is_gone());
            queue.len()
        })
    }

    /// Adds a version that is to have instances warm ahead of requests.
    pub fn add(&self, version: &FunctionVersion) {
        if let Some(queue) = lock(&self.queue).as_mut() {
            queue.push_back(Arc::new(ProvisionedVersion {
                version: version.downgrade(),
                backoff: Mutex::default(),
                shortfall: Mutex::default(),
                has_seed_made: AtomicBool::new(false),
                waiting: Mutex::default(),
            }));
        }
        self.look.notify_one();
    }

    /// Returns a channel that closes once a version has its instances, or cannot have them now.
    pub fn wait_for(&self, version: &FunctionVersion) -> Option<oneshot::Receiver<()>> {
        let queue = lock(&self.queue);
        let mut all = queue.iter().flatten();
        let provided = all.find(|provided| provided.version.is(version))?;
        let (sender, settled) = oneshot::channel();
        lock(&provided.waiting).push(sender);
        self.is_waited_for.store(true, Ordering::Relaxed);
        self.look.notify_one();
        Some(settled)
    }

    /// Returns what all versions lack together.
    pub fn shortfall(&self) -> ShortfallStats {
        let mut stats = ShortfallStats::default();
        let queue = lock(&self.queue);
        for provided in queue.iter().flatten() {
            // A version that has just been removed lacks nothing.
            let shortfall = *lock(&provided.shortfall);
            let shortfall = shortfall.filter(|_| !provided.version.is_gone());
            shortfall
                .into_iter()
                .for_each(|shortfall| stats.add(shortfall));
        }
        stats
    }

    /// Returns what a version lacks.
    pub fn shortfall_of(&self, version: &FunctionVersion) -> Option<WarmShortfall> {
        let queue = lock(&self.queue);
        let mut all = queue.iter().flatten();
        let provided = all.find(|provided| provided.version.is(version))?;
        *lock(&provided.shortfall)
    }

    /// Notes that no version can have more instances now.
    pub fn notify_all_waiting(&self) {
        for provided in lock(&self.queue).iter().flatten() {
            provided.notify_waiting();
        }
    }

    /// Removes all versions: nothing is warm any more.
    pub fn stop(&self) {
        let stopped = lock(&self.queue).take();
        // Dropping the channels notifies the callers.
        drop(stopped);
        self.look.notify_one();
    }
}

impl Drop for Provisioning {
    fn drop(&mut self) {
        self.look.notify_one();
    }
}
