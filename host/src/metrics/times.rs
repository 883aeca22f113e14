//! Durations of the stages of requests.
//!
//! The Prometheus client's own histogram can only be read by encoding it for Prometheus.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use faasw_client::StageSummary;
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// Upper bounds of the histograms' buckets in seconds: from the cost of a fork to the time that a
/// request may take.
const BUCKETS: [f64; 20] = [
    10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// A histogram of times. Clones share their data.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeHistogram(Arc<Mutex<HistogramData>>);

#[derive(Clone, Debug)]
struct HistogramData {
    /// Sum of all times in seconds.
    sum: f64,
    count: u64,
    /// Upper bounds in seconds, infinity last, and the number of times in each bucket alone.
    buckets: Vec<(f64, u64)>,
}

impl Default for HistogramData {
    fn default() -> Self {
        let bounds = BUCKETS.into_iter().chain([f64::INFINITY]);
        Self {
            sum: 0.0,
            count: 0,
            buckets: bounds.map(|bound| (bound, 0)).collect(),
        }
    }
}

impl TimeHistogram {
    pub(super) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let mut observed = self.observed();
        observed.sum += seconds;
        observed.count += 1;
        let mut buckets = observed.buckets.iter_mut();
        if let Some((_, count)) = buckets.find(|(bound, _)| *bound >= seconds) {
            *count += 1;
        }
    }

    /// Returns a summary for a stage, without the stage's name.
    pub(super) fn summary(&self) -> StageSummary {
        let observed = self.observed().clone();
        let count = observed.count as f64;
        StageSummary {
            stage: String::new(),
            count: observed.count,
            mean: if count > 0.0 {
                observed.sum / count
            } else {
                0.0
            },
            median: observed.quantile(0.5 * count),
            p99: observed.quantile(0.99 * count),
        }
    }

    fn observed(&self) -> MutexGuard<'_, HistogramData> {
        // Each change is by calls that do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HistogramData {
    /// Returns the value at a rank. Values are assumed to be evenly spread within their bucket, as
    /// in Prometheus.
    fn quantile(&self, rank: f64) -> f64 {
        let (mut from, mut below) = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            let upto = below + *count as f64;
            if upto >= rank && *count > 0 {
                if bound.is_infinite() {
                    return from;
                }
                return from + (bound - from) * (rank - below) / (upto - below);
            }
            (from, below) = (*bound, upto);
        }
        0.0
    }
}

impl TypedMetric for TimeHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for TimeHistogram {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        let HistogramData {
            sum,
            count,
            buckets,
        } = self.observed().clone();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
