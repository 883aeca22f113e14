//! Reproducible random choices: their seed is printed, and `FAASW_TEST_SEED` sets it.

use fastrand::Rng;

/// Returns a new generator for the test called `test`.
pub fn seeded(test: &str) -> Rng {
    let given = std::env::var("FAASW_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |number| number.parse().unwrap());
    println!("{test}: again with FAASW_TEST_SEED={seed}");
    Rng::with_seed(seed)
}

/// Returns random bytes: a short random sequence, repeated.
pub fn bytes(random: &mut Rng, count: usize) -> Vec<u8> {
    // The length is odd, so that repetitions start at unaligned offsets.
    let mut few = [0; 1023];
    random.fill(&mut few);
    let mut bytes = few.repeat(count / few.len() + 1);
    bytes.truncate(count);
    bytes
}
