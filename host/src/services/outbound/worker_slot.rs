//! The worker of a version of a function. It is started with the first call, and again after it has
//! ended.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_egress::client::Worker;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    egress::Egress,
    worker_cell::{CurrentWorker, WorkerCell},
};

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
    cell: Arc<WorkerCell>,
    /// The start under way. All callers wait for it, and it continues when one of them leaves.
    starting: Mutex<Option<watch::Receiver<StartOutcome>>>,
    starts: Mutex<StartBackoff>,
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

impl WorkerSlot {
    pub(crate) fn new(egress: &Arc<Egress>) -> Arc<Self> {
        let cell = WorkerCell::new();
        egress.add(&cell);
        Arc::new(Self {
            egress: egress.clone(),
            cell,
            starting: Mutex::new(None),
            starts: Mutex::default(),
        })
    }

    /// Marks the slot as one of the same function as `other`.
    pub(super) fn join_function_of(&self, other: &Self) {
        self.cell.join_function_of(&other.cell);
    }

    /// Returns the worker, if it exists, its connector works, and the configuration of names is up
    /// to date.
    pub(super) fn worker(&self) -> Option<Arc<Worker>> {
        if self.egress.is_name_config_stale() {
            return None;
        }
        self.cell.worker()
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
        if let Some(worker) = self.cell.worker() {
            return Ok(worker);
        }
        let at = {
            let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
            starts.next(Instant::now())
        };
        sleep_until(at).await;
        let connector = self.egress.connector().await.map_err(start_failure)?;
        let reconnected = self.cell.reconnect(&connector);
        if let Some(worker) = reconnected.map_err(start_failure)? {
            return Ok(worker);
        }
        let place = self
            .egress
            .acquire_worker_permit(Instant::now())
            .ok_or_else(|| {
                let code = FailureCode::ConnectionLimitReached;
                Failure::with_text(code, "too many functions make requests")
            })?;
        let started = self.egress.start_worker(&connector, self.cell.function());
        let (worker, process) = started.await.map_err(start_failure)?;
        let worker = Arc::new(worker);
        let current = CurrentWorker::new(worker.clone(), connector, process, place);
        self.cell.set(current);
        tokio::spawn(end_when_unused(
            Arc::downgrade(&self.cell),
            Arc::downgrade(&worker),
        ));
        Ok(worker)
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

/// Ends a cell's worker after a long time without use.
async fn end_when_unused(cell: Weak<WorkerCell>, worker: Weak<Worker>) {
    let mut due = Instant::now() + KEEP;
    loop {
        sleep_until(due).await;
        let Some(cell) = cell.upgrade().filter(|cell| cell.has(&worker)) else {
            return;
        };
        let now = Instant::now();
        due = match cell.unused_since() {
            None => now + KEEP,
            Some(used) if used + KEEP > now => used + KEEP,
            Some(used) => {
                cell.end_unused(used);
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
