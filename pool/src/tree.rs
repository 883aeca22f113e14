//! The tree of seeds: what all functions share, and the functions' own.
//!
//! Level 0 is a booted guest, level 1 the engine with every import linked; both
//! are made once, from the provider's own code. Level 2 is a function version. A
//! function whose seed had to give way is served from level 1 by doing the missing
//! steps (best-effort fork, AFaaS §4.1), and its seed is made again meanwhile, once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use faasw_abi::doorbell::Ring;
use faasw_abi::memory_map::{PAGE, ram_bytes};
use faasw_seedtree::{Candidate, Level, victims};
use faasw_text::Line;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::error::{PlatformError, SeedError};
use crate::frozen::Frozen;
use crate::function::{LogSink, LogStream, SeedInfo};
use crate::holding::Holding;
use crate::log_lines::LogLines;
use crate::mailbox::Mailbox;
use crate::making::Making;
use crate::parking::{Keeper, Parking};
use crate::seed::{Function, Makings};
use crate::stock::Stock;

/// How long a level that has no tenant's code may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// All seeds of a pool.
#[derive(Debug)]
pub struct Tree {
    stock: Arc<Stock>,
    keeper: Arc<Keeper>,
    makings: Arc<Makings>,
    budget: u64,
    function_budget: u64,
    booted: OnceCell<Arc<Frozen>>,
    linked: OnceCell<Arc<Frozen>>,
    functions: Mutex<Vec<Weak<Function>>>,
    /// By function name, of whatever version.
    holdings: Mutex<BTreeMap<String, Weak<Holding>>>,
    /// Number of the next function.
    next_number: AtomicU64,
}

/// Takes what a guest without a function says, which is nothing.
#[derive(Debug)]
struct OwnLog;

impl LogSink for OwnLog {
    fn line(&self, _: u64, _: LogStream, line: &[u8]) {
        tracing::warn!(line = %Line(String::from_utf8_lossy(line)), "a guest without a function speaks");
    }
}

fn log() -> LogLines {
    LogLines::new(Arc::new(OwnLog), 0)
}

/// RAM of a guest without a function.
fn least_ram() -> u64 {
    ram_bytes(0).unwrap_or(0)
}

/// A guest without a function that fails is the platform's fault.
fn platform(error: SeedError) -> PlatformError {
    match error {
        SeedError::Platform(error) => error,
        other => PlatformError::Protocol(other.to_string()),
    }
}

async fn patiently<T>(
    work: impl Future<Output = Result<T, PlatformError>>,
) -> Result<T, PlatformError> {
    timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(PlatformError::Protocol("a guest does not start".to_owned())))
}

impl Tree {
    /// A tree without seeds, whose functions' seeds may take `budget` bytes; each
    /// function may hold `function_budget` bytes, parked instances included.
    pub fn new(
        stock: Arc<Stock>,
        keeper: Arc<Keeper>,
        processors: usize,
        budget: u64,
        function_budget: u64,
    ) -> Self {
        Self {
            stock,
            keeper,
            makings: Arc::new(Makings::new(processors)),
            budget,
            function_budget,
            booted: OnceCell::new(),
            linked: OnceCell::new(),
            functions: Mutex::default(),
            holdings: Mutex::default(),
            next_number: AtomicU64::new(0),
        }
    }

    /// Whose turn it is to make a seed of a function that is known.
    pub fn makings(&self) -> &Arc<Makings> {
        &self.makings
    }

    /// Where shells come from.
    pub fn stock(&self) -> &Stock {
        &self.stock
    }

    /// Room for the instances of one more function.
    pub fn parking(&self) -> Arc<Parking> {
        self.keeper.parking()
    }

    /// The account of the versions of one function.
    pub fn holding(&self, name: &str) -> Arc<Holding> {
        let mut holdings = lock(&self.holdings);
        if let Some(holding) = holdings.get(name).and_then(Weak::upgrade) {
            return holding;
        }
        holdings.retain(|_, holding| holding.strong_count() > 0);
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let holding = Arc::new(Holding::new(number, self.function_budget));
        holdings.insert(name.to_owned(), Arc::downgrade(&holding));
        holding
    }

