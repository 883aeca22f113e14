//! What is to be changed in a namespace, and what comes of it: whole, or not at all.

use std::collections::BTreeMap;

/// How much a namespace may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Keys.
    pub(crate) keys: u64,
    /// Bytes of keys and values together.
    pub(crate) bytes: u64,
}

/// What is to be changed.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Keys get values, or go.
    Put(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
    /// The number of a key is counted up.
    Increment(Vec<u8>, i64),
    /// A key gets a value if it has the one that was seen.
    Swap {
        key: Vec<u8>,
        seen: Option<Vec<u8>>,
        value: Vec<u8>,
    },
}

impl Change {
    /// Bytes of its keys and values.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Put(pairs) => {
                let sizes = pairs
                    .iter()
                    .map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len));
                sizes.sum()
            }
            Self::Increment(key, _) => key.len(),
            Self::Swap { key, seen, value } => {
                key.len() + seen.as_ref().map_or(0, Vec::len) + value.len()
            }
        }
    }
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// It is done.
    Done,
    /// The number that the key has now.
    Number(i64),
    /// Nothing was done: another value is there.
    Stale(Option<Vec<u8>>),
}

impl Changed {
    /// Whether there is anything to be written.
    pub(super) fn has_changed(&self) -> bool {
        !matches!(self, Self::Stale(_))
    }
}
