//! `faasw-bench warm`: the cost of thousands of instances that a node keeps warm ahead of requests
//! (`--min-warm`): time, memory, the idle node's CPU time, and the time of their end.

use std::{
    fmt,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    interrupt,
    memory::kibibytes,
    process::{self, Memory, Pid, Tree},
    report::{function::Function, server::Node, setting::Setting},
    stats,
    table::{self, Table},
};

/// Interval at which the benchmark queries how many instances are warm.
const LOOK: Duration = Duration::from_millis(500);
/// How long the number of warm instances may stay unchanged before the node is taken to make no
/// more.
const IN_VAIN_MAX: Duration = Duration::from_secs(20);
/// The longest that the node may take to end.
const END_MAX: Duration = Duration::from_secs(300);
/// A budget in MiB that is never reached here: only the machine's memory is the limit.
const PLENTY: &str = "1048576";

/// Options of the `warm` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// The `faasw` program
    #[arg(long, value_name = "FILE")]
    faasw: PathBuf,
    /// The function, which is deployed under as many names as there are to be functions
    #[arg(long, value_name = "FILE")]
    function: PathBuf,
    /// Functions
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    functions: u32,
    /// Instances of each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    each: u32,
    /// How long the idle node's CPU time is measured, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    idle: u64,
    /// A further option of `faasw up`, any number of times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    node_option: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The cost of the warm instances.
#[derive(Debug, Serialize)]
pub struct Found {
    /// Functions.
    pub functions: u32,
    /// Instances that were to be warm.
    pub wanted: u64,
    /// Instances that were warm, as the node reports.
    pub warm: usize,
    /// Seconds from the node's start until the last function was deployed.
    pub deployed_seconds: f64,
    /// Seconds from the node's start until the number of warm instances reached its maximum.
    pub warm_seconds: f64,
    /// Median of the unique set size of the sandboxes' processes.
    pub unique_bytes: Option<f64>,
    /// Decrease of the machine's available memory since before the node's start, per instance.
    pub available_bytes: f64,
    /// The node's own process: its proportional set size.
    pub node_bytes: u64,
    /// The node's own descriptors.
    pub node_descriptors: usize,
    /// Number of the node's processes.
    pub processes: usize,
    /// CPU time of the idle node with all its processes, in percent of a core.
    pub idle_percent: f64,
    /// Seconds from the request to end until the node's own process had ended.
    pub end_seconds: f64,
    /// Sandboxes that were left after the node had ended.
    pub left: usize,
    /// The node's last output, if fewer instances were warm than were wanted.
    pub said: Option<String>,
}

/// Measures and prints.
///
/// # Errors
/// Returns an error if the node does not start, deploy or end, and after an interrupt.
pub fn run(arguments: &Arguments) -> Result<()> {
    interrupt::catch();
    let found = measure(arguments)?;
    table::print(arguments.json, &found, || found.to_string())
}

fn setting(arguments: &Arguments, wanted: u64) -> Setting {
    let (each, most) = (arguments.each.to_string(), wanted.to_string());
    let options = [
        ["--min-warm", &each],
        ["--max-warm", &most],
        ["--function-memory", PLENTY],
        ["--seed-memory", PLENTY],
    ];
    let options = options.concat().into_iter().map(str::to_owned);
    Setting::of_options(options.chain(arguments.node_option.iter().cloned()))
}

