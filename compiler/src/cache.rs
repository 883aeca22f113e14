//! The cache that a compilation leaves for the next one of the same function: Cranelift's results,
//! each under the digest of its source (`cranelift_codegen::incremental_cache`).
//!
//! ```text
//! cache:  entries: length of the key (u8), length of the value (u32), key, value
//! ```
//!
//! An earlier helper has written the cache, and a tenant's upload may have taken that helper over.
//! Therefore only helpers for the same function receive it, and they read it as untrusted data.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::protocol::contract::CACHE_MAX;
use wasmtime::CacheStore;

/// The results of earlier compilations of a function, and those that this one adds.
#[derive(Debug)]
pub struct Cache {
    earlier: Vec<u8>,
    /// The places of the values in `earlier`.
    places: HashMap<Vec<u8>, Range<usize>>,
    now: Mutex<CacheChanges>,
}

#[derive(Debug, Default)]
struct CacheChanges {
    /// Keys of earlier results that this compilation has used.
    used: BTreeSet<Vec<u8>>,
    made: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Cache {
    /// Creates a cache that starts with what an earlier one has [written](Self::write). Reading
    /// stops at the first malformed entry.
    pub fn new(earlier: &[u8]) -> Self {
        Self {
            places: places(earlier),
            earlier: earlier.to_vec(),
            now: Mutex::default(),
        }
    }

    /// Encodes the results that this compilation has used or made, for the next one. Returns
    /// nothing if that is more than [`CACHE_MAX`].
    pub fn write(&self) -> Vec<u8> {
        let now = self.lock();
        let used = now.used.iter().filter_map(|key| {
            let value = self.earlier.get(self.places.get(key)?.clone())?;
            Some((key, value))
        });
        let made = now.made.iter().map(|(key, value)| (key, value.as_slice()));
        let mut written = Vec::new();
        for (key, value) in used.chain(made) {
            let (Ok(key_length), Ok(length)) =
                (u8::try_from(key.len()), u32::try_from(value.len()))
            else {
                continue;
            };
            written.push(key_length);
            written.extend_from_slice(&length.to_le_bytes());
            written.extend_from_slice(key);
            written.extend_from_slice(value);
            if written.len() as u64 > CACHE_MAX {
                return Vec::new();
            }
        }
        written
    }

    fn lock(&self) -> MutexGuard<'_, CacheChanges> {
        // Every change is a single call, so a panic leaves no partial change.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheStore for Cache {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let place = self.places.get(key);
        if let Some(value) = place.and_then(|place| self.earlier.get(place.clone())) {
            let mut now = self.lock();
            if !now.used.contains(key) {
                now.used.insert(key.to_vec());
            }
            return Some(Cow::Borrowed(value));
        }
        self.lock().made.get(key).cloned().map(Cow::Owned)
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        // The key may exist, for example if an earlier value could not be read.
        let mut now = self.lock();
        now.used.remove(key);
        now.made.insert(key.to_vec(), value);
        true
    }
}

/// Returns the places of the values in a cache, up to the first malformed entry.
fn places(cache: &[u8]) -> HashMap<Vec<u8>, Range<usize>> {
    let mut places = HashMap::new();
    let mut rest = cache;
    while let Some((key, value, behind)) = entry(rest) {
        let end = cache.len() - behind.len();
        places.insert(key.to_vec(), end - value.len()..end);
        rest = behind;
    }
    places
}

/// Splits off the first entry. Returns its key, its value and the rest.
fn entry(cache: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let ([key_length], rest) = cache.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (key, rest) = rest.split_at_checked(usize::from(*key_length))?;
    let (value, rest) = rest.split_at_checked(length)?;
    Some((key, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(cache: &[u8]) -> BTreeSet<Vec<u8>> {
        places(cache).into_keys().collect()
    }

    #[test]
    fn used_and_new_cache_entries_are_kept() {
        let first = Cache::new(b"");
        for key in [b"a", b"b"] {
            assert_eq!(first.get(key), None);
            assert!(first.insert(key, [key, &b"!"[..]].concat()));
            // A second use in the same module.
            assert_eq!(first.get(key).unwrap().len(), 2);
        }
        let second = Cache::new(&first.write());
        assert_eq!(second.get(b"b").unwrap(), &b"b!"[..]);
        assert_eq!(second.get(b"c"), None);
        assert!(second.insert(b"c", Vec::new()));
        let third = second.write();
        assert_eq!(keys(&third), [b"b".to_vec(), b"c".to_vec()].into());
        assert_eq!(Cache::new(&third).get(b"c").unwrap(), &b""[..]);
    }

    #[test]
    fn a_value_that_was_made_again_is_the_new_one() {
        let first = Cache::new(b"");
        first.insert(b"a", b"bad".to_vec());
        let second = Cache::new(&first.write());
        assert_eq!(second.get(b"a").unwrap(), &b"bad"[..]);
        second.insert(b"a", b"good".to_vec());
        assert_eq!(Cache::new(&second.write()).get(b"a").unwrap(), &b"good"[..]);
    }

    #[test]
    fn unreadable_cache_entries_are_skipped() {
        let cache = Cache::new(b"");
        cache.insert(&[1; 32], vec![2; 100]);
        cache.insert(&[3; 32], vec![4; 100]);
        let written = cache.write();
        assert_eq!(keys(&written).len(), 2);
        for end in 0..written.len() {
            let left = keys(&written[..end]).len();
            assert_eq!(left, usize::from(end >= written.len() / 2), "{end}");
        }
        assert_eq!(keys(&[255; 1000]).len(), 0);
    }

    #[test]
    fn too_much_is_not_kept() {
        let cache = Cache::new(b"");
        for key in 0..=u8::MAX {
            cache.insert(&[key], vec![0; 1 << 18]);
        }
        assert_eq!(cache.write(), b"");
    }
}