    /// Level 1; made when it is asked for first.
    ///
    /// # Errors
    /// Platform errors.
    pub async fn linked(&self) -> Result<&Arc<Frozen>, PlatformError> {
        self.linked
            .get_or_try_init(|| {
                patiently(async {
                    let booted = self.booted.get_or_try_init(|| self.boot()).await?;
                    let mailbox = Mailbox::new()?;
                    let ram = least_ram();
                    let mut making =
                        Making::fork(&self.stock, booted, ram, mailbox, None, log()).await?;
                    making.reach(Ring::Linked).await.map_err(platform)?;
                    let linked = Arc::new(making.freeze(Level::Engine).await?);
                    self.stock.preset_with(linked.clone());
                    Ok(linked)
                })
            })
            .await
    }

    async fn boot(&self) -> Result<Arc<Frozen>, PlatformError> {
        let mut making = Making::boot(&self.stock, least_ram(), log()).await?;
        making.reach(Ring::Booted).await.map_err(platform)?;
        Ok(Arc::new(making.freeze(Level::Guest).await?))
    }

    /// Takes a function up.
    pub fn add(&self, function: &Arc<Function>) {
        let mut functions = lock(&self.functions);
        functions.retain(|function| function.strong_count() > 0);
        functions.push(Arc::downgrade(function));
        function.holding().add(function);
    }

    /// Lets seeds go until each function's and all together fit their budgets.
    pub fn fit(&self) {
        let functions = self.functions();
        for function in &functions {
            function.holding().fit();
        }
        let with_seeds: Vec<_> = functions
            .iter()
            .filter_map(|function| Some((function, function.candidate(0)?)))
            .collect();
        let candidates: Vec<Candidate> = with_seeds.iter().map(|(_, seed)| *seed).collect();
        for place in victims(&candidates, self.budget) {
            if let Some((function, seed)) = with_seeds.get(place)
                && function.let_go()
            {
                tracing::debug!(
                    function = function.name(),
                    bytes = seed.bytes,
                    "a seed gave way"
                );
            }
        }
    }

    /// Bytes of functions' seeds, and of their parked instances' private pages.
    pub fn held(&self) -> (u64, u64) {
        let functions = self.functions();
        let seeds = functions.iter().map(|function| function.seed_bytes());
        let parked = functions.iter().map(|function| function.parking().bytes());
        (seeds.sum(), parked.sum())
    }

    /// Every seed as it is now, parents before children.
    pub fn describe(&self) -> Vec<SeedInfo> {
        let mut all = Vec::new();
        for (name, level) in [("guest", &self.booted), ("linkers", &self.linked)] {
            if let Some(frozen) = level.get() {
                all.push(describe(name, frozen));
            }
        }
        all.extend(self.functions().iter().map(|function| function.describe()));
        all
    }

    fn functions(&self) -> Vec<Arc<Function>> {
        let functions = lock(&self.functions);
        functions.iter().filter_map(Weak::upgrade).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a seed alone says of itself.
pub fn describe(name: &str, frozen: &Frozen) -> SeedInfo {
    let working_set = frozen.working_set.current();
    let pages = |extents: &[faasw_seedtree::Extent]| -> u64 {
        extents.iter().map(|extent| extent.bytes() / PAGE).sum()
    };
    SeedInfo {
        name: name.to_owned(),
        level: frozen.seed.level.number(),
        is_in_memory: true,
        layer_bytes: frozen.bytes(),
        windows: frozen.windows.len(),
        changed_pages: pages(frozen.seed.layer.extents()),
        written_pages: pages(&working_set.written),
        read_pages: pages(&working_set.read),
        forks: frozen.forks(),
        ..SeedInfo::default()
    }
}
