//! What a snapshot needs done in a sandbox that is an image of its parent.

use faasw_abi::pages::PageSet;

/// How a snapshot differs from its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Pages to be copied.
    pub filled: PageSet,
    /// Pages of its own layer to be mapped.
    pub mapped: PageSet,
    /// Whether its page tables change what the parent's translate, and not only
    /// translate more. Nothing keeps an entry that is not present, neither KVM's shadows
    /// nor the CPU.
    pub forgets_tables: bool,
    /// What is private in a zygote that is specialised.
    pub(crate) private: PageSet,
    /// How many pages were compared.
    pub(crate) compared: u64,
}

impl Difference {
    /// Bytes that an instance has as its own when it was forked from a specialised zygote: what
    /// was private there, what is copied, and `written`.
    #[must_use]
    pub fn private_bytes(&self, written: &PageSet) -> u64 {
        self.private.union(&self.filled).union(written).bytes()
    }
}
