//! A VM with one vCPU.

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
use crate::vm::initial_state::{InitialState, comparable_msrs};
use crate::vm::ioctls::{errno, mask_in_run};
use crate::vm::page_walk::{self, PageWalk};
use crate::vm::prefault;
use crate::vm::protection_keys::{self, SavedPkru};
use crate::vm::signals;
use crate::vm::statistics::{FaultCount, FaultCounter};

/// The properties that all VMs share, determined once.
pub struct VmTemplate {
    kvm: Kvm,
    cpuid: CpuId,
    tsc_khz: u64,
    msrs: Vec<u32>,
    filters_msrs: bool,
    can_prefault: bool,
    page_walk: PageWalk,
    reports_more_features: bool,
    keys_part: Option<Range<usize>>,
    fault_device: Option<Device>,
}

impl VmTemplate {
    /// Determines the host's properties.
    ///
    /// # Errors
    /// Returns KVM's error, also if it does not run a trial guest ([`page_walk::observe`]).
    pub fn new(kvm: Kvm) -> io::Result<Self> {
        let cpuid = cpuid::table(&kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?)?;
        // A temporary VM shows the properties that all VMs will have.
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
            reports_more_features: cpuid::goes_beyond(&vcpu.get_cpuid2(KVM_MAX_CPUID_ENTRIES)?),
            keys_part: protection_keys::part(&vcpu)?,
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

    /// Returns the template with a device through which another process can serve sandboxes' page
    /// faults.
    #[must_use]
    pub fn with_faults(self, fault_device: Option<Device>) -> Self {
        Self {
            fault_device,
            ..self
        }
    }

    /// Returns a descriptor through which another process can serve this process's page faults;
    /// `None` if the host does not support that.
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
    /// Returns KVM's error, also if the trial guest does not run as it must.
    pub fn exit_time(&self) -> io::Result<Duration> {
        let vm = self.kvm.create_vm()?;
        let mut vcpu = vm.create_vcpu(0)?;
        vcpu.set_cpuid2(&self.cpuid)?;
        page_walk::exit_time(&vm, &mut vcpu)
    }

    /// Whether KVM shows guests more features than its table has (`kvm-pvm` does on some hosts).
    pub fn reports_more_features(&self) -> bool {
        self.reports_more_features
    }

    /// Returns the MSRs by which a VM is compared, see [`InitialState`].
    pub(crate) fn msrs(&self) -> &[u32] {
        &self.msrs
    }

    /// Returns the ticks of a guest's time-stamp counter per millisecond.
    pub fn tsc_khz(&self) -> u64 {
        self.tsc_khz
    }
}

/// Why a run of the vCPU stopped.
pub enum Stop {
    /// The guest wrote this value to the doorbell.
    Rang(u32),
    /// The guest shut down.
    Shutdown,
    /// The guest left for another reason, with KVM's number for it.
    Other(u32),
}

/// A VM, made without memory. Its fields are dropped in this order: memory is released when no
/// descriptor of the VM is left.
pub struct Vm {
    pub(crate) vcpu: VcpuFd,
    vm: VmFd,
    pub(crate) fresh: InitialState,
    /// The state of this thread that the guest could change.
    pub(crate) keys: SavedPkru,
    /// Where PKRU is in the state for KVM, if KVM accepts it.
    pub(crate) keys_part: Option<Range<usize>>,
    faults: Option<FaultCounter>,
    can_prefault: bool,
    page_walk: PageWalk,
    /// The guest cannot write MSRs.
    pub(crate) refuses_msrs: bool,
    memory: [kvm_userspace_memory_region; SLOTS],
    /// The eventfd that the progress doorbell signals.
    progress: EventFd,
    is_connected: bool,
    /// Set when the VM is to stop, see [`crate::vm::signals`].
    pub(crate) stop: Option<Arc<AtomicBool>>,
    /// The timer that calls a polling guest out, if this sandbox can be hot.
    pub(crate) alarm: Option<Alarm>,
    /// The address ranges of the guest's memory.
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
    /// RAM after that of the first slot, whose size cannot change.
    MoreRam,
}

const SLOTS: usize = 4;

/// Denies the guest access to every MSR, reading and writing (`KVM_X86_SET_MSR_FILTER`). It needs
/// none, and an MSR that it cannot write need not be restored.
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
    /// Makes a VM and its vCPU. An `out` to the progress doorbell will signal `progress` without an
    /// exit (`KVM_IOEVENTFD`).
    ///
    /// # Errors
    /// Returns KVM's error.
    pub fn new(template: &VmTemplate, progress: OwnedFd) -> Result<Self, Errno> {
        let vm = template.kvm.create_vm().map_err(errno)?;
        if template.filters_msrs {
            refuse_msrs(&vm)?;
        }
        // SAFETY: `into_raw_fd` passes on the descriptor's ownership.
        let progress = unsafe { EventFd::from_raw_fd(progress.into_raw_fd()) };
        let vcpu = vm.create_vcpu(0).map_err(errno)?;
        vcpu.set_cpuid2(&template.cpuid).map_err(errno)?;
        let faults = FaultCounter::of(&vcpu);
        Ok(Self {
            fresh: InitialState::of(&vcpu, template.msrs())?,
            keys: SavedPkru::of_this_thread(),
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

    /// Makes the VM unmap its memory when it is dropped.
    ///
    /// # Safety
    /// As [`Arena::release_at_end`].
    pub(crate) unsafe fn release_memory_at_end(&mut self) {
        // SAFETY: the caller promises it.
        unsafe { self.arena.release_at_end() };
    }

    /// Returns the descriptors of VM, vCPU, its statistics and the progress doorbell.
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

    /// Fills the second-level tables for a range of guest-physical space. Pages that cannot be
    /// filled fault later.
    pub fn prefault(&self, start: u64, bytes: u64) {
        if self.can_prefault {
            prefault::fill(&self.vcpu, start, bytes);
        }
    }

    /// Gives the VM its memory, and connects its doorbell.
    ///
    /// # Errors
    /// Returns KVM's error.
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
        // Only now: the first slot that comes after it waits for 8 ms until the kernel has released
        // the VM's old list of ports (`call_srcu`, Linux 6.18).
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
    /// Returns KVM's error.
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

    /// Removes the memory of a slot.
    ///
    /// # Errors
    /// Returns KVM's error.
    pub fn take(&mut self, slot: Slot) -> Result<(), Errno> {
        if let Some(kept) = self.memory.get_mut(slot as usize) {
            kept.memory_size = 0;
            // SAFETY: the region has no memory.
            unsafe { self.vm.set_user_memory_region(*kept) }.map_err(errno)?;
        }
        Ok(())
    }

    /// Makes KVM drop its shadows of the guest's page tables, by removing RAM and adding it again.
    /// If the hardware does not walk the tables, KVM keeps shadows of them, and the shadow of a
    /// table that was changed behind its back is stale. Removing any one slot drops the shadows of
    /// all slots.
    ///
    /// # Errors
    /// Returns KVM's error.
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
    /// Returns `INTR` if the VM is to stop; otherwise KVM's error, `FAULT` among them if the guest
    /// used memory that it does not have.
    pub fn run(&mut self) -> Result<Stop, Errno> {
        loop {
            if let Some(stop) = self.enter()? {
                return Ok(stop);
            }
            // An alarm of an earlier wait would end each run at once.
            self.has_alarm_rung();
        }
    }

    /// Does the same as [`Vm::run`], but returns `None` if a signal has interrupted it.
    ///
    /// # Errors
    /// Returns the errors of [`Vm::run`].
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

    /// Makes [`Vm::run`] end with `INTR` once `stop` is set and [`signals::STOP`] was sent to the
    /// thread that runs it. `blocked` is that thread's mask, as [`signals::block`] returns it.
    ///
    /// # Errors
    /// Returns the error of `KVM_SET_SIGNAL_MASK`.
    pub(crate) fn stop_with(&mut self, stop: Arc<AtomicBool>, blocked: u64) -> Result<(), Errno> {
        mask_in_run(
            self.vcpu.as_raw_fd(),
            blocked & !signals::bit(signals::STOP),
        )?;
        self.stop = Some(stop);
        Ok(())
    }

    /// Lets [`Alarm::arm`] call the guest out of [`Vm::enter`]. The calling thread must be the one
    /// that runs the vCPU, in a process of its own.
    ///
    /// # Errors
    /// Returns the error of creating the timer or of `KVM_SET_SIGNAL_MASK`.
    pub(crate) fn set_alarm(&mut self) -> Result<(), Errno> {
        let alarm = Alarm::new()?;
        // A sandbox's process blocks no other signals.
        mask_in_run(self.vcpu.as_raw_fd(), 0)?;
        self.alarm = Some(alarm);
        Ok(())
    }

    /// Whether the alarm has fired since the last call.
    pub fn has_alarm_rung(&self) -> bool {
        self.alarm.as_ref().is_some_and(Alarm::has_rung)
    }

    fn is_stopped(&self) -> bool {
        let stop = self.stop.as_ref();
        stop.is_some_and(|stop| stop.load(Ordering::Acquire))
    }

    /// Returns the guest's instruction pointer, for a report.
    pub fn instruction(&self) -> u64 {
        self.vcpu.get_regs().map_or(0, |regs| regs.rip)
    }

    /// Returns the page faults that KVM has fixed for this VM; 0 if KVM does not count them.
    pub fn page_faults(&self) -> u64 {
        let read = self.faults.as_ref().and_then(FaultCounter::read);
        read.unwrap_or_default()
    }

    /// Returns the page faults so far: those of the calling thread, which is the one that runs the
    /// vCPU, and those that KVM has fixed for this VM. `None` if either is not counted.
    pub fn fault_count(&self) -> Option<FaultCount> {
        let vcpu = self.faults.as_ref()?.read()?;
        FaultCount::with(vcpu).ok()
    }
}
