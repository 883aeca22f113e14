//! Values that were read recently, in memory: reading one of these waits for no thread and no disk.
//!
//! These values are those of the last commit. Before a commit becomes visible, the writer removes
//! the values that it changes. Until the commit has ended, no value that was read before or during
//! it is added to the namespaces that it changes. A read has a mark from its beginning, which a
//! commit in between invalidates. Each namespace has a part of its own, so that no function
//! displaces values of another, as long as there are not too many namespaces.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::super::Change;

/// Bytes of keys and values that a namespace adds before it drops the values that it had added
/// before. So a namespace holds at most twice as many.
const EACH: usize = 64 << 10;

/// The longest value that is kept, in bytes.
const VALUE: usize = 16 << 10;

/// About the bytes that an entry takes besides its key and value.
const ENTRY: usize = 128;

/// The most namespaces. If one more is added, all others are dropped.
const NAMESPACES: usize = 256;

/// The most keys of one lookup, so that other lookups do not wait long for the lock.
const KEYS: usize = 16;

/// Values that were read recently.
#[derive(Debug, Default)]
pub(super) struct RecentValues(Mutex<RecentState>);

#[derive(Debug, Default)]
struct RecentState {
    /// How often everything was dropped.
    epoch: u64,
    /// The namespaces that the current commit changes.
    changing: HashSet<String>,
    namespaces: HashMap<String, Namespace>,
}

type Values = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// The values of a namespace, in two generations. A value that is read again moves to the young
/// generation.
#[derive(Debug, Default)]
struct Namespace {
    /// Counts the commits that change the namespace, at their beginning and at their end.
    changes: u64,
    young: Values,
    /// The bytes that were added to the young generation.
    bytes: usize,
    old: Values,
}

/// The state of a namespace at the beginning of a read. It is still current at the end of the read
/// unless there was a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadMark {
    epoch: u64,
    changes: u64,
}

impl RecentValues {
    /// Returns the values of these keys as of the last commit, if the keys are few and all of their
    /// values are in memory.
    pub(super) fn values(&self, namespace: &str, keys: &[Vec<u8>]) -> Option<Vec<Option<Vec<u8>>>> {
        if keys.len() > KEYS {
            return None;
        }
        let mut known = self.lock();
        let namespace = known.namespaces.get_mut(namespace)?;
        keys.iter().map(|key| namespace.get(key)).collect()
    }

    /// Returns the mark for a read of a namespace that begins now. Returns `None` while a commit
    /// that changes the namespace is under way.
    pub(super) fn mark(&self, namespace: &str) -> Option<ReadMark> {
        let mut known = self.lock();
        if known.changing.contains(namespace) {
            return None;
        }
        let mut forgotten = HashMap::new();
        if !known.namespaces.contains_key(namespace) {
            if known.namespaces.len() == NAMESPACES {
                forgotten = known.forget_all();
            }
            // From now on, commits that change it are counted.
            let new = Namespace::default();
            known.namespaces.insert(namespace.to_owned(), new);
        }
        let mark = known.mark(namespace);
        drop(known);
        // Dropping the values may take long, so it happens outside the lock.
        drop(forgotten);
        mark
    }

    /// Adds values that were read after `mark`, if they are still those of the last commit.
    pub(super) fn keep(
        &self,
        mark: ReadMark,
        namespace: &str,
        keys: &[Vec<u8>],
        values: &[Option<Vec<u8>>],
    ) {
        let mut known = self.lock();
        if known.changing.contains(namespace) || known.mark(namespace) != Some(mark) {
            return;
        }
        let Some(namespace) = known.namespaces.get_mut(namespace) else {
            return;
        };
        for (key, value) in keys.iter().zip(values).take(KEYS) {
            if value.as_ref().is_none_or(|value| value.len() <= VALUE) {
                namespace.put(key.clone(), value.clone());
            }
        }
    }