fn measure(arguments: &Arguments) -> Result<Found> {
    let wanted = u64::from(arguments.functions) * u64::from(arguments.each);
    let function = Function {
        name: "warm".to_owned(),
        file: arguments.function.clone(),
        freeze: None,
    };
    let file = function.file.to_str();
    let file = file.context("a file whose name is no text")?.to_owned();
    let available_before = process::available_bytes()?;
    let begun = Instant::now();
    let node = Node::start(&arguments.faasw, &function, &setting(arguments, wanted))?;
    let pid = node.pid();
    for number in 1..arguments.functions {
        interrupt::check()?;
        let name = format!("warm-{number}");
        node.commands().run(&["deploy", &file, "--name", &name])?;
    }
    let deployed = begun.elapsed();
    let (warm, last) = wait_for_all(&node, wanted)?;
    let after = (last - begun).max(deployed);
    // The node and the system finish their background work.
    thread::sleep(crate::memory::SETTLE);
    let fall = available_before.saturating_sub(process::available_bytes()?);
    let (unique_bytes, processes) = unique_bytes(pid)?;
    let idle_percent = idle_percent(pid, Duration::from_secs(arguments.idle))?;
    let said = (u64::try_from(warm)? < wanted).then(|| node.said());
    let found = Found {
        functions: arguments.functions,
        wanted,
        warm,
        deployed_seconds: deployed.as_secs_f64(),
        warm_seconds: after.as_secs_f64(),
        unique_bytes,
        available_bytes: fall as f64 / warm.max(1) as f64,
        node_bytes: Memory::of(pid)?.proportional_bytes,
        node_descriptors: process::descriptors(pid)?,
        processes,
        idle_percent,
        end_seconds: 0.0,
        left: 0,
        said,
    };
    let sandboxes: Vec<Pid> = Tree::of(pid)?.sandboxes().collect();
    let end = node.end(END_MAX)?;
    let is_left = |pid: &&Pid| std::path::Path::new(&format!("/proc/{pid}")).exists();
    Ok(Found {
        end_seconds: end.as_secs_f64(),
        left: sandboxes.iter().filter(is_left).count(),
        ..found
    })
}

/// Waits until `wanted` instances are warm, or no more are added. Returns how many there are, and
/// since when.
fn wait_for_all(node: &Node, wanted: u64) -> Result<(usize, Instant)> {
    let (mut most, mut last) = (0, Instant::now());
    while (most as u64) < wanted && last.elapsed() < IN_VAIN_MAX {
        interrupt::check()?;
        let now = node.commands().microvms()?.warm();
        if now > most {
            (most, last) = (now, Instant::now());
        }
        thread::sleep(LOOK);
    }
    Ok((most, last))
}

/// Returns the median of the sandboxes' unique set sizes, and how many processes there are.
fn unique_bytes(node: Pid) -> Result<(Option<f64>, usize)> {
    let tree = Tree::of(node)?;
    let memories = tree.sandboxes().filter_map(|pid| Memory::of(pid).ok());
    let each = memories.map(|memory| memory.unique_bytes as f64);
    Ok((stats::median_of(each), tree.len()))
}

fn idle_percent(node: Pid, time: Duration) -> Result<f64> {
    let begun = Instant::now();
    let before = process::cpu_time(node)?;
    while begun.elapsed() < time {
        interrupt::check()?;
        thread::sleep(LOOK.min(time - begun.elapsed().min(time)));
    }
    let took = begun.elapsed();
    let used = process::cpu_time(node)?.saturating_sub(before);
    Ok(100.0 * used.as_secs_f64() / took.as_secs_f64())
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["instances warm ahead of requests", ""]);
        let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
        let seconds = |seconds: f64| format!("{seconds:.1} s");
        row("functions", self.functions.to_string());
        row("instances wanted", self.wanted.to_string());
        row("instances warm, by the node", self.warm.to_string());
        row("until all were deployed", seconds(self.deployed_seconds));
        row("until all were warm", seconds(self.warm_seconds));
        let unique = self.unique_bytes.map_or("–".to_owned(), kibibytes);
        row("unique set size, median", unique);
        row(
            "fall of available memory, each",
            kibibytes(self.available_bytes),
        );
        row("the node's own process", kibibytes(self.node_bytes as f64));
        row("its descriptors", self.node_descriptors.to_string());
        row("processes", self.processes.to_string());
        let idle = format!("{:.2} % of a core", self.idle_percent);
        row("CPU of the idle node", idle);
        row("until it had ended", seconds(self.end_seconds));
        row("sandboxes left then", self.left.to_string());
        write!(f, "{table}")?;
        match &self.said {
            Some(said) => writeln!(
                f,
                "\nFewer were warm than wanted. The node said last:\n{said}"
            ),
            None => Ok(()),
        }
    }
}
