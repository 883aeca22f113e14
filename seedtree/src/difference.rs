//! The changes that turn a sandbox that is an image of a snapshot's parent into an image of the
//! snapshot.

use faasw_abi::pages::PageSet;

/// How a snapshot differs from its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Pages to be copied.
    pub filled: PageSet,
    /// Pages of its own layer to be mapped.
    pub mapped: PageSet,
    /// Whether its page tables change existing translations of the parent's, and do not only add
    /// some. Additions need no invalidation: neither KVM's shadow tables nor the CPU cache entries
    /// that are not present.
    pub forgets_tables: bool,
    /// Pages that are private in a zygote that is specialised for the parent.
    pub(crate) private: PageSet,
    /// Number of pages that were compared.
    pub(crate) compared: u64,
}

impl Difference {
    /// Returns the bytes of private memory of an instance that was forked from a specialised
    /// zygote: the private pages there, the copied pages, and `written`.
    #[must_use]
    pub fn private_bytes(&self, written: &PageSet) -> u64 {
        self.private.union(&self.filled).union(written).bytes()
    }
}
