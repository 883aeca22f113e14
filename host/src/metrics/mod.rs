//! What the node counts, for Prometheus and for `faasw stats`.
//!
//! The node records requests and deployments here as they end; how many
//! functions and microVMs there are is asked when somebody reads. The text is
//! OpenMetrics. It is served on the admin socket and, where a node is started
//! with an address for it, by `Page` on a listener of its own: never beside
//! functions. Series are bounded: statuses, problems and kinds are fixed sets,
//! and a function's series go with the function.

mod crowd;
mod labels;
mod page;
mod pools;
mod summary;
mod trap;

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use faasw_pool::{Backlog, Effort, EngineStats, InvokeError, Served, Timing};
use http::StatusCode;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

pub(crate) use page::{Page, response};
pub use summary::{FunctionSummary, GroupSummary, ShellSummary, StageSummary, Summary};

use crate::{failure::Failure, name::FunctionName, problem::Problem};
use crowd::Crowd;
use labels::{
    Function, MemoryOf, OfFunction, Outcome, ProblemOf, ServedOf, Stage, State, Status, TrapOf,
};
use pools::Pools;

/// Upper bounds of the histograms' buckets in seconds: from what a fork costs
/// to what a request may take.
const BUCKETS: [f64; 20] = [
    10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// The stages of a request, in their order.
const STAGES: [&str; 6] = ["queue", "fork", "init", "exec", "run", "reset"];

/// Counters and gauges of one node.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Status, Counter>,
    failures: Family<ProblemOf, Counter>,
    traps: Family<TrapOf, Counter>,
    page_faults: Family<OfFunction, Counter>,
    exits: Family<OfFunction, Counter>,
    cpu: Family<OfFunction, Counter<f64>>,
    served: Family<ServedOf, Counter>,
    /// As [`STAGES`].
    stages: [Histogram; 6],
    deployments: Family<Outcome, Counter>,
    functions: Gauge,
    under_way: Gauge,
    microvms: Family<State, Gauge>,
    pools: Pools,
    crowd: Crowd,
    forbidden_calls: Counter,
    memory_held: Family<MemoryOf, Gauge>,
    memory_budget: Family<MemoryOf, Gauge>,
    /// Every problem there ever was: a function's series are removed by name.
    problems: Mutex<BTreeSet<&'static str>>,
}

impl Metrics {
    /// A request was answered by its function. `timing` is there unless the
    /// rest of the answer is still to come.
    pub(crate) fn answered(
        &self,
        function: &FunctionName,
        status: StatusCode,
        timing: Option<&Timing>,
    ) {
        self.count(Function::Named(function.clone()), status);
        if let Some(timing) = timing {
            self.ran(function, timing);
        }
    }

    /// An instance has come to its end: with its answer, or with the stream
    /// that followed it.
    pub(crate) fn ran(&self, function: &FunctionName, timing: &Timing) {
        let stages = [
            timing.queue,
            timing.fork,
            timing.init,
            timing.exec,
            timing.run,
        ];
        for (histogram, took) in self.stages.iter().zip(stages) {
            histogram.observe(took.as_secs_f64());
        }
        let of = ServedOf {
            function: function.clone(),
            by: timing.served.name(),
        };
        self.served.get_or_create(&of).inc();
    }

    /// An instance has stopped after a request that did not fail.
    pub(crate) fn retired(&self, function: &FunctionName, effort: &Effort) {
        let of = OfFunction {
            function: function.clone(),
        };
        self.page_faults
            .get_or_create(&of)
            .inc_by(effort.page_faults);
        self.exits.get_or_create(&of).inc_by(effort.exits);
        if let (Some(reset), [.., resets]) = (effort.reset, &self.stages) {
            resets.observe(reset.took.as_secs_f64());
        }
    }

    /// An instance has used CPU time for a request, however that ended.
    pub(crate) fn charged(&self, function: &FunctionName, cpu: Duration) {
        let of = OfFunction {
            function: function.clone(),
        };
        self.cpu.get_or_create(&of).inc_by(cpu.as_secs_f64());
    }

    /// A request was answered by the node, with a problem.
    pub(crate) fn failed(&self, function: &FunctionName, failure: &Failure, problem: &Problem) {
        self.failure(
            Function::Named(function.clone()),
            problem.slug,
            problem.status,
        );
        self.trapped(function, failure);
    }

