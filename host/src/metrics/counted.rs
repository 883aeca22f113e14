//! Reads the counts of metric families.

use std::{collections::BTreeMap, hash::Hash};

use prometheus_client::metrics::{
    counter::Counter,
    family::{Family, MetricConstructor},
    gauge::Gauge,
};

/// A metric with a count.
pub(super) trait CountedMetric {
    fn count(&self) -> u64;
}

impl CountedMetric for Counter {
    fn count(&self) -> u64 {
        self.get()
    }
}

impl CountedMetric for Gauge {
    fn count(&self) -> u64 {
        // The gauge is never below 0.
        u64::try_from(self.get()).unwrap_or(0)
    }
}

/// Returns the counts of a family by name, without labels that were never counted.
pub(super) fn counted<S, M, C>(
    family: &Family<S, M, C>,
    labels: impl IntoIterator<Item = (&'static str, S)>,
) -> BTreeMap<String, u64>
where
    S: Clone + Eq + Hash,
    M: CountedMetric,
    C: MetricConstructor<M>,
{
    let counts = labels.into_iter().filter_map(|(name, label)| {
        let count = family.get(&label)?.count();
        Some((name.to_owned(), count))
    });
    counts.collect()
}
