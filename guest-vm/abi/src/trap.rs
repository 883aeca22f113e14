//! Which trap ended a run.

use zerocopy::{IntoBytes, TryFromBytes};

/// The kind of a trap, as the guest reports it with [`crate::outcome::Outcome::Trap`].
///
/// The host does not trust this value: it only decides how the trap is counted. The textual report
/// holds more detail for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
#[repr(u32)]
pub enum TrapKind {
    /// An `unreachable` instruction: panics of most languages end in one.
    Unreachable = 1,
    /// A load or store outside a linear memory.
    MemoryOutOfBounds = 2,
    /// An index outside a table.
    TableOutOfBounds = 3,
    /// A call through an empty table element.
    NullElement = 4,
    /// A call through a table element of another type.
    SignatureMismatch = 5,
    /// An integer division by zero.
    DivideByZero = 6,
    /// An integer division whose result does not fit.
    IntegerOverflow = 7,
    /// A conversion to an integer of a NaN, or of a number that does not fit.
    BadConversion = 8,
    /// The stack was used up.
    StackExhausted = 9,
    /// Any trap of a function to which memory was refused before: the refusal is the likely reason.
    MemoryLimit = 10,
    /// Any other trap, including those that host functions raise.
    Other = 11,
}

impl TrapKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Unreachable,
        Self::MemoryOutOfBounds,
        Self::TableOutOfBounds,
        Self::NullElement,
        Self::SignatureMismatch,
        Self::DivideByZero,
        Self::IntegerOverflow,
        Self::BadConversion,
        Self::StackExhausted,
        Self::MemoryLimit,
        Self::Other,
    ];

    /// Returns the kind that a number in the mailbox stands for. 0 is no kind: it is the initial
    /// value, before any guest has run.
    #[must_use]
    pub fn from_u32(value: u32) -> Option<Self> {
        Self::try_read_from_bytes(value.as_bytes()).ok()
    }

    /// Returns the name of the kind as metrics spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::MemoryOutOfBounds => "memory-out-of-bounds",
            Self::TableOutOfBounds => "table-out-of-bounds",
            Self::NullElement => "null-element",
            Self::SignatureMismatch => "signature-mismatch",
            Self::DivideByZero => "divide-by-zero",
            Self::IntegerOverflow => "integer-overflow",
            Self::BadConversion => "bad-conversion",
            Self::StackExhausted => "stack-exhausted",
            Self::MemoryLimit => "memory-limit",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_mailbox_and_nothing_else_does() {
        for kind in TrapKind::ALL {
            assert_eq!(TrapKind::from_u32(kind as u32), Some(kind));
        }
        let known = (0..1000).filter(|number| TrapKind::from_u32(*number).is_some());
        assert_eq!(known.count(), TrapKind::ALL.len());
        assert_eq!(TrapKind::from_u32(0), None);
        assert_eq!(TrapKind::from_u32(u32::MAX), None);
    }

    #[test]
    fn no_two_kinds_have_one_name() {
        for (index, kind) in TrapKind::ALL.iter().enumerate() {
            let same = |other: &&TrapKind| other.name() == kind.name();
            assert_eq!(
                TrapKind::ALL.iter().position(|other| same(&other)),
                Some(index)
            );
        }
    }
}
