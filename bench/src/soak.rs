//! `faasw-bench soak`: load for a long time, to see whether anything grows.

use std::{fmt, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{
    client::{Connections, Url},
    hostile,
    load::{Generator, Outcome, Until},
    memory::kibibytes,
    process::{self, Pid, Tree},
    stats::{self, Percentiles},
    table::{self, Table},
};

/// Load before the first window, which is not counted.
const WARM_UP: Duration = Duration::from_secs(5);

/// Options of the `soak` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// The node's process
    #[arg(long, value_name = "PID")]
    node_pid: Pid,
    /// Address of a function on it
    #[arg(long, value_name = "URL")]
    function: Url,
    /// How long, after a warm-up of 5 s
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Connections, each of which has one request under way at a time
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Have hostile clients ask for this address of the node meanwhile, such as one that
    /// answers a megabyte: windows of HTTP/2 that stay closed, responses that are not read,
    /// bodies that do not come, connections without a request, requests cancelled at once
    #[arg(long, value_name = "URL")]
    attack: Option<Url>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How much load to offer, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Connections that are kept busy.
    pub connections: u16,
    /// Number of windows that are measured separately.
    pub windows: u32,
    /// Length of each window.
    pub window: Duration,
}

/// The results of a window of time, and the node's resources at its end.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// Answers per second.
    pub per_second: f64,
    /// Latency in microseconds.
    pub latency: Percentiles,
    /// CPU time per answer in microseconds.
    pub cpu_microseconds: f64,
    /// Requests without an answer of success.
    pub errors: u64,
    /// Proportional set size of the whole process tree.
    pub memory_bytes: u64,
    /// File descriptors of the node's own process.
    pub descriptors: usize,
    /// Number of processes of the tree.
    pub processes: usize,
}

/// The results of all windows.
#[derive(Debug, Serialize)]
pub struct SoakReport {
    /// Length of a window in seconds.
    pub window_seconds: f64,
    /// The windows in order.
    pub windows: Vec<Window>,
    /// The first error.
    pub first_error: Option<String>,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    let plan = Plan {
        connections: arguments.connections,
        windows: arguments.minutes,
        window: Duration::from_secs(60),
    };
    let (node, function) = (arguments.node_pid, &arguments.function);
    let work = || measure(node, function, plan, !arguments.json);
    let found = match &arguments.attack {
        None => work()?,
        Some(url) => {
            let (found, connections) = hostile::beside(url, work)?;
            eprintln!("hostile clients made {connections} connections");
            found
        }
    };
    table::print(arguments.json, &found, || found.to_string())?;
    ensure!(
        found.errors() == 0,
        "{} requests failed; the first: {}",
        found.errors(),
        found.first_error.as_deref().unwrap_or("unknown")
    );
    Ok(())
}

/// Keeps a function busy. With `tell`, prints progress on standard error.
///
/// # Errors
/// Returns an error if the node cannot be reached, answers nothing in a window, or its process
/// ends, and after an interrupt.
pub fn measure(node: Pid, function: &Url, plan: Plan, tell: bool) -> Result<SoakReport> {
    let connections = plan.connections.into();
    let mut generator = Generator::new(function, Connections::Keep, connections);
    generator.run(Until::Elapsed(WARM_UP.min(plan.window)))?;
    let mut found = SoakReport {
        window_seconds: plan.window.as_secs_f64(),
        windows: Vec::new(),
        first_error: None,
    };
    for number in 1..=plan.windows {
        let before = process::cpu_time(node)?;
        let outcome = generator.run(Until::Elapsed(plan.window))?;
        let cpu = process::cpu_time(node)?.saturating_sub(before);
        let window = Window::of(node, &outcome, cpu)?;
        if tell {
            eprintln!(
                "window {number} of {}: {:.0} answers/s",
                plan.windows, window.per_second
            );
        }
        found.windows.push(window);
        found.first_error = found.first_error.or(outcome.first_error);
    }
    Ok(found)
}

impl Window {
    fn of(node: Pid, outcome: &Outcome, cpu: Duration) -> Result<Self> {
        let answers = outcome.latencies.len() as f64;
        let tree = Tree::of(node)?;
        Ok(Self {
            per_second: answers / outcome.elapsed.as_secs_f64(),
            latency: Percentiles::of(&outcome.latencies).with_context(|| {
                let first = outcome.first_error.clone();
                format!("nothing was answered: {}", first.unwrap_or_default())
            })?,
            cpu_microseconds: stats::microseconds(cpu) / answers,
            errors: outcome.errors,
            memory_bytes: tree.proportional_bytes(),
            descriptors: process::descriptors(node)?,
            processes: tree.len(),
        })
    }
}

impl SoakReport {
    /// Returns the number of requests without an answer of success.
    pub fn errors(&self) -> u64 {
        self.windows.iter().map(|window| window.errors).sum()
    }

    /// Returns the ratio of the last window's value to the first's.
    pub fn last_to_first(&self, of: impl Fn(&Window) -> f64) -> Option<f64> {
        Some(of(self.windows.last()?) / of(self.windows.first()?))
    }

    /// Returns the windows as a table.
    pub fn table(&self) -> Table {
        let titles = [
            "seconds",
            "answers/s",
            "p50 us",
            "p99 us",
            "CPU us/answer",
            "errors",
            "memory (PSS)",
            "descriptors",
            "processes",
        ];
        let mut table = Table::new(titles);
        for (index, window) in self.windows.iter().enumerate() {
            table.row([
                format!("{:.0}", self.window_seconds * (index + 1) as f64),
                format!("{:.0}", window.per_second),
                format!("{:.1}", window.latency.p50),
                format!("{:.1}", window.latency.p99),
                format!("{:.1}", window.cpu_microseconds),
                window.errors.to_string(),
                kibibytes(window.memory_bytes as f64),
                window.descriptors.to_string(),
                window.processes.to_string(),
            ]);
        }
        table
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.table())?;
        let mut table = Table::new(["last window to the first", ""]);
        let values: [(&str, Option<f64>); 4] = [
            ("answers/s", self.last_to_first(|window| window.per_second)),
            (
                "memory",
                self.last_to_first(|window| window.memory_bytes as f64),
            ),
            (
                "descriptors",
                self.last_to_first(|window| window.descriptors as f64),
            ),
            (
                "processes",
                self.last_to_first(|window| window.processes as f64),
            ),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                table.row([name.to_owned(), format!("{value:.3}")]);
            }
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::server;

    const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";

    fn plan() -> Plan {
        Plan {
            connections: 2,
            windows: 3,
            window: Duration::from_millis(20),
        }
    }

    #[test]
    fn each_window_reports_answers_and_resources_of_the_process() {
        let url = server(vec![vec![FINE; 1_000_000]; 2]);
        let found = measure(std::process::id(), &url, plan(), false).unwrap();
        assert_eq!((found.windows.len(), found.errors()), (3, 0));
        for window in &found.windows {
            assert!(window.per_second > 0.0 && window.memory_bytes > 0);
            assert!(window.processes >= 1 && window.descriptors > 0);
        }
        assert!(found.to_string().contains("last window to the first"));
    }

    #[test]
    fn a_window_without_answers_reports_the_error() {
        let busy = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";
        let url = server(vec![vec![busy; 1_000_000]; 2]);
        let error = measure(std::process::id(), &url, plan(), false).unwrap_err();
        assert!(
            format!("{error:#}").contains("answered 503: busy"),
            "{error:#}"
        );
    }
}
