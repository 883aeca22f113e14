//! Values that were read lately, in memory: whoever asks for one of these waits for no thread and
//! no disk.
//!
//! What is known is what the last commit has. Before a commit can be seen the writer takes away
//! what it changes, and until it has ended nothing of the namespaces that it changes is taken up
//! that was read before or meanwhile: a read has a mark from before it, which a commit in between
//! makes worthless. A namespace has a part of its own, so that no function drives out what another
//! one reads, as far as there are not too many of them.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::super::Change;

/// Bytes of keys and values that a namespace takes up until it forgets those that it took up
/// before: so it has twice that at most.
const EACH: usize = 64 << 10;

/// Longest value that is kept.
const VALUE: usize = 16 << 10;

/// What an entry takes beside its key and value, about.
const ENTRY: usize = 128;

/// Most namespaces: beyond them all others are forgotten.
const NAMESPACES: usize = 256;

/// Most keys that are looked for at once: nobody is to wait for long.
const KEYS: usize = 16;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How often everything was forgotten.
    epoch: u64,
    /// What the commit changes that is on its way.
    changing: HashSet<String>,
    namespaces: HashMap<String, Namespace>,
}

type Values = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// What is known of a namespace, in two generations: what is asked for again goes over to the young
/// one.
#[derive(Debug, Default)]
struct Namespace {
    /// Counts commits that change it as they begin and as they end.
    changes: u64,
    young: Values,
    /// Of what was put into the young one.
    bytes: usize,
    old: Values,
}

/// What was read of a namespace after this was current when it was read, unless a commit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    epoch: u64,
    changes: u64,
}

impl Recent {
    /// The values of these keys, if all are known and they are few: those of the last commit.
    pub(super) fn values(&self, namespace: &str, keys: &[Vec<u8>]) -> Option<Vec<Option<Vec<u8>>>> {
        if keys.len() > KEYS {
            return None;
        }
        let mut known = self.lock();
        let namespace = known.namespaces.get_mut(namespace)?;
        keys.iter().map(|key| namespace.get(key)).collect()
    }

    /// For a read of a namespace that begins now; nothing while a commit that changes it is on its
    /// way.
    pub(super) fn mark(&self, namespace: &str) -> Option<Mark> {
        let mut known = self.lock();
        if known.changing.contains(namespace) {
            return None;
        }
        let mut forgotten = HashMap::new();
        if !known.namespaces.contains_key(namespace) {
            if known.namespaces.len() == NAMESPACES {
                forgotten = known.forget_all();
            }
            // From now on a commit that changes it is counted.
            let new = Namespace::default();
            known.namespaces.insert(namespace.to_owned(), new);
        }
        let mark = known.mark(namespace);
        drop(known);
        // Much may be in it, for which nobody is to wait.
        drop(forgotten);
        mark
    }

    /// Takes up what was read since `mark`, if that is still what the last commit has.
    pub(super) fn keep(
        &self,
        mark: Mark,
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

    /// These changes may be committed, and seen, once this has come back: nothing of what they
    /// change is known any more.
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
        // One by one: whoever reads something else goes in between.
        for (namespace, change) in changes {
            if let Some(namespace) = self.lock().namespaces.get_mut(namespace) {
                match change {
                    Change::Put(pairs) => pairs.keys().for_each(|key| namespace.forget(key)),
                    Change::Increment(key, _) | Change::Swap { key, .. } => namespace.forget(key),
                }
            }
        }
    }

    /// They are committed, or will not be.
    pub(super) fn end(&self) {
        let mut known = self.lock();
        let changed = mem::take(&mut known.changing);
        known.count(&changed);
    }

    /// Nothing is known any more: what there is may be something else.
    pub(super) fn forget_all(&self) {
        let forgotten = self.lock().forget_all();
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn mark(&self, namespace: &str) -> Option<Mark> {
        let Namespace { changes, .. } = self.namespaces.get(namespace)?;
        Some(Mark {
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

    /// What was known.
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

    fn keep(recent: &Recent, mark: Mark, name: &str, value: &str) {
        recent.keep(mark, "a", &[key(name)], &[Some(key(value))]);
    }

    fn known(recent: &Recent, name: &str) -> Option<Option<Vec<u8>>> {
        let values = recent.values("a", &[key(name)])?;
        values.into_iter().next()
    }

    #[test]
    fn what_a_commit_may_have_changed_is_not_known() {
        let recent = Recent::default();
        let mark = recent.mark("a").unwrap();
        keep(&recent, mark, "k", "1");
        keep(&recent, mark, "other", "1");
        assert_eq!(known(&recent, "k"), Some(Some(key("1"))));
        let change = Change::Put([(key("k"), None)].into());
        recent.begin([("a", &change)]);
        assert_eq!(known(&recent, "k"), None);
        assert_eq!(known(&recent, "other"), Some(Some(key("1"))));
        // Read before it, or meanwhile.
        assert_eq!(recent.mark("a"), None);
        keep(&recent, mark, "k", "1");
        recent.end();
        keep(&recent, mark, "k", "1");
        assert_eq!(known(&recent, "k"), None);
        keep(&recent, recent.mark("a").unwrap(), "k", "2");
        assert_eq!(known(&recent, "k"), Some(Some(key("2"))));
    }

    #[test]
    fn a_commit_counts_for_what_it_changes_alone() {
        let recent = Recent::default();
        let mark = recent.mark("a").unwrap();
        let change = Change::Increment(key("k"), 1);
        // Of one that nobody has read so far, too.
        recent.begin([("b", &change)]);
        assert_eq!(recent.mark("b"), None);
        keep(&recent, mark, "k", "1");
        assert_eq!(known(&recent, "k"), Some(Some(key("1"))));
        recent.end();
        assert!(recent.mark("b").is_some());
    }

    #[test]
    fn what_was_read_before_all_was_forgotten_is_not_taken_up() {
        let recent = Recent::default();
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
    fn namespaces_are_apart_and_one_that_is_not_there_is_known_too() {
        let recent = Recent::default();
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
    fn it_takes_so_much_and_no_more() {
        let recent = Recent::default();
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
