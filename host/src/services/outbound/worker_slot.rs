//! The worker of a version of a function. It is started with the first call, and again after it has
//! ended.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_egress::client::{Connector, Worker};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, sleep_until},
};

use super::egress::{Egress, EgressProcess, WorkerCandidate, WorkerEnd};

/// How long an unused worker is kept.
const KEEP: Duration = Duration::from_secs(60);

/// The least time between two starts of a worker: the first value at first. It doubles up to the
/// second value while workers end soon.
const APART: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// A worker that has lived this long did not end soon.
const LIVED: Duration = Duration::from_secs(10);

/// The result of a start, once there is one.
type StartOutcome = Option<Result<Arc<Worker>, Failure>>;

/// The slot for the worker of one version.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    egress: Arc<Egress>,
    /// The number of the version's function. Each function has a number of its own.
    function: AtomicU64,
    /// The start under way. All callers wait for it, and it continues when one of them leaves.
    starting: Mutex<Option<watch::Receiver<StartOutcome>>>,
    starts: Mutex<StartBackoff>,
    current: Mutex<Option<CurrentWorker>>,
}

/// When workers of one version were started.
#[derive(Debug, Default)]
struct StartBackoff {
    last: Option<Instant>,
    /// The least time from the last start to the next.
    apart: Duration,
}

impl StartBackoff {
    /// Returns and records the time of the next start.
    fn next(&mut self, now: Instant) -> Instant {
        let [least, most] = APART;
        let lived = self.last.map(|last| now.saturating_duration_since(last));
        let at = match (self.last, lived) {
            (Some(last), Some(lived)) if lived < LIVED => {
                let at = now.max(last + self.apart);
                self.apart = (2 * self.apart).clamp(least, most);
                at
            }
            _ => {
                self.apart = least;
                now
            }
        };
        self.last = Some(at);
        at
    }
}

#[derive(Debug)]
struct CurrentWorker {
    worker: Arc<Worker>,
    connector: Connector,
    /// When a call last used it.
    used: Instant,
    /// Declared after the worker, so that calls under way receive their end before the process
    /// ends.
    _process: EgressProcess,
    /// The worker's place among those of the node.
    _place: OwnedSemaphorePermit,
}

impl WorkerSlot {
    pub(crate) fn new(egress: &Arc<Egress>) -> Arc<Self> {
        static FUNCTIONS: AtomicU64 = AtomicU64::new(0);
        let slot = Arc::new(Self {
            egress: egress.clone(),
            function: FUNCTIONS.fetch_add(1, Ordering::Relaxed).into(),
            starting: Mutex::new(None),
            starts: Mutex::default(),
            current: Mutex::new(None),
        });
        egress.add(&slot);
        slot
    }

    fn current(&self) -> MutexGuard<'_, Option<CurrentWorker>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the slot as one of the same function as `other`.
    pub(super) fn join_function_of(&self, other: &Self) {
        let function = other.function.load(Ordering::Relaxed);
        self.function.store(function, Ordering::Relaxed);
    }

    /// Returns the worker, if it exists, its connector works, and the configuration of names is up
    /// to date.
    pub(super) fn worker(&self) -> Option<Arc<Worker>> {
        if self.egress.is_name_config_stale() {
            return None;
        }
        self.current_worker()
    }

    fn current_worker(&self) -> Option<Arc<Worker>> {
        let mut current = self.current();
        let current = current.as_mut()?;
        if current.worker.is_closed() || current.connector.is_closed() {
            return None;
        }
        current.used = Instant::now();
        Some(current.worker.clone())
    }

