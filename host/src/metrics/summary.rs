//! The metrics for people, for `faasw stats`: read from the same counters as for Prometheus.

use std::collections::BTreeMap;

use faasw_client::{
    FunctionName, FunctionSummary, GroupSummary, NodeSummary, StageSummary, ZygoteSummary,
};
use faasw_pool::{Served, TrapKind};

use super::{
    CurrentValues, Metrics, STAGES,
    labels::{
        CountedMetric as _, FunctionLabels, NameLabel, ProblemLabels, ServedLabels, StatusLabels,
        TrapLabels, counted,
    },
};

impl Metrics {
    /// Returns the counts, and the values that are only known now.
    pub(crate) fn summary(&self, now: &CurrentValues<'_>) -> NodeSummary {
        self.set(now);
        let pools = &self.pools;
        NodeSummary {
            functions: self.functions.count(),
            under_way: self.under_way.count(),
            unknown: self.by_status(None).values().sum(),
            forbidden_calls: self.forbidden_calls.get(),
            resets: pools.resets.counts(),
            abandoned_parents: pools.zygote_parents_abandoned.get(),
            confinement: now.vms.confinement.name().to_owned(),
            microvms: self.microvms.counts(),
            lacking: pools.lacking(),
            zygotes: ZygoteSummary {
                ready: pools.zygotes.counts(),
                wanted: pools.zygotes_wanted.counts(),
                takes: pools.zygote_takes.counts(),
            },
            groups: GroupSummary {
                count: pools.groups.counts(),
                free_max: pools.groups_free_max.count(),
                takes: pools.group_takes.counts(),
            },
            memory: self.memory_held.counts(),
            memory_budget: self.memory_budget.counts(),
            instance_memory: [("used", &pools.memory_used), ("max", &pools.memory_max)]
                .map(|(what, bytes)| (what.to_owned(), bytes.count()))
                .into(),
            out_of_memory: pools.out_of_memory.get(),
            deployments: self.deployments.counts(),
            by_function: now
                .functions
                .iter()
                .filter_map(|name| Some((name.as_str().to_owned(), self.of_function(name)?)))
                .collect(),
            stages: STAGES
                .iter()
                .zip(&self.stages)
                .map(|(stage, times)| StageSummary {
                    stage: (*stage).to_owned(),
                    ..times.summary()
                })
                .collect(),
        }
    }

    /// Returns the counts of a function, if there are any.
    fn of_function(&self, name: &FunctionName) -> Option<FunctionSummary> {
        let function = || NameLabel::from(name);
        let of = FunctionLabels {
            function: function(),
        };
        let problems = self.problems().clone();
        let summary = FunctionSummary {
            requests: self.by_status(Some(function())),
            problems: counted(
                &self.failures,
                problems.into_iter().map(|problem| {
                    let function = Some(function());
                    (problem, ProblemLabels { function, problem })
                }),
            ),
            traps: counted(
                &self.traps,
                TrapKind::ALL.map(TrapKind::name).map(|kind| {
                    let function = function();
                    (kind, TrapLabels { function, kind })
                }),
            ),
            served: counted(
                &self.served,
                Served::ALL.map(Served::name).map(|by| {
                    let function = function();
                    (by, ServedLabels { function, by })
                }),
            ),
            page_faults: self.page_faults.get(&of).map_or(0, |count| count.get()),
            vm_exits: self.exits.get(&of).map_or(0, |count| count.get()),
        };
        let is_counted = summary != FunctionSummary::default() || self.cpu.get(&of).is_some();
        is_counted.then_some(summary)
    }

    /// Returns the number of requests by status.
    fn by_status(&self, function: Option<NameLabel>) -> BTreeMap<String, u64> {
        let statuses = (100..600_u16).filter_map(|status| {
            let of = StatusLabels {
                function: function.clone(),
                status,
            };
            let count = self.requests.get(&of)?.get();
            Some((status.to_string(), count))
        });
        statuses.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_client::FunctionName;
    use faasw_client::ZygoteSummary;
    use faasw_pool::{
        Effort, GroupStats, MemoryStats, PoolStats, ResetStats, ShortfallCause, ShortfallStats,
        Timing, WarmShortfall, ZygotePoolStats,
    };
    use http::StatusCode;
    use std::time::Duration;

    fn nothing_held() -> std::sync::Arc<faasw_pool::Backlog> {
        faasw_pool::Backlog::new(faasw_pool::BacklogLimits::default())
    }

    #[test]
    fn summary_and_metrics_agree() {
        let metrics = Metrics::default();
        let name = FunctionName::new("f").unwrap();
        for micros in [60, 70, 80, 900] {
            let timing = Timing {
                fork: Duration::from_micros(micros),
                ..Timing::default()
            };
            metrics.record_answer(&name, StatusCode::OK, Some(&timing));
            let effort = Effort {
                exits: 1,
                page_faults: 0,
                reset: None,
            };
            metrics.record_retirement(&name, &effort);
        }
        metrics.record_unknown_function();
        metrics.record_deployment(false);
        let mut lacking = ShortfallStats::default();
        lacking.add(WarmShortfall {
            instances: 4,
            why: ShortfallCause::SeedMemory,
        });
        let stats = PoolStats {
            zygotes: 1,
            warm: 3,
            shortfall: lacking,
            busy: 2,
            specialised: 1,
            zygote_pool: ZygotePoolStats {
                wanted: 5,
                abandoned: 1,
                hits: 3,
                ..ZygotePoolStats::default()
            },
            groups: GroupStats {
                used: 6,
                free_max: 8,
                misses: 4,
                ..GroupStats::default()
            },
            forbidden_calls: 1,
            resets: ResetStats {
                done: 21,
                failed: 2,
            },
            memory: MemoryStats {
                used: Some(40),
                max: 50,
                out_of_memory: 3,
            },
            seed_bytes: 9 << 30,
            function_budget: 7,
            ..PoolStats::default()
        };
        let now = CurrentValues {
            functions: std::slice::from_ref(&name),
            under_way: 2,
            vms: stats,
            backlog: &nothing_held(),
        };
        let summary = metrics.summary(&now);
        assert_eq!(
            (summary.functions, summary.under_way, summary.unknown),
            (1, 2, 1)
        );
        assert_eq!(summary.microvms["warm"], 3);
        assert_eq!(summary.lacking, [("seed-memory".to_owned(), 4)].into());
        let ZygoteSummary {
            ready,
            wanted,
            takes,
        } = &summary.zygotes;
        assert_eq!(
            (ready["specialised"], ready["generic"], wanted["now"]),
            (1, 0, 5)
        );
        assert_eq!((takes["hit"], takes["miss"]), (3, 0));
        let memory = &summary.instance_memory;
        assert_eq!((memory["used"], memory["max"]), (40, 50));
        assert_eq!(summary.out_of_memory, 3);
        let groups = &summary.groups;
        assert_eq!((groups.count["used"], groups.free_max), (6, 8));
        assert_eq!(groups.takes["miss"], 4);
        assert_eq!(summary.forbidden_calls, 1);
        assert_eq!((summary.resets["done"], summary.resets["failed"]), (21, 2));
        assert_eq!(summary.abandoned_parents, 1);
        assert_eq!(summary.confinement, "full");
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
    fn an_empty_summary_has_no_values() {
        let summary = Metrics::default().summary(&CurrentValues {
            functions: &[FunctionName::new("f").unwrap()],
            under_way: 0,
            vms: PoolStats::default(),
            backlog: &nothing_held(),
        });
        assert_eq!((summary.stages[0].count, summary.stages[0].p99), (0, 0.0));
        assert!(summary.by_function.is_empty());
    }
}
