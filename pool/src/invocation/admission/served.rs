//! The functions that requests may come for, as far as admission must know them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::INSTANCE_MEMORY;

/// The functions of a node, whether their seeds are made or not.
#[derive(Debug, Default)]
pub struct ServedFunctions {
    count: AtomicUsize,
    /// The number of functions for each amount of memory that an instance may use at worst.
    by_memory: Mutex<BTreeMap<u64, usize>>,
}

impl ServedFunctions {
    /// Adds a function with this memory limit.
    pub fn add(&self, memory_limit: u64) {
        let mut by_memory = self.lock();
        *by_memory.entry(instance(memory_limit)).or_default() += 1;
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a function that was added with this memory limit.
    pub fn remove(&self, memory_limit: u64) {
        let mut by_memory = self.lock();
        let memory = instance(memory_limit);
        let Some(functions) = by_memory.get_mut(&memory) else {
            return;
        };
        *functions -= 1;
        if *functions == 0 {
            by_memory.remove(&memory);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of functions.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the largest memory of a function's instance that is at most `most`; zero if there
    /// is none.
    pub fn largest_within(&self, most: u64) -> u64 {
        let by_memory = self.lock();
        let largest = by_memory.range(..=most).next_back();
        largest.map_or(0, |(memory, _)| *memory)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.by_memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn instance(memory_limit: u64) -> u64 {
    memory_limit.saturating_add(INSTANCE_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_count_until_they_are_removed() {
        let served = ServedFunctions::default();
        [10, 10, 20].iter().for_each(|memory| served.add(*memory));
        let with = |memory| memory + INSTANCE_MEMORY;
        assert_eq!(served.count(), 3);
        assert_eq!(served.largest_within(with(100)), with(20));
        assert_eq!(served.largest_within(with(19)), with(10));
        assert_eq!(served.largest_within(with(9)), 0);
        for memory in [20, 10, 30] {
            served.remove(memory);
        }
        assert_eq!(served.count(), 1);
        assert_eq!(served.largest_within(with(100)), with(10));
    }
}