    /// Returns the worker, started if needed. Concurrent callers share one start, which continues
    /// when callers leave.
    ///
    /// # Errors
    /// Returns the failure of the start.
    pub(super) async fn start(self: Arc<Self>) -> Result<Arc<Worker>, Failure> {
        let mut outcome = self.begin_start();
        let outcome = outcome.wait_for(Option::is_some).await;
        match outcome.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            // The task of the start has ended with the runtime.
            Ok(None) | Err(_) => Err(Failure::new(FailureCode::ConnectionTerminated)),
        }
    }

    fn begin_start(self: &Arc<Self>) -> watch::Receiver<StartOutcome> {
        let starting = || self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut under_way = starting();
        // If the start's task ended without an outcome (it panicked, or its runtime ended), the
        // channel is closed, and a new start begins.
        if let Some(outcome) = &*under_way
            && outcome.has_changed().is_ok()
        {
            return outcome.clone();
        }
        let (tell, outcome) = watch::channel(None);
        *under_way = Some(outcome.clone());
        drop(under_way);
        let slot = self.clone();
        tokio::spawn(async move {
            let started = slot.make().await;
            let starting = slot.starting.lock();
            *starting.unwrap_or_else(PoisonError::into_inner) = None;
            tell.send_replace(Some(started));
        });
        outcome
    }

    async fn make(self: &Arc<Self>) -> Result<Arc<Worker>, Failure> {
        self.egress.refresh_name_config().await;
        if let Some(worker) = self.current_worker() {
            return Ok(worker);
        }
        let at = {
            let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
            starts.next(Instant::now())
        };
        sleep_until(at).await;
        let connector = self.egress.connector().await.map_err(start_failure)?;
        if let Some(worker) = self.reconnect_worker(&connector)? {
            return Ok(worker);
        }
        let place = self
            .egress
            .acquire_worker_permit(Instant::now())
            .ok_or_else(|| {
                let code = FailureCode::ConnectionLimitReached;
                Failure::with_text(code, "too many functions make requests")
            })?;
        let function = self.function.load(Ordering::Relaxed);
        let started = self.egress.start_worker(&connector, function).await;
        let (worker, process) = started.map_err(start_failure)?;
        let worker = Arc::new(worker);
        *self.current() = Some(CurrentWorker {
            worker: worker.clone(),
            connector,
            used: Instant::now(),
            _process: process,
            _place: place,
        });
        tokio::spawn(end_when_unused(
            Arc::downgrade(self),
            Arc::downgrade(&worker),
        ));
        Ok(worker)
    }

    /// Connects an existing worker to another connector. Returns `None` if there is no worker.
    fn reconnect_worker(&self, connector: &Connector) -> Result<Option<Arc<Worker>>, Failure> {
        let mut current = self.current();
        let Some(there) = current.as_mut().filter(|there| !there.worker.is_closed()) else {
            *current = None;
            return Ok(None);
        };
        there
            .worker
            .use_connector(connector)
            .map_err(start_failure)?;
        there.connector = connector.clone();
        there.used = Instant::now();
        Ok(Some(there.worker.clone()))
    }

    /// Whether this is the slot's worker.
    fn has(&self, worker: &Weak<Worker>) -> bool {
        let current = self.current();
        let own = current.as_ref().map(|there| Arc::as_ptr(&there.worker));
        own == Some(worker.as_ptr())
    }

    /// Returns when a call last used the worker, if it has no calls now.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let current = self.current();
        let current = current.as_ref()?;
        (current.worker.calls() == 0).then_some(current.used)
    }

    /// Returns the slot's worker as a candidate to give way, if there is one.
    pub(super) fn candidate(&self) -> Option<WorkerCandidate> {
        let current = self.current();
        let current = current.as_ref()?;
        let worker = current.worker.clone();
        Some(WorkerCandidate {
            function: self.function.load(Ordering::Relaxed),
            used: current.used,
            moved: (worker.calls() > 0).then(|| worker.moved()),
            worker,
        })
    }

    /// Ends the worker of `holder`, if it is this slot's, in favour of another function's. With
    /// [`WorkerEnd::Unused`], the worker ends only if it has remained unused.
    pub(super) fn end_for_another(&self, holder: &WorkerCandidate, way: WorkerEnd) {
        let is_it = |there: &mut CurrentWorker| Arc::ptr_eq(&there.worker, &holder.worker);
        if way == WorkerEnd::Unused {
            if self.current().as_mut().is_some_and(is_it) {
                self.end_unused(holder.used);
            }
            return;
        }
        let ended = self.current().take_if(is_it);
        if let Some(ended) = ended {
            tracing::warn!(
                ?way,
                calls = ended.worker.calls(),
                "requests of a function were ended: more functions make some than there may be, \
                 and another one had no place"
            );
            let code = FailureCode::ConnectionLimitReached;
            let why = "too many functions make requests, and these gave way to others'";
            ended.worker.give_up(&Failure::with_text(code, why));
        }
    }

    /// Ends the worker, if it has no calls and was not used since `used`. The next call starts
    /// another.
    pub(super) fn end_unused(&self, used: Instant) {
        let mut current = self.current();
        let is_unused = |there: &mut CurrentWorker| there.worker.calls() == 0 && there.used <= used;
        let ended = current.take_if(is_unused);
        drop((current, ended));
    }
}

/// Logs the error. The guest receives a failure without details of the system.
fn start_failure(error: std::io::Error) -> Failure {
    tracing::warn!(%error, "an outbound call failed: its egress worker could not be started");
    Failure::with_text(
        FailureCode::InternalError,
        "the node cannot make requests now",
    )
}

/// Ends a slot's worker after a long time without use.
async fn end_when_unused(slot: Weak<WorkerSlot>, worker: Weak<Worker>) {
    let mut due = Instant::now() + KEEP;
    loop {
        sleep_until(due).await;
        let Some(slot) = slot.upgrade() else {
            return;
        };
        if !slot.has(&worker) {
            return;
        }
        let now = Instant::now();
        due = match slot.unused_since() {
            None => now + KEEP,
            Some(used) if used + KEEP > now => used + KEEP,
            Some(used) => {
                slot.end_unused(used);
                now + KEEP
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_short_lived_workers_back_off() {
        let (mut starts, begun) = (StartBackoff::default(), Instant::now());
        let [least, most] = APART;
        assert_eq!(starts.next(begun), begun);
        let (mut last, mut apart) = (begun, least);
        for _ in 0..10 {
            let next = starts.next(last);
            assert_eq!(next, last + apart);
            (last, apart) = (next, (2 * apart).min(most));
        }
        let later = last + LIVED;
        assert_eq!(starts.next(later), later);
        assert_eq!(starts.next(later), later + least);
    }
}
