//! Metrics of overload: waiting requests, evictions and closed connections.

use std::sync::atomic::Ordering;

use faasw_pool::{Backlog, PoolStats};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::{Registry, Unit},
};

use super::labels::whole;

/// The gauges and counters of overload.
#[derive(Debug, Default)]
pub(super) struct AdmissionMetrics {
    waiting: Gauge,
    evicted: Counter,
    slow_connections: Counter,
    found: Counter,
    strayed: Counter,
    polling: Counter<f64>,
}

impl AdmissionMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "requests_waiting",
            "Requests that wait for a place among the instances",
            self.waiting.clone(),
        );
        registry.register(
            "evicted",
            "Requests that were cut while they waited for their clients, because others wanted \
             their places",
            self.evicted.clone(),
        );
        registry.register(
            "slow_connections_closed",
            "Connections that were closed because their clients took too little of too much",
            self.slow_connections.clone(),
        );
        registry.register(
            "requests_found",
            "Requests that a microVM found which looked for the next one by itself",
            self.found.clone(),
        );
        registry.register(
            "polling_strayed",
            "MicroVMs that were to look for the next request and did something else, and were \
             ended",
            self.strayed.clone(),
        );
        registry.register_with_unit(
            "polling_cpu",
            "CPU time that looking for the next request has taken",
            Unit::Seconds,
            self.polling.clone(),
        );
    }

    /// Updates the metrics from the pool's statistics and the backlog.
    pub(super) fn set(&self, stats: &PoolStats, backlog: &Backlog) {
        self.waiting.set(whole(stats.waiting));
        for (counter, count) in [
            (&self.evicted, stats.evicted),
            (&self.slow_connections, backlog.closed()),
            (&self.found, stats.polling.found),
            (&self.strayed, stats.polling.strayed),
        ] {
            counter.inner().fetch_max(count, Ordering::Relaxed);
        }
        let more = stats.polling.cpu.as_secs_f64() - self.polling.get();
        // A concurrent scrape may have set a newer value.
        self.polling.inc_by(more.max(0.0));
    }
}
