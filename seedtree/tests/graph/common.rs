//! Snapshots without guests, and jobs that complete at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faasw_seedtree::graph::{Job, JobOutcome, Resident, SeedHandle, SnapshotRequest};
use faasw_seedtree::{Graph, Key, Layer, LayerBuilder, Owner, StepDigest};

/// A snapshot without a guest.
#[derive(Debug)]
pub struct Frozen {
    pub key: Key,
    parent: Option<Arc<Self>>,
    /// Size of the snapshot, which may grow.
    pub bytes: AtomicU64,
    /// A real layer, so that tests can check that it is closed.
    _layer: Option<Layer>,
}

impl Resident for Frozen {
    fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The recipe of a step is its number, and waiters are numbers.
pub type Seeds = Graph<Frozen, u64, u64>;
pub type Step = Job<Frozen, u64>;
pub type End = JobOutcome<Frozen, u64, u64, &'static str>;

/// The cost of each build.
pub const COST: Duration = Duration::from_millis(10);

/// Returns the result of a job, with a real layer if `layer` names one.
pub fn frozen(job: &Step, bytes: u64, layer: Option<&str>) -> Arc<Frozen> {
    Arc::new(Frozen {
        key: job.ticket.key(),
        parent: job.parent.clone(),
        bytes: bytes.into(),
        _layer: layer.map(|name| {
            let builder = LayerBuilder::new(name, 1 << 20).unwrap();
            builder.freeze(1).unwrap()
        }),
    })
}

/// Defines step `number`.
pub fn define(
    graph: &mut Seeds,
    parent: Option<Key>,
    owner: Owner,
    number: u64,
    is_pinned: bool,
) -> SeedHandle<Frozen, u64> {
    let step = StepDigest::of(&[&number.to_le_bytes()]);
    let defined = graph.define(parent, owner, step, number, is_pinned, Instant::now());
    defined.unwrap()
}

/// Defines a path of this many steps below `parent`, numbered from 0.
pub fn path(graph: &mut Seeds, parent: Option<Key>, steps: u64) -> Vec<Key> {
    let mut keys = Vec::new();
    for number in 0..steps {
        let parent = keys.last().copied().or(parent);
        keys.push(define(graph, parent, Owner::Shared, number, false).key);
    }
    keys
}

pub fn succeed(graph: &mut Seeds, job: Step, bytes: u64) -> End {
    let snapshot = frozen(&job, bytes, None);
    graph.finish_job(job.ticket, Ok((snapshot, COST)))
}

pub fn ask(graph: &mut Seeds, key: Key, waiter: u64) -> Option<Step> {
    match graph.request(key, Some(waiter)) {
        SnapshotRequest::Build(job) => Some(job),
        SnapshotRequest::UnderWay => None,
        other => panic!("{other:?}"),
    }
}

/// Builds a node and all that follows, 100 bytes each, and returns the built nodes in order.
pub fn build(graph: &mut Seeds, key: Key) -> Vec<Key> {
    let mut jobs: Vec<Step> = ask(graph, key, 0).into_iter().collect();
    let mut built = Vec::new();
    while let Some(job) = jobs.pop() {
        built.push(job.ticket.key());
        jobs.extend(succeed(graph, job, 100).jobs);
    }
    built
}
