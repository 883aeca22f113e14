//! Reading what families of metrics have counted.

use std::{collections::BTreeMap, hash::Hash};

use prometheus_client::metrics::{
    counter::Counter,
    family::{Family, MetricConstructor},
    gauge::Gauge,
};

/// Something that counts.
pub(super) trait Count {
    /// How many.
    fn count(&self) -> u64;
}

impl Count for Counter {
    fn count(&self) -> u64 {
        self.get()
    }
}

impl Count for Gauge {
    fn count(&self) -> u64 {
        // It is never below 0.
        u64::try_from(self.get()).unwrap_or(0)
    }
}

/// What a family has counted, by name. What it has never counted is left out.
pub(super) fn counted<S, M, C>(
    family: &Family<S, M, C>,
    labels: impl IntoIterator<Item = (&'static str, S)>,
) -> BTreeMap<String, u64>
where
    S: Clone + Eq + Hash,
    M: Count,
    C: MetricConstructor<M>,
{
    let counts = labels.into_iter().filter_map(|(name, label)| {
        let count = family.get(&label)?.count();
        Some((name.to_owned(), count))
    });
    counts.collect()
}
