//! Numbers of instances: distinct and without a recognisable order.
//!
//! Several parties see a number: the guest, clients in problem bodies, and owners in their
//! functions' logs. A plain count would reveal to each of them how many requests the others have.
//! So the count is permuted by a key of the pool's own, as a block cipher does. The result reveals
//! nothing of the count, and no two numbers are equal.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

/// Bits of each half of a number. A number has 48 bits, so that it is exact in JSON and does not
/// repeat for longer than a machine lasts.
const HALF: u32 = 24;
const MASK: u64 = (1 << HALF) - 1;

/// Four rounds make a permutation that cannot be distinguished from a random one, even with chosen
/// inputs and outputs (Luby and Rackoff, 1988).
const ROUNDS: u8 = 4;

/// Generates the numbers of instances. It never returns 0, which stands for the making of a seed.
#[derive(Debug)]
pub struct InstanceNumbers {
    count: AtomicU64,
    /// SipHash with a random key.
    key: RandomState,
}

impl InstanceNumbers {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU64::new(1),
            key: RandomState::new(),
        }
    }

    /// Returns a number that no instance of the pool has had.
    pub(crate) fn next(&self) -> u64 {
        match self.permuted(self.count.fetch_add(1, Ordering::Relaxed)) {
            // The count began at 1, so no other instance gets the permutation of 0.
            0 => self.permuted(0),
            number => number,
        }
    }

    /// Permutes a count with a Feistel network.
    fn permuted(&self, count: u64) -> u64 {
        let (mut left, mut right) = ((count >> HALF) & MASK, count & MASK);
        for round in 0..ROUNDS {
            let mixed = left ^ (self.key.hash_one((round, right)) & MASK);
            (left, right) = (right, mixed);
        }
        (left << HALF) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_unlike_each_other_and_never_zero() {
        let numbers = InstanceNumbers::new();
        let all: HashSet<u64> = (0..100_000).map(|_| numbers.next()).collect();
        assert_eq!(all.len(), 100_000);
        assert!(!all.contains(&0));
        assert!(all.iter().all(|number| *number < 1 << 48));
    }

    #[test]
    fn the_number_that_would_be_zero_is_another() {
        let numbers = InstanceNumbers::new();
        // Goes backwards through the network, to the count that gives 0.
        let (mut left, mut right) = (0, 0);
        for round in (0..ROUNDS).rev() {
            let before = right ^ (numbers.key.hash_one((round, left)) & MASK);
            (left, right) = (before, left);
        }
        let count = (left << HALF) | right;
        assert_eq!(numbers.permuted(count), 0);
        numbers.count.store(count, Ordering::Relaxed);
        assert_ne!(numbers.next(), 0);
    }

    #[test]
    fn numbers_do_not_reveal_their_count() {
        // Among random numbers one in two is larger than its predecessor; among counted ones all
        // are.
        let numbers = InstanceNumbers::new();
        let all: Vec<u64> = (0..10_000).map(|_| numbers.next()).collect();
        let rising = all.windows(2).filter(|two| two[0] < two[1]).count();
        assert!((4_500..5_500).contains(&rising), "{rising}");
        // Numbers of neighbouring counts are not close to each other, and another pool's are
        // different.
        let near = all
            .windows(2)
            .filter(|two| two[0].abs_diff(two[1]) < 1 << 32);
        assert!(near.count() < 10);
        let other = InstanceNumbers::new();
        let same = all.iter().filter(|number| **number == other.next()).count();
        assert_eq!(same, 0);
    }
}
