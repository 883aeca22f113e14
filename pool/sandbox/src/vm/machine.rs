//! One VM with one vCPU.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faasw_abi::doorbell::PROGRESS;
use faasw_abi::memory_map::{CODE, MAILBOX};
use faasw_fri::userfault::{Device, Faults};
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

use crate::memory::arena::Arena;
use crate::memory::mapping::Mapping;
use crate::vm::alarm::Alarm;
use crate::vm::cpuid;
use crate::vm::fresh::{Fresh, comparable_msrs};
use crate::vm::ioctls::errno;
use crate::vm::keys::{self, Keys};
use crate::vm::page_walk::{self, PageWalk};
use crate::vm::prefault;
use crate::vm::statistics::{FaultCount, FaultCounter};

/// What all VMs have in common, found out once.
pub struct Template {
    kvm: Kvm,
    cpuid: CpuId,
    tsc_khz: u64,
    msrs: Vec<u32>,
    filters_msrs: bool,
    can_prefault: bool,
    page_walk: PageWalk,
    tells_more: bool,
    keys_part: Option<Range<usize>>,
    fault_device: Option<Device>,
}

impl Template {
    /// Asks the host.
    ///
    /// # Errors
    /// KVM's errors, also if it does not run a trial guest ([`page_walk::observe`]).
    pub fn new(kvm: Kvm) -> io::Result<Self> {
        let cpuid = cpuid::table(&kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?)?;
        // A VM that is thrown away tells what all will have.
        let vm = kvm.create_vm()?;
        let mut vcpu = vm.create_vcpu(0)?;
        vcpu.set_cpuid2(&cpuid)?;
        let tsc_khz = match vcpu.get_tsc_khz() {
            Ok(khz) if khz > 0 => u64::from(khz),
            _ => crate::vm::clock::measure_tsc_khz(),
        };
        let filter = kvm.check_extension_raw(u64::from(KVM_CAP_X86_MSR_FILTER));
        Ok(Self {
            msrs: comparable_msrs(&kvm, &vcpu)?,
            tells_more: cpuid::goes_beyond(&vcpu.get_cpuid2(KVM_MAX_CPUID_ENTRIES)?),
            keys_part: keys::part(&vcpu)?,
            filters_msrs: filter > 0,
            can_prefault: prefault::is_offered(&kvm),
            // Last: it runs a guest.
            page_walk: page_walk::observe(&vm, &mut vcpu)?,
            kvm,
            cpuid,
            tsc_khz,
            fault_device: None,
        })
    }

    /// The same, of sandboxes whose page faults can be answered by others.
    #[must_use]
    pub fn telling_faults(self, fault_device: Option<Device>) -> Self {
        Self {
            fault_device,
            ..self
        }
    }

    /// Page faults of this process, to be answered by others; nothing where the system does not
    /// tell.
    pub fn faults(&self) -> Option<Faults> {
        self.fault_device.as_ref()?.faults().ok()
    }

    /// Whether VMs' second-level tables can be filled in advance.
    pub fn can_prefault(&self) -> bool {
        self.can_prefault
    }

    /// How this host translates guests' addresses.
    pub fn page_walk(&self) -> PageWalk {
        self.page_walk
    }

    /// Measures how long a guest takes to leave its VM and to be entered again.
    ///
    /// # Errors
    /// KVM's.
    pub fn exit_time(&self) -> io::Result<Duration> {
        let vm = self.kvm.create_vm()?;
        let mut vcpu = vm.create_vcpu(0)?;
        vcpu.set_cpuid2(&self.cpuid)?;
        page_walk::exit_time(&vm, &mut vcpu)
    }

