//! `faasw-bench key-value`: the cost of a function's key-value store, on a node in this process
//! with a data directory. A get is compared with an empty `KVM_RUN` between two processes. Sets,
//! which are acknowledged when they are durable, are compared with the disk's syncs.
//!
//! The time of a get is that of a request that opens a store and gets a key, less that of a request
//! that only opens it: one exchange of record and answer. Both and the floor take turns in each
//! round.

use std::{
    fmt,
    fs::File,
    io::Write as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use faasw::{FunctionOptions, Node};
use http::Request;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::{
    floor::Partner,
    interrupt,
    stats::{self, Percentiles},
    table::{self, Table},
};

/// Name of the function: `tests/fixtures/kv-probe.wasm`.
const NAME: &str = "kv";
/// Requests and round trips before the first that counts.
const WARM_UP: u32 = 300;
/// The most that a get may take beyond a round trip of the floor, in microseconds.
const GOAL: f64 = 20.0;
/// The least number of sets per second, if the disk is fast enough.
const GOAL_SETS: f64 = 5_000.0;

/// Options of the `key-value` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// The function that uses a store as its path says
    #[arg(
        long,
        value_name = "FILE",
        default_value = "tests/fixtures/kv-probe.wasm"
    )]
    function: PathBuf,
    /// Where the node keeps its data; removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    on: PathBuf,
    /// Rounds, in each of which everything is measured once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Round trips and requests of each kind in a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    trips: u32,
    /// Requests that set a key at once
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// How long they do so, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Times of one round.
#[derive(Default)]
struct Round {
    floor: Vec<Duration>,
    open: Vec<Duration>,
    get: Vec<Duration>,
}

/// The results of all rounds.
#[derive(Debug, Serialize)]
pub struct KeyValueReport {
    /// An empty `KVM_RUN` round trip between two processes.
    pub floor: Percentiles,
    /// A request that opens a store.
    pub open: Percentiles,
    /// A request that opens a store and gets a key.
    pub get: Percentiles,
    /// The time of a get beyond the floor, in microseconds: the median of the rounds' differences
    /// of medians.
    pub beside_the_floor: f64,
    /// Requests per second that each set a key and were answered when that was durable.
    pub sets: f64,
    /// Number of clients that send them at once.
    pub connections: u32,
    /// Syncs per second of a file that grows by 4 KiB each time, one after the other, on the same
    /// disk. A commit takes two.
    pub syncs: f64,
}

/// Measures and prints.
///
/// # Errors
/// Returns an error without KVM, and if the function does not answer.
pub fn run(arguments: &Arguments) -> Result<()> {
    interrupt::catch();
    let folder = tempfile::tempdir_in(&arguments.on)?;
    let runtime = Runtime::new()?;
    let node = Arc::new(runtime.block_on(Node::builder().data_dir(folder.path()).start())?);
    let measured = measure(arguments, &runtime, &node, folder.path());
    // The node is shut down even if the measurement failed.
    runtime.block_on(node.shutdown());
    let found = measured?;
    table::print(arguments.json, &found, || found.to_string())
}

fn measure(
    arguments: &Arguments,
    runtime: &Runtime,
    node: &Arc<Node>,
    folder: &std::path::Path,
) -> Result<KeyValueReport> {
    let module = std::fs::read(&arguments.function)
        .with_context(|| format!("cannot read {}", arguments.function.display()))?;
    runtime.block_on(node.deploy(NAME, module, FunctionOptions::default()))?;
    ask(runtime, node, "/spin/default/set/k/value", 1)?;
    let (open, get) = ("/spin/default/open", "/spin/default/get/k");
    let mut partner = Partner::start(true)?;
    for path in [open, get] {
        ask(runtime, node, path, WARM_UP)?;
    }
    for _ in 0..WARM_UP {
        partner.round_trip()?;
    }
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        interrupt::check()?;
        let mut floor = Vec::new();
        for _ in 0..arguments.trips {
            let begun = Instant::now();
            partner.round_trip()?;
            floor.push(begun.elapsed());
        }
        rounds.push(Round {
            floor,
            open: ask(runtime, node, open, arguments.trips)?,
            get: ask(runtime, node, get, arguments.trips)?,
        });
    }
    let syncs = syncs(folder, Duration::from_secs(2))?;
    let sets = sets(arguments, runtime, node)?;
    KeyValueReport::of(&rounds, sets, arguments.connections, syncs).context("nothing was measured")
}

