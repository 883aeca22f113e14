//! The layout of an XSAVE area (SDM volume 1, section 13.4), as far as states use it.

use std::ops::Range;

/// x87's and SSE's components of an XSAVE area.
pub(crate) const LEGACY: u64 = 0b011;
/// The range of the header.
pub(crate) const HEADER: Range<usize> = 512..576;
/// The range of the upper halves of AVX's registers.
const AVX_PART: Range<usize> = 576..832;
/// PKRU's component (section 13.5.7).
pub(crate) const KEYS: u64 = 1 << 9;

/// Writes the header of an XSAVE area: the components that it has (XSTATE_BV), in the standard
/// format. x87 and SSE are always included, so that their control words are the area's. AVX is
/// included if any bit of it is set: upper halves in use slow SSE down on some CPUs, and a
/// component that is left out is zero. Protection keys, if KVM accepts them (at `keys`), are as
/// after a reset of the CPU.
pub(crate) fn write_header(area: &mut [u8], keys: Option<Range<usize>>) -> Option<()> {
    const AVX: u64 = 0b100;
    let mut states = LEGACY;
    if area.get(AVX_PART)?.iter().any(|byte| *byte != 0) {
        states |= AVX;
    }
    if let Some(part) = keys {
        area.get_mut(part)?.fill(0);
        states |= KEYS;
    }
    let (in_use, rest) = area.get_mut(HEADER)?.split_at_mut_checked(8)?;
    in_use.copy_from_slice(&states.to_le_bytes());
    rest.fill(0);
    Some(())
}
