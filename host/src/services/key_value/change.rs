//! Changes of a namespace and their results. A change is made completely or not at all.

use std::collections::BTreeMap;

/// The limits of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Keys.
    pub(crate) keys: u64,
    /// Bytes of keys and values together.
    pub(crate) bytes: u64,
}

/// A change of a namespace.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Sets or removes keys.
    Put(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
    /// Adds to the number in a key.
    Increment(Vec<u8>, i64),
    /// Sets a key if its value is still `seen`.
    Swap {
        key: Vec<u8>,
        seen: Option<Vec<u8>>,
        value: Vec<u8>,
    },
}

impl Change {
    /// Returns the bytes of its keys and values.
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

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// The change is made.
    Done,
    /// The number that the key has now.
    Number(i64),
    /// No change was made, because the key has another value.
    Stale(Option<Vec<u8>>),
}

impl Changed {
    /// Whether there is anything to write.
    pub(super) fn has_changed(&self) -> bool {
        !matches!(self, Self::Stale(_))
    }
}
