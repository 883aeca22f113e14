//! The summary of a node's metrics for people, as `faasw stats` shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A summary of a node's metrics since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSummary {
    /// The number of functions.
    pub functions: u64,
    /// Requests in instances now.
    pub under_way: u64,
    /// Requests for names that no function has.
    pub unknown: u64,
    /// Processes that were ended because of a system call that their jail does not allow.
    pub forbidden_calls: u64,
    /// Attempts to reset an instance after a request: `done`, or `failed`, which ends the instance.
    #[serde(default)]
    pub resets: BTreeMap<String, u64>,
    /// Seeds for which the node makes no more specialised zygotes, because that failed too often.
    #[serde(default)]
    pub abandoned_parents: u64,
    /// The confinement of each microVM: `full`, `reduced` or `in-process`. Empty if the node's
    /// version does not report it.
    #[serde(default)]
    pub confinement: String,
    /// MicroVMs by state.
    pub microvms: BTreeMap<String, u64>,
    /// Instances that are to be warm ahead of requests but are missing, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacking: BTreeMap<String, u64>,
    /// The zygotes.
    pub zygotes: ZygoteSummary,
    /// The control groups that are kept.
    pub groups: GroupSummary,
    /// Bytes of memory by account: `seeds`, `warm` instances, instances at work (`busy`), and
    /// bytes that wait for clients or come from them (`undelivered`).
    pub memory: BTreeMap<String, u64>,
    /// Budgets in bytes: `undelivered` of the node, `seeds` of all functions, and the budget of one
    /// `function` between requests.
    pub memory_budget: BTreeMap<String, u64>,
    /// Bytes that the processes of all microVMs and compilations use together: `used`, which is 0
    /// if no control group reports it, and `max`.
    pub instance_memory: BTreeMap<String, u64>,
    /// Processes that the kernel ended because memory ran out.
    pub out_of_memory: u64,
    /// Deployments by result.
    pub deployments: BTreeMap<String, u64>,
    /// The statistics of each function, by name.
    pub by_function: BTreeMap<String, FunctionSummary>,
    /// The durations of the stages of answered requests, in the order of the stages.
    pub stages: Vec<StageSummary>,
}

/// Statistics of zygotes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ZygoteSummary {
    /// Ready zygotes by state: `generic`, or `specialised` for a seed from which functions descend.
    pub ready: BTreeMap<String, u64>,
    /// Targets for the number of ready zygotes: `low` at least, `now` by demand, `high` at most.
    pub wanted: BTreeMap<String, u64>,
    /// Instances that took a zygote, by result: `hit` if it was ready, `miss` if the instance had
    /// to wait for it.
    pub takes: BTreeMap<String, u64>,
}

/// Statistics of the control groups of jails, which are kept for reuse.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Groups by state: `free` for the next jail, or `used` by one.
    pub count: BTreeMap<String, u64>,
    /// The maximum number of free groups that are kept.
    pub free_max: u64,
    /// Jails that took a group, by result: `hit` if it was free, `miss` if it had to be made.
    pub takes: BTreeMap<String, u64>,
}

/// The statistics of one function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionSummary {
    /// Requests by status.
    pub requests: BTreeMap<String, u64>,
    /// Failed requests by the type of problem: those that the node itself answered, and those whose
    /// response was cut off.
    pub problems: BTreeMap<String, u64>,
    /// Traps by kind.
    pub traps: BTreeMap<String, u64>,
    /// Requests by the kind of microVM that served them.
    pub served: BTreeMap<String, u64>,
    /// Page faults of the function's instances.
    pub page_faults: u64,
    /// VM exits of the function's instances.
    pub vm_exits: u64,
}

/// The durations of one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageSummary {
    /// The stage: `queue`, `fork`, `init`, `exec`, `run` or `reset`.
    pub stage: String,
    /// The number of measured requests.
    pub count: u64,
    /// The mean in seconds.
    pub mean: f64,
    /// The median in seconds, with the precision of the histogram's buckets.
    pub median: f64,
    /// The 99th percentile in seconds, with the same precision.
    pub p99: f64,
}
