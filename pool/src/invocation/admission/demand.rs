//! Demand that decays with time.

use std::time::Duration;

use tokio::time::Instant;

/// Time in which demand that is not renewed falls to half: longer than the pauses of a client that
/// sends a request once in a while, short enough that capacity does not idle for minutes.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Time from one decay to the next: 1 % of the half-life, and long enough that most requests
/// compute none.
const STEP: Duration = Duration::from_millis(100);

/// A number of steps since a clock was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step(u128);

/// Counts steps. All shares that are added up must decay by one clock.
#[derive(Debug)]
pub struct StepClock(Instant);

/// A share of the capacity that halves every [`HALF_LIFE`].
#[derive(Clone, Copy, Debug)]
pub struct DecayingShare {
    value: f64,
    at: Step,
}

impl StepClock {
    /// Returns a clock that begins now.
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Returns the current step.
    pub fn now(&self) -> Step {
        Step(self.0.elapsed().as_millis() / STEP.as_millis())
    }
}

impl DecayingShare {
    /// Returns a share of zero.
    pub fn zero(now: Step) -> Self {
        Self {
            value: 0.0,
            at: now,
        }
    }

    /// Returns what the share has decayed to by `now`.
    pub fn at(self, now: Step) -> f64 {
        // A thread that read the clock later may have been here before.
        let steps = now.0.saturating_sub(self.at.0);
        if steps == 0 {
            return self.value;
        }
        let half_lives = steps as f64 * STEP.as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.value * (-half_lives).exp2()
    }

    /// Sets the share to `value`.
    pub fn set(&mut self, value: f64, now: Step) {
        let at = Step(now.0.max(self.at.0));
        *self = Self { value, at };
    }

    /// Adds `change`, which may be negative. The share does not become negative.
    pub fn add(&mut self, change: f64, now: Step) {
        self.set((self.at(now) + change).max(0.0), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_share_halves_with_each_half_life() {
        let clock = StepClock::new();
        let mut share = DecayingShare::zero(clock.now());
        share.add(0.5, clock.now());
        share.add(-0.25, clock.now());
        assert_eq!(share.at(clock.now()), 0.25);
        tokio::time::advance(STEP / 2).await;
        assert_eq!(share.at(clock.now()), 0.25);
        tokio::time::advance(HALF_LIFE - STEP / 2).await;
        assert_eq!(share.at(clock.now()), 0.125);
        share.add(-1.0, clock.now());
        assert_eq!(share.at(clock.now()), 0.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sum_decays_as_its_parts_do() {
        let clock = StepClock::new();
        let [mut one, mut other, mut sum] = [DecayingShare::zero(clock.now()); 3];
        for round in 0..200 {
            let share = if round % 2 == 0 { &mut one } else { &mut other };
            for change in [0.5, -0.25, 0.125] {
                share.add(change, clock.now());
                sum.add(change, clock.now());
                tokio::time::advance(Duration::from_millis(17)).await;
            }
        }
        let parts = one.at(clock.now()) + other.at(clock.now());
        assert!((sum.at(clock.now()) - parts).abs() < 1e-9);
    }
}
