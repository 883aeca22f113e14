//! The instruction sets that functions are compiled for.
//!
//! A guest can use all features of the host's CPU, whatever CPUID reports. The choice is therefore
//! made when a function is compiled, and is recorded with the result.

use core::fmt;
use core::str::FromStr;

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// An instruction set level of the x86-64 psABI.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    TryFromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(u64)]
pub enum Isa {
    /// x86-64-v2: up to SSE4.2 and POPCNT.
    V2 = 2,
    /// x86-64-v3: also AVX2, FMA, BMI1, BMI2 and LZCNT.
    V3 = 3,
}

impl Isa {
    /// Returns the name as compilers spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V2 => "x86-64-v2",
            Self::V3 => "x86-64-v3",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for an unknown name of an instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownIsa;

impl fmt::Display for UnknownIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown instruction set: x86-64-v2 and x86-64-v3 are known")
    }
}

impl core::error::Error for UnknownIsa {}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Self, UnknownIsa> {
        [Self::V2, Self::V3]
            .into_iter()
            .find(|isa| isa.name() == name)
            .ok_or(UnknownIsa)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_level_is_found_by_name_and_number_and_no_other_is() {
        for isa in [Isa::V2, Isa::V3] {
            assert_eq!(isa.to_string().parse(), Ok(isa));
            assert_eq!(Isa::try_read_from_bytes(isa.as_bytes()), Ok(isa));
        }
        assert_eq!("native".parse::<Isa>(), Err(UnknownIsa));
        assert!(Isa::try_read_from_bytes(4_u64.as_bytes()).is_err());
    }
}
