//! Metrics for people: `faasw stats`.
//!
//! It reads the same text that Prometheus does, so that both always agree.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a node has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Functions that the node has.
    pub functions: u64,
    /// Requests in instances now.
    pub under_way: u64,
    /// Requests for names that are no function's.
    pub unknown: u64,
    /// Processes that were ended for a system call that their cell does not allow.
    pub forbidden_calls: u64,
    /// VMs by state.
    pub microvms: BTreeMap<String, u64>,
    /// Shells that are made ahead.
    pub shells: ShellSummary,
    /// Control groups that are kept.
    pub groups: GroupSummary,
    /// Bytes that functions hold between requests, by account: of their `seeds`, and of
    /// `parked` instances.
    pub memory: BTreeMap<String, u64>,
    /// Bytes that they may hold: `seeds` of all functions, and one `function` in all.
    pub memory_budget: BTreeMap<String, u64>,
    /// Bytes that the processes of all microVMs and compilations take together: `used`,
    /// 0 where no control group tells, and `max`.
    pub instance_memory: BTreeMap<String, u64>,
    /// Processes that the system ended for want of memory.
    pub out_of_memory: u64,
    /// Deployments by how they ended.
    pub deployments: BTreeMap<String, u64>,
    /// What functions answered, by name.
    pub by_function: BTreeMap<String, FunctionSummary>,
    /// Where the time of answered requests went, in the order of the stages.
    pub stages: Vec<StageSummary>,
}

/// Shells that are made ahead of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShellSummary {
    /// Ready ones, by state: `bare`, or `preset` to what functions have in common.
    pub ready: BTreeMap<String, u64>,
    /// How many are to be ready: `low` at least, `now` by demand, `high` at most.
    pub wanted: BTreeMap<String, u64>,
    /// Instances that took one, by result: a `hit` if it was ready, a `miss` if it was
    /// made while they waited.
    pub takes: BTreeMap<String, u64>,
}

/// Control groups of cells, which are kept for the next ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupSummary {
    /// Groups by state: `free` for the next cell, or `used` by one.
    pub count: BTreeMap<String, u64>,
    /// Groups that are kept free at most.
    pub free_max: u64,
    /// Cells that took one, by result: a `hit` if it was free, a `miss` if it was made.
    pub takes: BTreeMap<String, u64>,
}

/// What one function has answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FunctionSummary {
    /// Requests by status.
    pub requests: BTreeMap<String, u64>,
    /// Requests that the node answered, by the type of problem.
    pub problems: BTreeMap<String, u64>,
    /// Traps by kind.
    pub traps: BTreeMap<String, u64>,
    /// Requests by the kind of microVM that served them.
    pub served: BTreeMap<String, u64>,
    /// Page faults of its instances.
    pub page_faults: u64,
    /// Exits of its instances.
    pub vm_exits: u64,
}

/// How long one stage took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StageSummary {
    /// `queue`, `fork`, `init`, `exec`, `run` or `reset`.
    pub stage: String,
    /// Requests that were measured.
    pub count: u64,
    /// Mean in seconds.
    pub mean: f64,
    /// Median in seconds, as exact as the histogram's buckets are.
    pub median: f64,
    /// 99th percentile in seconds, likewise.
    pub p99: f64,
}

/// A histogram as the text has it.
#[derive(Clone, Debug, Default)]
struct Histogram {
    sum: f64,
    /// Upper bounds and how many are at or below them.
    buckets: Vec<(f64, f64)>,
}