    /// Whether KVM tells guests of more than the table that it was given (`kvm-pvm` does
    /// on some hosts).
    pub fn tells_more(&self) -> bool {
        self.tells_more
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

/// Why a run of the vCPU stopped.
pub enum Stop {
    /// The guest wrote this to the doorbell.
    Rang(u32),
    /// The guest shut down.
    Shutdown,
    /// The guest left for another reason, with KVM's number for it.
    Other(u32),
}

/// A VM, made without memory. Its fields are dropped in this order: memory goes when no
/// descriptor of the VM is left.
pub struct Vm {
    pub(crate) vcpu: VcpuFd,
    vm: VmFd,
    pub(crate) fresh: Fresh,
    /// What its guest could change of this thread's own state.
    pub(crate) keys: Keys,
    /// Where PKRU is in the state that KVM is given, if it takes it.
    pub(crate) keys_part: Option<Range<usize>>,
    faults: Option<FaultCounter>,
    can_prefault: bool,
    page_walk: PageWalk,
    /// The guest cannot write MSRs.
    pub(crate) refuses_msrs: bool,
    memory: [kvm_userspace_memory_region; SLOTS],
    /// Until the doorbell is there.
    progress: EventFd,
    is_connected: bool,
    /// Set when it is to end, see [`crate::vm::signals`].
    pub(crate) stop: Option<Arc<AtomicBool>>,
    /// What calls a guest that polls out of it, where there can be hot ones.
    pub(crate) alarm: Option<Alarm>,
    /// What its memory lies in.
    pub(crate) arena: Arena,
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
            keys: Keys::of_this_thread(),
            keys_part: template.keys_part.clone(),
            vcpu,
            vm,
            faults,
            can_prefault: template.can_prefault,
            page_walk: template.page_walk,
            refuses_msrs: template.filters_msrs,
            memory: [kvm_userspace_memory_region::default(); SLOTS],
            progress,
            is_connected: false,
            stop: None,
            alarm: None,
            arena: Arena::default(),
        })
    }

    /// Has its memory unmapped when it is dropped.
    ///
    /// # Safety
    /// As [`Arena::release_at_end`].
    pub(crate) unsafe fn release_memory_at_end(&mut self) {
        // SAFETY: the caller promises it.
        unsafe { self.arena.release_at_end() };
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

    /// How this host translates the guest's addresses.
    pub fn page_walk(&self) -> PageWalk {
        self.page_walk
    }

    /// Fills the second-level tables for a range of guest-physical space. What
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
        // SAFETY: mappings live as long as their arena, and so as the VM.
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
            // SAFETY: the mapping lives as long as its arena, and so as the VM.
            unsafe { self.vm.set_user_memory_region(region) }.map_err(errno)?;
        }
        Ok(())
    }

    /// Runs the vCPU until it leaves for something that KVM does not do itself.
    ///
    /// # Errors
    /// KVM's, `FAULT` among them when the guest used memory that it does not have;
    /// `INTR` when the VM is to end.
    pub fn run(&mut self) -> Result<Stop, Errno> {
        loop {
            if let Some(stop) = self.enter()? {
                return Ok(stop);
            }
            // Of a wait that is over: it would end each run at once.
            self.has_alarm_rung();
        }
    }

    /// As [`Vm::run`], but comes back with nothing where a signal has interrupted it.
    ///
    /// # Errors
    /// As [`Vm::run`].
    pub fn enter(&mut self) -> Result<Option<Stop>, Errno> {
        if self.is_stopped() {
            return Err(Errno::INTR);
        }
        let stopped = self.vcpu.run().map_err(errno);
        self.keys.put_back();
        Ok(Some(match stopped {
            Ok(VcpuExit::IoOut(faasw_abi::doorbell::PORT, data)) => match data.try_into() {
                Ok(value) => Stop::Rang(u32::from_le_bytes(value)),
                Err(_) => Stop::Other(kvm_bindings::KVM_EXIT_IO),
            },
            Ok(VcpuExit::Shutdown) => Stop::Shutdown,
            Ok(_) => Stop::Other(self.vcpu.get_kvm_run().exit_reason),
            Err(Errno::INTR | Errno::AGAIN) => return Ok(None),
            Err(other) => return Err(other),
        }))
    }

    /// Whether its alarm has rung since this was asked last.
    pub fn has_alarm_rung(&self) -> bool {
        self.alarm.as_ref().is_some_and(Alarm::has_rung)
    }

    fn is_stopped(&self) -> bool {
        let stop = self.stop.as_ref();
        stop.is_some_and(|stop| stop.load(Ordering::Acquire))
    }

    /// Where the guest is, for a report.
    pub fn instruction(&self) -> u64 {
        self.vcpu.get_regs().map_or(0, |regs| regs.rip)
    }

    /// Page faults that KVM has fixed for this VM; 0 where it does not count.
    pub fn page_faults(&self) -> u64 {
        let read = self.faults.as_ref().and_then(FaultCounter::read);
        read.unwrap_or_default()
    }

    /// Page faults that were taken so far by the calling thread, which is the one that runs
    /// the vCPU, and fixed by KVM for this VM; nothing where either is not counted.
    pub fn fault_count(&self) -> Option<FaultCount> {
        let vcpu = self.faults.as_ref()?.read()?;
        FaultCount::with(vcpu).ok()
    }
}
