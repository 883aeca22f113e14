//! The groups that are kept for the next jails, and how often that avoided making one.

use std::collections::BTreeSet;

/// How the groups of one process are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Groups that wait for a jail.
    pub free: u64,
    /// Groups that have one.
    pub used: u64,
    /// The most groups that may wait; others are removed when their jail has ended.
    pub free_max: u64,
    /// Jails that got a group that had waited, in all.
    pub hits: u64,
    /// Jails for which a group was made, in all.
    pub misses: u64,
}

/// The numbers of groups that wait, and the counters.
#[derive(Debug)]
pub(crate) struct GroupFreeList {
    free: BTreeSet<u32>,
    free_max: usize,
    used: BTreeSet<u32>,
    hits: u64,
    misses: u64,
}

impl GroupFreeList {
    /// Returns an account without groups. At most `free_max` groups may wait.
    pub(crate) fn new(free_max: usize) -> Self {
        Self {
            free: BTreeSet::new(),
            free_max,
            used: BTreeSet::new(),
            hits: 0,
            misses: 0,
        }
    }

    /// Sets how many groups may wait from now on. Returns the numbers of surplus ones.
    pub(crate) fn limit(&mut self, free_max: usize) -> Vec<u32> {
        self.free_max = free_max;
        let surplus = self.free.len().saturating_sub(free_max);
        std::iter::from_fn(|| self.free.pop_last())
            .take(surplus)
            .collect()
    }

    /// Returns the first group that waits.
    pub(crate) fn first(&self) -> Option<u32> {
        self.free.first().copied()
    }

    /// Records that a jail has this group, whether it had waited or was made.
    pub(crate) fn take(&mut self, number: u32) {
        self.used.insert(number);
        if self.free.remove(&number) {
            self.hits += 1
        } else {
            self.misses += 1
        }
    }

    /// Whether one more group may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.free.len() < self.free_max
    }

    /// Records that the jail of a group has ended; returns whether the group had one.
    pub(crate) fn release(&mut self, number: u32) -> bool {
        self.used.remove(&number)
    }

    /// Adds a group that waits for a jail.
    pub(crate) fn add(&mut self, number: u32) {
        self.free.insert(number);
    }

    pub(crate) fn counts(&self) -> GroupCounts {
        GroupCounts {
            free: self.free.len() as u64,
            used: self.used.len() as u64,
            free_max: self.free_max as u64,
            hits: self.hits,
            misses: self.misses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(free: u64, used: u64, hits: u64, misses: u64) -> GroupCounts {
        GroupCounts {
            free,
            used,
            free_max: 2,
            hits,
            misses,
        }
    }

    #[test]
    fn a_free_group_is_a_hit_and_any_other_a_miss() {
        let mut list = GroupFreeList::new(2);
        list.take(0);
        list.take(1);
        assert_eq!(list.counts(), counts(0, 2, 0, 2));
        assert!(list.release(1));
        list.add(1);
        assert_eq!((list.first(), list.counts()), (Some(1), counts(1, 1, 0, 2)));
        list.take(1);
        assert_eq!((list.first(), list.counts()), (None, counts(0, 2, 1, 2)));
        // A group that is not clean is not kept, and is made again.
        assert!(list.release(1) && !list.release(1));
        list.take(1);
        assert_eq!(list.counts(), counts(0, 2, 1, 3));
    }

    #[test]
    fn no_more_are_kept_than_are_allowed() {
        let mut list = GroupFreeList::new(9);
        for number in 0..5 {
            list.add(number);
        }
        assert_eq!(list.limit(2), [4, 3, 2]);
        assert_eq!(
            (list.has_room(), list.counts()),
            (false, counts(2, 0, 0, 0))
        );
        assert_eq!(list.limit(2), []);
        list.take(0);
        assert!(list.has_room());
    }
}