impl Summary {
    /// Reads OpenMetrics text. What it does not know it leaves out.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut summary = Self::default();
        let mut stages: BTreeMap<String, Histogram> = BTreeMap::new();
        for sample in text.lines().filter_map(Sample::read) {
            let label = |name| sample.label(name).unwrap_or_default().to_owned();
            let count = sample.value as u64;
            match sample.name {
                "faasw_functions" => summary.functions = count,
                "faasw_requests_under_way" => summary.under_way = count,
                "faasw_forbidden_calls_total" => summary.forbidden_calls = count,
                "faasw_microvms" => _ = summary.microvms.insert(label("state"), count),
                "faasw_shells" => _ = summary.shells.ready.insert(label("state"), count),
                "faasw_shells_wanted" => {
                    summary.shells.wanted.insert(label("mark"), count);
                }
                "faasw_shell_takes_total" => {
                    summary.shells.takes.insert(label("result"), count);
                }
                "faasw_groups" => _ = summary.groups.count.insert(label("state"), count),
                "faasw_groups_free_max" => summary.groups.free_max = count,
                "faasw_group_takes_total" => {
                    summary.groups.takes.insert(label("result"), count);
                }
                "faasw_memory_held_bytes" => _ = summary.memory.insert(label("of"), count),
                "faasw_memory_budget_bytes" => {
                    summary.memory_budget.insert(label("of"), count);
                }
                "faasw_instance_memory_used_bytes" => {
                    summary.instance_memory.insert("used".to_owned(), count);
                }
                "faasw_instance_memory_max_bytes" => {
                    summary.instance_memory.insert("max".to_owned(), count);
                }
                "faasw_out_of_memory_total" => summary.out_of_memory = count,
                "faasw_deployments_total" => {
                    summary.deployments.insert(label("result"), count);
                }
                "faasw_requests_total" if label("function").is_empty() => {
                    summary.unknown += count;
                }
                "faasw_request_stage_seconds_sum" => {
                    stages.entry(label("stage")).or_default().sum = sample.value;
                }
                "faasw_request_stage_seconds_bucket" => {
                    let bound = label("le").parse().unwrap_or(f64::INFINITY);
                    let histogram = stages.entry(label("stage")).or_default();
                    histogram.buckets.push((bound, sample.value));
                }
                _ if label("function").is_empty() => {}
                name => {
                    let of = summary.by_function.entry(label("function")).or_default();
                    match name {
                        "faasw_requests_total" => _ = of.requests.insert(label("status"), count),
                        "faasw_failures_total" => _ = of.problems.insert(label("problem"), count),
                        "faasw_traps_total" => _ = of.traps.insert(label("kind"), count),
                        "faasw_served_total" => _ = of.served.insert(label("by"), count),
                        "faasw_page_faults_total" => of.page_faults = count,
                        "faasw_vm_exits_total" => of.vm_exits = count,
                        _ => {}
                    }
                }
            }
        }
        for stage in super::STAGES {
            if let Some(histogram) = stages.remove(stage) {
                summary.stages.push(histogram.summary(stage));
            }
        }
        summary
    }
}

impl Histogram {
    fn summary(mut self, stage: &str) -> StageSummary {
        self.buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let count = self.buckets.last().map_or(0.0, |(_, count)| *count);
        StageSummary {
            stage: stage.into(),
            count: count as u64,
            mean: if count > 0.0 { self.sum / count } else { 0.0 },
            median: self.quantile(0.5 * count),
            p99: self.quantile(0.99 * count),
        }
    }

    /// Where the value of this rank is, taking values for evenly spread
    /// within their bucket, as Prometheus does.
    fn quantile(&self, rank: f64) -> f64 {
        let mut below = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            if *count >= rank && *count > below.1 {
                if bound.is_infinite() {
                    return below.0;
                }
                let part = (rank - below.1) / (count - below.1);
                return below.0 + (bound - below.0) * part;
            }
            below = (*bound, *count);
        }
        0.0
    }
}

