//! `faasw-bench embedded`: latency of requests that a program sends to the node inside it
//! (`Node::invoke`), beside the floor of [`crate::floor`].
//!
//! Two nodes of this process have the same function. Instances of the first sleep until a request
//! arrives, which is a node's default. Instances of the second may poll for the next request
//! (`--poll auto`). Both nodes and the floor take turns in each round, and each round gives a
//! ratio.

use std::{
    fmt,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use faasw::{FunctionOptions, Node, Timing};
use faasw_pool::POLL;
use http::Request;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde::Serialize;
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Runtime,
};

use crate::{
    floor::Partner,
    interrupt,
    stats::{self, Percentiles, Ratio},
    table::{self, Table},
};

/// Name of the function.
const NAME: &str = "hello";
/// Requests and round trips before the first that counts.
const WARM_UP: u32 = 500;
/// The latency that a request may have at most, in microseconds; it applies if the floor is at
/// least as high.
const GOAL: f64 = 25.0;
/// The most that the run of a request may take if its instance polls, as a multiple of the floor.
const GOAL_IN_VM: f64 = 0.25;

/// Options of the `embedded` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// The function: a component or module
    #[arg(long, value_name = "FILE")]
    function: PathBuf,
    /// Rounds, in each of which everything is measured once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Round trips and requests of each kind in a round
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    trips: u32,
    /// Rest before each of them, in microseconds; 0 for none
    #[arg(long, default_value_t = 50)]
    rest: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Latencies of requests of one kind.
#[derive(Default)]
struct RequestLatencies {
    /// From the call of `Node::invoke` until its response is there.
    all: Vec<Duration>,
    /// From when the request is written until the handler has finished.
    run: Vec<Duration>,
}

/// Latencies of one round.
#[derive(Default)]
struct Round {
    floor: Vec<Duration>,
    asleep: RequestLatencies,
    polling: RequestLatencies,
}

/// Requests of one kind beside the floor.
#[derive(Debug, Serialize)]
pub struct LatencySummary {
    /// From the call of `Node::invoke` until its response is there, in microseconds.
    pub all: Percentiles,
    /// From when the request is written until the handler has finished, in microseconds.
    pub run: Percentiles,
    /// Ratio of the median of `all` to the floor's, round by round.
    pub all_to_floor: Ratio,
    /// Ratio of the median of `run` to the floor's, round by round.
    pub run_to_floor: Ratio,
}

/// The floor, and the latencies of requests beside it.
#[derive(Debug, Serialize)]
pub struct EmbeddedReport {
    /// Rest before each request or round trip, in microseconds.
    pub rest: u64,
    /// An empty `KVM_RUN` round trip between two processes.
    pub floor: Percentiles,
    /// Requests whose instances sleep.
    pub asleep: LatencySummary,
    /// Requests whose instances may poll for them.
    pub polling: LatencySummary,
    /// The share of the requests to polling instances that the instances found by themselves.
    pub found: f64,
}

/// Measures and prints.
///
/// # Errors
/// Returns an error without KVM, and if the function does not answer.
pub fn run(arguments: &Arguments) -> Result<()> {
    interrupt::catch();
    let runtime = Runtime::new()?;
    let mut nodes = Vec::new();
    let measured = contest(arguments, &runtime, &mut nodes);
    // The nodes are shut down even if the measurement failed.
    for node in &nodes {
        runtime.block_on(node.shutdown());
    }
    let found = measured?;
    table::print(arguments.json, &found, || found.to_string())
}

fn contest(
    arguments: &Arguments,
    runtime: &Runtime,
    nodes: &mut Vec<Arc<Node>>,
) -> Result<EmbeddedReport> {
    let module = std::fs::read(&arguments.function)
        .with_context(|| format!("cannot read {}", arguments.function.display()))?;
    for poll in [Duration::ZERO, POLL] {
        let node = Arc::new(runtime.block_on(Node::builder().poll(poll).start())?);
        nodes.push(node.clone());
        let options = FunctionOptions::default();
        runtime.block_on(node.deploy(NAME, module.clone(), options))?;
    }
    let [asleep, polling] = nodes.as_slice() else {
        anyhow::bail!("two nodes were to be there");
    };
    let (trips, rest) = (arguments.trips, Duration::from_micros(arguments.rest));
    let mut partner = Partner::start(true)?;
    for node in [asleep, polling] {
        ask(runtime, node, WARM_UP, rest)?;
    }
    for _ in 0..WARM_UP {
        partner.round_trip()?;
    }
    let found_before = polling_found(polling);
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        interrupt::check()?;
        rounds.push(Round {
            floor: round_trips(&mut partner, trips, rest)?,
            asleep: ask(runtime, asleep, trips, rest)?,
            polling: ask(runtime, polling, trips, rest)?,
        });
    }
    let found = polling_found(polling).saturating_sub(found_before);
    let requests = f64::from(arguments.rounds) * f64::from(trips);
    let found = found as f64 / requests;
    EmbeddedReport::of(&rounds, arguments.rest, found).context("nothing was measured")
}

