//! Who is to have instances parked ahead of requests, what each lacks, and who waits for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::trouble::Trouble;
use crate::seeds::{FunctionVersion, Held, WeakVersion};
use crate::stats::{Lack, Lacking, LackingStats};

/// The versions that have instances parked ahead of requests.
#[derive(Debug)]
pub struct Provisioning {
    /// Nothing once the pool ends.
    queue: Mutex<Option<VecDeque<Arc<Provided>>>>,
    pub look: Arc<Notify>,
    /// Somebody may wait for one of them.
    is_waited_for: AtomicBool,
    /// With making sandboxes: that is nobody's own.
    pub trouble: Mutex<Trouble>,
    /// Why not all of them are there, as far as that was said.
    pub said: Mutex<Vec<Lack>>,
}

/// One of them.
#[derive(Debug)]
pub struct Provided {
    pub version: WeakVersion,
    /// With its own instances, or its seed.
    pub trouble: Mutex<Trouble>,
    /// What it lacked when it was looked at last, and could not be made.
    lacking: Mutex<Option<Lacking>>,
    /// Its seed is being made for its instances.
    pub has_seed_made: AtomicBool,
    /// Who waits until it has what it is to have, or cannot have it now.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

/// What a mutex has: nothing here panics half way.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Provided {
    /// Nothing more can be done for it now.
    pub fn settle(&self) {
        // Who waits hears that by their end.
        lock(&self.waiting).clear();
    }

    /// What it lacks.
    pub fn note_lacking(&self, lacking: Option<Lacking>) {
        *lock(&self.lacking) = lacking;
    }

    /// Why it lacks some, as far as that was found.
    pub fn why(&self) -> Option<Lack> {
        lock(&self.lacking).map(|lacking| lacking.why)
    }

    /// What it lacks cannot be made, for whatever function.
    pub fn fails(&self) {
        let lacked = self.lacking();
        let lacked = lacked.map(|(version, frozen)| version.missing_instances(Some(&frozen)));
        let why = Lack::Failures;
        self.note_lacking(lacked.map(|instances| Lacking { instances, why }));
    }

    /// Whether somebody still waits.
    fn is_waited_for(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|waiting| !waiting.is_closed());
        !waiting.is_empty()
    }

    /// The version and its seed, if that is in memory and has fewer instances than it is to have.
    pub fn lacking(&self) -> Option<(FunctionVersion, Held)> {
        let version = self.version.upgrade()?;
        let frozen = version.held()?;
        let lacks = version.missing_instances(Some(&frozen)) > 0;
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
            said: Mutex::default(),
        }
    }
}

impl Provisioning {
    /// The next one to look at: first those that somebody waits for.
    pub fn next(&self) -> Option<Arc<Provided>> {
        let mut queue = lock(&self.queue);
        let queue = queue.as_mut()?;
        let place = if self.is_waited_for.swap(false, Ordering::Relaxed) {
            let mut all = queue.iter();
            let place = all.position(|provided| provided.is_waited_for());
            // There may be more of them.
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

    /// How many there are.
    pub fn count(&self) -> usize {
        let mut queue = lock(&self.queue);
        queue.as_mut().map_or(0, |queue| {
            queue.retain(|provided| !provided.version.is_gone());
            queue.len()
        })
    }

    /// One more is to have them.
    pub fn add(&self, version: &FunctionVersion) {
        if let Some(queue) = lock(&self.queue).as_mut() {
            queue.push_back(Arc::new(Provided {
                version: version.downgrade(),
                trouble: Mutex::default(),
                lacking: Mutex::default(),
                has_seed_made: AtomicBool::new(false),
                waiting: Mutex::default(),
            }));
        }
        self.look.notify_one();
    }

    /// What ends once a version has what it is to have, or cannot have it now.
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

    /// What lacks, of all of them.
    pub fn lacking(&self) -> LackingStats {
        let mut stats = LackingStats::default();
        let queue = lock(&self.queue);
        for provided in queue.iter().flatten() {
            // What goes now lacks nothing.
            let lacking = *lock(&provided.lacking);
            let lacking = lacking.filter(|_| !provided.version.is_gone());
            lacking.into_iter().for_each(|lacking| stats.add(lacking));
        }
        stats
    }

    /// What one of them lacks.
    pub fn lacking_of(&self, version: &FunctionVersion) -> Option<Lacking> {
        let queue = lock(&self.queue);
        let mut all = queue.iter().flatten();
        let provided = all.find(|provided| provided.version.is(version))?;
        *lock(&provided.lacking)
    }

    /// No version can have more now.
    pub fn settle_all(&self) {
        for provided in lock(&self.queue).iter().flatten() {
            provided.settle();
        }
    }

    /// Nothing is parked any more.
    pub fn stop(&self) {
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
