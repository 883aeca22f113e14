//! Names of seeds by what they are made of.
//!
//! Two seeds that are made by the same steps from the same bytes are one, and are made
//! once, but never across owners: pages that two functions share are a side channel,
//! whether or not their bytes were equal before.

use std::fmt;

use sha2::{Digest, Sha256};

/// Bytes of a digest.
const BYTES: usize = 32;

/// Set apart from whatever else is hashed; changes when what is hashed does.
const DOMAIN: &[u8] = b"faasw seed 1";

/// Whose code a seed has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Nobody's but the provider's: everybody may be forked from it.
    Shared,
    /// One function's, in whatever version.
    Function(u64),
}

impl Owner {
    /// Whether what is `child`'s may be forked from what is this one's.
    #[must_use]
    pub fn admits(self, child: Self) -> bool {
        self == Self::Shared || self == child
    }
}

/// What a step does to its parent's memory: its code, its configuration and whatever
/// else its result depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepDigest([u8; BYTES]);

impl StepDigest {
    /// Of a step that these parts determine, in this order. Where one ends and the next
    /// begins makes a difference.
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

/// A seed's name: its parent's, its owner and its step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; BYTES]);

impl Key {
    /// Of what `step` makes of `parent`; of nothing where there is none.
    #[must_use]
    pub fn new(parent: Option<Self>, owner: Owner, step: StepDigest) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        // Every field has one size, whatever it says: no two lists of fields are equal bytes.
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

/// In hexadecimal digits, all of them.
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
    fn a_key_tells_parent_owner_and_step() {
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
    fn what_is_one_functions_is_no_others() {
        let [one, other] = [1, 2].map(Owner::Function);
        assert!(Owner::Shared.admits(Owner::Shared) && Owner::Shared.admits(one));
        assert!(one.admits(one) && !one.admits(other) && !one.admits(Owner::Shared));
    }
}
