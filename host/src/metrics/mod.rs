//! The node's metrics, for Prometheus and for `faasw stats`.
//!
//! The node records requests and deployments here as they end. Numbers of functions and microVMs
//! are read when the metrics are. The format is OpenMetrics text. It is served on the admin socket
//! and, if the node has an address for it, on a listener of its own, but never beside functions.
//! The number of series is bounded: statuses, problems and kinds are fixed sets, and a function's
//! series are removed with the function.

mod admission;
mod counted;
mod labels;
mod pools;
mod summary;
mod times;

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use faasw_pool::{Backlog, Effort, InvokeError, PoolStats, Served, Timing, TrapKind};
use http::StatusCode;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{Registry, Unit},
};

pub use faasw_client::{FunctionSummary, GroupSummary, NodeSummary, StageSummary, ZygoteSummary};

use faasw_client::{FunctionName, Problem};

use crate::{failure::Failure, log};
use admission::AdmissionMetrics;
use labels::{
    BUDGETS, FunctionLabel, FunctionLabels, HELD, LevelLabels, MemoryLabels, OUTBOUND,
    OutboundLabels, OutcomeLabels, ProblemLabels, STAGES, ServedLabels, StageLabels, StateLabels,
    StatusLabels, TrapLabels, whole,
};
use pools::PoolMetrics;
use times::TimeHistogram;

/// The values that are only known when the metrics are read.
pub(crate) struct CurrentValues<'a> {
    /// The existing functions.
    pub(crate) functions: &'a [FunctionName],
    /// The number of requests in instances.
    pub(crate) under_way: usize,
    pub(crate) vms: PoolStats,
    pub(crate) backlog: &'a Backlog,
}

/// Counters and gauges of one node.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<StatusLabels, Counter>,
    failures: Family<ProblemLabels, Counter>,
    traps: Family<TrapLabels, Counter>,
    page_faults: Family<FunctionLabels, Counter>,
    exits: Family<FunctionLabels, Counter>,
    cpu: Family<FunctionLabels, Counter<f64>>,
    served: Family<ServedLabels, Counter>,
    outbound: Family<OutboundLabels, Counter>,
    /// The histograms of the stages, in the order of [`STAGES`].
    stages: [TimeHistogram; 6],
    deployments: Family<OutcomeLabels, Counter>,
    functions: Gauge,
    under_way: Gauge,
    microvms: Family<StateLabels, Gauge>,
    pools: PoolMetrics,
    admission: AdmissionMetrics,
    forbidden_calls: Counter,
    log_suppressed: Counter,
    confinement: Family<LevelLabels, Gauge>,
    memory_held: Family<MemoryLabels, Gauge>,
    memory_budget: Family<MemoryLabels, Gauge>,
    /// Every problem that ever occurred, because a function's series are removed by name.
    problems: Mutex<BTreeSet<&'static str>>,
}

impl Metrics {
    /// Records a request that its function has answered. `timing` is `None` if the rest of the
    /// response is still to come.
    pub(crate) fn record_answer(
        &self,
        function: &FunctionName,
        status: StatusCode,
        timing: Option<&Timing>,
    ) {
        self.count(FunctionLabel::Named(function.into()), status);
        if let Some(timing) = timing {
            self.record_run(function, timing);
        }
    }

    /// Records the times of an instance that has finished a request: with its response, or with the
    /// stream after it.
    pub(crate) fn record_run(&self, function: &FunctionName, timing: &Timing) {
        let stages = [
            timing.queue,
            timing.fork,
            timing.init,
            timing.exec,
            timing.run,
        ];
        for (histogram, took) in self.stages.iter().zip(stages) {
            histogram.observe(took);
        }
        let of = ServedLabels {
            function: function.into(),
            by: timing.served.name(),
        };
        self.served.get_or_create(&of).inc();
    }

    /// Records the effort of an instance that has stopped by itself after its request.
    pub(crate) fn record_retirement(&self, function: &FunctionName, effort: &Effort) {
        let of = FunctionLabels {
            function: function.into(),
        };
        self.page_faults
            .get_or_create(&of)
            .inc_by(effort.page_faults);
        self.exits.get_or_create(&of).inc_by(effort.exits);
        if let (Some(reset), [.., resets]) = (effort.reset, &self.stages) {
            resets.observe(reset.took);
        }
    }

