//! `faasw-bench http`: the same request here and elsewhere.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    client::{Client, Connections, Url},
    stats::{self, Percentiles, Ratio},
    table::Table,
};

/// What to measure.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address of a function on a faasw node
    #[arg(long, value_name = "URL")]
    ours: Url,
    /// Address of the same function on another server
    #[arg(long, value_name = "URL")]
    peer: Url,
    /// Address that answers at once: what HTTP and this program cost by themselves
    #[arg(long, value_name = "URL")]
    floor: Option<Url>,
    /// Rounds, in each of which every address is measured once
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Requests to each address in a round
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Requests to each address before the first round, not counted
    #[arg(long, default_value_t = 50)]
    warm_up: u32,
    /// Open a new connection for each request
    #[arg(long)]
    close: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An address and what was measured there.
struct Contestant {
    name: &'static str,
    url: Url,
    client: Client,
    /// Latencies, round by round.
    rounds: Vec<Vec<Duration>>,
}

/// What comes of it all.
#[derive(Serialize)]
struct Report {
    rounds: u32,
    requests_per_round: u32,
    new_connection_per_request: bool,
    latency_microseconds: Vec<Row>,
    /// Ours to the peer's, median to median, round by round.
    ratio: Ratio,
    /// The same with the floor's median taken off both, if both were above it
    /// in every round.
    ratio_above_floor: Option<Ratio>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    #[serde(flatten)]
    percentiles: Percentiles,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    let connections = if arguments.close {
        Connections::Close
    } else {
        Connections::Keep
    };
    let addresses = [
        ("ours", Some(&arguments.ours)),
        ("peer", Some(&arguments.peer)),
        ("floor", arguments.floor.as_ref()),
    ];
    let mut contestants: Vec<Contestant> = addresses
        .into_iter()
        .filter_map(|(name, url)| Some((name, url?)))
        .map(|(name, url)| Contestant::new(name, url, connections))
        .collect();

    for contestant in &mut contestants {
        contestant.request(arguments.warm_up)?;
    }
    for round in 0..arguments.rounds {
        for contestant in &mut contestants {
            let latencies = contestant.request(arguments.requests)?;
            contestant.rounds.push(latencies);
        }
        // Whoever came first meets the caches that the last one left; so the
        // order changes.
        contestants.rotate_left(1);
        if !arguments.json {
            eprint!("\rround {} of {}", round + 1, arguments.rounds);
        }
    }
    if !arguments.json {
        eprintln!();
    }
    let report = Report::of(arguments, &contestants).context("nothing was measured")?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(())
}

impl Contestant {
    fn new(name: &'static str, url: &Url, connections: Connections) -> Self {
        Self {
            name,
            client: Client::new(url, connections),
            url: url.clone(),
            rounds: Vec::new(),
        }
    }

    fn request(&mut self, count: u32) -> Result<Vec<Duration>> {
        (0..count)
            .map(|_| Ok(self.client.get(&self.url.path)?.1))
            .collect()
    }

    fn medians(&self) -> Vec<f64> {
        self.rounds
            .iter()
            .filter_map(|round| stats::median(round))
            .collect()
    }
}

impl Report {
    fn of(arguments: &Arguments, contestants: &[Contestant]) -> Option<Self> {
        let find = |name| {
            contestants
                .iter()
                .find(|contestant| contestant.name == name)
        };
        let ours = find("ours")?.medians();
        let peer = find("peer")?.medians();
        let pairs: Vec<(f64, f64)> = ours.into_iter().zip(peer).collect();
        let above_floor = find("floor").and_then(|floor| {
            let pairs: Vec<(f64, f64)> = pairs
                .iter()
                .zip(floor.medians())
                .map(|((ours, peer), floor)| (ours - floor, peer - floor))
                .collect();
            // Below the floor is noise, and leaving such rounds out would
            // choose the answer.
            let all_above = pairs.iter().all(|(ours, peer)| *ours > 0.0 && *peer > 0.0);
            all_above.then_some(pairs)
        });
        let rows = ["ours", "peer", "floor"].into_iter().filter_map(|name| {
            Some(Row {
                name,
                percentiles: Percentiles::of(&find(name)?.rounds.concat())?,
            })
        });
        Some(Self {
            rounds: arguments.rounds,
            requests_per_round: arguments.requests,
            new_connection_per_request: arguments.close,
            latency_microseconds: rows.collect(),
            ratio: Ratio::of(&pairs)?,
            ratio_above_floor: above_floor.and_then(|pairs| Ratio::of(&pairs)),
        })
    }

    fn print(&self) {
        let mut table = Table::new(["", "p50 us", "p90 us", "p99 us", "requests"]);
        for Row { name, percentiles } in &self.latency_microseconds {
            table.row([
                (*name).to_owned(),
                format!("{:.1}", percentiles.p50),
                format!("{:.1}", percentiles.p90),
                format!("{:.1}", percentiles.p99),
                percentiles.count.to_string(),
            ]);
        }
        println!("{table}");
        let mut table = Table::new(["ratio of medians", "ours/peer", "95 % interval", "rounds"]);
        let ratios = [
            ("as measured", Some(self.ratio)),
            ("above the floor", self.ratio_above_floor),
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
        print!("{table}");
    }
}
