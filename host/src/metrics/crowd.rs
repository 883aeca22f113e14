//! What is done about too many at once: who waits, and who had to go.

use std::sync::atomic::Ordering;

use faasw_pool::{Backlog, PoolStats};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

use super::labels::whole;

/// Gauges and counters of it.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    waiting: Gauge,
    evicted: Counter,
    slow_connections: Counter,
}

impl Crowd {
    /// Has them told.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "requests_waiting",
            "Requests that wait for a place among the instances",
            self.waiting.clone(),
        );
        registry.register(
            "evicted",
            "Requests that were cut while they waited for their clients, because others wanted their places",
            self.evicted.clone(),
        );
        registry.register(
            "slow_connections_closed",
            "Connections that were closed because their clients took too little of too much",
            self.slow_connections.clone(),
        );
    }

    /// Takes what pool and backlog tell of themselves.
    pub(super) fn set(&self, stats: &PoolStats, backlog: &Backlog) {
        self.waiting.set(whole(stats.waiting));
        for (counter, count) in [
            (&self.evicted, stats.evicted),
            (&self.slow_connections, backlog.closed()),
        ] {
            counter.inner().fetch_max(count, Ordering::Relaxed);
        }
    }
}
