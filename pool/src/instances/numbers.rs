//! Numbers of instances: unlike each other, and without an order.
//!
//! A number is seen by many: by the guest, by clients in problem bodies, by owners in
//! their functions' logs. Counted up it would tell each of them how many requests the
//! others have. So the count is permuted by a key of the pool's own, as a block cipher
//! permutes: what comes out tells nothing of the count, and no two are equal.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

/// Bits of each half of a number. Together 48, so that a number is exact in JSON, and
/// unlike each other for longer than a machine lasts.
const HALF: u32 = 24;
const MASK: u64 = (1 << HALF) - 1;

/// Four rounds make a permutation that even who may choose both ends cannot tell from
/// a random one (Luby and Rackoff, 1988).
const ROUNDS: u8 = 4;

/// Gives numbers to instances. 0 is never one: it stands for the making of a seed.
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

    /// A number that no instance of the pool had.
    pub(crate) fn next(&self) -> u64 {
        match self.permuted(self.count.fetch_add(1, Ordering::Relaxed)) {
            // The count began at 1, so nobody has the number of 0.
            0 => self.permuted(0),
            number => number,
        }
    }

    /// A Feistel network.
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
        // Backwards through the network, to the count that gives 0.
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
    fn numbers_tell_nothing_of_how_many_there_were() {
        // Of random numbers one in two is larger than the one before; of counted ones all.
        let numbers = InstanceNumbers::new();
        let all: Vec<u64> = (0..10_000).map(|_| numbers.next()).collect();
        let rising = all.windows(2).filter(|two| two[0] < two[1]).count();
        assert!((4_500..5_500).contains(&rising), "{rising}");
        // Nor are those of neighbours near each other, or of another pool the same.
        let near = all
            .windows(2)
            .filter(|two| two[0].abs_diff(two[1]) < 1 << 32);
        assert!(near.count() < 10);
        let other = InstanceNumbers::new();
        let same = all.iter().filter(|number| **number == other.next()).count();
        assert_eq!(same, 0);
    }
}
