//! Random choices that can be made again: the number that they come from is
//! printed, and `FAASW_TEST_SEED` sets it.

use fastrand::Rng;

/// New ones, for the test called `test`.
pub fn seeded(test: &str) -> Rng {
    let given = std::env::var("FAASW_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |number| number.parse().unwrap());
    println!("{test}: again with FAASW_TEST_SEED={seed}");
    Rng::with_seed(seed)
}

/// Bytes that are other ones each time: a few, again and again.
pub fn bytes(random: &mut Rng, count: usize) -> Vec<u8> {
    // What comes again does so at odd places.
    let mut few = [0; 1023];
    random.fill(&mut few);
    let mut bytes = few.repeat(count / few.len() + 1);
    bytes.truncate(count);
    bytes
}
