//! `faasw-bench neighbours`: the effect of one function's load on another function.
//!
//! A node serves a small function to one client, alone and beside each antagonist in alternating
//! rounds. The ratios show how much of its throughput the neighbour keeps, and how much longer its
//! slowest answers take.

use std::{
    fmt, fs,
    net::UdpSocket,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;
use serde::Serialize;

use crate::{
    client::{Client, Connections, Url},
    load::{Generator, Outcome, Until},
    report::server::Node,
    stats::{Percentiles, Ratio},
    table::{self, Table},
};

/// Time that an antagonist is at work before the neighbour is measured: long enough for its
/// instances to be made.
const FILLING: Duration = Duration::from_secs(1);

/// The least throughput that a neighbour keeps, as a part of what it has alone. On two processors
/// it was 0.13 and more, also beside builds; without shares by function it is below 0.01.
const THROUGHPUT_MIN: f64 = 0.03;
/// The most by which a neighbour's 99th percentile may rise, for the same reason.
const P99_MAX: f64 = 300.0;
/// The most of a neighbour's requests that may fail.
const ERRORS_MAX: f64 = 0.01;

/// The nice value of an antagonist's clients: 19 is the lowest priority.
const LOWEST_PRIORITY: i32 = 19;

/// Options of the command.
#[derive(clap::Args)]
pub struct Arguments {
    /// The `faasw` program
    #[arg(long, value_name = "FILE")]
    faasw: PathBuf,
    /// The folder with the functions for tests
    #[arg(long, value_name = "DIR", default_value = "tests/fixtures")]
    fixtures: PathBuf,
    /// Only these antagonists
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Antagonist>,
    /// Rounds with each antagonist and without
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long the neighbour is measured in each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Fail if a neighbour keeps too little
    #[arg(long)]
    within_bounds: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A kind of load that a function, or its deployments, puts on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Antagonist {
    /// Requests that compute until their limit
    Spin,
    /// Requests that take all the memory they may have
    Memory,
    /// Requests that write thousands of lines to the log
    LogFlood,
    /// Requests that fill a key-value store
    StoreFill,
    /// Requests that call their own function
    SelfCalls,
    /// Large bodies
    Downloads,
    /// Deployments, one after the other
    Deployments,
    /// Requests that ask for names whose server does not answer
    SlowNames,
    /// Scripts whose initialisation does not end
    SlowInitialisation,
}

/// The work that an antagonist's clients repeat until they are stopped.
enum Work {
    /// Requests to paths. Each of this many clients sends one after the other.
    Requests(usize, fn(u64) -> String),
    /// Deployments of a script by this many clients.
    Deployments(usize, &'static str),
}

impl Antagonist {
    /// Returns the fixture to deploy and its options; `None` if only deployments are the load.
    fn function(self) -> Option<(&'static str, &'static [&'static str])> {
        Some(match self {
            Self::Spin | Self::Memory | Self::LogFlood | Self::Downloads => {
                ("http-probe.wasm", &[])
            }
            Self::StoreFill => ("kv-probe.wasm", &[]),
            Self::SelfCalls => ("call-probe.wasm", &["--allow-outbound", "http://self"]),
            Self::SlowNames => ("call-probe.wasm", &["--allow-outbound", "http://*.example"]),
            Self::Deployments | Self::SlowInitialisation => return None,
        })
    }

    fn work(self) -> Work {
        match self {
            Self::Spin => Work::Requests(64, |_| "loop".to_owned()),
            Self::Memory => Work::Requests(32, |_| "alloc".to_owned()),
            Self::LogFlood => Work::Requests(16, |_| "log-flood/2000".to_owned()),
            Self::StoreFill => Work::Requests(16, |number| {
                format!("draft/a/fill/key-{}/60000", number % 4000)
            }),
            Self::SelfCalls => Work::Requests(16, |_| {
                "at-once/self/16/antagonist/at-once/self/16".to_owned()
            }),
            Self::Downloads => Work::Requests(32, |_| "body/16000000".to_owned()),
            Self::SlowNames => Work::Requests(64, |number| format!("get/name-{number}.example/")),
            Self::Deployments => Work::Deployments(
                2,
                "let sum = 0; for (let i = 0; i < 3000000; i++) sum += i;\n\
                 export default { fetch: () => new Response(`${sum}`) };\n",
            ),
            Self::SlowInitialisation => Work::Deployments(
                8,
                "for (;;) {}\nexport default { fetch: () => new Response('never') };\n",
            ),
        }
    }
}

/// The neighbour's results of one round.
#[derive(Clone, Copy, Debug)]
struct Share {
    throughput: f64,
    p99: f64,
    errors: u64,
    requests: u64,
}

impl Share {
    fn of(outcome: &Outcome) -> Result<Self> {
        let times = Percentiles::of(&outcome.latencies).with_context(|| {
            let first = outcome.first_error.as_deref();
            format!(
                "the neighbour got no answer: {}",
                first.unwrap_or("no error")
            )
        })?;
        Ok(Self {
            throughput: outcome.latencies.len() as f64 / outcome.elapsed.as_secs_f64(),
            p99: times.p99,
            errors: outcome.errors,
            requests: outcome.errors + outcome.latencies.len() as u64,
        })
    }
}

/// The neighbour's results beside one antagonist, relative to those alone.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    antagonist: Antagonist,
    /// Throughput beside the antagonist to throughput alone.
    throughput: Ratio,
    /// 99th percentile beside the antagonist to that alone.
    p99: Ratio,
    /// The part of the neighbour's requests that failed beside the antagonist.
    errors: f64,
    /// Requests or deployments that the antagonist's clients began meanwhile.
    antagonist_done: u64,
}

impl Row {
    fn is_within_bounds(&self) -> bool {
        self.throughput.median >= THROUGHPUT_MIN
            && self.p99.median <= P99_MAX
            && self.errors <= ERRORS_MAX
    }
}

/// Every antagonist's row.
#[derive(Clone, Debug, Serialize)]
struct NeighboursReport(Vec<Row>);

impl fmt::Display for NeighboursReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = [
            "beside",
            "throughput",
            "95 %",
            "p99",
            "95 %",
            "errors",
            "done",
        ];
        let mut table = Table::new(titles);
        for row in &self.0 {
            let name = row.antagonist.to_possible_value();
            let interval = |of: &Ratio| format!("{:.2} to {:.2}", of.low, of.high);
            table.row([
                name.map_or_else(String::new, |name| name.get_name().to_owned()),
                format!("{:.2}", row.throughput.median),
                interval(&row.throughput),
                format!("{:.1}", row.p99.median),
                interval(&row.p99),
                format!("{:.2} %", row.errors * 100.0),
                row.antagonist_done.to_string(),
            ]);
        }
        write!(f, "{table}")
    }
}

/// Measures and prints the table.
///
/// # Errors
/// If the node does not start, the neighbour gets no answer, or with `--within-bounds` keeps too
/// little.
pub fn run(arguments: &Arguments) -> Result<()> {
    let all = Antagonist::value_variants();
    let chosen = match arguments.only.as_slice() {
        [] => all,
        only => only,
    };
    let mut found = NeighboursReport(Vec::new());
    for antagonist in chosen {
        let row = measure(arguments, *antagonist)?;
        if !arguments.json {
            eprintln!(
                "{antagonist:?}: {:.2} of its throughput",
                row.throughput.median
            );
        }
        found.0.push(row);
    }
    table::print(arguments.json, &found, || found.to_string())?;
    let outside: Vec<_> = found
        .0
        .iter()
        .filter(|row| !row.is_within_bounds())
        .collect();
    ensure!(
        !arguments.within_bounds || outside.is_empty(),
        "a neighbour is to keep {THROUGHPUT_MIN} of its throughput, {P99_MAX} times its 99th \
         percentile and {ERRORS_MAX} of failed requests at most; it does not beside {:?}",
        outside.iter().map(|row| row.antagonist).collect::<Vec<_>>()
    );
    Ok(())
}

/// A name server that receives queries and never answers.
struct SilentNames {
    socket: UdpSocket,
}

impl SilentNames {
    fn new() -> Result<Self> {
        let socket = UdpSocket::bind(("127.0.0.1", 0))?;
        Ok(Self { socket })
    }

    fn address(&self) -> Result<String> {
        Ok(self.socket.local_addr()?.to_string())
    }
}

fn measure(arguments: &Arguments, antagonist: Antagonist) -> Result<Row> {
    let names = SilentNames::new()?;
    let node = Node::serve(&arguments.faasw, &["--name-server", &names.address()?])?;
    let deploy = |file: &str, name: &str, options: &[&str]| {
        let file = arguments.fixtures.join(file);
        let file = file.to_str().context("the folder's name is no UTF-8")?;
        let words = [&["deploy", file, "--name", name], options].concat();
        node.commands().run(&words).map(drop)
    };
    deploy("http-probe.wasm", "neighbour", &[])?;
    if let Some((file, options)) = antagonist.function() {
        deploy(file, "antagonist", options)?;
    }
    let folder = tempfile::tempdir()?;
    let at = |name: &str| Url {
        authority: node.url().authority.clone(),
        path: format!("/{name}/hello"),
    };
    let mut client = Generator::new(&at("neighbour"), Connections::Keep, 1);
    let window = Until::Elapsed(Duration::from_secs(arguments.seconds.into()));
    client.run(Until::Elapsed(FILLING))?;
    let (mut throughputs, mut tails) = (Vec::new(), Vec::new());
    let (mut errors, mut requests, mut done) = (0, 0, 0);
    for _ in 0..arguments.rounds {
        let alone = Share::of(&client.run(window)?)?;
        let beside = {
            let clients = AntagonistClients {
                node: &node,
                folder: folder.path(),
                is_over: AtomicBool::new(false),
                done: AtomicU64::new(0),
            };
            let outcome = clients.beside(&antagonist.work(), || {
                thread::sleep(FILLING);
                client.run(window)
            })?;
            done += clients.done.load(Ordering::Relaxed);
            Share::of(&outcome)?
        };
        throughputs.push((beside.throughput, alone.throughput));
        tails.push((beside.p99, alone.p99));
        errors += beside.errors;
        requests += beside.requests;
    }
    Ok(Row {
        antagonist,
        throughput: Ratio::of(&throughputs).context("no rounds")?,
        p99: Ratio::of(&tails).context("no rounds")?,
        errors: errors as f64 / requests as f64,
        antagonist_done: done,
    })
}

/// Gives the calling thread the lowest priority. Real clients run on other machines, so an
/// antagonist's clients must not take processor time from the neighbour's client or the node. If
/// the system refuses, the result is too low, never too high.
fn step_back() {
    let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
}

/// An antagonist's clients.
struct AntagonistClients<'a> {
    node: &'a Node,
    folder: &'a Path,
    is_over: AtomicBool,
    done: AtomicU64,
}