    /// A response that had begun was cut off, or its handler failed behind it.
    /// The request was counted when its answer began.
    pub(crate) fn cut_off(&self, function: &FunctionName, failure: &Failure) {
        let problem = failure.problem().slug;
        self.problems().insert(problem);
        let function_label = Function::Named(function.clone());
        self.failures
            .get_or_create(&ProblemOf {
                function: function_label,
                problem,
            })
            .inc();
        self.trapped(function, failure);
    }

    fn trapped(&self, function: &FunctionName, failure: &Failure) {
        if let Failure::Invoke(InvokeError::Trap { report }) = failure {
            let of = TrapOf {
                function: function.clone(),
                kind: trap::kind(report),
            };
            self.traps.get_or_create(&of).inc();
        }
    }

    /// A request was for a function that does not exist. Its name is the
    /// client's invention, and no label.
    pub(crate) fn unknown(&self) {
        self.failure(Function::Unknown, "unknown-function", StatusCode::NOT_FOUND);
    }

    /// A deployment ended.
    pub(crate) fn deployed(&self, well: bool) {
        let result = if well { "done" } else { "failed" };
        self.deployments.get_or_create(&Outcome { result }).inc();
    }

    /// A function is gone, and its series with it.
    pub(crate) fn forget(&self, function: &FunctionName) {
        let named = Function::Named(function.clone());
        for status in 100..600 {
            self.requests.remove(&Status {
                function: named.clone(),
                status,
            });
        }
        for problem in self.problems().iter() {
            self.failures.remove(&ProblemOf {
                function: named.clone(),
                problem,
            });
        }
        for kind in trap::KINDS {
            let function = function.clone();
            self.traps.remove(&TrapOf { function, kind });
        }
        let of = OfFunction {
            function: function.clone(),
        };
        self.page_faults.remove(&of);
        self.exits.remove(&of);
        self.cpu.remove(&of);
        for by in Served::ALL.map(Served::name) {
            let function = function.clone();
            self.served.remove(&ServedOf { function, by });
        }
    }

