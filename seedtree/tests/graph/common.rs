//! Snapshots without guests, and jobs that are done at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faasw_seedtree::graph::{Asked, Defined, Done, Job, Resident};
use faasw_seedtree::{Graph, Key, Layer, LayerBuilder, Owner, StepDigest};

/// What there is of a snapshot where nothing runs.
#[derive(Debug)]
pub struct Frozen {
    pub key: Key,
    parent: Option<Arc<Self>>,
    /// May grow.
    pub bytes: AtomicU64,
    /// A real one, to see it closed.
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

/// Its recipe is the number of the step, its waiters are numbers.
pub type Seeds = Graph<Frozen, u64, u64>;
pub type Step = Job<Frozen, u64>;
pub type End = Done<Frozen, u64, u64, &'static str>;

/// What building takes here.
pub const COST: Duration = Duration::from_millis(10);

/// What doing a job makes, with a layer of this name if it has one.
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
) -> Defined<Frozen, u64> {
    let step = StepDigest::of(&[&number.to_le_bytes()]);
    let defined = graph.define(parent, owner, step, number, is_pinned, Instant::now());
    defined.unwrap()
}

/// A path of so many steps below `parent`, which are numbered from 0.
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
    graph.built(job.ticket, Ok((snapshot, COST)))
}

pub fn ask(graph: &mut Seeds, key: Key, waiter: u64) -> Option<Step> {
    match graph.ask(key, Some(waiter)) {
        Asked::Build(job) => Some(job),
        Asked::UnderWay => None,
        other => panic!("{other:?}"),
    }
}

/// Has a node built with all that follows, 100 bytes each; the nodes that were, in order.
pub fn build(graph: &mut Seeds, key: Key) -> Vec<Key> {
    let mut jobs: Vec<Step> = ask(graph, key, 0).into_iter().collect();
    let mut built = Vec::new();
    while let Some(job) = jobs.pop() {
        built.push(job.ticket.key());
        jobs.extend(succeed(graph, job, 100).jobs);
    }
    built
}
