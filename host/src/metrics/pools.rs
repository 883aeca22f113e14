//! Metrics of resources that are made ahead of requests or kept for the next one: zygotes and the
//! control groups of jails, with their numbers and hits. Also the memory of all of them.

use std::collections::BTreeMap;

use faasw_pool::{PoolStats, ShortfallCause};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

use super::labels::{LabelledMetrics, raise, registered, set};

/// The gauges and counters of the pools.
#[derive(Debug)]
pub(super) struct PoolMetrics {
    pub(super) zygotes: LabelledMetrics<Gauge, 2>,
    pub(super) zygotes_wanted: LabelledMetrics<Gauge, 3>,
    pub(super) zygote_takes: LabelledMetrics<Counter, 2>,
    zygote_near_hits: Counter,
    zygote_parents: Gauge,
    zygote_specialise_failures: Counter,
    pub(super) zygote_parents_abandoned: Counter,
    pub(super) resets: LabelledMetrics<Counter, 2>,
    lacking: LabelledMetrics<Gauge, { ShortfallCause::ALL.len() }>,
    pub(super) groups: LabelledMetrics<Gauge, 2>,
    pub(super) groups_free_max: Gauge,
    pub(super) group_takes: LabelledMetrics<Counter, 2>,
    pub(super) memory_used: Gauge,
    pub(super) memory_max: Gauge,
    pub(super) out_of_memory: Counter,
}

impl PoolMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            zygotes: LabelledMetrics::new(
                "state",
                ["generic", "specialised"],
                registered(
                    registry,
                    "zygotes",
                    "Ready zygotes: generic ones, and those specialised for a parent seed",
                ),
            ),
            zygotes_wanted: LabelledMetrics::new(
                "mark",
                ["low", "now", "high"],
                registered(
                    registry,
                    "zygotes_wanted",
                    "Target number of ready zygotes: at least, now by demand, at most",
                ),
            ),
            zygote_takes: LabelledMetrics::new(
                "result",
                ["hit", "miss"],
                registered(
                    registry,
                    "zygote_takes",
                    "Instances that took a ready zygote (hit), or a sandbox that was made while \
                     they waited (miss)",
                ),
            ),
            zygote_near_hits: registered(
                registry,
                "zygote_near_hits",
                "Hits of zygotes specialised for the nearest parent of the instance's seed",
            ),
            zygote_parents: registered(
                registry,
                "zygote_parents",
                "Seeds that ready zygotes are specialised for",
            ),
            zygote_specialise_failures: registered(
                registry,
                "zygote_specialise_failures",
                "Zygotes that could not be specialised",
            ),
            zygote_parents_abandoned: registered(
                registry,
                "zygote_parents_abandoned",
                "Seeds for which no more zygotes are specialised, after too many failures",
            ),
            resets: LabelledMetrics::new(
                "result",
                ["done", "failed"],
                registered(
                    registry,
                    "resets",
                    "Instances after a request: reset (done), or ended instead (failed)",
                ),
            ),
            lacking: LabelledMetrics::new(
                "why",
                ShortfallCause::ALL.map(ShortfallCause::name),
                registered(
                    registry,
                    "instances_lacking",
                    "Missing warm instances of --min-warm, by the reason why they are not made",
                ),
            ),
            groups: LabelledMetrics::new(
                "state",
                ["free", "used"],
                registered(
                    registry,
                    "groups",
                    "Control groups of jails: free, or used by a jail",
                ),
            ),
            groups_free_max: registered(
                registry,
                "groups_free_max",
                "Maximum number of free control groups that are kept",
            ),
            group_takes: LabelledMetrics::new(
                "result",
                ["hit", "miss"],
                registered(
                    registry,
                    "group_takes",
                    "Jails that took a free control group (hit), or a new one (miss)",
                ),
            ),
            memory_used: registered(
                registry,
                "instance_memory_used_bytes",
                "Memory of all microVMs and compilations, seeds included; 0 without control groups",
            ),
            memory_max: registered(
                registry,
                "instance_memory_max_bytes",
                "Memory that all microVMs and compilations may use",
            ),
            out_of_memory: registered(
                registry,
                "out_of_memory",
                "MicroVMs and compilations that the kernel ended for lack of memory",
            ),
        }
    }

    /// Returns the number of missing instances ahead of requests by reason, without reasons that
    /// apply to none.
    pub(super) fn lacking(&self) -> BTreeMap<String, u64> {
        let mut lacking = self.lacking.counts();
        lacking.retain(|_, count| *count > 0);
        lacking
    }

    /// Updates the metrics from the pool's statistics.
    pub(super) fn set(&self, stats: &PoolStats) {
        let PoolStats {
            zygote_pool,
            groups,
            memory,
            ..
        } = stats;
        let generic = stats.zygotes.saturating_sub(stats.specialised);
        self.zygotes.set([generic, stats.specialised]);
        let wanted = [zygote_pool.low, zygote_pool.wanted, zygote_pool.high];
        self.zygotes_wanted.set(wanted);
        let takes = [zygote_pool.hits, zygote_pool.misses];
        self.zygote_takes.raise(takes);
        raise(&self.zygote_near_hits, zygote_pool.near);
        set(&self.zygote_parents, zygote_pool.parents);
        let failures = zygote_pool.specialise_failures;
        raise(&self.zygote_specialise_failures, failures);
        raise(&self.zygote_parents_abandoned, zygote_pool.abandoned);
        self.resets.raise([stats.resets.done, stats.resets.failed]);
        self.lacking
            .set(ShortfallCause::ALL.map(|why| stats.shortfall.of(why)));
        self.groups.set([groups.free, groups.used]);
        set(&self.groups_free_max, groups.free_max);
        self.group_takes.raise([groups.hits, groups.misses]);
        set(&self.memory_used, memory.used.unwrap_or(0));
        set(&self.memory_max, memory.max);
        raise(&self.out_of_memory, memory.out_of_memory);
    }
}
