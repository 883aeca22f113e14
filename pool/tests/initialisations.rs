//! Initialisations that never end, in real microVMs: they do not delay other functions.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use faasw_pool::{FreezePolicy, FunctionSpec, FunctionVersion, PoolOptions};
use tokio::task::JoinHandle;

use support::{Bench, Log, give_up, spec};

const SPINS: &str = "pool/tests/support/late-spins.wat";
const SLEEPS: &str = "pool/tests/support/late-sleeps.wat";
const HELLO: &str = "examples/hello/hello.wasm";

/// Whether the guests' clock shows the year 2100.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// A day after the start of the year 2100.
const LATE: Duration = Duration::from_secs(4_102_444_800 + 86_400);

fn clock() -> SystemTime {
    if IS_LATE.load(Ordering::Relaxed) {
        SystemTime::UNIX_EPOCH + LATE
    } else {
        SystemTime::now()
    }
}

/// Options under which no seed stays in memory, and an initialisation may take any time.
fn always_anew() -> PoolOptions {
    PoolOptions {
        function_memory: 1,
        instantiation_time: Duration::from_secs(3600),
        max_instances: 1024,
        wall_clock: clock,
        ..support::usual()
    }
}

/// Returns a number of functions that is larger than the number of CPU slots.
fn more_than_slots() -> usize {
    2 * std::thread::available_parallelism().unwrap().get() + 1
}

/// A function that was initialised once. A second initialisation never ends.
struct EndlessReinitialisation {
    version: FunctionVersion,
    log: Arc<Log>,
}

impl EndlessReinitialisation {
    async fn deploy(bench: &Bench, path: &str, number: usize) -> Self {
        let log = Arc::new(Log::default());
        let spec = FunctionSpec {
            name: format!("{path}-{number}"),
            log: log.clone(),
            ..spec(FreezePolicy::Auto)
        };
        let version = bench.seed_of(path, &spec).await.unwrap();
        Self { version, log }
    }

    /// Starts the making of the function's seed.
    fn begin(&self, bench: &Bench) -> JoinHandle<()> {
        let (pool, version) = (bench.pool.clone(), self.version.clone());
        tokio::spawn(async move {
            let made = pool.ensure_in_memory(&version).await;
            panic!("it never ends: {made:?}");
        })
    }

    /// Whether the function's guest runs.
    fn has_begun(&self) -> bool {
        self.log
            .lines
            .lock()
            .unwrap()
            .iter()
            .any(|line| line == "late")
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Guests that spin occupy all processors in the meantime.
    tokio::time::timeout(2 * give_up(), looking)
        .await
        .expect(what);
}

/// The seeds of many functions are made again for requests, as after a restart, and none of these
/// makings ends. All of them begin, though there are fewer CPU slots. A neighbour's seed is made
/// while they go on.
async fn initialisations_that_never_end_delay_no_neighbour(bench: &Bench) {
    IS_LATE.store(false, Ordering::Relaxed);
    let mut all = Vec::new();
    for number in 0..more_than_slots() {
        for path in [SLEEPS, SPINS] {
            all.push(EndlessReinitialisation::deploy(bench, path, number).await);
        }
    }
    let neighbour = bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
    IS_LATE.store(true, Ordering::Relaxed);
    let making: Vec<_> = all.iter().map(|late| late.begin(bench)).collect();
    until("all begin", || {
        all.iter().all(EndlessReinitialisation::has_begun)
    })
    .await;

    assert!(!neighbour.is_in_memory());
    bench.pool.ensure_in_memory(&neighbour).await.unwrap();
    let fresh = FunctionSpec {
        name: "fresh".to_owned(),
        ..spec(FreezePolicy::Auto)
    };
    bench.seed_of(HELLO, &fresh).await.unwrap();
    assert!(making.iter().all(|making| !making.is_finished()));
    until("those that spin run behind others", || {
        let sandboxes = support::processes::sandboxes().into_iter();
        let behind = sandboxes.filter(|sandbox| support::processes::nice(*sandbox) > 0);
        behind.count() >= more_than_slots()
    })
    .await;
    for making in &making {
        making.abort();
    }
    // The guests end once no function needs them.
    drop(all);
    bench
        .settles("no guest is left", |_| {
            support::processes::sandboxes().len() <= bench.pool.stats().zygotes
        })
        .await;
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                initialisations_that_never_end_delay_no_neighbour in always_anew(),
            ]);
        }
        all
    });
}
