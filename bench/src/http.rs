//! `faasw-bench http`: the same request here and elsewhere.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::{
    client::{Connections, Url},
    contest::{self, Contestant, Pair, Rounds, Summary},
    load::Until,
    stats::Ratio,
    table::{self, Table},
};

/// Options of the `http` benchmark.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pair: Pair,
    /// Address that answers at once: what HTTP and this program cost by themselves
    #[arg(long, value_name = "URL")]
    floor: Option<Url>,
    /// Connections to each address, each of which has one request under way at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Rounds, in each of which every address is measured once
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Requests to each address in a round, over all connections
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Requests to each address before the first round, not counted
    #[arg(long, default_value_t = 50)]
    warm_up: u64,
    /// Post this file, which is JSON, instead of getting
    #[arg(long, value_name = "FILE")]
    post: Option<PathBuf>,
    /// Open a new connection for each request
    #[arg(long)]
    close: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The results of the benchmark.
#[derive(Serialize)]
struct Report {
    connections: u16,
    rounds: u32,
    requests_per_round: u64,
    new_connection_per_request: bool,
    contestants: Vec<Summary>,
    /// Ratios of ours to the peer's, round by round.
    ratios: Ratios,
}

#[derive(Serialize)]
struct Ratios {
    /// Ratio of the medians of latency.
    latency: Option<Ratio>,
    /// Ratio of the medians of latency with the floor's median subtracted on both sides, if both
    /// were above it in every round.
    latency_above_floor: Option<Ratio>,
    /// Ratio of p99/p50.
    tail: Option<Ratio>,
    throughput: Option<Ratio>,
    cpu: Option<Ratio>,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    let keep = if arguments.close {
        Connections::Close
    } else {
        Connections::Keep
    };
    let post = arguments
        .post
        .as_ref()
        .map(|file| fs::read(file).with_context(|| format!("{} cannot be read", file.display())));
    let post = post.transpose()?;
    let addresses = [
        ("ours", Some(&arguments.pair.ours), arguments.pair.ours_pid),
        ("peer", Some(&arguments.pair.peer), arguments.pair.peer_pid),
        ("floor", arguments.floor.as_ref(), None),
    ];
    let mut contestants: Vec<Contestant> = addresses
        .into_iter()
        .filter_map(|(name, url, pid)| {
            let connections = arguments.connections.into();
            let contestant = Contestant::new(name, url?, pid, keep, connections);
            Some(match &post {
                Some(json) => contestant.posting(json),
                None => contestant,
            })
        })
        .collect();
    let rounds = Rounds {
        count: arguments.rounds,
        each: Until::Requests(arguments.requests),
        warm_up: Until::Requests(arguments.warm_up),
        tell: !arguments.json,
    };
    contest::run(&mut contestants, rounds)?;
    let report = Report::of(arguments, &contestants);
    table::print(arguments.json, &report, || report.tables())?;
    contestants
        .iter()
        .try_for_each(Contestant::ensure_no_errors)
}

impl Report {
    fn of(arguments: &Arguments, contestants: &[Contestant]) -> Self {
        let find = |name: &str| {
            contestants
                .iter()
                .find(|contestant| contestant.name == name)
        };
        let both = find("ours").zip(find("peer"));
        Self {
            connections: arguments.connections,
            rounds: arguments.rounds,
            requests_per_round: arguments.requests,
            new_connection_per_request: arguments.close,
            contestants: contestants.iter().filter_map(Contestant::summary).collect(),
            ratios: Ratios {
                latency: both.and_then(|(ours, peer)| ours.latency_against(peer)),
                latency_above_floor: both
                    .zip(find("floor"))
                    .and_then(|((ours, peer), floor)| ours.latency_above(floor, peer)),
                tail: both.and_then(|(ours, peer)| ours.tail_against(peer)),
                throughput: both.and_then(|(ours, peer)| ours.throughput_against(peer)),
                cpu: both.and_then(|(ours, peer)| ours.cpu_against(peer)),
            },
        }
    }

    fn tables(&self) -> String {
        let mut table = Table::new([
            "ratio round by round",
            "ours/peer",
            "95 % interval",
            "rounds",
        ]);
        let ratios = [
            ("p50", self.ratios.latency),
            ("p50 above the floor", self.ratios.latency_above_floor),
            ("p99/p50", self.ratios.tail),
            ("answers/s", self.ratios.throughput),
            ("CPU per answer", self.ratios.cpu),
        ];
        for (name, ratio) in ratios {
            if let Some(ratio) = ratio {
                table.row([
                    name.to_owned(),
                    format!("{:.3}", ratio.median),
                    format!("{:.3} to {:.3}", ratio.low, ratio.high),
                    ratio.pairs.to_string(),
                ]);
            }
        }
        format!("{}\n{table}", contest::table(&self.contestants))
    }
}
