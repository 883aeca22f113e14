//! One VM with one vCPU.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use faasw_abi::doorbell::PROGRESS;
use faasw_abi::memory_map::{CODE, MAILBOX};
use faasw_fri::messages::VcpuState;
use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, KVM_MEM_READONLY, kvm_regs, kvm_sregs,
    kvm_userspace_memory_region, kvm_xcrs, kvm_xsave,
};
use kvm_ioctls::{IoEventAddress, Kvm, NoDatamatch, VcpuExit, VcpuFd, VmFd};
use rustix::io::Errno;
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, IntoBytes};

use crate::guest_memory::Mapping;
use crate::statistics::FaultCounter;

/// What all VMs have in common, found out once.
pub struct Template {
    kvm: Kvm,
    cpuid: CpuId,
    tsc_khz: u64,
}

impl Template {
    /// Asks the host.
    ///
    /// # Errors
    /// When KVM does not answer.
    pub fn new(kvm: Kvm) -> io::Result<Self> {
        let mut cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
        show_instruction_sets(&mut cpuid);
        // A VM that is thrown away tells the frequency that all will have.
        let tsc_khz = kvm
            .create_vm()
            .and_then(|vm| vm.create_vcpu(0))
            .and_then(|vcpu| vcpu.get_tsc_khz());
        let tsc_khz = match tsc_khz {
            Ok(khz) if khz > 0 => u64::from(khz),
            _ => crate::clock::measure_tsc_khz(),
        };
        Ok(Self {
            kvm,
            cpuid,
            tsc_khz,
        })
    }

    /// Ticks of a guest's time-stamp counter per millisecond.
    pub fn tsc_khz(&self) -> u64 {
        self.tsc_khz
    }
}

/// Adds the instruction sets of Cranelift's levels that this CPU has. KVM's
/// answer may lack some (`kvm-pvm` leaves LZCNT out), but no hypervisor can
/// withhold them: they are neither trapped nor have state of their own beyond
/// what XCR0 governs.
fn show_instruction_sets(cpuid: &mut CpuId) {
    // SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
    const LEAF_1_ECX: u32 = 1 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23;
    // BMI1, AVX2, BMI2
    const LEAF_7_EBX: u32 = 1 << 3 | 1 << 5 | 1 << 8;
    const LZCNT: u32 = 1 << 5;
    const EXTENDED: u32 = 0x8000_0001;
    for entry in cpuid.as_mut_slice() {
        match (entry.function, entry.index) {
            (1, _) => entry.ecx |= __cpuid(1).ecx & LEAF_1_ECX,
            (7, 0) => entry.ebx |= __cpuid_count(7, 0).ebx & LEAF_7_EBX,
            (EXTENDED, _) => entry.ecx |= __cpuid(EXTENDED).ecx & LZCNT,
            _ => {}
        }
    }
}

/// Why a run of the vCPU stopped.
pub enum Stop {
    /// The guest wrote this to the doorbell.
    Rang(u32),
    /// The guest shut down.
    Shutdown,
    /// The guest left for another reason, with KVM's number for it.
    Other(u32),
}

/// A VM, made without memory.
pub struct Vm {
    vcpu: VcpuFd,
    vm: VmFd,
    faults: Option<FaultCounter>,
}

