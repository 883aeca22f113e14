//! Random choices that can be made again: the number that they come from is
//! printed, and `FAASW_TEST_DICE` sets it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};

pub struct Dice {
    origin: u64,
    thrown: u64,
}

impl Dice {
    /// New ones, for the test called `test`.
    pub fn new(test: &str) -> Self {
        let given = std::env::var("FAASW_TEST_DICE").ok();
        let origin = match given.and_then(|number| number.parse().ok()) {
            Some(number) => number,
            None => RandomState::new().hash_one(test),
        };
        println!("{test}: again with FAASW_TEST_DICE={origin}");
        Self { origin, thrown: 0 }
    }

    pub fn number(&mut self) -> u64 {
        self.thrown += 1;
        let mut hasher = DefaultHasher::new();
        (self.origin, self.thrown).hash(&mut hasher);
        hasher.finish()
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// Bytes that are other ones each time: a few, again and again.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let few: Vec<u8> = (0..128).flat_map(|_| self.number().to_le_bytes()).collect();
        // What comes again does so at odd places.
        let mut bytes = few[1..].repeat(count / (few.len() - 1) + 1);
        bytes.truncate(count);
        bytes
    }
}
