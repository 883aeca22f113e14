//! Names of seeds, derived from their content.
//!
//! Two seeds that are made by the same steps from the same bytes are one seed, and are made once.
//! Seeds of different owners are never the same: pages that two functions share are a side channel,
//! even if their bytes were equal before.

use std::fmt;

use sha2::{Digest, Sha256};

/// Bytes of a digest.
const BYTES: usize = 32;

/// Domain separator of the hash. It changes when the hashed fields do.
const DOMAIN: &[u8] = b"faasw seed 1";

/// The owner of a seed: whose code it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Only the provider's code: every function may be forked from it.
    Shared,
    /// The code of one function, in any version.
    Function(u64),
}

impl Owner {
    /// Returns whether a seed of `child` may be forked from a seed of this owner.
    #[must_use]
    pub fn admits(self, child: Self) -> bool {
        self == Self::Shared || self == child
    }
}

/// A digest of the effect of a step on its parent's memory: its code, its configuration and
/// everything else that its result depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepDigest([u8; BYTES]);

impl StepDigest {
    /// Returns the digest of a step that these parts determine, in this order. The boundaries
    /// between parts are significant.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// A seed's name, derived from its parent's name, its owner and its step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; BYTES]);

impl Key {
    /// Returns the name of the result of `step` on `parent`, or on nothing.
    #[must_use]
    pub fn new(parent: Option<Self>, owner: Owner, step: StepDigest) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        // Every field has a fixed size, so no two lists of fields have equal bytes.
        let (has_parent, parent) = parent.map_or((0, [0; BYTES]), |parent| (1, parent.0));
        hash.update([has_parent]);
        hash.update(parent);
        let (is_owned, number) = match owner {
            Owner::Shared => (0, 0),
            Owner::Function(number) => (1, number),
        };
        hash.update([is_owned]);
        hash.update(number.to_le_bytes());
        hash.update(step.0);
        Self(hash.finalize().into())
    }
}

/// All of it, in hexadecimal digits.
impl fmt::Display for Key {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(text, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_differ_by_parent_owner_and_step() {
        let steps = [&b"a"[..], b"b"].map(|step| StepDigest::of(&[step]));
        let owners = [Owner::Shared, Owner::Function(0), Owner::Function(1)];
        let mut all = BTreeSet::new();
        let mut parents = vec![None];
        for _ in 0..3 {
            let mut children = Vec::new();
            for parent in &parents {
                for owner in owners {
                    children.extend(steps.map(|step| Some(Key::new(*parent, owner, step))));
                }
            }
            all.extend(children.iter().flatten().copied());
            parents = children;
        }
        assert_eq!(all.len(), 6 + 36 + 216);
        let again = Key::new(None, owners[1], steps[1]);
        assert!(all.contains(&again));
        assert_eq!(again.to_string().len(), 2 * BYTES);
    }

    #[test]
    fn where_a_part_ends_makes_a_difference() {
        let digests = [
            StepDigest::of(&[b"ab", b"c"]),
            StepDigest::of(&[b"a", b"bc"]),
            StepDigest::of(&[b"abc"]),
            StepDigest::of(&[b"abc", b""]),
        ];
        for (place, digest) in digests.iter().enumerate() {
            assert!(!digests[..place].contains(digest));
        }
    }

    #[test]
    fn a_functions_seed_admits_no_other_functions_child() {
        let [one, other] = [1, 2].map(Owner::Function);
        assert!(Owner::Shared.admits(Owner::Shared) && Owner::Shared.admits(one));
        assert!(one.admits(one) && !one.admits(other) && !one.admits(Owner::Shared));
    }
}
