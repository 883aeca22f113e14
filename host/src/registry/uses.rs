//! Which modules versions and engines have, and how many have each: counted once, and kept up
//! with each change, so that none has to look at all of them.

use std::collections::{BTreeSet, HashMap};

use faasw_client::{Digest, EngineUse};
use redb::{ReadTransaction, ReadableTable as _};
use serde::Deserialize;

use super::{
    FilesRecord, RegistryError,
    tables::{VERSIONS, engines_in, read_record},
};

/// How many records have each digest.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(HashMap<Digest, usize>);

/// What a change adds to the digests that are used, and takes from them; one that is there
/// several times was or is in as many records.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) added: Vec<Digest>,
    pub(super) dropped: Vec<Digest>,
}

/// The part of a version's record that is looked for in all of them.
#[derive(Deserialize)]
struct Parts {
    digest: Digest,
    #[serde(default)]
    engine: Option<EngineUse>,
    #[serde(default)]
    files: Option<FilesRecord>,
}

impl Uses {
    /// Those of a state of the store.
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

    /// Whether anything has this digest.
    pub(super) fn has(&self, digest: Digest) -> bool {
        self.0.contains_key(&digest)
    }

    /// Those of the digests that a change drops that nothing has after it.
    pub(super) fn unused_after(&self, exchange: &Exchange) -> BTreeSet<Digest> {
        let count =
            |all: &[Digest], one: Digest| all.iter().filter(|digest| **digest == one).count();
        let dropped = exchange.dropped.iter().copied();
        let unused = dropped.filter(|digest| {
            let before = self.0.get(digest).copied().unwrap_or(0);
            let now = before + count(&exchange.added, *digest);
            now <= count(&exchange.dropped, *digest)
        });
        unused.collect()
    }

    /// A change was made.
    pub(super) fn apply(&mut self, exchange: Exchange) {
        for digest in exchange.added {
            self.add(digest);
        }
        for digest in exchange.dropped {
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
    fn what_is_dropped_as_often_as_it_is_there_is_unused() {
        let [one, other] = [Digest::of(b"one"), Digest::of(b"other")];
        let mut uses = Uses::default();
        uses.apply(Exchange {
            added: vec![one, one, other],
            dropped: vec![],
        });
        let drop = |added: &[Digest], dropped: &[Digest]| Exchange {
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
