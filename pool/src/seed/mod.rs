//! The seed of a function: what its instances are forked from.
//!
//! By the freeze policy it is frozen either after instantiation or before it: what
//! an initialisation drew from the random generator would otherwise be every
//! request's. Deploying instantiates once in any case, so that a function that
//! cannot be instantiated is refused then. A function that is known from an earlier
//! making is taken up without one: its seed is made later (`later`).

mod later;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::CONFIGURATION;
use faasw_abi::memory_map::{RAM_MAX, RAM_OVERHEAD, ram_bytes};
use faasw_abi::wire::{FunctionKind, SeedConfig};
use faasw_seedtree::{Candidate, Level};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::code::Code;
use crate::error::{InvokeError, PlatformError, SeedError};
use crate::frozen::Frozen;
use crate::function::{FreezePolicy, FreezeReport, FunctionSpec, Known, SeedInfo, Served};
use crate::holding::Holding;
use crate::log_lines::LogLines;
use crate::mailbox::Mailbox;
use crate::making::{Instantiated, Making};
use crate::parking::Parking;
use crate::tree::{self, Tree};

pub use later::Makings;

/// How long ago a use counts half.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// A function that instances can be made of. Clones share it. Its seed is in
/// memory, or gave way to others and is made again when it is used.
#[derive(Clone, Debug)]
pub struct Seed(Arc<Function>);

