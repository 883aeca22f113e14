//! Metrics for people: `faasw stats`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a node has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Functions that the node has.
    pub functions: u64,
    /// Requests in instances now.
    pub under_way: u64,
    /// Requests for names that are no function's.
    pub unknown: u64,
    /// Processes that were ended for a system call that their jail does not allow.
    pub forbidden_calls: u64,
    /// Instances that were to be reset after a request: `done`, or `failed` and ended instead.
    #[serde(default)]
    pub resets: BTreeMap<String, u64>,
    /// Seeds that no more zygotes are preset with, because that failed too often.
    #[serde(default)]
    pub abandoned_parents: u64,
    /// The confinement of each microVM: `full`, `reduced` or `in-process`; empty if the node is of
    /// a version that does not report it.
    #[serde(default)]
    pub confinement: String,
    /// VMs by state.
    pub microvms: BTreeMap<String, u64>,
    /// Instances that are to be parked ahead of requests and are not, by what keeps them from being
    /// made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacking: BTreeMap<String, u64>,
    /// Zygotes.
    pub zygotes: ZygoteSummary,
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

/// Zygotes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ZygoteSummary {
    /// Ready ones, by state: `bare`, or `preset` with a seed that functions descend
    /// from.
    pub ready: BTreeMap<String, u64>,
    /// How many are to be ready: `low` at least, `now` by demand, `high` at most.
    pub wanted: BTreeMap<String, u64>,
    /// Instances that took one, by result: a `hit` if it was ready, a `miss` if it was
    /// made while they waited.
    pub takes: BTreeMap<String, u64>,
}

/// Control groups of jails, which are kept for the next ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Groups by state: `free` for the next jail, or `used` by one.
    pub count: BTreeMap<String, u64>,
    /// Groups that are kept free at most.
    pub free_max: u64,
    /// Jails that took one, by result: a `hit` if it was free, a `miss` if it was made.
    pub takes: BTreeMap<String, u64>,
}

/// What one function has answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
