//! Random numbers whose seed a failing test prints.

use fastrand::Rng;

/// Returns a generator with the seed of `FAASW_TEST_SEED`, or a new one, and prints the seed.
pub fn seeded() -> Rng {
    let given = std::env::var("FAASW_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("to repeat: FAASW_TEST_SEED={seed}");
    Rng::with_seed(seed)
}
