//! `faasw-bench memory`: the memory that a warm instance holds.
//!
//! There are two numbers, because each misses something. The unique set size of the sandboxes'
//! processes leaves out what the kernel keeps for their VMs. The decrease of the machine's
//! available memory includes it, but also everything else that happened meanwhile.

use std::{
    fmt,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use crate::{
    client::{Client, Url},
    interrupt,
    node::{self, Commands, MicroVms},
    process::{self, Memory, Pid, Tree},
    stats,
    table::{self, Table},
};

/// How many bursts of requests are sent at most to reach the wanted number of instances.
const BURSTS_MAX: u32 = 20;
/// Size of the first burst; each further one is twice as large. All requests at once would measure
/// a stampede, not a pool.
const FIRST_BURST: u32 = 25;
/// Bursts without a further instance after which the node is taken to keep no more.
const NO_PROGRESS_MAX: u32 = 3;
/// How long after a burst the instances that the node does not keep are gone.
const BURST_PAUSE: Duration = Duration::from_millis(300);
/// How long after the last answer, or the start, the node has finished its background work.
pub const SETTLE: Duration = Duration::from_secs(2);
/// How long the idle node's CPU time is measured.
const IDLE: Duration = Duration::from_secs(5);

/// Options of the `memory` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// The node's process, best a node that has answered nothing yet
    #[arg(long, value_name = "PID")]
    node_pid: Pid,
    /// Address of a function on it
    #[arg(long, value_name = "URL")]
    function: Url,
    /// How many warm instances to have it make; fewer are reported as they are
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Ask for nothing and measure the instances that there are; the fall of
    /// available memory is then unknown
    #[arg(long, conflicts_with = "count")]
    as_is: bool,
    #[command(flatten)]
    commands: node::Arguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The memory that instances hold.
#[derive(Debug, Serialize)]
pub struct MemoryReport {
    /// Instances that the benchmark wanted, if any.
    pub wanted: Option<u32>,
    /// Sandboxes of the node at the end, less busy ones and zygotes, as the node's statistics
    /// report them. Without statistics, those that the node had before are subtracted instead. If
    /// the node is measured as it is, zygotes are not subtracted.
    pub instances: usize,
    /// Sandboxes that the node had before, which are zygotes. Without wanted instances they are not
    /// distinguished, and this is 0.
    pub before: usize,
    /// The node's own statistics at the end, if they are available.
    pub microvms: Option<MicroVms>,
    /// Median of the instances' unique set size; `None` without instances.
    pub unique_bytes: Option<f64>,
    /// Decrease of the machine's available memory per instance.
    pub available_bytes: Option<f64>,
    /// CPU time of the idle node with these instances, as a part of one core.
    pub idle_core_share: f64,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    let commands = arguments.commands.commands();
    let found = measure(
        arguments.node_pid,
        &arguments.function,
        (!arguments.as_is).then_some(arguments.count),
        commands.as_ref(),
    )?;
    table::print(arguments.json, &found, || found.to_string())
}

/// Makes the node create `count` instances, or takes those that it has, and measures them.
///
/// # Errors
/// Returns an error if the node's process does not exist or a request fails.
pub fn measure(
    node: Pid,
    function: &Url,
    count: Option<u32>,
    commands: Option<&Commands>,
) -> Result<MemoryReport> {
    if count.is_some() {
        thread::sleep(SETTLE);
    }
    let ready: Vec<u64> = match count {
        Some(_) => unique_bytes(node)?,
        None => Vec::new(),
    };
    let before = ready.len();
    let available_before = process::available_bytes()?;
    if let Some(count) = count {
        fill(function, count, || match commands {
            // The number of zygotes follows demand, too, so sandboxes cannot be counted instead.
            Some(commands) => Ok(commands.microvms()?.warm()),
            None => Ok(sandboxes(node)?.saturating_sub(before)),
        })?;
        thread::sleep(SETTLE);
    }
    let after = unique_bytes(node)?;
    let available_after = process::available_bytes()?;
    let microvms = commands.map(Commands::microvms).transpose()?;
    // No request is under way now, so a sandbox that is still busy is not warm.
    let busy = microvms.as_ref().map_or(0, MicroVms::busy);
    // The number of zygotes follows demand.
    let without_function = match (count, &microvms) {
        (Some(_), Some(microvms)) => microvms.without_function(),
        _ => before,
    };
    let instances = after.len().saturating_sub(without_function + busy);
    let idle_core_share = idle_core_share(node)?;
    let fall = available_before.saturating_sub(available_after);
    Ok(MemoryReport {
        wanted: count,
        instances,
        before,
        microvms,
        unique_bytes: median_of_others(after, ready, instances),
        available_bytes: (count.is_some() && instances > 0).then(|| fall as f64 / instances as f64),
        idle_core_share,
    })
}

/// Sends bursts of requests until the node has `count` instances, as `there` reports, or seems to
/// keep no more.
fn fill(function: &Url, count: u32, there: impl Fn() -> Result<usize>) -> Result<()> {
    let (mut most, mut in_vain, mut size) = (0, 0, FIRST_BURST.min(count));
    for _ in 0..BURSTS_MAX {
        if most >= count as usize || in_vain == NO_PROGRESS_MAX {
            break;
        }
        interrupt::check()?;
        burst(function, size)?;
        thread::sleep(BURST_PAUSE);
        let now = there()?;
        // Bursts that are smaller than the wanted number prove nothing.
        in_vain = if now > most || size < count {
            0
        } else {
            in_vain + 1
        };
        most = most.max(now);
        size = size.saturating_mul(2).min(count);
    }
    Ok(())
}

/// Returns how many microVMs a node's processes hold.
///
/// # Errors
/// Returns an error if the node's process does not exist.
pub fn sandboxes(node: Pid) -> Result<usize> {
    Ok(Tree::of(node)?.sandboxes().count())
}

/// Returns the unique set sizes of a node's sandboxes.
fn unique_bytes(node: Pid) -> Result<Vec<u64>> {
    let tree = Tree::of(node)?;
    let memories = tree.sandboxes().filter_map(|pid| Memory::of(pid).ok());
    Ok(memories.map(|memory| memory.unique_bytes).collect())
}

/// Returns the median of the instances' sizes. Zygotes are among `bytes`, and hold about as much as
/// those that were `ready` before the first request. The instances are the `count` sizes that
/// differ most from that.
fn median_of_others(mut bytes: Vec<u64>, ready: Vec<u64>, count: usize) -> Option<f64> {
    let ready = stats::median_of(ready.into_iter().map(|bytes| bytes as f64)).unwrap_or(0.0);
    bytes.sort_by(|left, right| {
        let [left, right] = [left, right].map(|bytes| (*bytes as f64 - ready).abs());
        right.total_cmp(&left)
    });
    stats::median_of(bytes.into_iter().take(count).map(|bytes| bytes as f64))
}

/// Sends `count` requests at once, each over a connection that is open already.
///
/// # Errors
/// Returns an error if a request is not answered with success.
pub fn burst(function: &Url, count: u32) -> Result<()> {
    let ready = Barrier::new(count as usize);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::new(function);
                    let connected = client.connect();
                    // A thread whose connection failed comes to the barrier as well, because the
                    // others wait for it.
                    ready.wait();
                    connected?;
                    client.get(&function.path).map(drop)
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
    .with_context(|| {
        format!("{count} requests at once; a node takes 256 unless started with --max-instances")
    })
}

fn idle_core_share(node: Pid) -> Result<f64> {
    let begun = Instant::now();
    let before = process::cpu_time(node)?;
    thread::sleep(IDLE);
    let used = process::cpu_time(node)?.saturating_sub(before);
    Ok(used.as_secs_f64() / begun.elapsed().as_secs_f64())
}

/// Formats bytes in KiB.
pub fn kibibytes(bytes: f64) -> String {
    format!("{:.0} KiB", bytes / 1024.0)
}

impl MemoryReport {
    /// Returns all results as a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new(["memory", ""]);
        let told = |bytes: Option<f64>| bytes.map_or("–".to_owned(), kibibytes);
        let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
        if let Some(wanted) = self.wanted {
            row("instances asked for", wanted.to_string());
            row("sandboxes before", self.before.to_string());
            row(
                "warm instances, sandboxes more than before",
                self.instances.to_string(),
            );
        } else {
            row("instances, sandboxes", self.instances.to_string());
        }
        if let Some(MicroVms(counts)) = &self.microvms {
            for (state, count) in counts {
                row(&format!("microVMs {state}, by the node"), count.to_string());
            }
        }
        row("unique set size, median", told(self.unique_bytes));
        row("fall of available memory, each", told(self.available_bytes));
        let idle = format!("{:.2} % of a core", self.idle_core_share * 100.0);
        row("CPU of the idle node", idle);
        table
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table())?;
        if self
            .wanted
            .is_some_and(|wanted| self.instances < wanted as usize)
        {
            writeln!(
                f,
                "\nThe node kept fewer instances than were asked for; without a pool of warm \
                 instances it keeps none."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::server;

    #[test]
    fn sandboxes_without_a_function_do_not_count() {
        let bytes = vec![72, 300, 74, 310, 72, 320];
        assert_eq!(median_of_others(bytes, vec![72, 73], 3), Some(310.0));
        let bytes = vec![548, 300, 550, 310, 540, 320];
        assert_eq!(median_of_others(bytes, vec![548], 3), Some(310.0));
        assert_eq!(median_of_others(vec![72], vec![72], 0), None);
        assert_eq!(median_of_others(vec![72], Vec::new(), 1), Some(72.0));
    }

    #[test]
    fn a_burst_is_as_many_connections_as_requests() {
        let fine = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        burst(&server(vec![vec![fine]; 20]), 20).unwrap();
    }

    #[test]
    fn a_failed_connection_reports_the_burst() {
        let error = burst(&"http://127.0.0.1:1/".parse().unwrap(), 3).unwrap_err();
        assert!(error.to_string().contains("3 requests at once"), "{error}");
    }
}