/// Stops the clients when dropped, also if the measurement fails.
struct StopClients<'a>(&'a AtomicBool);

impl Drop for StopClients<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl AntagonistClients<'_> {
    /// Runs `measured` while the clients are at work, and returns its result.
    fn beside<T>(&self, work: &Work, measured: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let _stop = StopClients(&self.is_over);
            match work {
                Work::Requests(clients, path) => {
                    for _ in 0..*clients {
                        scope.spawn(|| self.request(*path));
                    }
                }
                Work::Deployments(clients, script) => {
                    for client in 0..*clients {
                        scope.spawn(move || self.deploy(client, script));
                    }
                }
            }
            measured()
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the number of the next request or deployment, and counts it.
    fn next(&self) -> u64 {
        self.done.fetch_add(1, Ordering::Relaxed)
    }

    fn request(&self, path: fn(u64) -> String) {
        step_back();
        let mut client = Client::new(self.node.url());
        while !self.is_over() {
            // Only the neighbour's answers are measured.
            let _ = client.get(&format!("/antagonist/{}", path(self.next())));
        }
    }

    fn deploy(&self, client: usize, script: &str) {
        step_back();
        let name = format!("antagonist-{client}");
        let file = self.folder.join(format!("{name}.js"));
        while !self.is_over() {
            // Each script is different, so that the node does not reuse one that it has already.
            let script = format!("// {}\n{script}", self.next());
            if fs::write(&file, script).is_ok()
                && let Some(file) = file.to_str()
            {
                let _ = self.node.commands().run(&["deploy", file, "--name", &name]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(throughput: f64, p99: f64, errors: f64) -> Row {
        let ratio = |median| Ratio {
            median,
            low: median,
            high: median,
            pairs: 1,
        };
        Row {
            antagonist: Antagonist::Spin,
            throughput: ratio(throughput),
            p99: ratio(p99),
            errors,
            antagonist_done: 7,
        }
    }

    #[test]
    fn a_neighbour_that_keeps_too_little_is_outside_of_the_bounds() {
        assert!(row(0.5, 4.0, 0.0).is_within_bounds());
        for outside in [
            row(0.02, 4.0, 0.0),
            row(0.5, 400.0, 0.0),
            row(0.5, 4.0, 0.5),
        ] {
            assert!(!outside.is_within_bounds(), "{outside:?}");
        }
    }

    #[test]
    fn each_antagonist_has_a_row_with_its_name() {
        let text = NeighboursReport(vec![row(0.5, 4.0, 0.25)]).to_string();
        assert!(text.contains("spin") && text.contains("25.00 %"), "{text}");
    }
}
