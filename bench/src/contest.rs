//! Contestants that are measured in alternating rounds, and the results of the rounds.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{
    client::{Connections, Url},
    load::{Generator, Outcome, Until},
    process::{self, Pid},
    stats::{self, Percentiles, Ratio},
    table::Table,
};

/// Two servers that receive the same requests.
#[derive(clap::Args)]
pub struct Pair {
    /// Address of a function on a faasw node
    #[arg(long, value_name = "URL")]
    pub ours: Url,
    /// Address of the same function on another server
    #[arg(long, value_name = "URL")]
    pub peer: Url,
    /// The node's process, whose CPU time is measured, too
    #[arg(long, value_name = "PID")]
    pub ours_pid: Option<Pid>,
    /// The other server's process
    #[arg(long, value_name = "PID")]
    pub peer_pid: Option<Pid>,
}

/// A server and its measured rounds.
pub struct Contestant {
    /// Name of the contestant in tables.
    pub name: String,
    process: Option<Pid>,
    generator: Generator,
    rounds: Vec<Round>,
}

/// The result of one contestant in one round.
struct Round {
    outcome: Outcome,
    /// CPU time that its process and descendants used in the round.
    cpu: Option<Duration>,
}

/// The plan of a contest.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Number of rounds. Every contestant is measured once in each.
    pub count: u32,
    /// How much load a contestant gets in a round.
    pub each: Until,
    /// How much load each contestant gets before the first round; it is not counted.
    pub warm_up: Until,
    /// Whether progress is printed on standard error.
    pub tell: bool,
}

/// A contestant's results over all its rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Name of the contestant.
    pub name: String,
    /// Latency in microseconds.
    #[serde(flatten)]
    pub latency: Percentiles,
    /// Answers per second, as the median of the rounds.
    pub per_second: f64,
    /// Requests without an answer of success.
    pub errors: u64,
    /// CPU time per answer in microseconds, as the median of the rounds, if the process is known.
    pub cpu_microseconds: Option<f64>,
}

impl Contestant {
    /// Returns a contestant. If its `process` is known, CPU time is measured, too.
    pub fn new(
        name: &str,
        url: &Url,
        process: Option<Pid>,
        keep: Connections,
        connections: usize,
    ) -> Self {
        Self {
            name: name.to_owned(),
            process,
            generator: Generator::new(url, keep, connections),
            rounds: Vec::new(),
        }
    }

    /// Makes the contestant receive POST requests with this JSON.
    pub fn posting(mut self, json: &[u8]) -> Self {
        self.generator = self.generator.posting(json);
        self
    }

    fn measure(&mut self, each: Until) -> Result<()> {
        let before = self.process.map(process::cpu_time).transpose()?;
        let outcome = self
            .generator
            .run(each)
            .with_context(|| self.name.clone())?;
        let after = self.process.map(process::cpu_time).transpose()?;
        let cpu = before
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before));
        self.rounds.push(Round { outcome, cpu });
        Ok(())
    }

    fn over_rounds<'a>(&'a self, of: impl Fn(&Round) -> Option<f64> + 'a) -> Vec<Option<f64>> {
        self.rounds.iter().map(of).collect()
    }

    /// Returns the results over all rounds; `None` if nothing was answered.
    pub fn summary(&self) -> Option<Summary> {
        let latencies: Vec<Duration> = self
            .rounds
            .iter()
            .flat_map(|round| round.outcome.latencies.iter().copied())
            .collect();
        Some(Summary {
            name: self.name.clone(),
            latency: Percentiles::of(&latencies)?,
            per_second: stats::median_of(self.over_rounds(per_second).into_iter().flatten())?,
            errors: self.errors(),
            cpu_microseconds: stats::median_of(self.over_rounds(cpu).into_iter().flatten()),
        })
    }

    /// Returns the number of requests without an answer of success.
    pub fn errors(&self) -> u64 {
        self.rounds.iter().map(|round| round.outcome.errors).sum()
    }

    /// Returns an error if a request failed, because the measured speed would be that of errors.
    pub fn ensure_no_errors(&self) -> Result<()> {
        let first = self
            .rounds
            .iter()
            .find_map(|round| round.outcome.first_error.as_deref());
        ensure!(
            self.errors() == 0,
            "{}: {} requests failed; the first: {}",
            self.name,
            self.errors(),
            first.unwrap_or("unknown")
        );
        Ok(())
    }

    /// Returns the ratio of this contestant to another, round by round; `None` if a round has none.
    fn against(&self, other: &Self, of: impl Fn(&Round) -> Option<f64> + Copy) -> Option<Ratio> {
        let ours = self.over_rounds(of).into_iter();
        let pairs: Option<Vec<(f64, f64)>> = ours
            .zip(other.over_rounds(of))
            .map(|(ours, theirs)| ours.zip(theirs))
            .collect();
        Ratio::of(&pairs?)
    }

    /// Returns the ratio of the medians of latency.
    pub fn latency_against(&self, other: &Self) -> Option<Ratio> {
        self.against(other, p50)
    }

    /// Returns the ratio of the medians of latency with a floor's median subtracted on both sides.
    /// Returns `None` if either median was not above the floor in some round. Below the floor is
    /// noise, and leaving such rounds out would bias the result.
    pub fn latency_above(&self, floor: &Self, other: &Self) -> Option<Ratio> {
        let above = |contestant: &Self| -> Option<Vec<f64>> {
            let rounds = contestant.over_rounds(p50).into_iter();
            rounds
                .zip(floor.over_rounds(p50))
                .map(|(taken, floor)| Some(taken? - floor?).filter(|above| *above > 0.0))
                .collect()
        };
        let pairs: Vec<(f64, f64)> = above(self)?.into_iter().zip(above(other)?).collect();
        Ratio::of(&pairs)
    }

    /// Returns the ratio of p99/p50: how much longer the tail is than the other's.
    pub fn tail_against(&self, other: &Self) -> Option<Ratio> {
        self.against(other, tail)
    }

    /// Returns the ratio of answers per second.
    pub fn throughput_against(&self, other: &Self) -> Option<Ratio> {
        self.against(other, per_second)
    }

    /// Returns the ratio of CPU time per answer.
    pub fn cpu_against(&self, other: &Self) -> Option<Ratio> {
        self.against(other, cpu)
    }
}