    /// Everything as OpenMetrics text, given what is only known now.
    pub(crate) fn text(
        &self,
        functions: usize,
        under_way: usize,
        vms: EngineStats,
        backlog: &Backlog,
    ) -> String {
        self.functions.set(whole(functions));
        self.under_way.set(whole(under_way));
        for (state, count) in [
            ("shell", vms.shells),
            ("parked", vms.parked),
            ("busy", vms.busy),
        ] {
            self.microvms
                .get_or_create(&State { state })
                .set(whole(count));
        }
        self.pools.set(&vms);
        self.crowd.set(&vms, backlog);
        let counted = self.forbidden_calls.inner();
        counted.fetch_max(vms.forbidden_calls, Ordering::Relaxed);
        for (family, of, bytes) in [
            (&self.memory_held, "seeds", vms.seed_bytes),
            (&self.memory_held, "parked", vms.parked_bytes),
            (&self.memory_held, "busy", vms.memory_taken),
            (&self.memory_held, "undelivered", backlog.held()),
            (&self.memory_budget, "undelivered", backlog.limits().node),
            (&self.memory_budget, "seeds", vms.seed_budget),
            (&self.memory_budget, "function", vms.function_budget),
        ] {
            family.get_or_create(&MemoryOf { of }).set(whole(bytes));
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn failure(&self, function: Function, problem: &'static str, status: StatusCode) {
        self.problems().insert(problem);
        self.count(function.clone(), status);
        self.failures
            .get_or_create(&ProblemOf { function, problem })
            .inc();
    }

    fn count(&self, function: Function, status: StatusCode) {
        let status = status.as_u16();
        self.requests
            .get_or_create(&Status { function, status })
            .inc();
    }

    fn problems(&self) -> std::sync::MutexGuard<'_, BTreeSet<&'static str>> {
        // It changes by single calls: a panic leaves nothing half done.
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

impl Default for Metrics {
    fn default() -> Self {
        let stages = Family::<Stage, Histogram>::new_with_constructor(|| Histogram::new(BUCKETS));
        let mut metrics = Self {
            registry: Registry::with_prefix("faasw"),
            requests: Family::default(),
            failures: Family::default(),
            traps: Family::default(),
            page_faults: Family::default(),
            exits: Family::default(),
            cpu: Family::default(),
            served: Family::default(),
            stages: STAGES.map(|stage| stages.get_or_create_owned(&Stage { stage })),
            deployments: Family::default(),
            functions: Gauge::default(),
            under_way: Gauge::default(),
            microvms: Family::default(),
            pools: Pools::default(),
            crowd: Crowd::default(),
            forbidden_calls: Counter::default(),
            memory_held: Family::default(),
            memory_budget: Family::default(),
            problems: Mutex::default(),
        };
        let registry = &mut metrics.registry;
        registry.register(
            "build",
            "The version of faasw",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register("functions", "Functions", metrics.functions.clone());
        registry.register(
            "requests",
            "Requests answered, by function and status",
            metrics.requests.clone(),
        );
        registry.register(
            "requests_under_way",
            "Requests in instances now",
            metrics.under_way.clone(),
        );
        registry.register(
            "failures",
            "Requests that the node answered with a problem, by its type",
            metrics.failures.clone(),
        );
        registry.register(
            "traps",
            "Requests that ended in a trap, by its kind",
            metrics.traps.clone(),
        );
        registry.register_with_unit(
            "request_stage",
            "Time of answered requests: queue waits for a microVM, fork makes it an instance, init resumes it, exec is the function, run all from its activation to its end, reset brings it back afterwards",
            Unit::Seconds,
            stages,
        );
        registry.register(
            "page_faults",
            "Page faults that KVM fixed for instances, over answered requests",
            metrics.page_faults.clone(),
        );
        registry.register(
            "vm_exits",
            "Exits of instances to their shells, over answered requests",
            metrics.exits.clone(),
        );
        registry.register_with_unit(
            "instance_cpu",
            "CPU time that instances used for requests, by the system's account: answered ones, failed ones and those that their clients left, with what bringing an instance back or ending it took",
            Unit::Seconds,
            metrics.cpu.clone(),
        );
        registry.register(
            "microvms",
            "VMs by state: a shell without a function, parked for a request, busy with one",
            metrics.microvms.clone(),
        );
        metrics.pools.register(registry);
        metrics.crowd.register(registry);
        registry.register_with_unit(
            "memory_held",
            "What functions hold between requests, by account: layers of their seeds, private pages of their parked instances",
            Unit::Bytes,
            metrics.memory_held.clone(),
        );
        registry.register_with_unit(
            "memory_budget",
            "What they may hold: the seeds of all functions together, and one function in all",
            Unit::Bytes,
            metrics.memory_budget.clone(),
        );
        registry.register(
            "served",
            "Answered requests by the kind of microVM: parked, ready but not run yet, a shell, one made for it",
            metrics.served.clone(),
        );
        registry.register(
            "forbidden_calls",
            "Processes that were ended for a system call that their cell does not allow: somebody broke out of a microVM or of the compiler",
            metrics.forbidden_calls.clone(),
        );
        registry.register(
            "deployments",
            "Deployments, by how they ended",
            metrics.deployments.clone(),
        );
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faasw_pool::{BacklogLimits, GroupStats, MemoryStats, ResetEffort, StockStats};

    fn name(name: &str) -> FunctionName {
        FunctionName::new(name).unwrap()
    }

    fn has(text: &str, line: &str) {
        assert!(
            text.lines().any(|other| other == line),
            "no {line} in {text}"
        );
    }

    fn recorded() -> Metrics {
        let metrics = Metrics::default();
        let timing = Timing {
            fork: Duration::from_micros(90),
            exec: Duration::from_millis(3),
            served: Served::Parked,
            ..Timing::default()
        };
        metrics.answered(&name("f"), StatusCode::OK, Some(&timing));
        let effort = Effort {
            exits: 2,
            page_faults: 7,
            reset: Some(ResetEffort {
                took: Duration::from_micros(80),
                ..ResetEffort::default()
            }),
        };
        metrics.retired(&name("f"), &effort);
        metrics.charged(&name("f"), Duration::from_millis(250));
        metrics.charged(&name("f"), Duration::from_millis(500));
        metrics.answered(&name("f"), StatusCode::IM_A_TEAPOT, None);
        let trap = Failure::Invoke(InvokeError::Trap {
            report: "wasm trap: wasm `unreachable` instruction executed in function 'x'".into(),
        });
        metrics.failed(&name("g"), &trap, &trap.problem());
        metrics.unknown();
        metrics.deployed(true);
        metrics
    }

    #[test]
    fn what_is_recorded_is_in_the_text() {
        let stats = EngineStats {
            shells: 2,
            preset: 1,
            stock: StockStats {
                wanted: 6,
                low: 4,
                high: 32,
                hits: 90,
                misses: 10,
            },
            groups: GroupStats {
                free: 11,
                used: 7,
                free_max: 256,
                hits: 80,
                misses: 18,
            },
            memory: MemoryStats {
                used: Some(5000),
                max: 6000,
                out_of_memory: 2,
            },
            parked: 4,
            busy: 1,
            waiting: 6,
            evicted: 5,
            memory_taken: 700,
            forbidden_calls: 3,
            seed_bytes: 300,
            parked_bytes: 200,
            seed_budget: u64::MAX,
            function_budget: 1000,
        };
        let backlog = Backlog::new(BacklogLimits::default());
        let connection = backlog.connection();
        connection.take(42);
        let text = recorded().text(2, 1, stats, &backlog);
        for line in [
            r#"faasw_requests_total{function="f",status="200"} 1"#,
            r#"faasw_requests_total{function="f",status="418"} 1"#,
            r#"faasw_requests_total{function="g",status="502"} 1"#,
            r#"faasw_requests_total{function="",status="404"} 1"#,
            r#"faasw_failures_total{function="g",problem="trapped"} 1"#,
            r#"faasw_traps_total{function="g",kind="unreachable"} 1"#,
            r#"faasw_request_stage_seconds_bucket{le="0.0001",stage="fork"} 1"#,
            r#"faasw_request_stage_seconds_bucket{le="0.0025",stage="exec"} 0"#,
            r#"faasw_request_stage_seconds_bucket{le="0.0001",stage="reset"} 1"#,
            r#"faasw_page_faults_total{function="f"} 7"#,
            r#"faasw_vm_exits_total{function="f"} 2"#,
            r#"faasw_instance_cpu_seconds_total{function="f"} 0.75"#,
            r#"faasw_served_total{function="f",by="parked"} 1"#,
            r#"faasw_microvms{state="parked"} 4"#,
            r#"faasw_shells{state="bare"} 1"#,
            r#"faasw_shells{state="preset"} 1"#,
            r#"faasw_shells_wanted{mark="low"} 4"#,
            r#"faasw_shells_wanted{mark="now"} 6"#,
            r#"faasw_shells_wanted{mark="high"} 32"#,
            r#"faasw_shell_takes_total{result="hit"} 90"#,
            r#"faasw_shell_takes_total{result="miss"} 10"#,
            r#"faasw_groups{state="free"} 11"#,
            r#"faasw_groups{state="used"} 7"#,
            "faasw_groups_free_max 256",
            r#"faasw_group_takes_total{result="hit"} 80"#,
            r#"faasw_group_takes_total{result="miss"} 18"#,
            "faasw_instance_memory_used_bytes 5000",
            "faasw_instance_memory_max_bytes 6000",
            "faasw_out_of_memory_total 2",
            r#"faasw_memory_held_bytes{of="seeds"} 300"#,
            r#"faasw_memory_held_bytes{of="parked"} 200"#,
            r#"faasw_memory_held_bytes{of="busy"} 700"#,
            r#"faasw_memory_held_bytes{of="undelivered"} 42"#,
            r#"faasw_memory_budget_bytes{of="undelivered"} 134217728"#,
            "faasw_requests_waiting 6",
            "faasw_evicted_total 5",
            "faasw_slow_connections_closed_total 0",
            r#"faasw_memory_budget_bytes{of="seeds"} 9223372036854775807"#,
            r#"faasw_memory_budget_bytes{of="function"} 1000"#,
            r#"faasw_deployments_total{result="done"} 1"#,
            "faasw_forbidden_calls_total 3",
            "faasw_functions 2",
            "faasw_requests_under_way 1",
            "# EOF",
        ] {
            has(&text, line);
        }
    }

    #[test]
    fn a_functions_series_go_with_it() {
        let metrics = recorded();
        metrics.forget(&name("f"));
        metrics.forget(&name("g"));
        let backlog = Backlog::new(BacklogLimits::default());
        let text = metrics.text(0, 0, EngineStats::default(), &backlog);
        assert!(
            !text.contains(r#"function="f""#) && !text.contains(r#"function="g""#),
            "{text}"
        );
    }
}