/// Returns how many requests instances have found by polling since the node's start.
fn polling_found(node: &Node) -> u64 {
    let metrics = node.metrics();
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix("faasw_requests_found_total "));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Measures round trips of the floor, on the thread that sends requests.
fn round_trips(partner: &mut Partner, trips: u32, rest: Duration) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for _ in 0..trips {
        pause(rest);
        let begun = Instant::now();
        partner.round_trip()?;
        took.push(begun.elapsed());
    }
    Ok(took)
}

/// Sleeps for the rest: a thread that waits for its next round trip does not compute meanwhile.
fn pause(rest: Duration) {
    if !rest.is_zero() {
        thread::sleep(rest);
    }
}

/// Sends requests one after the other, in a task of the node's runtime, as a server would.
fn ask(
    runtime: &Runtime,
    node: &Arc<Node>,
    trips: u32,
    rest: Duration,
) -> Result<RequestLatencies> {
    let node = node.clone();
    runtime.block_on(runtime.spawn(async move {
        let mut latencies = RequestLatencies::default();
        let alarm = Alarm::new()?;
        for _ in 0..trips {
            let request = Request::get("/").body(String::new())?;
            alarm.rest(rest).await?;
            let begun = Instant::now();
            let response = node.invoke(NAME, request).await;
            let took = begun.elapsed();
            ensure!(
                response.status().is_success() && response.body().as_bytes().is_some(),
                "the function answered {}",
                response.status()
            );
            let timing = response.extensions().get::<Timing>();
            latencies.all.push(took);
            latencies.run.extend(timing.map(|timing| timing.run));
        }
        Ok(latencies)
    }))?
}

/// A timer that wakes a task by a descriptor, as a client's bytes do. The runtime's own timers have
/// a resolution of milliseconds, and a sleeping thread would not run the node's tasks meanwhile.
struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the alarm owns the descriptor, and nothing closes or replaces it meanwhile.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
        Ok(Self(timer))
    }

    async fn rest(&self, rest: Duration) -> Result<()> {
        if rest.is_zero() {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: rest.try_into()?,
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        let mut rings = [0; 8];
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(read) = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut rings)?)) {
                return Ok(read.map(drop)?);
            }
        }
    }
}

impl LatencySummary {
    fn of(rounds: &[Round], of: fn(&Round) -> &RequestLatencies) -> Option<Self> {
        let to_floor = |times: fn(&RequestLatencies) -> &Vec<Duration>| {
            let pairs = rounds.iter().filter_map(|round| {
                Some((
                    stats::median(times(of(round)))?,
                    stats::median(&round.floor)?,
                ))
            });
            Ratio::of(&pairs.collect::<Vec<_>>())
        };
        let all = |times: fn(&RequestLatencies) -> &Vec<Duration>| {
            let all = rounds.iter().flat_map(|round| times(of(round)));
            Percentiles::of(&all.copied().collect::<Vec<_>>())
        };
        Some(Self {
            all: all(|latencies| &latencies.all)?,
            run: all(|latencies| &latencies.run)?,
            all_to_floor: to_floor(|latencies| &latencies.all)?,
            run_to_floor: to_floor(|latencies| &latencies.run)?,
        })
    }
}

impl EmbeddedReport {
    /// Summarises `rounds`; `None` if nothing was measured.
    fn of(rounds: &[Round], rest: u64, found: f64) -> Option<Self> {
        let floor = rounds.iter().flat_map(|round| &round.floor);
        Some(Self {
            rest,
            floor: Percentiles::of(&floor.copied().collect::<Vec<_>>())?,
            asleep: LatencySummary::of(rounds, |round| &round.asleep)?,
            polling: LatencySummary::of(rounds, |round| &round.polling)?,
            found,
        })
    }

