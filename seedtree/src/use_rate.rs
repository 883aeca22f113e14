//! The rate of use of something, in which older uses count less. It decides which seeds stay in
//! memory, and for which of them zygotes are kept ready.

use std::time::{Duration, Instant};

/// The age at which a use counts half.
pub const HALF_LIFE: Duration = Duration::from_secs(60);

/// Uses per unit of time, of which older ones count less.
#[derive(Clone, Copy, Debug)]
pub struct UseRate {
    value: f64,
    at: Instant,
}

impl UseRate {
    /// Returns the rate of something that was used once, `now`.
    #[must_use]
    pub fn once(now: Instant) -> Self {
        Self {
            value: 1.0,
            at: now,
        }
    }

    /// Returns the rate at the time `now`.
    #[must_use]
    pub fn at(self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at);
        self.value * 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64())
    }

    /// Records a use.
    pub fn add(&mut self, now: Instant) {
        self.value = self.at(now) + 1.0;
        // Two callers that have read the clock may arrive in the other order.
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_uses_count_less() {
        let start = Instant::now();
        let mut rate = UseRate::once(start);
        let later = start + HALF_LIFE;
        rate.add(later);
        assert!((rate.at(later) - 1.5).abs() < 1e-9);
        assert!((rate.at(later + HALF_LIFE) - 0.75).abs() < 1e-9);
        // An earlier clock value does not reduce the rate.
        rate.add(start);
        assert!((rate.at(later + HALF_LIFE) - 1.25).abs() < 1e-9);
    }
}
