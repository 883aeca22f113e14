//! Values that were read lately, in memory: whoever asks for one of these waits for no thread and no disk.
//!
//! What is known is what the last commit has. Before a commit can be seen the writer takes away what it changes, and
//! until it has ended nothing is taken up that was read before or meanwhile: a read has a mark from before it, which
//! a commit in between makes worthless. A namespace has a part of its own, so that no function drives out what
//! another one reads, as far as there are not too many of them.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::change::Change;

/// Bytes of keys and values that a namespace takes up until it forgets those that it took up before: so it has twice
/// that at most.
const EACH: usize = 64 << 10;

/// Longest value that is kept.
const VALUE: usize = 16 << 10;

/// What an entry takes beside its key and value, about.
const ENTRY: usize = 96;

/// Most namespaces: beyond them all others are forgotten.
const NAMESPACES: usize = 256;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Counts commits as they begin and as they end.
    changes: u64,
    /// One is on its way.
    is_changing: bool,
    namespaces: HashMap<String, Namespace>,
}

type Values = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// What is known of a namespace, in two generations: what is asked for again goes over to the young one.
#[derive(Debug, Default)]
struct Namespace {
    young: Values,
    /// Of what was put into the young one.
    bytes: usize,
    old: Values,
}

/// What was read after this was current when it was read, unless a commit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Recent {
    /// The values of these keys, if all are known and take `most` bytes together: those of the last commit.
    pub(super) fn values(
        &self,
        namespace: &str,
        keys: &[Vec<u8>],
        most: usize,
    ) -> Option<Vec<Option<Vec<u8>>>> {
        let mut known = self.lock();
        let namespace = known.namespaces.get_mut(namespace)?;
        let mut values = Vec::with_capacity(keys.len());
        let mut bytes = 0;
        for key in keys {
            let value = namespace.get(key)?;
            bytes += value.as_ref().map_or(0, Vec::len);
            if bytes > most {
                return None;
            }
            values.push(value);
        }
        Some(values)
    }

    /// For a read that begins now; nothing while a commit is on its way.
    pub(super) fn mark(&self) -> Option<Mark> {
        let known = self.lock();
        (!known.is_changing).then_some(Mark(known.changes))
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
        if known.is_changing || known.changes != mark.0 {
            return;
        }
        if !known.namespaces.contains_key(namespace) {
            if known.namespaces.len() == NAMESPACES {
                known.namespaces.clear();
            }
            known
                .namespaces
                .insert(namespace.to_owned(), Namespace::default());
        }
        let Some(namespace) = known.namespaces.get_mut(namespace) else {
            return;
        };
        for (key, value) in keys.iter().zip(values) {
            if value.as_ref().is_none_or(|value| value.len() <= VALUE) {
                namespace.put(key.clone(), value.clone());
            }
        }
    }

    /// These changes may be committed from now on, and seen: nothing of what they change is known any more.
    pub(super) fn begin<'a>(&self, changes: impl IntoIterator<Item = (&'a str, &'a Change)>) {
        let mut known = self.lock();
        known.changes = known.changes.wrapping_add(1);
        known.is_changing = true;
        for (namespace, change) in changes {
            let Some(namespace) = known.namespaces.get_mut(namespace) else {
                continue;
            };
            match change {
                Change::Put(pairs) => pairs.keys().for_each(|key| namespace.forget(key)),
                Change::Increment(key, _) | Change::Swap { key, .. } => namespace.forget(key),
            }
        }
    }

    /// They are committed, or will not be.
    pub(super) fn end(&self) {
        let mut known = self.lock();
        known.changes = known.changes.wrapping_add(1);
        known.is_changing = false;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let values = recent.values("a", &[key(name)], 1 << 20)?;
        values.into_iter().next()
    }

    #[test]
    fn what_a_commit_may_have_changed_is_not_known() {
        let recent = Recent::default();
        let mark = recent.mark().unwrap();
        keep(&recent, mark, "k", "1");
        keep(&recent, mark, "other", "1");
        assert_eq!(known(&recent, "k"), Some(Some(key("1"))));
        let change = Change::Put([(key("k"), None)].into());
        recent.begin([("a", &change)]);
        assert_eq!(known(&recent, "k"), None);
        assert_eq!(known(&recent, "other"), Some(Some(key("1"))));
        // Read before it, or meanwhile.
        assert_eq!(recent.mark(), None);
        keep(&recent, mark, "k", "1");
        recent.end();
        keep(&recent, mark, "k", "1");
        assert_eq!(known(&recent, "k"), None);
        keep(&recent, recent.mark().unwrap(), "k", "2");
        assert_eq!(known(&recent, "k"), Some(Some(key("2"))));
    }

    #[test]
    fn namespaces_are_apart_and_one_that_is_not_there_is_known_too() {
        let recent = Recent::default();
        recent.keep(recent.mark().unwrap(), "a", &[key("k")], &[None]);
        assert_eq!(known(&recent, "k"), Some(None));
        assert_eq!(recent.values("b", &[key("k")], 1), None);
        let both = [key("k"), key("l")];
        assert_eq!(recent.values("a", &both, 1), None);
        recent.keep(recent.mark().unwrap(), "a", &both, &[None, Some(key("22"))]);
        assert_eq!(recent.values("a", &both, 1), None);
        let values = recent.values("a", &both, 2).unwrap();
        assert_eq!(values, [None, Some(key("22"))]);
    }

    #[test]
    fn it_takes_so_much_and_no_more() {
        let recent = Recent::default();
        let mark = recent.mark().unwrap();
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
            recent.keep(mark, &format!("n{number}"), &[key("k")], &[None]);
            assert!(recent.lock().namespaces.len() <= NAMESPACES);
        }
    }
}
