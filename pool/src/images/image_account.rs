//! The account of images: their names, their sizes and the order of eviction. A folder may contain
//! 10,000 files, and must not be searched for each image that is written.
//!
//! The account contains what this node has done since it read the folder. Changes by other programs
//! are unknown: a file that another program removed counts until it is evicted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::identity::ENGINE;

/// The order of eviction: images of functions before those of engines, which are their parents;
/// among these, the least recently used first. By the order of uses, because clocks jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionRank {
    is_engine: bool,
    used: u64,
}

/// The number of the first use that this node knows; earlier uses have smaller numbers.
const FIRST_USE: u64 = 1 << 32;

#[derive(Debug)]
struct Entry {
    bytes: u64,
    /// `None` if it is never evicted.
    rank: Option<EvictionRank>,
}

#[derive(Debug)]
pub(super) struct ImageAccount {
    /// The names of the shared seeds' images, without which those of functions are useless.
    shared: [String; 2],
    entries: HashMap<Arc<str>, Entry>,
    ranks: BTreeMap<EvictionRank, Arc<str>>,
    bytes: u64,
    evictable: u64,
    /// The bytes of images that are still being received.
    reserved: u64,
    uses: u64,
    /// Whether the folder has been read.
    is_complete: bool,
    /// The images that were removed before that.
    gone: HashSet<Arc<str>>,
}

impl ImageAccount {
    /// Creates an empty account.
    pub fn new(shared: [String; 2]) -> Self {
        Self {
            shared,
            entries: HashMap::new(),
            ranks: BTreeMap::new(),
            bytes: 0,
            evictable: 0,
            reserved: 0,
            uses: FIRST_USE,
            is_complete: false,
            gone: HashSet::new(),
        }
    }

    /// Returns whether it contains all that the folder contained when it was read.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Adds the files found in the folder, least recently used first. Entries that were made
    /// meanwhile are newer.
    pub fn complete(&mut self, found: impl Iterator<Item = (String, u64)>) {
        self.is_complete = true;
        let gone = std::mem::take(&mut self.gone);
        for (used, (name, bytes)) in (0..).zip(found) {
            if !gone.contains(name.as_str()) && !self.entries.contains_key(name.as_str()) {
                self.put(&name, bytes, used);
            }
        }
    }

    /// Notes an image of this name and size, which is used now.
    pub fn note(&mut self, name: &str, bytes: u64) {
        self.take(name);
        self.gone.remove(name);
        self.uses += 1;
        self.put(name, bytes, self.uses);
    }

    /// Notes that there is no image of this name any more.
    pub fn forget(&mut self, name: &str) {
        self.take(name);
        if !self.is_complete {
            self.gone.insert(name.into());
        }
    }

