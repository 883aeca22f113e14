//! The cell that holds a version's worker. Of all cells, the egress chooses the one whose worker
//! ends when another function needs its permit.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use faasw_abi::outgoing::{Failure, FailureCode};
use faasw_egress::client::{Connector, Worker};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::processes::EgressProcess;

/// Workers that a function may have without giving way: that of its version, and that of the
/// version before, whose calls are still ending.
pub(super) const VERSIONS: usize = 2;

/// How long none of a worker's calls has received anything from a server or sent anything to one,
/// before the worker may give way to another function.
pub(super) const HANGS: Duration = Duration::from_secs(30);

/// A worker, as a candidate to give way to another.
#[derive(Clone, Debug)]
pub(super) struct WorkerCandidate {
    pub(super) worker: Arc<Worker>,
    /// The number of its function.
    pub(super) function: u64,
    /// When a request last used it.
    pub(super) used: Instant,
    /// When one of its calls last made progress. `None` if it has no calls.
    pub(super) moved: Option<Instant>,
}

/// Why a worker ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerEnd {
    /// The worker has no calls.
    Unused,
    /// The worker's function has more than [`VERSIONS`] workers.
    Several,
    /// None of the worker's calls has made progress for [`HANGS`].
    Hangs,
}

/// The cell for the worker of one version.
#[derive(Debug)]
pub(super) struct WorkerCell {
    /// The number of the version's function. Each function has a number of its own.
    function: AtomicU64,
    current: Mutex<Option<CurrentWorker>>,
}

/// A running worker.
#[derive(Debug)]
pub(super) struct CurrentWorker {
    worker: Arc<Worker>,
    connector: Connector,
    /// When a call last used it.
    used: Instant,
    /// Declared after the worker, so that calls under way receive their end before the process
    /// ends.
    _process: EgressProcess,
    /// The worker's permit among those of the node.
    _permit: OwnedSemaphorePermit,
}

impl CurrentWorker {
    pub(super) fn new(
        worker: Arc<Worker>,
        connector: Connector,
        process: EgressProcess,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            worker,
            connector,
            used: Instant::now(),
            _process: process,
            _permit: permit,
        }
    }
}

impl WorkerCell {
    pub(super) fn new() -> Arc<Self> {
        static FUNCTIONS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            function: FUNCTIONS.fetch_add(1, Ordering::Relaxed).into(),
            current: Mutex::new(None),
        })
    }

    /// Returns the number of the version's function.
    pub(super) fn function(&self) -> u64 {
        self.function.load(Ordering::Relaxed)
    }

    /// Marks the cell as one of the same function as `other`.
    pub(super) fn join_function_of(&self, other: &Self) {
        self.function.store(other.function(), Ordering::Relaxed);
    }

    pub(super) fn set(&self, worker: CurrentWorker) {
        *self.current() = Some(worker);
    }

    fn current(&self) -> MutexGuard<'_, Option<CurrentWorker>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the worker, if it exists and its connector works.
    pub(super) fn worker(&self) -> Option<Arc<Worker>> {
        let mut current = self.current();
        let current = current.as_mut()?;
        if current.worker.is_closed() || current.connector.is_closed() {
            return None;
        }
        current.used = Instant::now();
        Some(current.worker.clone())
    }

    /// Connects an existing worker to another connector. Returns `None` if there is no worker.
    pub(super) fn reconnect(&self, connector: &Connector) -> io::Result<Option<Arc<Worker>>> {
        let mut current = self.current();
        let Some(there) = current.as_mut().filter(|there| !there.worker.is_closed()) else {
            *current = None;
            return Ok(None);
        };
        there.worker.use_connector(connector)?;
        there.connector = connector.clone();
        there.used = Instant::now();
        Ok(Some(there.worker.clone()))
    }

    /// Whether this is the cell's worker.
    pub(super) fn has(&self, worker: &Weak<Worker>) -> bool {
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

    /// Returns the worker as a candidate to give way, if there is one.
    pub(super) fn candidate(&self) -> Option<WorkerCandidate> {
        let current = self.current();
        let current = current.as_ref()?;
        let worker = current.worker.clone();
        Some(WorkerCandidate {
            function: self.function(),
            used: current.used,
            moved: (worker.calls() > 0).then(|| worker.moved()),
            worker,
        })
    }

    /// Ends the worker of `holder`, if it is this cell's, in favour of another function's. With
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
                "requests of a function were ended: too many functions make requests, and another \
                 one needed its worker"
            );
            let code = FailureCode::ConnectionLimitReached;
            let why = "too many functions make requests, and these were ended for others";
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
