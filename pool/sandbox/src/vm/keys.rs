//! Protection keys: PKRU, which says what a thread may do with its own memory.
//!
//! No guest is told of them, and where KVM goes by that it changes PKRU between guest and
//! host only for one that was. But where a guest runs on the CPU as it is (`kvm-pvm`), with
//! a host that has them on, `wrpkru` works at level 3. There are two kinds:
//!
//! - KVM does not know of it: what a guest wrote would be the sandbox's and the next
//!   request's. So PKRU is put back whenever the vCPU has stopped ([`Keys`]), and the next
//!   run finds the sandbox's. A guest that denies the sandbox its own memory ends it by a fault.
//! - KVM keeps a PKRU for each vCPU, and gives it back to the next run. It leaves that alone
//!   in a restore unless the state has the component, although it may not tell it: so each
//!   restore names it ([`part`]).

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::ops::Range;

use kvm_bindings::kvm_xsave;
use kvm_ioctls::VcpuFd;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::vm::ioctls::errno;
use crate::vm::xsave::{HEADER, KEYS, LEGACY};

/// Where a vCPU's PKRU is in its XSAVE area, on a host where KVM takes it. `vcpu` is thrown
/// away after it was asked.
///
/// # Errors
/// `OPNOTSUPP` when KVM takes it beyond what a state of ours has room for.
pub(crate) fn part(vcpu: &VcpuFd) -> Result<Option<Range<usize>>, Errno> {
    const XSAVE: u32 = 0xd;
    if __cpuid(0).eax < XSAVE || !Keys::are_on() {
        return Ok(None);
    }
    let place = __cpuid_count(XSAVE, KEYS.trailing_zeros());
    let part = place.ebx as usize..(place.ebx + place.eax) as usize;
    let mut xsave = kvm_xsave::default();
    let area = xsave.region.as_mut_bytes();
    if let Some(in_use) = area.get_mut(HEADER).and_then(|header| header.get_mut(..8)) {
        in_use.copy_from_slice(&(LEGACY | KEYS).to_le_bytes());
    }
    let has_room = !part.is_empty() && area.get(part.clone()).is_some();
    // SAFETY: no component beyond the structure is named.
    match unsafe { vcpu.set_xsave(&xsave) }.map_err(errno) {
        Ok(()) if has_room => Ok(Some(part)),
        Ok(()) => Err(Errno::OPNOTSUPP),
        Err(Errno::INVAL) => Ok(None),
        Err(other) => Err(other),
    }
}

/// PKRU as it was when nothing had run; nothing where the system has no protection keys.
#[derive(Clone, Copy, Debug)]
pub struct Keys(Option<u32>);

impl Keys {
    /// As the calling thread has it.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(Self::are_on().then(read))
    }

    /// Whether the system has turned them on.
    fn are_on() -> bool {
        const OSPKE: u32 = 1 << 4;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & OSPKE != 0
    }

    /// Puts it back, if a guest has changed it.
    pub fn put_back(self) {
        if let Some(own) = self.0
            && read() != own
        {
            write(own);
        }
    }
}

/// PKRU. The system must have protection keys on.
fn read() -> u32 {
    let pkru;
    // SAFETY: reads a register that exists.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") pkru, out("edx") _, options(nomem, nostack));
    }
    pkru
}

/// Sets PKRU, likewise. All memory of this program has key 0.
fn write(pkru: u32) {
    // SAFETY: what is written is what the thread had, or says nothing of key 0.
    unsafe {
        asm!("wrpkru", in("ecx") 0, in("eax") pkru, in("edx") 0, options(nostack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_left_is_put_back() {
        let keys = Keys::of_this_thread();
        let Some(own) = keys.0 else {
            println!("this system has no protection keys");
            return;
        };
        // Key 15, which nobody has here: as a guest may leave it.
        let left = own ^ 0b11 << 30;
        write(left);
        assert_eq!(read(), left, "the test can fail");
        keys.put_back();
        assert_eq!(read(), own);
    }
}
