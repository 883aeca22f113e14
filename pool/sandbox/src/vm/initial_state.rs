//! The part of a new vCPU's state that every instance keeps, because only ring 0 can change it.

use std::io;

use kvm_bindings::{Msrs, kvm_debugregs, kvm_msr_entry, kvm_vcpu_events};
use kvm_ioctls::{Kvm, VcpuFd};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::vm::ioctls::errno;

/// `IA32_TIME_STAMP_COUNTER` changes by itself. A guest that sets it also changes
/// `IA32_TSC_ADJUST`, which is compared.
const TIME_STAMP_COUNTER: u32 = 0x10;
/// Hyper-V's time counters, which change by themselves; a guest cannot write them.
const HYPERV_TIMES: [u32; 2] = [0x4000_0010, 0x4000_0020];

/// Returns the MSRs that KVM keeps for a vCPU, that this vCPU has, and that do not change by
/// themselves.
///
/// # Errors
/// Returns KVM's error if it does not list its MSRs.
pub fn comparable_msrs(kvm: &Kvm, vcpu: &VcpuFd) -> io::Result<Vec<u32>> {
    let has = |index: u32| {
        let entry = kvm_msr_entry {
            index,
            ..kvm_msr_entry::default()
        };
        let mut one = Msrs::from_entries(&[entry]).ok()?;
        vcpu.get_msrs(&mut one).ok().filter(|read| *read == 1)
    };
    let runs = |index: &u32| *index == TIME_STAMP_COUNTER || HYPERV_TIMES.contains(index);
    let list = kvm.get_msr_index_list()?;
    Ok(list
        .as_slice()
        .iter()
        .copied()
        .filter(|index| !runs(index) && has(*index).is_some())
        .collect())
}

/// The part of a new vCPU's state that every instance keeps.
pub(crate) struct InitialState {
    debug: kvm_debugregs,
    events: kvm_vcpu_events,
    msrs: Msrs,
}

impl InitialState {
    /// Reads the state of a vCPU that has not run.
    pub(crate) fn of(vcpu: &VcpuFd, msrs: &[u32]) -> Result<Self, Errno> {
        Ok(Self {
            debug: vcpu.get_debug_regs().map_err(errno)?,
            events: vcpu.get_vcpu_events().map_err(errno)?,
            msrs: read_msrs(vcpu, msrs)?,
        })
    }

    /// Whether these pending events are the same as at the start. KVM goes on reporting the details
    /// of events that are over; those do not count.
    pub(crate) fn has_events(&self, events: kvm_vcpu_events) -> bool {
        pending(events).as_bytes() == pending(self.events).as_bytes()
    }

    /// Whether a vCPU has the same debug registers.
    ///
    /// # Errors
    /// Returns KVM's error if it does not return them.
    pub(crate) fn has_debug_registers_of(&self, vcpu: &VcpuFd) -> Result<bool, Errno> {
        let debug = vcpu.get_debug_regs().map_err(errno)?;
        Ok(debug.as_bytes() == self.debug.as_bytes())
    }

    /// Whether a vCPU has the same model-specific registers.
    ///
    /// # Errors
    /// Returns KVM's error, or `INVAL` if it does not return all of them.
    pub(crate) fn has_msrs_of(&self, vcpu: &VcpuFd) -> Result<bool, Errno> {
        let indices: Vec<u32> = self.msrs.as_slice().iter().map(|msr| msr.index).collect();
        let msrs = read_msrs(vcpu, &indices)?;
        let mut both = msrs.as_slice().iter().zip(self.msrs.as_slice());
        Ok(both.all(|(now, then)| now.data == then.data))
    }
}

/// Returns the events without the details of those that are over.
fn pending(mut events: kvm_vcpu_events) -> kvm_vcpu_events {
    if events.exception.injected == 0 && events.exception.pending == 0 {
        events.exception = Default::default();
        events.exception_has_payload = 0;
        events.exception_payload = 0;
    }
    if events.interrupt.injected == 0 {
        events.interrupt.nr = 0;
        events.interrupt.soft = 0;
    }
    events
}

fn read_msrs(vcpu: &VcpuFd, indices: &[u32]) -> Result<Msrs, Errno> {
    let entries: Vec<_> = indices
        .iter()
        .map(|index| kvm_msr_entry {
            index: *index,
            ..kvm_msr_entry::default()
        })
        .collect();
    let mut msrs = Msrs::from_entries(&entries).map_err(|_| Errno::TOOBIG)?;
    if vcpu.get_msrs(&mut msrs).map_err(errno)? != indices.len() {
        return Err(Errno::INVAL);
    }
    Ok(msrs)
}
