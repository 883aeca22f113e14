//! Chance for tests, which a run prints and can repeat.

use std::time::{Duration, SystemTime};

/// What `FAASW_TEST_SEED` says, else something new.
pub fn seed() -> u64 {
    number("FAASW_TEST_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.unwrap().as_nanos() as u64
    })
}

/// A number that the environment gives.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// SplitMix64: enough chance for a test, and repeatable.
#[derive(Clone)]
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.below(1_000_000) as f64 / 1e6)
    }
}
