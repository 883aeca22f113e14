//! The digests of modules that versions and engines use, and how many use each. They are counted
//! once and updated with each change, so that no change has to read all records.

use std::collections::{BTreeSet, HashMap};

use faasw_client::{Digest, EngineUse};
use redb::{ReadTransaction, ReadableTable as _};
use serde::Deserialize;

use super::{
    FilesRecord, RegistryError,
    tables::{VERSIONS, engines_in, read_record},
};

/// How many records use each digest.
#[derive(Clone, Debug, Default)]
pub(super) struct DigestUses(HashMap<Digest, usize>);

/// The digests that a change adds to and drops from the used ones. A digest occurs once for each
/// record.
#[derive(Debug, Default)]
pub(super) struct UseChange {
    pub(super) added: Vec<Digest>,
    pub(super) dropped: Vec<Digest>,
}

/// The part of a version's record that is read in a search through all of them.
#[derive(Deserialize)]
struct Parts {
    digest: Digest,
    #[serde(default)]
    engine: Option<EngineUse>,
    #[serde(default)]
    files: Option<FilesRecord>,
}

impl DigestUses {
    /// Counts the digests in a state of the store.
    pub(super) fn of(state: &ReadTransaction) -> Result<Self, RegistryError> {
        let mut uses = Self::default();
        for entry in state.open_table(VERSIONS)?.iter()? {
            let (key, value) = entry?;
            let parts: Parts = read_record(key.value().0, value.value())?;
            uses.add(parts.digest);
            let engine = parts.engine.map(|engine| engine.digest);
            let files = parts.files.map(|files| files.digest);
            engine
                .into_iter()
                .chain(files)
                .for_each(|used| uses.add(used));
        }
        for record in engines_in(state)?.values() {
            uses.add(record.digest);
        }
        Ok(uses)
    }

    fn add(&mut self, digest: Digest) {
        *self.0.entry(digest).or_default() += 1;
    }

    /// Whether any record uses this digest.
    pub(super) fn has(&self, digest: Digest) -> bool {
        self.0.contains_key(&digest)
    }

    /// Returns those dropped digests that no record uses after the change.
    pub(super) fn unused_after(&self, use_change: &UseChange) -> BTreeSet<Digest> {
        let count =
            |all: &[Digest], one: Digest| all.iter().filter(|digest| **digest == one).count();
        let dropped = use_change.dropped.iter().copied();
        let unused = dropped.filter(|digest| {
            let before = self.0.get(digest).copied().unwrap_or(0);
            let now = before + count(&use_change.added, *digest);
            now <= count(&use_change.dropped, *digest)
        });
        unused.collect()
    }

    /// Applies a change.
    pub(super) fn apply(&mut self, use_change: UseChange) {
        for digest in use_change.added {
            self.add(digest);
        }
        for digest in use_change.dropped {
            if let Some(count) = self.0.get_mut(&digest) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(&digest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_dropped_by_all_its_records_is_unused() {
        let [one, other] = [Digest::of(b"one"), Digest::of(b"other")];
        let mut uses = DigestUses::default();
        uses.apply(UseChange {
            added: vec![one, one, other],
            dropped: vec![],
        });
        let drop = |added: &[Digest], dropped: &[Digest]| UseChange {
            added: added.to_vec(),
            dropped: dropped.to_vec(),
        };
        assert!(uses.unused_after(&drop(&[], &[one])).is_empty());
        assert_eq!(uses.unused_after(&drop(&[], &[one, one])), [one].into());
        assert!(uses.unused_after(&drop(&[other], &[other])).is_empty());
        uses.apply(drop(&[other], &[one, other]));
        assert!(uses.has(one) && uses.has(other));
        uses.apply(drop(&[], &[one, other]));
        assert!(!uses.has(one) && !uses.has(other));
    }
}
