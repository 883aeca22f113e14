//! The labels of the metrics, and how metrics are made and set.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    hash::Hash,
    sync::atomic::Ordering,
};

use faasw_client::FunctionName;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
    },
    registry::{Metric, Registry, Unit},
};

/// A label and its value, for metrics that have no function.
pub(super) type Label = [(&'static str, &'static str); 1];

/// A function by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameLabel(FunctionName);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StatusLabels {
    /// The function that a request was for; Prometheus treats an empty label as a missing one.
    pub(super) function: Option<NameLabel>,
    pub(super) status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProblemLabels {
    pub(super) function: Option<NameLabel>,
    pub(super) problem: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TrapLabels {
    pub(super) function: NameLabel,
    pub(super) kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FunctionLabels {
    pub(super) function: NameLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ServedLabels {
    pub(super) function: NameLabel,
    pub(super) by: &'static str,
}

/// Outbound calls of a function by result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutboundLabels {
    pub(super) function: NameLabel,
    pub(super) result: &'static str,
}

impl From<&FunctionName> for NameLabel {
    fn from(name: &FunctionName) -> Self {
        Self(name.clone())
    }
}

impl EncodeLabelValue for NameLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.0.as_str())
    }
}

/// Creates a metric and registers it.
pub(super) fn registered<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Creates a metric and registers it with the unit of its values.
pub(super) fn registered_in<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    unit: Unit,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register_with_unit(name, help, unit, metric.clone());
    metric
}

/// Sets a gauge to a count.
pub(super) fn set(gauge: &Gauge, count: impl TryInto<i64>) {
    gauge.set(count.try_into().unwrap_or(i64::MAX));
}

/// Raises a counter to a total. A concurrent scrape may have set a newer one.
pub(super) fn raise(counter: &Counter, total: u64) {
    counter.inner().fetch_max(total, Ordering::Relaxed);
}

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

/// Metrics that differ in one label, which has fixed values.
#[derive(Debug)]
pub(super) struct LabelledMetrics<M, const N: usize> {
    labels: [Label; N],
    family: Family<Label, M>,
}

impl<M: CountedMetric + Default, const N: usize> LabelledMetrics<M, N> {
    /// Returns the metrics of a registered family.
    pub(super) fn new(
        key: &'static str,
        values: [&'static str; N],
        family: Family<Label, M>,
    ) -> Self {
        Self {
            labels: values.map(|value| [(key, value)]),
            family,
        }
    }

    /// Returns the counts by value, without values that were never counted.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        counted(
            &self.family,
            self.labels.map(|label @ [(_, value)]| (value, label)),
        )
    }
}

impl<const N: usize> LabelledMetrics<Gauge, N> {
    /// Sets the gauges, in the order of the values.
    pub(super) fn set(&self, counts: [impl TryInto<i64>; N]) {
        for (label, count) in self.labels.iter().zip(counts) {
            set(&self.family.get_or_create(label), count);
        }
    }
}

impl<const N: usize> LabelledMetrics<Counter, N> {
    /// Increments the counter of this value.
    pub(super) fn increment(&self, value: &str) {
        if let Some(label) = self.labels.iter().find(|[(_, other)]| *other == value) {
            self.family.get_or_create(label).inc();
        }
    }

    /// Raises the counters to totals, in the order of the values.
    pub(super) fn raise(&self, totals: [u64; N]) {
        for (label, total) in self.labels.iter().zip(totals) {
            raise(&self.family.get_or_create(label), total);
        }
    }
}