impl std::ops::Deref for Seed {
    type Target = Arc<Function>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A function version as the tree has it.
#[derive(Debug)]
pub struct Function {
    spec: FunctionSpec,
    code: Arc<Code>,
    ram_bytes: u64,
    configuration: Vec<u8>,
    time_limit: Duration,
    /// Where its seeds are frozen: decided whenever one is made, first of all by the
    /// first, or known from before.
    after_init: Mutex<Option<bool>>,
    /// What instantiating it takes.
    instantiation: Mutex<Duration>,
    frozen: Mutex<Option<Arc<Frozen>>>,
    /// Who waits for its seed, while that is being made for requests.
    waiting: Mutex<Option<Waiting>>,
    /// What making its seed took.
    cost: Mutex<Duration>,
    heat: Mutex<Heat>,
    parking: Arc<Parking>,
    holding: Arc<Holding>,
    busy: AtomicUsize,
    served: [AtomicU64; Served::ALL.len()],
    page_faults: AtomicU64,
}

/// Requests that wait for a seed that is being made.
type Waiting = Vec<oneshot::Sender<Result<Arc<Frozen>, InvokeError>>>;

/// How often something is used, older uses counting less.
#[derive(Debug)]
struct Heat {
    value: f64,
    at: Instant,
}

impl Heat {
    fn now(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at);
        self.value * 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64())
    }

    fn add(&mut self, now: Instant) {
        self.value = self.now(now) + 1.0;
        self.at = now;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Function {
    /// The function's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its seed, if that is in memory.
    pub(crate) fn frozen(&self) -> Option<Arc<Frozen>> {
        lock(&self.frozen).clone()
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// Bytes that all its linear memories may have.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.spec.memory_limit
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        self.ram_bytes
    }

    pub(crate) fn parking(&self) -> &Arc<Parking> {
        &self.parking
    }

    /// The account of what all its versions hold in memory.
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    /// Bytes of its seed's layer, while that is in memory.
    pub(crate) fn seed_bytes(&self) -> u64 {
        lock(&self.frozen).as_ref().map_or(0, |seed| seed.bytes())
    }

    /// How many instances are missing of those that stay parked at all times.
    pub(crate) fn missing(&self) -> usize {
        self.parking.missing()
    }

    /// How many of `count` new instances the function may hold.
    pub(crate) fn affordable(&self, frozen: &Frozen, count: usize) -> usize {
        let room = self.holding.room() / frozen.bytes_of_new().max(1);
        count.min(usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// Tells a guest that is to become this function, through its mailbox.
    pub(crate) fn configure(&self, mailbox: &Mailbox) -> Result<(), PlatformError> {
        mailbox.put_configuration(&self.configuration, self.ram_bytes, self.code.bytes())
    }

    /// Its instances at work, being reset or being ended.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// A request is served by such a microVM from now on.
    pub(crate) fn begin(self: &Arc<Self>, served: Served) -> Busy {
        lock(&self.heat).add(Instant::now());
        if let Some(count) = self.served.get(served as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy {
            function: self.clone(),
            served,
        }
    }

    /// An instance took so many page faults for its request.
    pub(crate) fn count_faults(&self, page_faults: u64) {
        self.page_faults.fetch_add(page_faults, Ordering::Relaxed);
    }

    /// What its seed is worth; nothing when it is not in memory. It is in use when more
    /// than `parked` instances have it.
    pub(crate) fn candidate(&self, parked: usize) -> Option<Candidate> {
        let frozen = lock(&self.frozen);
        let seed = frozen.as_ref()?;
        Some(Candidate {
            frequency: lock(&self.heat).now(Instant::now()),
            cost: *lock(&self.cost),
            bytes: seed.bytes(),
            in_use: Arc::strong_count(seed) > 1 + parked,
            parent: None,
        })
    }

    /// Lets its seed go, unless somebody uses it.
    pub(crate) fn let_go(&self) -> bool {
        let mut frozen = lock(&self.frozen);
        let is_free = frozen
            .as_ref()
            .is_some_and(|seed| Arc::strong_count(seed) == 1);
        if is_free {
            *frozen = None;
        }
        is_free
    }

    pub(crate) fn describe(&self) -> SeedInfo {
        let frozen = self.frozen();
        let count = |served: Served| {
            let count = self.served.get(served as usize);
            count.map_or(0, |count| count.load(Ordering::Relaxed))
        };
        let all: u64 = Served::ALL.map(count).iter().sum();
        SeedInfo {
            name: self.spec.name.clone(),
            level: Level::Function.number(),
            parked: self.parking.count(),
            parked_bytes: self.parking.bytes(),
            busy: self.busy(),
            requests: all,
            hits: count(Served::Parked),
            page_faults: self.page_faults.load(Ordering::Relaxed),
            ..frozen.map_or_else(SeedInfo::default, |frozen| tree::describe("", &frozen))
        }
    }

    /// Runs a guest up to where this function's seed is frozen.
    async fn make(&self, tree: &Tree) -> Result<(Frozen, Option<Instantiated>), SeedError> {
        let started = Instant::now();
        let made = timeout(self.time_limit, self.freeze(tree))
            .await
            .map_err(|_| SeedError::Function(InvokeError::TimedOut(self.time_limit)))??;
        *lock(&self.cost) = started.elapsed();
        Ok(made)
    }

    async fn freeze(&self, tree: &Tree) -> Result<(Frozen, Option<Instantiated>), SeedError> {
        let mut making = self.load(tree).await?;
        let mut instantiated = None;
        if *lock(&self.after_init) != Some(false) {
            let did = making.instantiate().await?;
            let after_init = match self.spec.freeze {
                FreezePolicy::AfterInit => true,
                FreezePolicy::BeforeInit => false,
                FreezePolicy::Auto => !did.drew_entropy,
            };
            *lock(&self.after_init) = Some(after_init);
            *lock(&self.instantiation) = did.took;
            instantiated = Some(did);
            if !after_init {
                // That has shown that the function can be instantiated, and what
                // that draws; a seed without it takes another guest.
                making = self.load(tree).await?;
            }
        }
        Ok((making.freeze(Level::Function).await?, instantiated))
    }

    /// A guest at the early freeze point.
    async fn load(&self, tree: &Tree) -> Result<Making, SeedError> {
        let linked = tree.linked().await?;
        let log = LogLines::new(self.spec.log.clone(), 0);
        let mailbox = Mailbox::new()?;
        self.configure(&mailbox)?;
        let (ram, code) = (self.ram_bytes, Some(self.code()));
        let mut making = Making::fork(tree.stock(), linked, ram, mailbox, code, log).await?;
        making.reach(Ring::Loaded).await?;
        Ok(making)
    }
}

/// A request under way. Dropping it says that its instance is free again.
#[derive(Debug)]
pub struct Busy {
    function: Arc<Function>,
    served: Served,
}

impl Busy {
    /// The request is served by such a microVM after all.
    pub(crate) fn goes_over_to(&mut self, served: Served) {
        let counts = &self.function.served;
        if let Some(count) = counts.get(self.served as usize) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(count) = counts.get(served as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.served = served;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.function.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A function version that the tree does not have yet.
fn new(
    tree: &Tree,
    spec: &FunctionSpec,
    kind: FunctionKind,
    code: &Arc<Code>,
    time_limit: Duration,
) -> Result<Arc<Function>, SeedError> {
    let ram_bytes = ram_bytes(spec.memory_limit).ok_or(SeedError::MemoryTooLarge {
        wanted: spec.memory_limit,
        most: RAM_MAX - RAM_OVERHEAD,
    })?;
    let configuration = SeedConfig {
        kind,
        memory_limit: spec.memory_limit,
        arguments: vec![spec.name.clone().into_bytes()],
        environment: spec.environment.clone(),
    }
    .encode();
    if configuration.len() as u64 > CONFIGURATION.size {
        return Err(SeedError::ConfigTooLarge(
            configuration.len(),
            CONFIGURATION.size,
        ));
    }
    Ok(Arc::new(Function {
        spec: spec.clone(),
        code: code.clone(),
        ram_bytes,
        configuration,
        time_limit,
        after_init: Mutex::default(),
        instantiation: Mutex::default(),
        frozen: Mutex::default(),
        waiting: Mutex::default(),
        cost: Mutex::default(),
        heat: Mutex::new(Heat {
            value: 1.0,
            at: Instant::now(),
        }),
        parking: tree.parking(),
        holding: tree.holding(&spec.name),
        busy: AtomicUsize::new(0),
        served: Default::default(),
        page_faults: AtomicU64::new(0),
    }))
}

/// Makes a seed as the function's freeze policy says.
///
/// # Errors
/// When the function fails to load or instantiate within `time_limit`;
/// platform errors.
pub async fn make(
    tree: &Arc<Tree>,
    spec: &FunctionSpec,
    kind: FunctionKind,
    code: &Arc<Code>,
    time_limit: Duration,
) -> Result<(Seed, FreezeReport), SeedError> {
    let function = new(tree, spec, kind, code, time_limit)?;
    let (frozen, instantiated) = function.make(tree).await?;
    let (drew_entropy, drawn, instantiation) = match instantiated {
        Some(did) => (did.drew_entropy, did.drawn, did.took),
        None => (false, String::new(), Duration::ZERO),
    };
    let report = FreezeReport {
        after_init: *lock(&function.after_init) == Some(true),
        drew_entropy,
        drawn,
        instantiation,
        layer_bytes: frozen.bytes(),
    };
    *lock(&function.frozen) = Some(Arc::new(frozen));
    tree.add(&function);
    tree.fit();
    Ok((Seed(function), report))
}

/// Takes up a function of which a seed was made before. This one's is made when there
/// is nothing else to make, or when a request asks for it.
///
/// # Errors
/// When its memory or configuration is more than a guest can have.
pub fn adopt(
    tree: &Arc<Tree>,
    spec: &FunctionSpec,
    kind: FunctionKind,
    code: &Arc<Code>,
    time_limit: Duration,
    known: Known,
) -> Result<Seed, SeedError> {
    let function = new(tree, spec, kind, code, time_limit)?;
    *lock(&function.after_init) = Some(known.after_init);
    *lock(&function.instantiation) = known.instantiation;
    *lock(&function.cost) = known.instantiation;
    tree.add(&function);
    function.make_in_the_background(tree);
    Ok(Seed(function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_uses_count_less() {
        let start = Instant::now();
        let mut heat = Heat {
            value: 0.0,
            at: start,
        };
        heat.add(start);
        heat.add(start + HALF_LIFE);
        assert!((heat.value - 1.5).abs() < 1e-9);
        assert!((heat.now(start + 2 * HALF_LIFE) - 0.75).abs() < 1e-9);
    }
}
