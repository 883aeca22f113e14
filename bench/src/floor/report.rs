//! The results of the rounds.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Serialize;

use super::Round;
use crate::{
    server_timing::Stages,
    stats::{self, Percentiles, Ratio},
    table::Table,
};

/// The kind of microVM whose time is compared with the floor.
pub const WARM: &str = "warm";
/// The kind of microVM that was made ahead without a function.
pub const ZYGOTE: &str = "zygote";
/// The kind of microVM if the node does not report it.
const NOT_TOLD: &str = "not told";

/// The floor, and the times of a node's ways of serving beside it.
#[derive(Debug, Serialize)]
pub struct Found {
    /// Round trip of two messages without a VM.
    pub messages: Percentiles,
    /// A run of an empty guest until its exit, within one process.
    pub exit: Percentiles,
    /// Both together: an empty `KVM_RUN` round trip between two processes.
    pub floor: Percentiles,
    /// Ways of serving.
    pub ways: Vec<Way>,
    /// Ratio of the time in the VM to the floor, round by round, for requests that came alone and
    /// were served by a warm microVM. The time is from when the request was written until the
    /// handler had finished.
    pub warm_to_floor: Option<Ratio>,
    /// Ratio of the time in the VM to the floor, round by round, for all requests that came alone.
    pub alone_to_floor: Option<Ratio>,
}

/// Requests that were served in the same way.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// Kind of microVM, as the node reports it.
    pub served: String,
    /// Whether the requests came one after the other; if not, they came at once and competed.
    pub alone: bool,
    /// Number of requests.
    pub count: usize,
    /// Median of each stage in microseconds, in the node's order.
    pub stages: Vec<(String, f64)>,
    /// Median of the time from when the request was written until the handler had finished, in
    /// microseconds.
    pub in_vm: Option<f64>,
}

impl Found {
    /// Summarises `rounds`; `None` if nothing was measured.
    pub(super) fn of(rounds: &[Round]) -> Option<Self> {
        let all = |of: fn(&Round) -> &Vec<Duration>| -> Option<Percentiles> {
            let all: Vec<Duration> = rounds.iter().flat_map(of).copied().collect();
            Percentiles::of(&all)
        };
        let mut ways = ways(rounds.iter().flat_map(|round| &round.alone), true);
        ways.extend(ways_of_bursts(rounds));
        let to_floor = |wanted: fn(&Stages) -> bool| {
            let pairs = rounds.iter().filter_map(|round| {
                let times: Vec<Duration> = round
                    .alone
                    .iter()
                    .filter(|stages| wanted(stages))
                    .filter_map(Stages::in_vm)
                    .collect();
                Some((stats::median(&times)?, stats::median(&round.floor)?))
            });
            Ratio::of(&pairs.collect::<Vec<_>>())
        };
        Some(Self {
            messages: all(|round| &round.messages)?,
            exit: all(|round| &round.exit)?,
            floor: all(|round| &round.floor)?,
            ways,
            warm_to_floor: to_floor(|stages| stages.served.as_deref() == Some(WARM)),
            alone_to_floor: to_floor(|_| true),
        })
    }

    /// Returns the median time in the VM of requests that came alone and were served by this kind
    /// of microVM.
    pub fn in_vm(&self, served: &str) -> Option<f64> {
        let mut ways = self.ways.iter();
        ways.find(|way| way.alone && way.served == served)?.in_vm
    }
}

fn ways_of_bursts(rounds: &[Round]) -> Vec<Way> {
    ways(rounds.iter().flat_map(|round| &round.burst), false)
}

/// Groups requests by the kind of microVM that served them, most frequent first.
fn ways<'a>(requests: impl Iterator<Item = &'a Stages>, alone: bool) -> Vec<Way> {
    let mut groups: BTreeMap<&str, Vec<&Stages>> = BTreeMap::new();
    for stages in requests {
        let served = stages.served.as_deref().unwrap_or(NOT_TOLD);
        groups.entry(served).or_default().push(stages);
    }
    let mut ways: Vec<Way> = groups
        .into_iter()
        .map(|(served, requests)| Way {
            served: served.to_owned(),
            alone,
            count: requests.len(),
            stages: medians(&requests),
            in_vm: stats::median(
                &requests
                    .iter()
                    .filter_map(|r| r.in_vm())
                    .collect::<Vec<_>>(),
            ),
        })
        .collect();
    ways.sort_by_key(|way| std::cmp::Reverse(way.count));
    ways
}