    /// Records the CPU time of an instance for a request, whatever its result.
    pub(crate) fn record_cpu_time(&self, function: &FunctionName, cpu: Duration) {
        let of = FunctionLabels {
            function: function.into(),
        };
        self.cpu.get_or_create(&of).inc_by(cpu.as_secs_f64());
    }

    /// Records an outbound call of a function, made or refused.
    pub(crate) fn record_outbound_call(&self, function: &FunctionName, is_made: bool) {
        let [made, refused] = OUTBOUND;
        let of = OutboundLabels {
            function: function.into(),
            result: if is_made { made } else { refused },
        };
        self.outbound.get_or_create(&of).inc();
    }

    /// Records a request that the node answered with a problem.
    pub(crate) fn record_failure(
        &self,
        function: &FunctionName,
        failure: &Failure,
        problem: &Problem,
    ) {
        self.failure(
            FunctionLabel::Named(function.into()),
            problem.slug,
            problem.status,
        );
        self.trapped(function, failure);
    }

    /// Records a response that was cut off after it had begun, or whose handler failed after it.
    /// The request was counted when its response began.
    pub(crate) fn record_cut_off(&self, function: &FunctionName, failure: &Failure) {
        let problem = failure.slug();
        self.problems().insert(problem);
        let function_label = FunctionLabel::Named(function.into());
        self.failures
            .get_or_create(&ProblemLabels {
                function: function_label,
                problem,
            })
            .inc();
        self.trapped(function, failure);
    }

    fn trapped(&self, function: &FunctionName, failure: &Failure) {
        if let Failure::Invoke(InvokeError::Trap { kind, .. }) = failure {
            let of = TrapLabels {
                function: function.into(),
                kind: kind.name(),
            };
            self.traps.get_or_create(&of).inc();
        }
    }

    /// Records a request for a function that does not exist. The client has invented its name, so
    /// the name is not a label.
    pub(crate) fn record_unknown_function(&self) {
        self.failure(
            FunctionLabel::Unknown,
            "unknown-function",
            StatusCode::NOT_FOUND,
        );
    }

    /// Records the end of a deployment.
    pub(crate) fn record_deployment(&self, well: bool) {
        let result = if well { "done" } else { "failed" };
        self.deployments
            .get_or_create(&OutcomeLabels { result })
            .inc();
    }

    /// Removes the series of a function that was removed.
    pub(crate) fn remove_function(&self, function: &FunctionName) {
        let named = FunctionLabel::Named(function.into());
        for status in 100..600 {
            self.requests.remove(&StatusLabels {
                function: named.clone(),
                status,
            });
        }
        for problem in self.problems().iter() {
            self.failures.remove(&ProblemLabels {
                function: named.clone(),
                problem,
            });
        }
        for kind in TrapKind::ALL {
            let of = TrapLabels {
                function: function.into(),
                kind: kind.name(),
            };
            self.traps.remove(&of);
        }
        let of = FunctionLabels {
            function: function.into(),
        };
        self.page_faults.remove(&of);
        self.exits.remove(&of);
        self.cpu.remove(&of);
        for result in OUTBOUND {
            let function = function.into();
            self.outbound.remove(&OutboundLabels { function, result });
        }
        for by in Served::ALL.map(Served::name) {
            let function = function.into();
            self.served.remove(&ServedLabels { function, by });
        }
    }

