//! Order statistics, which are the only meaningful ones on a noisy machine.

use std::time::Duration;

use serde::Serialize;

/// Number of resamples of a bootstrap: enough for a steady second digit.
const RESAMPLES: usize = 2000;

/// Percentiles of a sample of durations, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// The value below which nine of ten lie.
    pub p90: f64,
    /// The value below which 99 of a hundred lie.
    pub p99: f64,
    /// Size of the sample.
    pub count: usize,
}

impl Percentiles {
    /// Returns the percentiles of `durations`; `None` if there are none.
    pub fn of(durations: &[Duration]) -> Option<Self> {
        let sample = Sample::new(durations.iter().map(|duration| microseconds(*duration)));
        Some(Self {
            p50: sample.quantile(0.5)?,
            p90: sample.quantile(0.9)?,
            p99: sample.quantile(0.99)?,
            count: durations.len(),
        })
    }
}

/// A ratio, as the median over pairs, and its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Median of the pairs' ratios.
    pub median: f64,
    /// Lower end of the interval that contains the median with 95 % confidence.
    pub low: f64,
    /// Upper end of that interval.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl Ratio {
    /// Returns the ratio of the first to the second over `pairs`; `None` if there are none.
    ///
    /// The interval is a percentile bootstrap over the pairs. Its random numbers are the same each
    /// time, so the same samples give the same result.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let ratios: Vec<f64> = pairs.iter().map(|(first, second)| first / second).collect();
        let median = Sample::new(ratios.iter().copied()).quantile(0.5)?;
        let mut random = fastrand::Rng::with_seed(0);
        let medians = Sample::new((0..RESAMPLES).filter_map(|_| {
            let resample = ratios
                .iter()
                .filter_map(|_| ratios.get(random.usize(..ratios.len())));
            Sample::new(resample.copied()).quantile(0.5)
        }));
        Some(Self {
            median,
            low: medians.quantile(0.025)?,
            high: medians.quantile(0.975)?,
            pairs: ratios.len(),
        })
    }
}

/// Returns the median of durations, in microseconds; `None` if there are none.
pub fn median(durations: &[Duration]) -> Option<f64> {
    Sample::new(durations.iter().map(|duration| microseconds(*duration))).quantile(0.5)
}

/// Returns the median of numbers; `None` if there are none.
pub fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Sample::new(values).quantile(0.5)
}

/// Returns a duration in microseconds.
pub fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Numbers in ascending order.
struct Sample(Vec<f64>);

impl Sample {
    fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// Returns the value below which a `share` of the sample lies, interpolated between its
    /// neighbours.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position in a vector: neither negative nor beyond 2^52"
    )]
    fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let position = share * last as f64;
        let below = *self.0.get(position.floor() as usize)?;
        let above = *self.0.get(position.ceil() as usize)?;
        Some(below + (above - below) * position.fract())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(microseconds: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        microseconds
            .into_iter()
            .map(Duration::from_micros)
            .collect()
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn percentiles_are_interpolated_and_do_not_depend_on_order() {
        let found = Percentiles::of(&durations((0..=100).rev())).unwrap();
        assert!(close(found.p50, 50.0) && close(found.p90, 90.0) && close(found.p99, 99.0));
        assert_eq!(found.count, 101);
        let two = Percentiles::of(&durations([10, 20])).unwrap();
        assert!(close(two.p50, 15.0) && close(two.p90, 19.0));
    }

    #[test]
    fn a_sample_of_one_is_all_of_its_percentiles() {
        let one = Percentiles::of(&durations([7])).unwrap();
        assert!(close(one.p50, 7.0) && close(one.p99, 7.0));
    }

    #[test]
    fn there_are_no_statistics_of_nothing() {
        assert_eq!(Percentiles::of(&[]), None);
        assert_eq!(Ratio::of(&[]), None);
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn one_disturbed_pair_does_not_move_the_ratio() {
        let mut pairs = vec![(3.0, 2.0); 20];
        pairs.push((300.0, 2.0));
        let ratio = Ratio::of(&pairs).unwrap();
        assert!(close(ratio.median, 1.5) && close(ratio.low, 1.5) && close(ratio.high, 1.5));
        assert_eq!(ratio.pairs, 21);
    }

    #[test]
    fn the_interval_holds_the_median_and_grows_with_the_spread() {
        let pairs = |spread: f64| -> Vec<(f64, f64)> {
            (0..41)
                .map(|i| (1.0 + spread * (f64::from(i) - 20.0) / 20.0, 1.0))
                .collect()
        };
        let narrow = Ratio::of(&pairs(0.01)).unwrap();
        let wide = Ratio::of(&pairs(0.5)).unwrap();
        for ratio in [narrow, wide] {
            assert!(ratio.low < ratio.median && ratio.median < ratio.high);
        }
        assert!(wide.high - wide.low > narrow.high - narrow.low);
    }

    #[test]
    fn the_same_samples_give_the_same_answer() {
        let pairs: Vec<(f64, f64)> = (1..30).map(|i| (f64::from(i), f64::from(30 - i))).collect();
        assert_eq!(Ratio::of(&pairs), Ratio::of(&pairs));
    }
}
