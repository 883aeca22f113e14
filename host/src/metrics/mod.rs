//! The node's metrics, for Prometheus and for `faasw stats`.
//!
//! The node records requests and deployments here as they end. Numbers of functions and microVMs
//! are read when the metrics are. The format is OpenMetrics text. It is served on the admin socket
//! and, if the node has an address for it, on a listener of its own, but never beside functions.
//! The number of series is bounded: statuses, problems and kinds are fixed sets, and a function's
//! series are removed with the function.

mod admission;
mod labels;
mod pools;
mod summary;
mod times;

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
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
    FunctionLabels, Label, LabelledMetrics, NameLabel, OutboundLabels, ProblemLabels, ServedLabels,
    StatusLabels, TrapLabels, raise, registered, registered_in, set,
};
use pools::PoolMetrics;
use times::TimeHistogram;

/// The stages of a request, in order.
const STAGES: [&str; 6] = ["queue", "fork", "init", "exec", "run", "reset"];

/// The results of outbound calls.
const OUTBOUND: [&str; 2] = ["made", "refused"];

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
    deployments: LabelledMetrics<Counter, 2>,
    functions: Gauge,
    under_way: Gauge,
    microvms: LabelledMetrics<Gauge, 3>,
    pools: PoolMetrics,
    admission: AdmissionMetrics,
    forbidden_calls: Counter,
    log_suppressed: Counter,
    confinement: Family<Label, Gauge>,
    memory_held: LabelledMetrics<Gauge, 4>,
    memory_budget: LabelledMetrics<Gauge, 3>,
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
        self.count(Some(function.into()), status);
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
        self.count(Some(function.into()), problem.status);
        self.failure(Some(function.into()), problem.slug);
        self.trapped(function, failure);
    }

    /// Records a response that was cut off after it had begun, or whose handler failed after it.
    /// The request was counted when its response began.
    pub(crate) fn record_cut_off(&self, function: &FunctionName, failure: &Failure) {
        self.failure(Some(function.into()), failure.slug());
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
        self.count(None, StatusCode::NOT_FOUND);
        self.failure(None, "unknown-function");
    }

    /// Records the end of a deployment.
    pub(crate) fn record_deployment(&self, well: bool) {
        self.deployments
            .increment(if well { "done" } else { "failed" });
    }

    /// Removes the series of a function that was removed.
    pub(crate) fn remove_function(&self, function: &FunctionName) {
        for status in 100..600 {
            let function = Some(function.into());
            self.requests.remove(&StatusLabels { function, status });
        }
        for problem in self.problems().iter() {
            let function = Some(function.into());
            self.failures.remove(&ProblemLabels { function, problem });
        }
        for kind in TrapKind::ALL.map(TrapKind::name) {
            let function = function.into();
            self.traps.remove(&TrapLabels { function, kind });
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
        set(&self.functions, now.functions.len());
        set(&self.under_way, now.under_way);
        self.microvms.set([vms.zygotes, vms.warm, vms.busy]);
        self.pools.set(vms);
        self.admission.set(vms, backlog);
        let level = [("level", vms.confinement.name())];
        self.confinement.get_or_create(&level).set(1);
        raise(&self.forbidden_calls, vms.forbidden_calls);
        raise(&self.log_suppressed, log::suppressed());
        self.memory_held.set([
            vms.seed_bytes,
            vms.warm_bytes,
            vms.memory_taken,
            backlog.held(),
        ]);
        let budgets = [backlog.limits().node, vms.seed_budget, vms.function_budget];
        self.memory_budget.set(budgets);
    }

    fn failure(&self, function: Option<NameLabel>, problem: &'static str) {
        self.problems().insert(problem);
        self.failures
            .get_or_create(&ProblemLabels { function, problem })
            .inc();
    }

    fn count(&self, function: Option<NameLabel>, status: StatusCode) {
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
        let mut all = Registry::with_prefix("faasw");
        let registry = &mut all;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of faasw", version);
        Self {
            functions: registered(registry, "functions", "Functions"),
            requests: registered(
                registry,
                "requests",
                "Answered requests, by function and status",
            ),
            under_way: registered(registry, "requests_under_way", "Requests in instances now"),
            failures: registered(
                registry,
                "failures",
                "Requests that the node answered with a problem, by its type",
            ),
            traps: registered(
                registry,
                "traps",
                "Requests that ended in a trap, by its kind",
            ),
            stages: {
                let stages: Family<Label, TimeHistogram> = registered_in(
                    registry,
                    "request_stage",
                    Unit::Seconds,
                    "Time of answered requests: queue waits for a microVM, fork makes it an \
                     instance, init resumes it, exec is the function, run all from activation to \
                     end, reset follows the response",
                );
                STAGES.map(|stage| stages.get_or_create_owned(&[("stage", stage)]))
            },
            page_faults: registered(
                registry,
                "page_faults",
                "Page faults of instances that KVM resolved, over answered requests",
            ),
            exits: registered(
                registry,
                "vm_exits",
                "Exits of instances to their sandboxes, over answered requests",
            ),
            cpu: registered_in(
                registry,
                "instance_cpu",
                Unit::Seconds,
                "CPU time of instances for requests, also failed and abandoned ones, with the \
                 reset or the end of the instance",
            ),
            outbound: registered(
                registry,
                "outbound_requests",
                "Outbound calls of functions: made, or refused for lack of a grant or because of a \
                 limit",
            ),
            microvms: LabelledMetrics::new(
                "state",
                ["zygote", "warm", "busy"],
                registered(
                    registry,
                    "microvms",
                    "MicroVMs by state: zygote, warm (waiting for a request), busy with one",
                ),
            ),
            pools: PoolMetrics::new(registry),
            admission: AdmissionMetrics::new(registry),
            memory_held: LabelledMetrics::new(
                "of",
                ["seeds", "warm", "busy", "undelivered"],
                registered_in(
                    registry,
                    "memory_held",
                    Unit::Bytes,
                    "Memory in use: layers of seeds, private pages of warm instances, worst case \
                     of busy ones, bytes that clients have not read",
                ),
            ),
            memory_budget: LabelledMetrics::new(
                "of",
                ["undelivered", "seeds", "function"],
                registered_in(
                    registry,
                    "memory_budget",
                    Unit::Bytes,
                    "Limits: bytes that clients have not read, all seeds, one function",
                ),
            ),
            served: registered(
                registry,
                "served",
                "Answered requests by the kind of microVM: warm, ready but not run yet, a zygote, \
                 one made for the request",
            ),
            forbidden_calls: registered(
                registry,
                "forbidden_calls",
                "Processes ended for a system call that their jail forbids: a break-out attempt",
            ),
            log_suppressed: registered(
                registry,
                "log_suppressed",
                "Events missing from the log of this process, because their cause had too many",
            ),
            confinement: registered(
                registry,
                "confinement",
                "The confinement of microVMs, by level: full, reduced or in-process",
            ),
            deployments: LabelledMetrics::new(
                "result",
                ["done", "failed"],
                registered(registry, "deployments", "Deployments, by result"),
            ),
            problems: Mutex::default(),
            registry: all,
        }
    }
}

#[cfg(test)]
mod tests;
