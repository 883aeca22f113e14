//! Metrics of resources that are made ahead of requests or kept for the next one: zygotes and the
//! control groups of jails, with their numbers and hits. Also the memory of all of them.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use faasw_pool::{PoolStats, ShortfallCause};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{
    counted::counted,
    labels::{OutcomeLabels, ShortfallLabels, StateLabels, WatermarkLabels, whole},
};

/// The gauges and counters of the pools.
#[derive(Debug, Default)]
pub(super) struct PoolMetrics {
    pub(super) zygotes: Family<StateLabels, Gauge>,
    zygotes_wanted: Family<WatermarkLabels, Gauge>,
    pub(super) zygote_takes: Family<OutcomeLabels, Counter>,
    zygote_near_hits: Counter,
    zygote_parents: Gauge,
    zygote_specialise_failures: Counter,
    zygote_parents_abandoned: Counter,
    pub(super) resets: Family<OutcomeLabels, Counter>,
    lacking: Family<ShortfallLabels, Gauge>,
    pub(super) groups: Family<StateLabels, Gauge>,
    pub(super) groups_free_max: Gauge,
    pub(super) group_takes: Family<OutcomeLabels, Counter>,
    pub(super) memory_used: Gauge,
    pub(super) memory_max: Gauge,
    pub(super) out_of_memory: Counter,
}

impl PoolMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "zygotes",
            "Zygotes that are ready: generic ones, and those that are specialised for what \
             functions descend from",
            self.zygotes.clone(),
        );
        registry.register(
            "zygotes_wanted",
            "Zygotes that are to be ready: at least, now by demand, at most",
            self.zygotes_wanted.clone(),
        );
        registry.register(
            "zygote_takes",
            "Instances that took a zygote that was ready (hit), or a sandbox that was made while \
             they waited (miss)",
            self.zygote_takes.clone(),
        );
        registry.register(
            "zygote_near_hits",
            "Hits of zygotes that were specialised for the seed from which their instance is \
             forked most directly",
            self.zygote_near_hits.clone(),
        );
        registry.register(
            "zygote_parents",
            "Seeds that ready zygotes are specialised for",
            self.zygote_parents.clone(),
        );
        registry.register(
            "zygote_specialise_failures",
            "Zygotes that could not be specialised",
            self.zygote_specialise_failures.clone(),
        );
        registry.register(
            "zygote_parents_abandoned",
            "Seeds that no more zygotes are specialised for, because that failed too often",
            self.zygote_parents_abandoned.clone(),
        );
        registry.register(
            "resets",
            "Instances that were to be reset after a request: reset (done), or ended instead \
             (failed)",
            self.resets.clone(),
        );
        registry.register(
            "instances_lacking",
            "Instances that should be warm ahead of requests but are missing, by what keeps them \
             from being made",
            self.lacking.clone(),
        );
        registry.register(
            "groups",
            "Control groups of jails: free for the next, used by one",
            self.groups.clone(),
        );
        registry.register(
            "groups_free_max",
            "Control groups that are kept free at most",
            self.groups_free_max.clone(),
        );
        registry.register(
            "group_takes",
            "Jails that took a control group: one that was free (hit), or one made for it (miss)",
            self.group_takes.clone(),
        );
        registry.register(
            "instance_memory_used_bytes",
            "Memory that the processes of all microVMs and compilations take, seeds included; 0 \
             where no control group tells",
            self.memory_used.clone(),
        );
        registry.register(
            "instance_memory_max_bytes",
            "Memory that they may take together",
            self.memory_max.clone(),
        );
        registry.register(
            "out_of_memory",
            "MicroVMs and compilations that the system ended for want of memory",
            self.out_of_memory.clone(),
        );
    }

    /// Returns how many zygotes should be ready: at least, now by demand, at most.
    pub(super) fn wanted(&self) -> BTreeMap<String, u64> {
        let marks = ["low", "now", "high"];
        counted(
            &self.zygotes_wanted,
            marks.map(|mark| (mark, WatermarkLabels { mark })),
        )
    }

    /// Returns the number of seeds for which no more specialised zygotes are made.
    pub(super) fn abandoned_parents(&self) -> u64 {
        self.zygote_parents_abandoned.get()
    }

    /// Returns the number of missing instances ahead of requests by reason, without reasons that
    /// apply to none.
    pub(super) fn lacking(&self) -> BTreeMap<String, u64> {
        let all = ShortfallCause::ALL.map(|why| (why.name(), ShortfallLabels { why: why.name() }));
        let mut lacking = counted(&self.lacking, all);
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
        let bare = stats.zygotes.saturating_sub(stats.specialised);
        for (state, count) in [("generic", bare), ("specialised", stats.specialised)] {
            let of = StateLabels { state };
            self.zygotes.get_or_create(&of).set(whole(count));
        }
        for (mark, count) in [
            ("low", zygote_pool.low),
            ("now", zygote_pool.wanted),
            ("high", zygote_pool.high),
        ] {
            let of = WatermarkLabels { mark };
            self.zygotes_wanted.get_or_create(&of).set(whole(count));
        }
        for why in ShortfallCause::ALL {
            let of = ShortfallLabels { why: why.name() };
            let count = stats.shortfall.of(why);
            self.lacking.get_or_create(&of).set(whole(count));
        }
        for (state, count) in [("free", groups.free), ("used", groups.used)] {
            let of = StateLabels { state };
            self.groups.get_or_create(&of).set(whole(count));
        }
        self.zygote_parents.set(whole(zygote_pool.parents));
        for (counter, count) in [
            (&self.zygote_near_hits, zygote_pool.near),
            (
                &self.zygote_specialise_failures,
                zygote_pool.specialise_failures,
            ),
            (&self.zygote_parents_abandoned, zygote_pool.abandoned),
        ] {
            counter.inner().fetch_max(count, Ordering::Relaxed);
        }
        for (result, count) in [("done", stats.resets.done), ("failed", stats.resets.failed)] {
            let counter = self.resets.get_or_create(&OutcomeLabels { result });
            counter.inner().fetch_max(count, Ordering::Relaxed);
        }
        self.groups_free_max.set(whole(groups.free_max));
        self.memory_used.set(whole(memory.used.unwrap_or(0)));
        self.memory_max.set(whole(memory.max));
        self.out_of_memory
            .inner()
            .fetch_max(memory.out_of_memory, Ordering::Relaxed);
        for (takes, hits, misses) in [
            (&self.zygote_takes, zygote_pool.hits, zygote_pool.misses),
            (&self.group_takes, groups.hits, groups.misses),
        ] {
            for (result, count) in [("hit", hits), ("miss", misses)] {
                let counter = takes.get_or_create(&OutcomeLabels { result });
                counter.inner().fetch_max(count, Ordering::Relaxed);
            }
        }
    }
}