    /// Removes all entries, because the folder is gone.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.ranks.clear();
        (self.bytes, self.evictable) = (0, 0);
    }

    /// Reserves bytes for an image that is being received, until they are released.
    pub fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// Releases reserved bytes.
    pub fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// Returns the bytes of this image, if there is one.
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        self.entries.get(name).map(|entry| entry.bytes)
    }

    /// Returns the bytes of all images but this one, and of images that are being received.
    pub fn bytes_beside(&self, name: &str) -> u64 {
        let own = self.entries.get(name).map_or(0, |entry| entry.bytes);
        self.bytes.saturating_sub(own).saturating_add(self.reserved)
    }

    /// Returns the bytes of all images that may be evicted, except this one.
    pub fn evictable_beside(&self, name: &str) -> u64 {
        let own = self.entries.get(name).filter(|entry| entry.rank.is_some());
        self.evictable
            .saturating_sub(own.map_or(0, |own| own.bytes))
    }

    /// Returns the next image to evict after the one with turn `behind`, skipping `beside`.
    pub fn next(
        &self,
        behind: Option<EvictionRank>,
        beside: &str,
    ) -> Option<(EvictionRank, Arc<str>)> {
        let behind = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut ahead = self.ranks.range((behind, Bound::Unbounded));
        let next = ahead.find(|(_, name)| &***name != beside);
        next.map(|(rank, name)| (*rank, name.clone()))
    }

    fn put(&mut self, name: &str, bytes: u64, used: u64) {
        let name: Arc<str> = name.into();
        let is_shared = self.shared.iter().any(|shared| **shared == *name);
        let is_engine = name.starts_with(ENGINE);
        let rank = (!is_shared).then_some(EvictionRank { is_engine, used });
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(rank) = rank {
            self.evictable = self.evictable.saturating_add(bytes);
            self.ranks.insert(rank, name.clone());
        }
        self.entries.insert(name, Entry { bytes, rank });
    }

    fn take(&mut self, name: &str) {
        let Some(Entry { bytes, rank }) = self.entries.remove(name) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(rank) = rank {
            self.evictable = self.evictable.saturating_sub(bytes);
            self.ranks.remove(&rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> ImageAccount {
        ImageAccount::new(["guest".to_owned(), "linkers".to_owned()])
    }

    fn order(account: &ImageAccount, beside: &str) -> Vec<String> {
        let mut behind = None;
        std::iter::from_fn(|| {
            let (rank, name) = account.next(behind, beside)?;
            behind = Some(rank);
            Some(name.to_string())
        })
        .collect()
    }

    #[test]
    fn functions_are_evicted_before_engines_and_shared_images_never() {
        let mut account = account();
        let found = ["engine-a", "f", "guest", "g", "linkers", "h"];
        account.complete(found.into_iter().map(|name| (name.to_owned(), 10)));
        assert_eq!(order(&account, ""), ["f", "g", "h", "engine-a"]);
        account.note("f", 30);
        account.note("engine-b", 10);
        assert_eq!(order(&account, ""), ["g", "h", "f", "engine-a", "engine-b"]);
        assert_eq!(order(&account, "g"), ["h", "f", "engine-a", "engine-b"]);
        assert_eq!(
            (account.bytes_beside(""), account.evictable_beside("")),
            (90, 70)
        );
        assert_eq!(account.bytes_beside("f"), 60);
        assert_eq!(account.evictable_beside("f"), 40);
        assert_eq!(account.evictable_beside("guest"), 70);
        account.forget("h");
        account.forget("h");
        assert_eq!(order(&account, ""), ["g", "f", "engine-a", "engine-b"]);
        assert_eq!(account.bytes_beside(""), 80);
        account.clear();
        assert_eq!(
            (account.bytes_beside(""), order(&account, "").len()),
            (0, 0)
        );
    }

    #[test]
    fn changes_during_the_reading_of_the_folder_win_over_found_files() {
        let mut account = account();
        account.note("written", 5);
        account.forget("gone");
        account.forget("back");
        account.note("back", 7);
        assert!(!account.is_complete());
        let found = ["back", "gone", "old", "written"];
        account.complete(found.into_iter().map(|name| (name.to_owned(), 100)));
        assert!(account.is_complete());
        assert_eq!(order(&account, ""), ["old", "written", "back"]);
        assert_eq!(account.bytes_beside(""), 112);
    }

    #[test]
    fn reserved_bytes_count_and_are_not_evicted() {
        let mut account = account();
        account.note("f", 10);
        account.reserve(30);
        account.reserve(5);
        assert_eq!(account.bytes_beside(""), 45);
        assert_eq!(account.bytes_beside("f"), 35);
        assert_eq!(account.evictable_beside(""), 10);
        // The folder was removed; the file that is being written has no name in it.
        account.clear();
        assert_eq!(account.bytes_beside(""), 35);
        account.release(30);
        account.release(5);
        assert_eq!(account.bytes_beside(""), 0);
    }

    #[test]
    fn impossible_sizes_do_not_overflow() {
        let mut account = account();
        account.note("a", u64::MAX);
        account.note("b", u64::MAX);
        assert_eq!(account.bytes_beside(""), u64::MAX);
        account.forget("a");
        account.forget("b");
        assert_eq!(account.bytes_beside(""), 0);
    }
}