    /// Prepares for a commit of these changes: drops the values of all keys that they change. The
    /// changes may be committed, and become visible, once this returns.
    pub(super) fn begin<'a>(
        &self,
        changes: impl IntoIterator<Item = (&'a str, &'a Change)> + Clone,
    ) {
        let all = changes.clone().into_iter();
        let changing: HashSet<String> = all.map(|(namespace, _)| namespace.to_owned()).collect();
        let mut known = self.lock();
        known.count(&changing);
        known.changing = changing;
        drop(known);
        // The lock is taken for each change, so that readers proceed in between.
        for (namespace, change) in changes {
            if let Some(namespace) = self.lock().namespaces.get_mut(namespace) {
                match change {
                    Change::Put(pairs) => pairs.keys().for_each(|key| namespace.forget(key)),
                    Change::Increment(key, _) | Change::Swap { key, .. } => namespace.forget(key),
                }
            }
        }
    }

    /// Ends the commit, which may have succeeded or failed.
    pub(super) fn end(&self) {
        let mut known = self.lock();
        let changed = mem::take(&mut known.changing);
        known.count(&changed);
    }

    /// Drops all values, because the file may hold others now.
    pub(super) fn forget_all(&self) {
        let forgotten = self.lock().forget_all();
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, RecentState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentState {
    fn mark(&self, namespace: &str) -> Option<ReadMark> {
        let Namespace { changes, .. } = self.namespaces.get(namespace)?;
        Some(ReadMark {
            epoch: self.epoch,
            changes: *changes,
        })
    }

    fn count(&mut self, changed: &HashSet<String>) {
        for namespace in changed {
            if let Some(namespace) = self.namespaces.get_mut(namespace) {
                namespace.changes = namespace.changes.wrapping_add(1);
            }
        }
    }

    /// Removes all values and returns them.
    fn forget_all(&mut self) -> HashMap<String, Namespace> {
        self.epoch = self.epoch.wrapping_add(1);
        mem::take(&mut self.namespaces)
    }
}

impl Namespace {
    fn get(&mut self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.put(key, value.clone());
        Some(value)
    }

    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let bytes = ENTRY + key.len() + value.as_ref().map_or(0, Vec::len);
        if self.bytes + bytes > EACH {
            self.old = mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.young.insert(key, value);
    }

    fn forget(&mut self, key: &[u8]) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    fn keep(recent: &RecentValues, mark: ReadMark, name: &str, value: &str) {
        recent.keep(mark, "a", &[key(name)], &[Some(key(value))]);
    }

    fn known(recent: &RecentValues, name: &str) -> Option<Option<Vec<u8>>> {
        let values = recent.values("a", &[key(name)])?;
        values.into_iter().next()
    }

    #[test]
    fn values_changed_by_a_commit_are_not_cached() {
        let recent = RecentValues::default();
        let mark = recent.mark("a").unwrap();
        keep(&recent, mark, "k", "1");
        keep(&recent, mark, "other", "1");
        assert_eq!(known(&recent, "k"), Some(Some(key("1"))));
        let change = Change::Put([(key("k"), None)].into());
        recent.begin([("a", &change)]);
        assert_eq!(known(&recent, "k"), None);
        assert_eq!(known(&recent, "other"), Some(Some(key("1"))));
        // A value that was read before or during the commit is not added.
        assert_eq!(recent.mark("a"), None);
        keep(&recent, mark, "k", "1");
        recent.end();
        keep(&recent, mark, "k", "1");
        assert_eq!(known(&recent, "k"), None);
        keep(&recent, recent.mark("a").unwrap(), "k", "2");
        assert_eq!(known(&recent, "k"), Some(Some(key("2"))));
    }

    #[test]
    fn a_commit_invalidates_only_its_namespaces() {
        let recent = RecentValues::default();
        let mark = recent.mark("a").unwrap();
        let change = Change::Increment(key("k"), 1);
        // Commits of a namespace that was not read yet are counted, too.
        recent.begin([("b", &change)]);
        assert_eq!(recent.mark("b"), None);
        keep(&recent, mark, "k", "1");
        assert_eq!(known(&recent, "k"), Some(Some(key("1"))));
        recent.end();
        assert!(recent.mark("b").is_some());
    }

    #[test]
    fn a_read_from_before_a_reset_is_not_cached() {
        let recent = RecentValues::default();
        let mark = recent.mark("a").unwrap();
        keep(&recent, mark, "k", "1");
        recent.forget_all();
        assert_eq!(known(&recent, "k"), None);
        keep(&recent, mark, "k", "1");
        assert_eq!(known(&recent, "k"), None);
        let again = recent.mark("a").unwrap();
        assert_ne!(again, mark);
        keep(&recent, mark, "k", "1");
        assert_eq!(known(&recent, "k"), None);
    }

    #[test]
    fn namespaces_are_separate_and_missing_values_are_cached() {
        let recent = RecentValues::default();
        let mark = recent.mark("a").unwrap();
        recent.keep(mark, "a", &[key("k")], &[None]);
        assert_eq!(known(&recent, "k"), Some(None));
        assert_eq!(recent.values("b", &[key("k")]), None);
        let both = [key("k"), key("l")];
        assert_eq!(recent.values("a", &both), None);
        recent.keep(mark, "a", &both, &[None, Some(key("22"))]);
        let values = recent.values("a", &both).unwrap();
        assert_eq!(values, [None, Some(key("22"))]);
        assert_eq!(recent.values("a", &vec![key("k"); KEYS + 1]), None);
    }

    #[test]
    fn the_cache_is_bounded() {
        let recent = RecentValues::default();
        let mark = recent.mark("a").unwrap();
        let value = "v".repeat(1000);
        keep(&recent, mark, "often", &value);
        for number in 0..10_000 {
            keep(&recent, mark, &number.to_string(), &value);
            if number % 20 == 0 {
                assert!(known(&recent, "often").is_some(), "{number}");
            }
        }
        let known_now = recent.lock();
        let entries = |values: &Values| values.len() * (ENTRY + 1000);
        let namespace = &known_now.namespaces["a"];
        assert!(entries(&namespace.young) + entries(&namespace.old) <= 2 * EACH);
        drop(known_now);
        keep(&recent, mark, "large", &"v".repeat(VALUE + 1));
        assert_eq!(known(&recent, "large"), None);
        for number in 0..2 * NAMESPACES {
            let name = format!("n{number}");
            let mark = recent.mark(&name).unwrap();
            recent.keep(mark, &name, &[key("k")], &[None]);
            assert!(recent.lock().namespaces.len() <= NAMESPACES);
        }
        assert_eq!(known(&recent, "often"), None);
    }
}
