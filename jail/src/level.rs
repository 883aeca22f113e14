//! How strictly a jail confines its process.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// The strictness of a jail.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, TryFromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(u64)]
pub enum ConfinementLevel {
    /// Namespaces, an empty root, no privilege, resource limits, a system-call filter, and a user
    /// of its own if the maker may assign one.
    #[default]
    Full = 0,
    /// No privilege, resource limits, a system-call filter, and Landlock where the kernel has it,
    /// for hosts that allow no namespaces. If the maker has root's privileges, also a user of its
    /// own and an empty root.
    Reduced = 1,
}

impl ConfinementLevel {
    /// Returns the level's number, for [`ConfinementLevel::from_u32`].
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Full => 0,
            Self::Reduced => 1,
        }
    }

    /// Returns the level with this number; `None` for other numbers.
    pub(crate) fn from_u32(number: u32) -> Option<Self> {
        [Self::Full, Self::Reduced]
            .into_iter()
            .find(|level| level.number() == number)
    }
}
