//! Protection keys: PKRU, the register that restricts a thread's access to its own memory.
//!
//! No guest sees protection keys in its CPUID table, and a KVM that follows the table switches PKRU
//! between guest and host only for a guest that does. But if a guest runs directly on the CPU
//! (`kvm-pvm`) and the host has protection keys on, `wrpkru` works at level 3. There are two kinds
//! of KVM:
//!
//! - KVM does not handle PKRU: a guest's value would stay for the sandbox and the next request. So
//!   PKRU is restored whenever the vCPU has stopped ([`SavedPkru`]), and the next run finds the
//!   sandbox's value. A guest that denies the sandbox access to its own memory ends it by a fault.
//! - KVM keeps a PKRU for each vCPU, and restores it for the next run. A call that restores a
//!   vCPU's state leaves PKRU alone unless the state names that component, and KVM may not report
//!   the component in a saved state. So each restore names it ([`part`]).

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::ops::Range;

use kvm_bindings::kvm_xsave;
use kvm_ioctls::VcpuFd;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::vm::ioctls::errno;
use crate::vm::xsave::{HEADER, KEYS, LEGACY};

/// Returns where a vCPU's PKRU is in its XSAVE area; `None` if KVM does not accept it on this host.
/// Afterwards, the control words of x87 and SSE in `vcpu` mask no exception, so only a guest that
/// uses neither may run.
///
/// # Errors
/// Returns `OPNOTSUPP` if KVM accepts it only beyond the end of our state; otherwise KVM's error.
pub(crate) fn part(vcpu: &VcpuFd) -> Result<Option<Range<usize>>, Errno> {
    const XSAVE: u32 = 0xd;
    if __cpuid(0).eax < XSAVE || !SavedPkru::are_on() {
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

/// PKRU from before any guest has run; `None` if the host has no protection keys.
#[derive(Clone, Copy, Debug)]
pub struct SavedPkru(Option<u32>);

impl SavedPkru {
    /// Returns the value of the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(Self::are_on().then(read))
    }

    fn are_on() -> bool {
        const OSPKE: u32 = 1 << 4;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & OSPKE != 0
    }

    /// Restores PKRU if a guest has changed it.
    pub fn put_back(self) {
        if let Some(own) = self.0
            && read() != own
        {
            write(own);
        }
    }
}

/// Reads PKRU. The host must have protection keys on.
fn read() -> u32 {
    let pkru;
    // SAFETY: reads a register that exists.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") pkru, out("edx") _, options(nomem, nostack));
    }
    pkru
}

/// Sets PKRU. The host must have protection keys on. All memory of this program has key 0.
fn write(pkru: u32) {
    // SAFETY: the value is the thread's own, or does not concern key 0.
    unsafe {
        asm!("wrpkru", in("ecx") 0, in("eax") pkru, in("edx") 0, options(nostack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_keys_are_restored_after_a_guest() {
        let keys = SavedPkru::of_this_thread();
        let Some(own) = keys.0 else {
            println!("this system has no protection keys");
            return;
        };
        // Key 15, which is not used here: a value that a guest may leave.
        let left = own ^ 0b11 << 30;
        write(left);
        assert_eq!(read(), left, "the test can fail");
        keys.put_back();
        assert_eq!(read(), own);
    }
}