    /// Returns all metrics as OpenMetrics text.
    pub(crate) fn encode_text(&self, now: &CurrentValues<'_>) -> String {
        self.set(now);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Updates the values that are only known when the metrics are read.
    fn set(&self, now: &CurrentValues<'_>) {
        let CurrentValues { vms, backlog, .. } = now;
        self.functions.set(whole(now.functions.len()));
        self.under_way.set(whole(now.under_way));
        for (state, count) in [
            ("zygote", vms.zygotes),
            ("warm", vms.warm),
            ("busy", vms.busy),
        ] {
            self.microvms
                .get_or_create(&StateLabels { state })
                .set(whole(count));
        }
        self.pools.set(vms);
        self.admission.set(vms, backlog);
        let level = vms.confinement.name();
        self.confinement
            .get_or_create(&LevelLabels { level })
            .set(1);
        for (counter, count) in [
            (&self.forbidden_calls, vms.forbidden_calls),
            (&self.log_suppressed, log::suppressed()),
        ] {
            counter.inner().fetch_max(count, Ordering::Relaxed);
        }
        let held = [
            vms.seed_bytes,
            vms.warm_bytes,
            vms.memory_taken,
            backlog.held(),
        ];
        let budgets = [backlog.limits().node, vms.seed_budget, vms.function_budget];
        for (of, bytes) in HELD.into_iter().zip(held) {
            self.memory_held
                .get_or_create(&MemoryLabels { of })
                .set(whole(bytes));
        }
        for (of, bytes) in BUDGETS.into_iter().zip(budgets) {
            self.memory_budget
                .get_or_create(&MemoryLabels { of })
                .set(whole(bytes));
        }
    }

    fn failure(&self, function: FunctionLabel, problem: &'static str, status: StatusCode) {
        self.problems().insert(problem);
        self.count(function.clone(), status);
        self.failures
            .get_or_create(&ProblemLabels { function, problem })
            .inc();
    }

    fn count(&self, function: FunctionLabel, status: StatusCode) {
        let status = status.as_u16();
        self.requests
            .get_or_create(&StatusLabels { function, status })
            .inc();
    }

    fn problems(&self) -> std::sync::MutexGuard<'_, BTreeSet<&'static str>> {
        // Each change is a single call, so a panic leaves nothing incomplete.
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let stages = Family::<StageLabels, TimeHistogram>::default();
        let mut metrics = Self {
            registry: Registry::with_prefix("faasw"),
            requests: Family::default(),
            failures: Family::default(),
            traps: Family::default(),
            page_faults: Family::default(),
            exits: Family::default(),
            cpu: Family::default(),
            outbound: Family::default(),
            served: Family::default(),
            stages: STAGES.map(|stage| stages.get_or_create_owned(&StageLabels { stage })),
            deployments: Family::default(),
            functions: Gauge::default(),
            under_way: Gauge::default(),
            microvms: Family::default(),
            pools: PoolMetrics::default(),
            admission: AdmissionMetrics::default(),
            forbidden_calls: Counter::default(),
            log_suppressed: Counter::default(),
            confinement: Family::default(),
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
            "Time of answered requests: queue waits for a microVM, fork makes it an instance, init \
             resumes it, exec is the function, run all from its activation to its end, reset \
             brings it back afterwards",
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
            "Exits of instances to their sandboxes, over answered requests",
            metrics.exits.clone(),
        );
        registry.register_with_unit(
            "instance_cpu",
            "CPU time that instances used for requests, by the system's account: answered ones, \
             failed ones and those that their clients left, with what bringing an instance back or \
             ending it took",
            Unit::Seconds,
            metrics.cpu.clone(),
        );
        registry.register(
            "outbound_requests",
            "Requests that functions made of others, and such as were refused: not granted, or too \
             many at once",
            metrics.outbound.clone(),
        );
        registry.register(
            "microvms",
            "VMs by state: a zygote, warm (waiting for a request), busy with one",
            metrics.microvms.clone(),
        );
        metrics.pools.register(registry);
        metrics.admission.register(registry);
        registry.register_with_unit(
            "memory_held",
            "What functions hold between requests, by account: layers of their seeds, private \
             pages of their warm instances",
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
            "Answered requests by the kind of microVM: warm, ready but not run yet, a zygote, \
             one made for it",
            metrics.served.clone(),
        );
        registry.register(
            "forbidden_calls",
            "Processes that were ended for a system call that their jail does not allow: somebody \
             broke out of a microVM or of the compiler",
            metrics.forbidden_calls.clone(),
        );
        registry.register(
            "log_suppressed",
            "Events that the log of this process does not have: there were too many of one cause",
            metrics.log_suppressed.clone(),
        );
        registry.register(
            "confinement",
            "The confinement of microVMs, by level: full, reduced or in-process",
            metrics.confinement.clone(),
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
mod tests;
