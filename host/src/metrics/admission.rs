//! Metrics of overload: waiting requests, evictions and closed connections.

use faasw_pool::{Backlog, PoolStats};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::{Registry, Unit},
};

use super::labels::{raise, registered, registered_in, set};

/// The gauges and counters of overload.
#[derive(Debug)]
pub(super) struct AdmissionMetrics {
    waiting: Gauge,
    evicted: Counter,
    slow_connections: Counter,
    found: Counter,
    strayed: Counter,
    polling: Counter<f64>,
}

impl AdmissionMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            waiting: registered(
                registry,
                "requests_waiting",
                "Requests that wait for a permit to run",
            ),
            evicted: registered(
                registry,
                "evicted",
                "Requests that were ended while they waited for their clients, in favour of other \
                 requests",
            ),
            slow_connections: registered(
                registry,
                "slow_connections_closed",
                "Connections that were closed because their clients read too slowly",
            ),
            found: registered(
                registry,
                "requests_found",
                "Requests that a polling microVM found",
            ),
            strayed: registered(
                registry,
                "polling_strayed",
                "MicroVMs that were ended because they did not poll as ordered",
            ),
            polling: registered_in(
                registry,
                "polling_cpu",
                Unit::Seconds,
                "CPU time of polling for requests",
            ),
        }
    }

    /// Updates the metrics from the pool's statistics and the backlog.
    pub(super) fn set(&self, stats: &PoolStats, backlog: &Backlog) {
        set(&self.waiting, stats.waiting);
        raise(&self.evicted, stats.evicted);
        raise(&self.slow_connections, backlog.closed());
        raise(&self.found, stats.polling.found);
        raise(&self.strayed, stats.polling.strayed);
        let more = stats.polling.cpu.as_secs_f64() - self.polling.get();
        // A concurrent scrape may have set a newer value.
        self.polling.inc_by(more.max(0.0));
    }
}