fn medians(requests: &[&Stages]) -> Vec<(String, f64)> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in requests.iter().flat_map(|stages| &stages.stages) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let median = |name: &str| {
        let stages = requests.iter().flat_map(|stages| &stages.stages);
        let times: Vec<Duration> = stages
            .filter(|(other, _)| other == name)
            .map(|(_, time)| *time)
            .collect();
        stats::median(&times)
    };
    names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), median(name)?)))
        .collect()
}

impl Found {
    /// Returns the floor and its parts as a table.
    pub fn floor_table(&self) -> Table {
        let mut table = Table::new(["floor", "p50 us", "p99 us", "round trips"]);
        for (name, percentiles) in [
            ("two messages between two processes", &self.messages),
            ("KVM_RUN of an empty guest in one process", &self.exit),
            ("both: KVM_RUN between two processes", &self.floor),
        ] {
            table.row([
                name.to_owned(),
                format!("{:.1}", percentiles.p50),
                format!("{:.1}", percentiles.p99),
                percentiles.count.to_string(),
            ]);
        }
        table
    }

    /// Returns the ways of serving as a table.
    pub fn ways_table(&self) -> Table {
        let titles = [
            "served by",
            "requests",
            "count",
            "stages, median us",
            "in the VM, us",
        ];
        let mut table = Table::new(titles);
        for way in &self.ways {
            let stages: Vec<String> = way
                .stages
                .iter()
                .map(|(name, median)| format!("{name} {median:.1}"))
                .collect();
            table.row([
                way.served.clone(),
                if way.alone { "alone" } else { "at once" }.to_owned(),
                way.count.to_string(),
                stages.join(", "),
                way.in_vm
                    .map_or("–".to_owned(), |time| format!("{time:.1}")),
            ]);
        }
        table
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.floor_table())?;
        if self.ways.is_empty() {
            return Ok(());
        }
        writeln!(f, "{}", self.ways_table())?;
        let mut table = Table::new([
            "in the VM, to the floor",
            "ratio",
            "95 % interval",
            "rounds",
        ]);
        for (name, ratio) in [
            ("warm, alone", self.warm_to_floor),
            ("whatever served, alone", self.alone_to_floor),
        ] {
            if let Some(ratio) = ratio {
                table.row([
                    name.to_owned(),
                    format!("{:.2}", ratio.median),
                    format!("{:.2} to {:.2}", ratio.low, ratio.high),
                    ratio.pairs.to_string(),
                ]);
            }
        }
        write!(f, "{table}")?;
        if self.warm_to_floor.is_none() {
            writeln!(
                f,
                "\nThis node did not say of any request that a warm microVM served it."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(floor: u64, alone: &[&str]) -> Round {
        let times = vec![Duration::from_micros(floor); 3];
        Round {
            messages: times.clone(),
            exit: times.clone(),
            floor: times,
            alone: alone.iter().map(|value| Stages::parse(value)).collect(),
            burst: Vec::new(),
        }
    }

    #[test]
    fn warm_requests_are_compared_with_the_floor_of_their_round() {
        let warm = "fork;dur=0.000, init;dur=0.030, exec;dur=0.030, served;desc=\"warm\"";
        let zygote = "fork;dur=0.300, init;dur=0.150, exec;dur=0.150, served;desc=\"zygote\"";
        let slow = "fork;dur=0.000, init;dur=0.060, exec;dur=0.060, served;desc=\"warm\"";
        let rounds = [round(40, &[warm, warm, zygote]), round(80, &[slow])];
        let found = Found::of(&rounds).unwrap();
        let ratio = found.warm_to_floor.unwrap();
        assert!((ratio.low - 1.5).abs() < 1e-9 && (ratio.high - 1.5).abs() < 1e-9);
        assert_eq!(found.ways.len(), 2);
        assert_eq!(
            (found.ways[0].served.as_str(), found.ways[0].count),
            ("warm", 3)
        );
        assert!((found.in_vm("zygote").unwrap() - 600.0).abs() < 1e-6);
        assert_eq!(found.in_vm("made"), None);
    }

    #[test]
    fn a_node_that_does_not_tell_who_served_has_no_warm_way() {
        let found = Found::of(&[round(50, &["fork;dur=1, init;dur=1, exec;dur=1"])]).unwrap();
        assert!(found.warm_to_floor.is_none());
        assert!((found.alone_to_floor.unwrap().median - 60.0).abs() < 1e-6);
        assert_eq!(found.ways[0].served, NOT_TOLD);
        assert!(found.to_string().contains("did not say"));
    }

    #[test]
    fn a_floor_stands_by_itself() {
        let found = Found::of(&[round(50, &[])]).unwrap();
        assert!(found.ways.is_empty() && found.alone_to_floor.is_none());
        assert!(Found::of(&[]).is_none());
    }
}