    /// Returns the goals for requests to polling instances, and whether they are met. A goal is
    /// `None` if the floor is lower than the goal.
    fn goals(&self) -> [(String, Option<bool>); 2] {
        let all = (self.floor.p50 >= GOAL).then_some(self.polling.all.p50 <= GOAL);
        let run = self.polling.run_to_floor.median <= GOAL_IN_VM;
        [
            (
                format!(
                    "Node::invoke, polling: p50 of at most {GOAL:.0} us where the floor is no less"
                ),
                all,
            ),
            (
                format!("in the VM, polling: at most {GOAL_IN_VM} of the floor"),
                Some(run),
            ),
        ]
    }
}

impl fmt::Display for EmbeddedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "",
            "p50 us",
            "p90 us",
            "p99 us",
            "to the floor",
            "95 % interval",
        ]);
        let cells = |percentiles: &Percentiles| {
            [percentiles.p50, percentiles.p90, percentiles.p99].map(|time| format!("{time:.1}"))
        };
        let [p50, p90, p99] = cells(&self.floor);
        table.row([
            "floor: empty KVM_RUN between two processes".to_owned(),
            p50,
            p90,
            p99,
            "1".to_owned(),
            "–".to_owned(),
        ]);
        for (name, percentiles, ratio) in [
            (
                "Node::invoke, polling off",
                &self.asleep.all,
                self.asleep.all_to_floor,
            ),
            (
                "Node::invoke, polling auto",
                &self.polling.all,
                self.polling.all_to_floor,
            ),
            (
                "in the VM, polling off",
                &self.asleep.run,
                self.asleep.run_to_floor,
            ),
            (
                "in the VM, polling auto",
                &self.polling.run,
                self.polling.run_to_floor,
            ),
        ] {
            let [p50, p90, p99] = cells(percentiles);
            table.row([
                name.to_owned(),
                p50,
                p90,
                p99,
                format!("{:.2}", ratio.median),
                format!("{:.2} to {:.2}", ratio.low, ratio.high),
            ]);
        }
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "{:.0} % of the requests with polling were found by their instances; {} us of rest \
             before each.",
            100.0 * self.found,
            self.rest
        )?;
        for (goal, is_met) in self.goals() {
            let told = match is_met {
                Some(true) => "met",
                Some(false) => "missed",
                None => "not to be told here",
            };
            writeln!(f, "{goal}: {told}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(all: u64, run: u64) -> RequestLatencies {
        RequestLatencies {
            all: vec![Duration::from_micros(all); 3],
            run: vec![Duration::from_micros(run); 3],
        }
    }

    fn round(floor: u64, asleep: RequestLatencies, polling: RequestLatencies) -> Round {
        Round {
            floor: vec![Duration::from_micros(floor); 3],
            asleep,
            polling,
        }
    }

    #[test]
    fn requests_are_compared_with_the_floor_of_their_round() {
        let rounds = [
            round(40, latencies(80, 60), latencies(20, 10)),
            round(80, latencies(160, 120), latencies(40, 20)),
        ];
        let found = EmbeddedReport::of(&rounds, 0, 1.0).unwrap();
        let is = |ratio: Ratio, value: f64| (ratio.median - value).abs() < 1e-9;
        assert!(is(found.asleep.all_to_floor, 2.0) && is(found.asleep.run_to_floor, 1.5));
        assert!(is(found.polling.all_to_floor, 0.5) && is(found.polling.run_to_floor, 0.25));
        assert_eq!(
            found.goals().map(|(_, is_met)| is_met),
            [Some(false), Some(true)]
        );
        assert!(found.to_string().contains("missed"));
        assert!(EmbeddedReport::of(&[], 0, 0.0).is_none());
    }

    #[test]
    fn a_floor_below_the_goal_gives_no_verdict() {
        let rounds = [round(20, latencies(50, 40), latencies(24, 9))];
        let found = EmbeddedReport::of(&rounds, 50, 0.5).unwrap();
        assert_eq!(found.goals().map(|(_, is_met)| is_met), [None, Some(false)]);
    }
}