fn p50(round: &Round) -> Option<f64> {
    stats::median(&round.outcome.latencies)
}

fn tail(round: &Round) -> Option<f64> {
    let percentiles = Percentiles::of(&round.outcome.latencies)?;
    Some(percentiles.p99 / percentiles.p50)
}

fn per_second(round: &Round) -> Option<f64> {
    let seconds = round.outcome.elapsed.as_secs_f64();
    (seconds > 0.0).then(|| round.outcome.latencies.len() as f64 / seconds)
}

fn cpu(round: &Round) -> Option<f64> {
    let answers = round.outcome.latencies.len();
    (answers > 0).then_some(stats::microseconds(round.cpu?) / answers as f64)
}

/// Measures all contestants in alternating rounds.
///
/// # Errors
/// Returns an error if a server or its process cannot be reached, or a warm-up fails.
pub fn run(contestants: &mut [Contestant], rounds: Rounds) -> Result<()> {
    for contestant in &mut *contestants {
        contestant.measure(rounds.warm_up)?;
        contestant.ensure_no_errors()?;
        contestant.rounds.clear();
    }
    let count = contestants.len();
    for round in 0..rounds.count {
        // The first contestant of a round meets the caches that the last one left, so the order
        // changes.
        for position in 0..count {
            let index = (position + round as usize) % count;
            if let Some(contestant) = contestants.get_mut(index) {
                contestant.measure(rounds.each)?;
            }
        }
        if rounds.tell {
            eprint!("\rround {} of {}", round + 1, rounds.count);
        }
    }
    if rounds.tell {
        eprintln!();
    }
    Ok(())
}

/// Returns a table of the contestants' results.
pub fn table(summaries: &[Summary]) -> Table {
    let titles = [
        "",
        "p50 us",
        "p90 us",
        "p99 us",
        "p99/p50",
        "answers/s",
        "CPU us/answer",
        "answers",
        "errors",
    ];
    let mut table = Table::new(titles);
    for summary in summaries {
        let latency = &summary.latency;
        table.row([
            summary.name.clone(),
            format!("{:.1}", latency.p50),
            format!("{:.1}", latency.p90),
            format!("{:.1}", latency.p99),
            format!("{:.2}", latency.p99 / latency.p50),
            format!("{:.0}", summary.per_second),
            summary
                .cpu_microseconds
                .map_or("–".to_owned(), |cpu| format!("{cpu:.1}")),
            latency.count.to_string(),
            summary.errors.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a contestant whose rounds had these medians, ten answers a millisecond and 50 us of
    /// CPU time each.
    fn contestant(medians: &[u64]) -> Contestant {
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let mut contestant = Contestant::new("c", &url, None, Connections::Keep, 1);
        contestant.rounds = medians
            .iter()
            .map(|median| Round {
                outcome: Outcome {
                    latencies: vec![Duration::from_micros(*median); 10],
                    elapsed: Duration::from_millis(1),
                    ..Outcome::default()
                },
                cpu: Some(Duration::from_micros(500)),
            })
            .collect();
        contestant
    }

    #[test]
    fn a_summary_is_of_all_rounds() {
        let summary = contestant(&[100, 200, 300]).summary().unwrap();
        assert_eq!(summary.latency.count, 30);
        assert!((summary.latency.p50 - 200.0).abs() < 1e-6);
        assert!((summary.per_second - 10_000.0).abs() < 1e-6);
        assert!((summary.cpu_microseconds.unwrap() - 50.0).abs() < 1e-6);
        assert!(contestant(&[]).summary().is_none());
    }

    #[test]
    fn ratios_pair_round_with_round() {
        let (ours, theirs) = (contestant(&[100, 1000, 100]), contestant(&[200, 2000, 200]));
        let ratio = ours.latency_against(&theirs).unwrap();
        assert!((ratio.high - 0.5).abs() < 1e-9);
        assert!((ours.throughput_against(&theirs).unwrap().median - 1.0).abs() < 1e-9);
        assert!((ours.cpu_against(&theirs).unwrap().median - 1.0).abs() < 1e-9);
        assert!((ours.tail_against(&theirs).unwrap().median - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_floor_is_taken_off_both_sides_unless_a_round_is_below_it() {
        let (ours, theirs) = (contestant(&[150, 150]), contestant(&[250, 250]));
        let ratio = ours.latency_above(&contestant(&[50, 50]), &theirs).unwrap();
        assert!((ratio.median - 0.5).abs() < 1e-9);
        assert!(
            ours.latency_above(&contestant(&[50, 151]), &theirs)
                .is_none()
        );
    }

    #[test]
    fn without_a_process_there_is_no_cpu_time() {
        let mut ours = contestant(&[100]);
        ours.rounds[0].cpu = None;
        assert!(ours.summary().unwrap().cpu_microseconds.is_none());
        assert!(ours.cpu_against(&contestant(&[100])).is_none());
    }
}