fn errno(error: kvm_ioctls::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

impl Vm {
    /// Makes a VM and its vCPU. An `out` to the progress doorbell signals
    /// `progress` without an exit (`KVM_IOEVENTFD`).
    ///
    /// # Errors
    /// KVM's.
    pub fn new(template: &Template, progress: OwnedFd) -> Result<Self, Errno> {
        let vm = template.kvm.create_vm().map_err(errno)?;
        // SAFETY: the descriptor has this one owner from here on.
        let progress = unsafe { EventFd::from_raw_fd(progress.into_raw_fd()) };
        let port = IoEventAddress::Pio(PROGRESS.into());
        vm.register_ioevent(&progress, &port, NoDatamatch)
            .map_err(errno)?;
        let vcpu = vm.create_vcpu(0).map_err(errno)?;
        vcpu.set_cpuid2(&template.cpuid).map_err(errno)?;
        let faults = FaultCounter::of(&vcpu);
        Ok(Self { vcpu, vm, faults })
    }

    /// Gives the VM its memory.
    ///
    /// # Errors
    /// KVM's.
    pub fn place(&self, ram: Mapping, mailbox: Mapping, code: Mapping) -> Result<(), Errno> {
        for (slot, (guest_phys_addr, mapping, flags)) in [
            (0, ram, 0),
            (MAILBOX, mailbox, 0),
            (CODE, code, KVM_MEM_READONLY),
        ]
        .into_iter()
        .enumerate()
        {
            let region = kvm_userspace_memory_region {
                slot: slot as u32,
                flags,
                guest_phys_addr,
                memory_size: mapping.bytes(),
                userspace_addr: mapping.address(),
            };
            // SAFETY: mappings live as long as this process, and so as the VM.
            unsafe { self.vm.set_user_memory_region(region) }.map_err(errno)?;
        }
        Ok(())
    }

    /// Puts the vCPU into a state.
    ///
    /// # Errors
    /// KVM's; `INVAL` when the state is not one.
    pub fn restore(&self, state: &VcpuState) -> Result<(), Errno> {
        let regs = kvm_regs::read_from_bytes(&state.regs).map_err(|_| Errno::INVAL)?;
        let sregs = kvm_sregs::read_from_bytes(&state.sregs).map_err(|_| Errno::INVAL)?;
        let xcrs = kvm_xcrs::read_from_bytes(&state.xcrs).map_err(|_| Errno::INVAL)?;
        let mut xsave = kvm_xsave::default();
        xsave.region.as_mut_bytes().copy_from_slice(&state.xsave);
        self.vcpu.set_sregs(&sregs).map_err(errno)?;
        self.vcpu.set_xcrs(&xcrs).map_err(errno)?;
        // SAFETY: the structure is as large as any state with the features that
        // XCR0 enables here, and KVM reads no more of it than those.
        unsafe { self.vcpu.set_xsave(&xsave) }.map_err(errno)?;
        self.vcpu.set_regs(&regs).map_err(errno)
    }

    /// The state that the vCPU stopped in, with its last `out` completed.
    ///
    /// # Errors
    /// KVM's.
    pub fn save(&mut self) -> Result<VcpuState, Errno> {
        self.vcpu.set_kvm_immediate_exit(1);
        let completed = self.vcpu.run().map(|_| ()).map_err(errno);
        self.vcpu.set_kvm_immediate_exit(0);
        match completed {
            Err(Errno::INTR) => {}
            Err(other) => return Err(other),
            Ok(()) => return Err(Errno::PROTO),
        }
        let mut state = VcpuState {
            regs: [0; 144],
            sregs: [0; 312],
            xcrs: [0; 392],
            xsave: [0; 4096],
        };
        let regs = self.vcpu.get_regs().map_err(errno)?;
        let sregs = self.vcpu.get_sregs().map_err(errno)?;
        let xcrs = self.vcpu.get_xcrs().map_err(errno)?;
        let xsave = self.vcpu.get_xsave().map_err(errno)?;
        state.regs.copy_from_slice(regs.as_bytes());
        state.sregs.copy_from_slice(sregs.as_bytes());
        state.xcrs.copy_from_slice(xcrs.as_bytes());
        state.xsave.copy_from_slice(xsave.region.as_bytes());
        Ok(state)
    }

    /// Runs the vCPU until it leaves for something that KVM does not do itself.
    ///
    /// # Errors
    /// KVM's, `FAULT` among them when the guest used memory that it does not have.
    pub fn run(&mut self) -> Result<Stop, Errno> {
        loop {
            match self.vcpu.run().map_err(errno) {
                Ok(VcpuExit::IoOut(faasw_abi::doorbell::PORT, data)) => {
                    if let Ok(value) = data.try_into() {
                        return Ok(Stop::Rang(u32::from_le_bytes(value)));
                    }
                    return Ok(Stop::Other(kvm_bindings::KVM_EXIT_IO));
                }
                Ok(VcpuExit::Shutdown) => return Ok(Stop::Shutdown),
                Ok(_) => return Ok(Stop::Other(self.vcpu.get_kvm_run().exit_reason)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(other) => return Err(other),
            }
        }
    }

    /// Where the guest is, for a report.
    pub fn instruction(&self) -> u64 {
        self.vcpu.get_regs().map_or(0, |regs| regs.rip)
    }

    /// Page faults that KVM has fixed for this VM; 0 where it does not count.
    pub fn page_faults(&self) -> u64 {
        self.faults.as_ref().map_or(0, FaultCounter::read)
    }
}

// Rust's own check that the interface's arrays are as large as KVM's structures.
const _: () = assert!(
    size_of::<kvm_regs>() == 144
        && size_of::<kvm_sregs>() == 312
        && size_of::<kvm_xcrs>() == 392
        && size_of::<[u32; 1024]>() == 4096
);
