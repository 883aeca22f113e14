//! How an XSAVE area is laid out (SDM volume 1, section 13.4), as far as states have it.

use std::ops::Range;

/// x87's and SSE's components of an XSAVE area.
pub(crate) const LEGACY: u64 = 0b011;
/// Where its header is.
pub(crate) const HEADER: Range<usize> = 512..576;
/// Where the upper halves of AVX's registers are in it.
const AVX_PART: Range<usize> = 576..832;
/// PKRU's component (section 13.5.7).
pub(crate) const KEYS: u64 = 1 << 9;

/// Writes the header of an XSAVE area: which components it has (XSTATE_BV), that they lie
/// where they do in the standard format, and nothing else. x87 and SSE always count, so
/// that their control words are the area's; AVX where any bit of it is set, since upper
/// halves that are in use slow SSE down on some CPUs, and zero is what it is without.
/// Protection keys, where KVM takes them (`keys` says where), are as after a reset of the CPU.
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
