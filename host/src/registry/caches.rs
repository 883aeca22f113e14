//! Compile caches: data of a function's compilation for its next one (docs/decisions/0022).
//!
//! Nothing depends on them. A cache that cannot be written or read counts as missing.

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use faasw_client::{Digest, FunctionName};

use super::blobs::{Blobs, InMemory};

/// The number of names whose caches are kept in a data directory: those that were compiled last.
const KEPT: usize = 32;

/// The number of names whose caches a node without a data directory keeps in memory.
const KEPT_IN_MEMORY: usize = 2;

/// The length in bytes of the digest in front of a cache.
const DIGEST: usize = 64;

/// The caches of earlier compilations, one per function name.
#[derive(Debug)]
pub(super) struct Caches {
    files: Blobs,
    kept: usize,
    /// The files' names, the one that was written last at the end.
    order: Mutex<Vec<String>>,
}

/// Returns the name of a file. Neither names nor generations contain an `@`.
fn file(name: &FunctionName, generation: &str) -> String {
    format!("{name}@{generation}")
}

fn is_of(file: &str, name: &FunctionName) -> bool {
    file.split_once('@')
        .is_some_and(|(other, _)| other == name.as_str())
}

impl Caches {
    /// Returns the caches in a folder.
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let modified = entry.metadata().and_then(|file| file.modified()).ok()?;
                Some((modified, entry.file_name().into_string().ok()?))
            })
            .collect();
        files.sort();
        Self {
            files: Blobs::Folder(folder),
            kept: KEPT,
            order: Mutex::new(files.into_iter().map(|(_, file)| file).collect()),
        }
    }

    /// Creates empty caches that end with the process.
    pub(super) fn in_memory() -> Self {
        Self {
            files: Blobs::Memory(InMemory::default()),
            kept: KEPT_IN_MEMORY,
            order: Mutex::default(),
        }
    }

    /// Returns the cache of a name by this generation of the engine, if it is undamaged.
    pub(super) fn read(&self, name: &FunctionName, generation: &str) -> Option<Vec<u8>> {
        let file = file(name, generation);
        let kept = self.files.read(&file).unwrap_or_else(|error| {
            tracing::warn!(%error, "the compile cache of a function cannot be read");
            None
        })?;
        let (digest, cache) = kept.split_at_checked(DIGEST)?;
        let is_sound = digest == Digest::of(cache).to_string().as_bytes();
        is_sound.then(|| cache.to_vec())
    }

    /// Stores the cache of a name, in place of its earlier one.
    pub(super) fn write(&self, name: &FunctionName, generation: &str, cache: &[u8]) {
        let file = file(name, generation);
        let digest = Digest::of(cache).to_string();
        let content = [digest.as_bytes(), cache].concat();
        let mut order = self.order();
        order.retain(|other| !is_of(other, name));
        match self.files.write_unsynced(&file, &content) {
            Ok(()) => order.push(file),
            Err(error) => {
                tracing::warn!(%error, function = %name, "a compile cache could not be stored");
            }
        }
        let beyond = order.len().saturating_sub(self.kept);
        order.drain(..beyond);
        self.remove_but(&order);
    }

    /// Removes the cache of a name.
    pub(super) fn forget(&self, name: &FunctionName) {
        let mut order = self.order();
        order.retain(|file| !is_of(file, name));
        self.remove_but(&order);
    }

    /// Removes the caches of names for which `exists` returns false.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        let mut order = self.order();
        order.retain(|file| file.split_once('@').is_some_and(|(name, _)| exists(name)));
        self.remove_but(&order);
    }

    /// Removes all caches to free space. Returns whether there were any.
    pub(super) fn clear(&self) -> bool {
        let mut order = self.order();
        let had_any = !order.is_empty();
        order.clear();
        self.remove_but(&order);
        had_any
    }

    fn remove_but(&self, kept: &[String]) {
        if let Err(error) = self.files.retain(|file| kept.iter().any(|one| one == file)) {
            tracing::warn!(%error, "an unused compile cache could not be removed; the next \
                 deployment retries");
        }
    }

    fn order(&self) -> MutexGuard<'_, Vec<String>> {
        // After a panic the list may be wrong: files that it lacks are removed, and files that do
        // not exist are not found.
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> FunctionName {
        FunctionName::new(name).unwrap()
    }

    fn both(test: impl Fn(&Caches)) {
        let folder = tempfile::tempdir().unwrap();
        test(&Caches::in_folder(folder.path().into()));
        test(&Caches::in_memory());
    }

    #[test]
    fn each_name_has_one_cache_of_one_generation() {
        both(|caches| {
            caches.write(&name("a"), "v3", b"of a");
            caches.write(&name("a-v3"), "v3", b"of another");
            assert_eq!(caches.read(&name("a"), "v3").unwrap(), b"of a");
            assert_eq!(caches.read(&name("a-v3"), "v3").unwrap(), b"of another");
            caches.write(&name("a"), "v4", b"newer");
            assert_eq!(caches.read(&name("a"), "v3"), None);
            assert_eq!(caches.read(&name("a"), "v4").unwrap(), b"newer");
            caches.forget(&name("a"));
            assert_eq!(caches.read(&name("a"), "v4"), None);
            caches.retain(|name| name != "a-v3");
            assert!(!caches.clear());
        });
    }

    #[test]
    fn the_most_recently_written_caches_are_kept() {
        both(|caches| {
            for number in 0..caches.kept {
                caches.write(&name(&format!("f{number}")), "v3", b"cache");
            }
            caches.write(&name("f0"), "v3", b"again");
            caches.write(&name("more"), "v3", b"cache");
            assert_eq!(caches.read(&name("f1"), "v3"), None);
            assert_eq!(caches.read(&name("f0"), "v3").unwrap(), b"again");
            assert!(caches.clear());
            assert_eq!(caches.read(&name("more"), "v3"), None);
        });
    }

    #[test]
    fn caches_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let caches = Caches::in_folder(folder.path().into());
        for one in ["b", "c", "a"] {
            caches.write(&name(one), "v3", one.as_bytes());
        }
        let again = Caches::in_folder(folder.path().into());
        assert_eq!(again.order().as_slice(), ["b@v3", "c@v3", "a@v3"]);
        assert_eq!(again.read(&name("c"), "v3").unwrap(), b"c");
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let caches = Caches::in_folder(folder.path().join("missing"));
        caches.write(&name("a"), "v3", b"cache");
        assert_eq!(caches.read(&name("a"), "v3"), None);
        assert!(!caches.clear());
    }

    #[test]
    fn a_damaged_cache_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let caches = Caches::in_folder(folder.path().into());
        caches.write(&name("a"), "v3", b"cache");
        let path = folder.path().join("a@v3");
        let whole = fs::read(&path).unwrap();
        for damaged in [
            &whole[..whole.len() - 1],
            &whole[..DIGEST - 1],
            b"",
            &[&whole[..], b"x"].concat(),
        ] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(caches.read(&name("a"), "v3"), None);
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(caches.read(&name("a"), "v3").unwrap(), b"cache");
    }
}
