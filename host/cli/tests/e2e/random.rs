//! Random choices for tests; a run prints its seed and can be repeated.

use std::time::Duration;

use fastrand::Rng;

/// Returns the seed in `FAASW_TEST_SEED`, or a new one.
pub fn seed() -> u64 {
    number("FAASW_TEST_SEED").unwrap_or_else(|| fastrand::u64(..))
}

/// Returns a generator that starts from [`seed`], and prints the seed.
pub fn rng() -> Rng {
    let seed = seed();
    println!("again with FAASW_TEST_SEED={seed}");
    Rng::with_seed(seed)
}

/// Returns a number from an environment variable.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// Returns a random part of a duration.
pub fn up_to(rng: &mut Rng, most: Duration) -> Duration {
    most.mul_f64(rng.f64())
}