/// A line of the text. Label values have nothing that would be escaped.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (series, ""),
        };
        Some(Self {
            name,
            labels,
            value,
        })
    }

    fn label(&self, name: &str) -> Option<&'a str> {
        self.labels.split(',').find_map(|label| {
            let (other, value) = label.split_once('=')?;
            (other == name).then(|| value.trim_matches('"'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{metrics::Metrics, name::FunctionName};
    use faasw_pool::{Effort, EngineStats, GroupStats, MemoryStats, StockStats, Timing};
    use http::StatusCode;
    use std::time::Duration;

    fn nothing_held() -> std::sync::Arc<faasw_pool::Backlog> {
        faasw_pool::Backlog::new(faasw_pool::BacklogLimits::default())
    }

    #[test]
    fn the_summary_says_what_the_metrics_say() {
        let metrics = Metrics::default();
        let name = FunctionName::new("f").unwrap();
        for micros in [60, 70, 80, 900] {
            let timing = Timing {
                fork: Duration::from_micros(micros),
                ..Timing::default()
            };
            metrics.answered(&name, StatusCode::OK, Some(&timing));
            let effort = Effort {
                exits: 1,
                page_faults: 0,
                reset: None,
            };
            metrics.retired(&name, &effort);
        }
        metrics.unknown();
        metrics.deployed(false);
        let stats = EngineStats {
            shells: 1,
            parked: 3,
            busy: 2,
            preset: 1,
            stock: StockStats {
                wanted: 5,
                hits: 3,
                ..StockStats::default()
            },
            groups: GroupStats {
                used: 6,
                free_max: 8,
                misses: 4,
                ..GroupStats::default()
            },
            forbidden_calls: 1,
            memory: MemoryStats {
                used: Some(40),
                max: 50,
                out_of_memory: 3,
            },
            seed_bytes: 9 << 30,
            function_budget: 7,
            ..EngineStats::default()
        };
        let summary = Summary::read(&metrics.text(5, 2, stats, &nothing_held()));
        assert_eq!(
            (summary.functions, summary.under_way, summary.unknown),
            (5, 2, 1)
        );
        assert_eq!(summary.microvms["parked"], 3);
        let ShellSummary {
            ready,
            wanted,
            takes,
        } = &summary.shells;
        assert_eq!((ready["preset"], ready["bare"], wanted["now"]), (1, 0, 5));
        assert_eq!((takes["hit"], takes["miss"]), (3, 0));
        let memory = &summary.instance_memory;
        assert_eq!((memory["used"], memory["max"]), (40, 50));
        assert_eq!(summary.out_of_memory, 3);
        let groups = &summary.groups;
        assert_eq!((groups.count["used"], groups.free_max), (6, 8));
        assert_eq!(groups.takes["miss"], 4);
        assert_eq!(summary.forbidden_calls, 1);
        assert_eq!(summary.deployments["failed"], 1);
        assert_eq!(summary.memory["seeds"], 9 << 30);
        assert_eq!(summary.memory_budget["function"], 7);
        let of = &summary.by_function["f"];
        assert_eq!((of.requests["200"], of.vm_exits), (4, 4));
        assert_eq!(of.served["made"], 4);
        assert_eq!(summary.by_function.len(), 1);
        let stages: Vec<_> = summary
            .stages
            .iter()
            .map(|stage| stage.stage.as_str())
            .collect();
        assert_eq!(stages, ["queue", "fork", "init", "exec", "run", "reset"]);
        let fork = &summary.stages[1];
        assert_eq!(fork.count, 4);
        assert!((fork.mean - 277.5e-6).abs() < 1e-9, "{fork:?}");
        assert!((50e-6..=100e-6).contains(&fork.median), "{fork:?}");
        assert!((500e-6..=1e-3).contains(&fork.p99), "{fork:?}");
    }

    #[test]
    fn nothing_measured_is_nothing() {
        let text = Metrics::default().text(0, 0, EngineStats::default(), &nothing_held());
        let summary = Summary::read(&text);
        assert_eq!((summary.stages[0].count, summary.stages[0].p99), (0, 0.0));
        assert_eq!(Summary::read("\n# nonsense\nx y z\n"), Summary::default());
    }
}
