//! Admission capacity in two dimensions: invocations at once, and the memory that their
//! instances may use at worst.

/// An amount of admission capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Invocations.
    pub permits: usize,
    /// Bytes of memory.
    pub memory: u64,
}

impl Amount {
    /// Returns the amount that one invocation takes.
    pub fn one(memory: u64) -> Self {
        Self { permits: 1, memory }
    }

    /// Returns the sum of two amounts.
    pub fn plus(self, other: Self) -> Self {
        Self {
            permits: self.permits.saturating_add(other.permits),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    /// Returns what remains of this amount without `other`; zero in a dimension in which `other`
    /// is larger.
    pub fn minus(self, other: Self) -> Self {
        Self {
            permits: self.permits.saturating_sub(other.permits),
            memory: self.memory.saturating_sub(other.memory),
        }
    }

    /// Returns whether this amount is at most `other` in both dimensions.
    pub fn fits_in(self, other: Self) -> bool {
        self.permits <= other.permits && self.memory <= other.memory
    }

    /// Returns the dominant share of this amount in `total`: the larger of its shares in the two
    /// dimensions (dominant resource fairness, Ghodsi et al. 2011).
    pub fn share_of(self, total: Self) -> f64 {
        let permits = self.permits as f64 / total.permits.max(1) as f64;
        let memory = self.memory as f64 / total.memory.max(1) as f64;
        permits.max(memory)
    }

    /// Returns the part `share` of this amount, rounded down.
    pub fn part(self, share: f64) -> Self {
        Self {
            permits: (self.permits as f64 * share) as usize,
            memory: (self.memory as f64 * share) as u64,
        }
    }

    /// Returns the larger of two amounts in each dimension.
    pub fn max(self, other: Self) -> Self {
        Self {
            permits: self.permits.max(other.permits),
            memory: self.memory.max(other.memory),
        }
    }

    /// Returns the smaller of two amounts in each dimension.
    pub fn min(self, other: Self) -> Self {
        Self {
            permits: self.permits.min(other.permits),
            memory: self.memory.min(other.memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dominant_share_is_that_of_the_scarcer_dimension() {
        let total = Amount {
            permits: 10,
            memory: 100,
        };
        let share = |permits, memory| Amount { permits, memory }.share_of(total);
        assert_eq!(share(5, 20), 0.5);
        assert_eq!(share(1, 60), 0.6);
        assert_eq!(share(0, 0), 0.0);
        assert_eq!(Amount::one(0).share_of(Amount::default()), 1.0);
    }
}
