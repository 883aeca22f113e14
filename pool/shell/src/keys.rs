//! Protection keys: PKRU, which says what a thread may do with its own memory.
//!
//! No guest is told of them, and KVM changes PKRU between guest and host only for one
//! that was. But where a guest runs on the CPU as it is (`kvm-pvm`), with a host that has
//! them on, `wrpkru` works at level 3: what a guest wrote would be the shell's and the
//! next request's. So PKRU is put back whenever the vCPU has stopped, and the next run
//! finds the shell's. A guest that denies the shell its own memory ends it by a fault.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

/// PKRU as it was when nothing had run; nothing where the system has no protection keys.
#[derive(Clone, Copy, Debug)]
pub struct Keys(Option<u32>);

impl Keys {
    /// As the calling thread has it.
    #[must_use]
    pub fn of_this_thread() -> Self {
        /// CPUID: the system has turned them on.
        const OSPKE: u32 = 1 << 4;
        let has_leaf = __cpuid_count(0, 0).eax >= 7;
        let is_on = has_leaf && __cpuid_count(7, 0).ecx & OSPKE != 0;
        Self(is_on.then(read))
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
