//! A VM whose guest only leaves the VM again. The guest runs at privilege level 3 in long mode, as
//! a function's guest does.

use anyhow::{Context, Result, bail};
use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

const PAGE: usize = 4096;
/// Guest-physical, and so also virtual, addresses of the guest's pages.
const PML4: usize = PAGE;
const PDPT: usize = 2 * PAGE;
const DIRECTORY: usize = 3 * PAGE;
const CODE: usize = 4 * PAGE;
const BYTES: usize = 5 * PAGE;
/// The port to which `out` writes.
const PORT: u16 = 0x50;
/// The instruction `out dx, al` and a jump back to it.
const PROGRAM: [u8; 3] = [0xee, 0xeb, 0xfd];
/// Flags of an entry: present, writable, for privilege level 3, accessed and dirty. The last two
/// are set in advance, so that no page walk writes to the tables.
const ENTRY: u64 = 0x67;
/// Flag of a directory entry that maps 2 MiB itself.
const LARGE: u64 = 0x80;

/// The guest's memory: page tables that map the first 2 MiB to themselves, and the program.
#[repr(C, align(4096))]
struct Memory([u8; BYTES]);

impl Memory {
    fn new() -> Self {
        let mut memory = Self([0; BYTES]);
        memory.put(PML4, &(PDPT as u64 | ENTRY).to_le_bytes());
        memory.put(PDPT, &(DIRECTORY as u64 | ENTRY).to_le_bytes());
        memory.put(DIRECTORY, &(ENTRY | LARGE).to_le_bytes());
        memory.put(CODE, &PROGRAM);
        memory
    }

    fn put(&mut self, address: usize, bytes: &[u8]) {
        for (to, from) in self.0.iter_mut().skip(address).zip(bytes) {
            *to = *from;
        }
    }
}

/// A VM with one vCPU.
pub struct EmptyVm {
    vcpu: VcpuFd,
    // Keeps the VM open, to which the vCPU's memory belongs.
    _vm: VmFd,
}

impl EmptyVm {
    /// Makes the VM and runs it once, because the first run costs more than all others.
    ///
    /// # Errors
    /// Returns an error if KVM is missing or a call to it fails.
    pub fn new() -> Result<Self> {
        let kvm = Kvm::new().context("/dev/kvm")?;
        let vm = kvm.create_vm()?;
        // The memory is leaked, because KVM does not keep the process from freeing it.
        let memory: &'static Memory = Box::leak(Box::new(Memory::new()));
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: BYTES as u64,
            userspace_addr: std::ptr::from_ref(memory) as u64,
        };
        // SAFETY: the memory is never freed, and nothing here reads it again; the guest, which only
        // runs PROGRAM, does not write to it.
        unsafe { vm.set_user_memory_region(region) }?;
        let vcpu = vm.create_vcpu(0)?;
        vcpu.set_cpuid2(&kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?)?;
        set_up(&vcpu)?;
        let mut empty = Self { vcpu, _vm: vm };
        empty.run()?;
        Ok(empty)
    }

    /// Runs the guest until it leaves.
    ///
    /// # Errors
    /// Returns an error if the run fails, or if the guest leaves other than by its `out`.
    pub fn run(&mut self) -> Result<()> {
        match self.vcpu.run()? {
            VcpuExit::IoOut(PORT, _) => Ok(()),
            other => bail!("the empty guest left by {other:?}"),
        }
    }
}

/// Sets the vCPU to long mode at privilege level 3, at the start of the program.
fn set_up(vcpu: &VcpuFd) -> Result<()> {
    const CODE_SEGMENT: kvm_segment = kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector: 0x2b,
        type_: 11,
        present: 1,
        dpl: 3,
        db: 0,
        s: 1,
        l: 1,
        g: 1,
        avl: 0,
        unusable: 0,
        padding: 0,
    };
    const DATA_SEGMENT: kvm_segment = kvm_segment {
        selector: 0x23,
        type_: 3,
        db: 1,
        l: 0,
        ..CODE_SEGMENT
    };
    let mut sregs = vcpu.get_sregs()?;
    sregs.cr0 = 0x8005_0033; // PG, AM, WP, NE, ET, MP, PE
    sregs.cr3 = PML4 as u64;
    sregs.cr4 = 0x620; // OSXMMEXCPT, OSFXSR, PAE
    sregs.efer = 0xd01; // NXE, LMA, LME, SCE
    sregs.cs = CODE_SEGMENT;
    for segment in [
        &mut sregs.ds,
        &mut sregs.es,
        &mut sregs.fs,
        &mut sregs.gs,
        &mut sregs.ss,
    ] {
        *segment = DATA_SEGMENT;
    }
    vcpu.set_sregs(&sregs)?;
    let regs = kvm_regs {
        rip: CODE as u64,
        rdx: PORT.into(),
        rflags: 0x3002, // I/O privilege level 3, and the bit that is always 1
        ..kvm_regs::default()
    };
    Ok(vcpu.set_regs(&regs)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_lead_to_the_program() {
        let memory = Memory::new();
        let entry =
            |address: usize| u64::from_le_bytes(memory.0[address..address + 8].try_into().unwrap());
        let address = |entry: u64| usize::try_from(entry & !0xfff).unwrap();
        assert_eq!(address(entry(PML4)), PDPT);
        assert_eq!(address(entry(PDPT)), DIRECTORY);
        assert_eq!(entry(DIRECTORY), 0xe7);
        assert_eq!(memory.0[CODE..CODE + 3], PROGRAM);
        assert_eq!(align_of::<Memory>(), PAGE);
    }

    #[test]
    fn the_guest_leaves_again_and_again() {
        if !std::path::Path::new("/dev/kvm").exists() {
            eprintln!("no /dev/kvm here: not tried");
            return;
        }
        let mut vm = EmptyVm::new().unwrap();
        for _ in 0..100 {
            vm.run().unwrap();
        }
    }
}
