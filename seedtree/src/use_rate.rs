//! How often something is used, older uses counting less: what decides which seeds stay in
//! memory, and which of them sandboxes are kept ready for.

use std::time::{Duration, Instant};

/// How long ago a use counts half.
pub const HALF_LIFE: Duration = Duration::from_secs(60);

/// Uses in a unit of time, older ones counting less.
#[derive(Clone, Copy, Debug)]
pub struct UseRate {
    value: f64,
    at: Instant,
}

impl UseRate {
    /// Of what was used once, `now`.
    #[must_use]
    pub fn once(now: Instant) -> Self {
        Self {
            value: 1.0,
            at: now,
        }
    }

    /// What is left of it `now`.
    #[must_use]
    pub fn at(self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at);
        self.value * 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64())
    }

    /// It is used once more.
    pub fn add(&mut self, now: Instant) {
        self.value = self.at(now) + 1.0;
        // Two that looked at the clock may come here in the other order.
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
        // A clock that was looked at before takes nothing back.
        rate.add(start);
        assert!((rate.at(later + HALF_LIFE) - 1.25).abs() < 1e-9);
    }
}
