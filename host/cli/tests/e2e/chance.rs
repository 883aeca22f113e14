//! Chance for tests, which a run prints and can repeat.

use std::time::Duration;

use fastrand::Rng;

/// What `FAASW_TEST_SEED` says, else something new.
pub fn seed() -> u64 {
    number("FAASW_TEST_SEED").unwrap_or_else(|| fastrand::u64(..))
}

/// Chance by [`seed`], which is printed.
pub fn rng() -> Rng {
    let seed = seed();
    println!("again with FAASW_TEST_SEED={seed}");
    Rng::with_seed(seed)
}

/// A number that the environment gives.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// Some of a time.
pub fn up_to(chance: &mut Rng, most: Duration) -> Duration {
    most.mul_f64(chance.f64())
}
