//! One VM with one vCPU.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use faasw_abi::doorbell::PROGRESS;
use faasw_abi::memory_map::{CODE, MAILBOX};
use kvm_bindings::{
    CpuId, KVM_CAP_X86_MSR_FILTER, KVM_MAX_CPUID_ENTRIES, KVM_MEM_READONLY,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{
    IoEventAddress, Kvm, MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, NoDatamatch,
    VcpuExit, VcpuFd, VmFd,
};
use rustix::io::Errno;
use vmm_sys_util::eventfd::EventFd;

use crate::guest_memory::Mapping;
use crate::prefault;
use crate::state::{Fresh, comparable_msrs};
use crate::statistics::FaultCounter;

/// What all VMs have in common, found out once.
pub struct Template {
    kvm: Kvm,
    cpuid: CpuId,
    tsc_khz: u64,
    msrs: Vec<u32>,
    filters_msrs: bool,
    can_prefault: bool,
}

impl Template {
    /// Asks the host.
    ///
    /// # Errors
    /// When KVM does not answer.
    pub fn new(kvm: Kvm) -> io::Result<Self> {
        let mut cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
        show_instruction_sets(&mut cpuid);
        hide_virtualisation(&mut cpuid);
        // A VM that is thrown away tells what all will have.
        let vcpu = kvm.create_vm()?.create_vcpu(0)?;
        vcpu.set_cpuid2(&cpuid)?;
        let tsc_khz = match vcpu.get_tsc_khz() {
            Ok(khz) if khz > 0 => u64::from(khz),
            _ => crate::clock::measure_tsc_khz(),
        };
        let filter = kvm.check_extension_raw(u64::from(KVM_CAP_X86_MSR_FILTER));
        Ok(Self {
            msrs: comparable_msrs(&kvm, &vcpu)?,
            filters_msrs: filter > 0,
            can_prefault: prefault::is_offered(&kvm),
            kvm,
            cpuid,
            tsc_khz,
        })
    }

    /// Whether VMs' second-level tables can be filled in advance.
    pub fn can_prefault(&self) -> bool {
        self.can_prefault
    }

    /// The MSRs that a VM is compared by, see [`Fresh`].
    pub(crate) fn msrs(&self) -> &[u32] {
        &self.msrs
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

/// Takes nested virtualisation away: a guest of ours has no use for it, and the
/// state of a nested guest is none that a reset could bring back.
fn hide_virtualisation(cpuid: &mut CpuId) {
    const VMX: u32 = 1 << 5;
    const SVM: u32 = 1 << 2;
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            1 => entry.ecx &= !VMX,
            0x8000_0001 => entry.ecx &= !SVM,
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
    pub(crate) vcpu: VcpuFd,
    vm: VmFd,
    pub(crate) fresh: Fresh,
    faults: Option<FaultCounter>,
    can_prefault: bool,
    /// The guest cannot write MSRs.
    pub(crate) refuses_msrs: bool,
    memory: [kvm_userspace_memory_region; SLOTS],
    /// Until the doorbell is there.
    progress: EventFd,
    is_connected: bool,
}

/// The VM's memory slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Slot {
    /// RAM from guest-physical 0.
    Ram,
    /// The mailbox.
    Mailbox,
    /// Compiled code, which the guest cannot write.
    Code,
    /// RAM behind that of the first slot: a slot's size cannot change.
    MoreRam,
}

const SLOTS: usize = 4;

pub(crate) fn errno(error: kvm_ioctls::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// Denies the guest every MSR, reading and writing (`KVM_X86_SET_MSR_FILTER`): it
/// needs none, and what it cannot write need not be brought back.
fn refuse_msrs(vm: &VmFd) -> Result<(), Errno> {
    // Without any range the filter would be off.
    let some = MsrFilterRange {
        flags: MsrFilterRangeFlags::READ | MsrFilterRangeFlags::WRITE,
        base: 0,
        msr_count: 1,
        bitmap: &[0],
    };
    vm.set_msr_filter(MsrFilterDefaultAction::DENY, &[some])
        .map_err(errno)
}

impl Vm {
    /// Makes a VM and its vCPU. An `out` to the progress doorbell will signal
    /// `progress` without an exit (`KVM_IOEVENTFD`).
    ///
    /// # Errors
    /// KVM's.
    pub fn new(template: &Template, progress: OwnedFd) -> Result<Self, Errno> {
        let vm = template.kvm.create_vm().map_err(errno)?;
        if template.filters_msrs {
            refuse_msrs(&vm)?;
        }
        // SAFETY: the descriptor has this one owner from here on.
        let progress = unsafe { EventFd::from_raw_fd(progress.into_raw_fd()) };
        let vcpu = vm.create_vcpu(0).map_err(errno)?;
        vcpu.set_cpuid2(&template.cpuid).map_err(errno)?;
        let faults = FaultCounter::of(&vcpu);
        Ok(Self {
            fresh: Fresh::of(&vcpu, template.msrs())?,
            vcpu,
            vm,
            faults,
            can_prefault: template.can_prefault,
            refuses_msrs: template.filters_msrs,
            memory: [kvm_userspace_memory_region::default(); SLOTS],
            progress,
            is_connected: false,
        })
    }

    /// The descriptors of VM, vCPU, its statistics and the progress doorbell.
    pub fn descriptors(&self) -> [Option<RawFd>; 4] {
        let statistics = self.faults.as_ref().map(AsRawFd::as_raw_fd);
        [
            Some(self.vm.as_raw_fd()),
            Some(self.vcpu.as_raw_fd()),
            statistics,
            Some(self.progress.as_raw_fd()),
        ]
    }

    /// Whether this host fills its second-level tables in advance
    /// (`KVM_PRE_FAULT_MEMORY`), which it only does where the hardware walks them.
    pub fn can_prefault(&self) -> bool {
        self.can_prefault
    }

    /// Fills the second-level tables for a stretch of guest-physical space. What
    /// cannot be filled faults later.
    pub fn prefault(&self, start: u64, bytes: u64) {
        if self.can_prefault {
            prefault::fill(&self.vcpu, start, bytes);
        }
    }

    /// Gives the VM its memory, and its doorbell.
    ///
    /// # Errors
    /// KVM's.
    pub fn place(
        &mut self,
        ram: Mapping,
        mailbox: Mapping,
        code: Option<Mapping>,
    ) -> Result<(), Errno> {
        self.give(Slot::Ram, 0, ram)?;
        self.give(Slot::Mailbox, MAILBOX, mailbox)?;
        if let Some(code) = code {
            self.give(Slot::Code, CODE, code)?;
        }
        // Only now: the first slot that comes after it waits until the kernel has let
        // go of the VM's old list of ports, for 8 ms (`call_srcu`, Linux 6.18).
        if !self.is_connected {
            let port = IoEventAddress::Pio(PROGRESS.into());
            self.vm
                .register_ioevent(&self.progress, &port, NoDatamatch)
                .map_err(errno)?;
            self.is_connected = true;
        }
        Ok(())
    }

    /// Gives the VM memory at guest-physical `start`.
    ///
    /// # Errors
    /// KVM's.
    pub fn give(&mut self, slot: Slot, start: u64, mapping: Mapping) -> Result<(), Errno> {
        let region = kvm_userspace_memory_region {
            slot: slot as u32,
            flags: match slot {
                Slot::Code => KVM_MEM_READONLY,
                Slot::Ram | Slot::Mailbox | Slot::MoreRam => 0,
            },
            guest_phys_addr: start,
            memory_size: mapping.bytes(),
            userspace_addr: mapping.address(),
        };
        // SAFETY: mappings live as long as this process, and so as the VM.
        unsafe { self.vm.set_user_memory_region(region) }.map_err(errno)?;
        if let Some(kept) = self.memory.get_mut(slot as usize) {
            *kept = region;
        }
        Ok(())
    }

    /// Takes the memory of a slot away.
    ///
    /// # Errors
    /// KVM's.
    pub fn take(&mut self, slot: Slot) -> Result<(), Errno> {
        if let Some(kept) = self.memory.get_mut(slot as usize) {
            kept.memory_size = 0;
            // SAFETY: no memory is given.
            unsafe { self.vm.set_user_memory_region(*kept) }.map_err(errno)?;
        }
        Ok(())
    }

    /// Makes KVM forget what it knows of the guest's page tables, by taking RAM
    /// away and giving it back. Where the hardware does not walk them, KVM keeps
    /// shadows of them, and a table that is changed behind its back is stale there. It
    /// forgets those of all slots with any one of them.
    ///
    /// # Errors
    /// KVM's.
    pub fn forget_tables(&self) -> Result<(), Errno> {
        let [ram, ..] = self.memory;
        let gone = kvm_userspace_memory_region {
            memory_size: 0,
            ..ram
        };
        for region in [gone, ram] {
            // SAFETY: the mapping lives as long as this process.
            unsafe { self.vm.set_user_memory_region(region) }.map_err(errno)?;
        }
        Ok(())
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
