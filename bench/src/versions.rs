//! `faasw-bench versions`: a node against the version before it.
//!
//! Two processes of the same program differ more than two versions of it: where their memory lies
//! and how the kernel places their threads stays the same for as long as they live. So both are
//! started anew many times. A pair is the results of the two in one start, over alternating rounds.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use tempfile::TempDir;

use crate::{
    client::Connections,
    contest::{self, Contestant, Rounds, Summary},
    interrupt,
    load::Until,
    report::{Function, Node, Setting},
    stats::{self, Ratio},
    table::{self, Table},
};

/// Options of the `versions` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    /// The `faasw` program of the version before, built with --release
    #[arg(long, value_name = "FILE")]
    before: PathBuf,
    /// The `faasw` program of this version
    #[arg(long, value_name = "FILE")]
    after: PathBuf,
    /// A component, and its freeze policy if not the node's choice
    #[arg(
        long,
        value_name = "NAME=FILE[:FREEZE]",
        default_value = "hello=examples/hello/hello.wasm"
    )]
    function: Function,
    /// How often both are started
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Rounds of each start, in each of which both are measured once
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Connections, each of which has one request under way at a time; several numbers
    /// are measured one after the other in each start
    #[arg(long, value_delimiter = ',', default_values_t = [1, 24],
        value_parser = clap::value_parser!(u16).range(1..))]
    connections: Vec<u16>,
    /// Requests to each in a round, over all connections
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Options of `faasw up` that both are started with, such as '--max-reuse 1' for a fork
    /// with every request
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        allow_hyphen_values = true
    )]
    options: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The results of both versions in one start.
struct Pair {
    before: Summary,
    after: Summary,
}

/// The comparison for one number of connections.
#[derive(Serialize)]
struct Compared {
    connections: u16,
    /// Medians over the starts.
    before: Medians,
    after: Medians,
    /// After to before, start by start.
    p50: Option<Ratio>,
    p99: Option<Ratio>,
    throughput: Option<Ratio>,
    cpu: Option<Ratio>,
}

#[derive(Serialize)]
struct Medians {
    /// Latency in microseconds.
    p50: Option<f64>,
    p99: Option<f64>,
    per_second: Option<f64>,
    /// CPU time per answer in microseconds.
    cpu: Option<f64>,
}

/// Measures and prints.
///
/// # Errors
/// Returns an error if a node does not start, or a request fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    interrupt::catch();
    let mut pairs: Vec<Vec<Pair>> = arguments.connections.iter().map(|_| Vec::new()).collect();
    // Each version has a folder for all its starts, so that it compiles the function once.
    let folder = || TempDir::with_prefix("faasw-bench-");
    let folders = [folder()?, folder()?];
    for start in 0..arguments.starts {
        let started = measure(arguments, &folders, start % 2 == 0)?;
        for (all, pair) in pairs.iter_mut().zip(started) {
            all.push(pair);
        }
        if !arguments.json {
            eprint!("\rstart {} of {}", start + 1, arguments.starts);
        }
    }
    if !arguments.json {
        eprintln!();
    }
    let compared: Vec<Compared> = arguments
        .connections
        .iter()
        .zip(&pairs)
        .map(|(connections, pairs)| Compared::of(*connections, pairs))
        .collect();
    let text = || format!("{}\n{}", medians(&compared), ratios(&compared));
    table::print(arguments.json, &compared, text)
}

/// Starts both and measures them with each number of connections, in an order that changes from
/// start to start.
fn measure(
    arguments: &Arguments,
    [before, after]: &[TempDir; 2],
    before_first: bool,
) -> Result<Vec<Pair>> {
    let start = |folder: &TempDir, faasw: &Path| {
        let setting = Setting::of_options(arguments.options.split_ascii_whitespace());
        Node::start_in(folder.path(), faasw, &arguments.function, &setting)
    };
    let start_before = || start(before, &arguments.before);
    let start_after = || start(after, &arguments.after);
    let (before, after) = if before_first {
        let before = start_before()?;
        (before, start_after()?)
    } else {
        let after = start_after()?;
        (start_before()?, after)
    };
    let each = |connections: &u16| {
        interrupt::check()?;
        let contestant = |name, node: &Node| {
            let count = (*connections).into();
            Contestant::new(name, node.url(), Some(node.pid()), Connections::Keep, count)
        };
        let mut both = [contestant("before", &before), contestant("after", &after)];
        // The contestant that is second in the first round follows itself more often, with the
        // caches that it has left. So the order changes from start to start.
        if !before_first {
            both.reverse();
        }
        contest::run(
            &mut both,
            Rounds {
                count: arguments.rounds,
                each: Until::Requests(arguments.requests),
                warm_up: Until::Requests(arguments.requests),
                tell: false,
            },
        )?;
        for contestant in &both {
            contestant.ensure_no_errors()?;
        }
        if !before_first {
            both.reverse();
        }
        let [before, after] = both.map(|contestant| contestant.summary());
        let pair = before.zip(after).context("nothing was answered")?;
        Ok(Pair {
            before: pair.0,
            after: pair.1,
        })
    };
    arguments.connections.iter().map(each).collect()
}