/// Sends requests one after the other, in a task of the node's runtime.
fn ask(runtime: &Runtime, node: &Arc<Node>, path: &str, trips: u32) -> Result<Vec<Duration>> {
    let (node, path) = (node.clone(), path.to_owned());
    runtime.block_on(runtime.spawn(async move {
        let mut took = Vec::new();
        for _ in 0..trips {
            let request = Request::get(&path).body(String::new())?;
            let begun = Instant::now();
            let response = node.invoke(NAME, request).await;
            took.push(begun.elapsed());
            ensure!(
                response.status().is_success(),
                "{path} was answered {}",
                response.status()
            );
        }
        Ok(took)
    }))?
}

/// Returns the sets per second by `arguments.connections` clients at once.
fn sets(arguments: &Arguments, runtime: &Runtime, node: &Arc<Node>) -> Result<f64> {
    let (ends, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let begun = Instant::now();
    let setting: Vec<_> = (0..arguments.connections)
        .map(|number| {
            let (node, ends, done) = (node.clone(), ends.clone(), done.clone());
            runtime.spawn(async move {
                let path = format!("/spin/default/set/k{number}/value");
                while !ends.load(Ordering::Relaxed) {
                    let request = Request::get(&path).body(String::new())?;
                    let response = node.invoke(NAME, request).await;
                    ensure!(
                        response.status().is_success(),
                        "{path} was answered {}",
                        response.status()
                    );
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(arguments.seconds));
    ends.store(true, Ordering::Relaxed);
    for one in setting {
        runtime.block_on(one)??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

/// Returns the syncs per second of a file that grows.
fn syncs(folder: &std::path::Path, time: Duration) -> Result<f64> {
    let mut file = File::create(folder.join("syncs"))?;
    let (begun, mut count) = (Instant::now(), 0_u32);
    while begun.elapsed() < time {
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

impl KeyValueReport {
    /// Summarises `rounds`; `None` if nothing was measured.
    fn of(rounds: &[Round], sets: f64, connections: u32, syncs: f64) -> Option<Self> {
        let all = |times: fn(&Round) -> &Vec<Duration>| {
            let all = rounds.iter().flat_map(times);
            Percentiles::of(&all.copied().collect::<Vec<_>>())
        };
        let beside = rounds.iter().filter_map(|round| {
            let [floor, open, get] =
                [&round.floor, &round.open, &round.get].map(|times| stats::median(times));
            Some(get? - open? - floor?)
        });
        Some(Self {
            floor: all(|round| &round.floor)?,
            open: all(|round| &round.open)?,
            get: all(|round| &round.get)?,
            beside_the_floor: stats::median_of(beside)?,
            sets,
            connections,
            syncs,
        })
    }
}

impl fmt::Display for KeyValueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["", "p50 us", "p90 us", "p99 us"]);
        for (name, percentiles) in [
            ("floor: empty KVM_RUN between two processes", &self.floor),
            ("Node::invoke, opens a store", &self.open),
            ("Node::invoke, opens it and gets a key", &self.get),
        ] {
            let [p50, p90, p99] = [percentiles.p50, percentiles.p90, percentiles.p99]
                .map(|time| format!("{time:.1}"));
            table.row([name.to_owned(), p50, p90, p99]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "{:.0} sets a second, durable, by {} at once; the disk syncs {:.0} times a second, \
             twice for a commit: {:.1} sets in each.",
            self.sets,
            self.connections,
            self.syncs,
            2.0 * self.sets / self.syncs
        )?;
        let told = |is_met| if is_met { "met" } else { "missed" };
        writeln!(
            f,
            "a get takes a round trip and {:.1} us; at most {GOAL:.0} beside it: {}",
            self.beside_the_floor,
            told(self.beside_the_floor <= GOAL)
        )?;
        writeln!(
            f,
            "at least {GOAL_SETS:.0} sets a second: {}",
            told(self.sets >= GOAL_SETS)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_get_excludes_the_time_of_opening_the_store() {
        let times = |all: u64| vec![Duration::from_micros(all); 3];
        let round = |floor, open, get| Round {
            floor: times(floor),
            open: times(open),
            get: times(get),
        };
        let found =
            KeyValueReport::of(&[round(40, 100, 150), round(40, 120, 180)], 10.0, 2, 5.0).unwrap();
        assert!((found.beside_the_floor - 15.0).abs() < 1e-9);
        let told = found.to_string();
        assert!(told.contains("beside it: met"), "{told}");
        assert!(told.contains("sets a second: missed"), "{told}");
        assert!(told.contains("4.0 sets in each"), "{told}");
        assert!(KeyValueReport::of(&[], 0.0, 1, 1.0).is_none());
    }
}
