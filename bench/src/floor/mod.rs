//! `faasw-bench floor`: the least that a request through a microVM can cost on this host, and its
//! cost in a node.
//!
//! The floor is an empty `KVM_RUN` round trip between two processes, as a node and its sandbox make
//! one for each request. A message on a socket wakes the other process, its guest runs one
//! instruction that leaves the VM, and a message comes back. The two parts are measured separately
//! as well: the messages without a VM and the run without messages.

mod partner;
mod report;
mod vm;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    client::{Client, Url},
    interrupt,
    server_timing::{Stages, TIMING_FIELDS},
    table,
};
pub use partner::Partner;
pub use partner::{PartnerArguments, serve as serve_partner};
pub use report::{FloorReport, WARM, ZYGOTE};
use vm::EmptyVm;

/// Rest before each round trip: a warm microVM, too, has slept for about the time that a
/// connection takes to its next request.
const REST: Duration = Duration::from_micros(50);
/// Round trips before the first that counts.
const WARM_UP: u32 = 200;

/// Options of the `floor` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address of a function on a faasw node, measured beside the floor; several
    /// where nodes are set up to serve in several ways
    #[arg(long, value_name = "URL")]
    function: Vec<Url>,
    #[command(flatten)]
    plan: Plan,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How much to measure.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Plan {
    /// Rounds, in each of which everything is measured once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Round trips of each kind, and requests, in a round
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub trips: u32,
    /// Also send this many requests at once in each round: some then meet no
    /// warm microVM
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub burst: u32,
}

/// Times of one round.
#[derive(Default)]
struct Round {
    /// Round trips of messages between two processes, without a VM.
    messages: Vec<Duration>,
    /// `KVM_RUN` until the guest's exit, in one process.
    exit: Vec<Duration>,
    /// Round trips of messages with a run of the guest.
    floor: Vec<Duration>,
    /// A node's own times of requests that were sent one after the other.
    alone: Vec<Stages>,
    /// A node's own times of requests that were sent at once.
    burst: Vec<Stages>,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    let found = measure(&arguments.function, arguments.plan)?;
    table::print(arguments.json, &found, || found.to_string())
}

/// Measures the floor and, beside it, functions.
///
/// # Errors
/// Returns an error without KVM, if a function does not answer, or if its node does not report the
/// stages of a request's time; also after an interrupt.
pub fn measure(functions: &[Url], plan: Plan) -> Result<FloorReport> {
    let mut vm = EmptyVm::new().context("cannot make a VM")?;
    let mut idle = Partner::start(false)?;
    let mut partner = Partner::start(true)?;
    let clients = functions
        .iter()
        .map(|url| Client::with_fields(url, TIMING_FIELDS));
    let mut clients: Vec<(Client, &Url)> = clients.zip(functions).collect();
    for _ in 0..WARM_UP {
        vm.run()?;
        idle.round_trip()?;
        partner.round_trip()?;
    }
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        interrupt::check()?;
        let mut round = Round {
            messages: times(plan.trips, || idle.round_trip())?,
            exit: times(plan.trips, || vm.run())?,
            floor: times(plan.trips, || partner.round_trip())?,
            ..Round::default()
        };
        for (client, url) in &mut clients {
            for _ in 0..plan.trips {
                round.alone.push(ask(client, url)?);
            }
            round.burst.extend(ask_at_once(url, plan.burst)?);
        }
        rounds.push(round);
    }
    FloorReport::of(&rounds).context("nothing was measured")
}

fn times(count: u32, mut trip: impl FnMut() -> Result<()>) -> Result<Vec<Duration>> {
    (0..count)
        .map(|_| {
            thread::sleep(REST);
            let begun = Instant::now();
            trip()?;
            Ok(begun.elapsed())
        })
        .collect()
}

fn ask(client: &mut Client, url: &Url) -> Result<Stages> {
    let response = client.get(&url.path)?;
    let value = response.server_timing.with_context(|| {
        format!(
            "http://{}{} answered without Server-Timing: is it a function on a faasw node, of \
             `up` or of `serve --timing`?",
            url.authority, url.path
        )
    })?;
    Ok(Stages::parse(&value))
}

fn ask_at_once(url: &Url, count: u32) -> Result<Vec<Stages>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|_| scope.spawn(|| ask(&mut Client::with_fields(url, TIMING_FIELDS), url)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| anyhow::bail!("a thread panicked"))
            })
            .collect()
    })
}