impl Compared {
    fn of(connections: u16, pairs: &[Pair]) -> Self {
        let ratio = |of: fn(&Summary) -> Option<f64>| {
            let both = |pair: &Pair| of(&pair.after).zip(of(&pair.before));
            let pairs: Option<Vec<_>> = pairs.iter().map(both).collect();
            Ratio::of(&pairs?)
        };
        Self {
            connections,
            before: Medians::of(pairs.iter().map(|pair| &pair.before)),
            after: Medians::of(pairs.iter().map(|pair| &pair.after)),
            p50: ratio(|summary| Some(summary.latency.p50)),
            p99: ratio(|summary| Some(summary.latency.p99)),
            throughput: ratio(|summary| Some(summary.per_second)),
            cpu: ratio(|summary| summary.cpu_microseconds),
        }
    }
}

impl Medians {
    fn of<'a>(summaries: impl Iterator<Item = &'a Summary> + Clone) -> Self {
        let all = || summaries.clone();
        Self {
            p50: stats::median_of(all().map(|summary| summary.latency.p50)),
            p99: stats::median_of(all().map(|summary| summary.latency.p99)),
            per_second: stats::median_of(all().map(|summary| summary.per_second)),
            cpu: stats::median_of(all().filter_map(|summary| summary.cpu_microseconds)),
        }
    }
}

fn medians(compared: &[Compared]) -> Table {
    let mut table = Table::new([
        "connections",
        "",
        "p50 us",
        "p99 us",
        "answers/s",
        "CPU us/answer",
    ]);
    let told = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
    for one in compared {
        for (name, medians) in [("before", &one.before), ("after", &one.after)] {
            table.row([
                one.connections.to_string(),
                name.to_owned(),
                told(medians.p50),
                told(medians.p99),
                told(medians.per_second),
                told(medians.cpu),
            ]);
        }
    }
    table
}

fn ratios(compared: &[Compared]) -> Table {
    let mut table = Table::new([
        "connections",
        "after to before",
        "median",
        "95 % interval",
        "starts",
    ]);
    for one in compared {
        let ratios = [
            ("p50", one.p50),
            ("p99", one.p99),
            ("answers/s", one.throughput),
            ("CPU per answer", one.cpu),
        ];
        for (name, ratio) in ratios {
            if let Some(ratio) = ratio {
                table.row([
                    one.connections.to_string(),
                    name.to_owned(),
                    format!("{:.3}", ratio.median),
                    format!("{:.3} to {:.3}", ratio.low, ratio.high),
                    ratio.pairs.to_string(),
                ]);
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Percentiles;

    fn summary(p50: f64, cpu: Option<f64>) -> Summary {
        Summary {
            name: "n".to_owned(),
            latency: Percentiles {
                p50,
                p90: p50 * 2.0,
                p99: p50 * 3.0,
                count: 10,
            },
            per_second: 1e6 / p50,
            errors: 0,
            cpu_microseconds: cpu,
        }
    }

    #[test]
    fn starts_are_the_pairs() {
        let pair = |before: f64, after: f64| Pair {
            before: summary(before, Some(before)),
            after: summary(after, Some(after)),
        };
        // The second start is slow for both, which changes no ratio.
        let compared = Compared::of(1, &[pair(100.0, 110.0), pair(900.0, 990.0)]);
        let p50 = compared.p50.unwrap();
        assert!((p50.median - 1.1).abs() < 1e-9 && (p50.high - 1.1).abs() < 1e-9);
        assert_eq!(p50.pairs, 2);
        assert!((compared.throughput.unwrap().median - 1.0 / 1.1).abs() < 1e-9);
        assert!((compared.before.p50.unwrap() - 500.0).abs() < 1e-9);
        assert_eq!(ratios(&[compared]).to_string().matches("1.100").count(), 9);
    }

    #[test]
    fn a_figure_that_one_start_lacks_has_no_ratio() {
        let pair = |cpu| Pair {
            before: summary(100.0, Some(1.0)),
            after: summary(100.0, cpu),
        };
        let compared = Compared::of(24, &[pair(Some(1.0)), pair(None)]);
        assert!(compared.cpu.is_none() && compared.p99.is_some());
        let told = ratios(&[compared]).to_string();
        assert!(!told.contains("CPU") && told.contains("p99"), "{told}");
    }
}
