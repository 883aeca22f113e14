//! The vCPU's state: saving it, restoring it, and detecting changes that no guest of ours makes.
//!
//! A guest of ours runs at privilege level 3, so it changes only general registers and vector
//! state; those are restored at each reset. Only ring 0 can change anything else. A difference
//! there is the mark of a compromised guest, and its instance ends ([`Change`]). Segments, control
//! registers and pending events are compared each time. Debug registers, XCR0 and MSRs are compared
//! if ring 0 may have been entered, which the reset of memory reports. Hidden state that no call
//! reads back cannot have changed: MSRs are denied as a whole, nested virtualisation is hidden, and
//! there is no interrupt controller.

use faasw_abi::doorbell::Doorbell;
use faasw_abi::memory_map::{REWRITE, TOUCH};
use faasw_fri::messages::VcpuState;
use kvm_bindings::{kvm_regs, kvm_sregs, kvm_xcrs, kvm_xsave};
use kvm_ioctls::SyncReg;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::vm::cpuid::STATES;
use crate::vm::ioctls::errno;
use crate::vm::xsave::write_header;
use crate::vm::{Stop, Vm};

/// A part of the state that a guest may not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Change {
    /// Segments, descriptor tables or control registers.
    Control = 1,
    /// Extended control registers.
    Extended = 2,
    /// Debug registers.
    Debug = 3,
    /// Exceptions or interrupts under way.
    Events = 4,
    /// A model-specific register.
    Msr = 5,
}

/// Why a vCPU could not be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// The guest has changed state that it may not change.
    Changed(Change),
    /// KVM failed.
    System(Errno),
}

impl From<Errno> for StateError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Whether XCR0 has a value that an instance may have: x87 and SSE, and no state that seeds do not
/// hold.
fn is_allowed(xcrs: &kvm_xcrs) -> bool {
    let [xcr0, ..] = xcrs.xcrs;
    let states = u64::from(STATES);
    xcrs.nr_xcrs == 1 && xcr0.xcr == 0 && xcr0.value & !states == 0 && xcr0.value & 0b11 == 0b11
}

/// CR4's bit for global pages. A change of it makes KVM flush the guest's TLB.
const PAGE_GLOBAL_ENABLE: u64 = 1 << 7;

impl Vm {
    /// Restores the vCPU to a state.
    ///
    /// # Errors
    /// Returns `INVAL` if the state is not valid; otherwise KVM's error.
    pub fn restore(&self, state: &VcpuState) -> Result<(), Errno> {
        let regs = kvm_regs::read_from_bytes(&state.regs).map_err(|_| Errno::INVAL)?;
        let sregs = kvm_sregs::read_from_bytes(&state.sregs).map_err(|_| Errno::INVAL)?;
        let xcrs = kvm_xcrs::read_from_bytes(&state.xcrs).map_err(|_| Errno::INVAL)?;
        if !is_allowed(&xcrs) {
            return Err(Errno::INVAL);
        }
        self.vcpu.set_sregs(&sregs).map_err(errno)?;
        self.vcpu.set_xcrs(&xcrs).map_err(errno)?;
        self.restore_vectors(state)?;
        self.vcpu.set_regs(&regs).map_err(errno)
    }

    /// Restores x87, SSE and AVX to the values in the state. Every other component of this host's
    /// XCR0 gets the value that it has after a reset of the CPU, whether or not the guest's CPUID
    /// table shows it. For this, the header names only the components that the state has. KVM
    /// leaves PKRU alone unless it is named.
    fn restore_vectors(&self, state: &VcpuState) -> Result<(), Errno> {
        let mut xsave = kvm_xsave::default();
        let area = xsave.region.as_mut_bytes();
        area.copy_from_slice(&state.xsave);
        write_header(area, self.keys_part.clone()).ok_or(Errno::INVAL)?;
        // SAFETY: the structure is as large as any state with the features that XCR0 enables here,
        // and KVM reads no more of it than those.
        unsafe { self.vcpu.set_xsave(&xsave) }.map_err(errno)
    }

    /// Completes the `out` in which the vCPU stopped, and applies registers that were left to the
    /// next run.
    ///
    /// # Errors
    /// Returns `PROTO` if the guest ran on; otherwise KVM's error.
    pub fn complete_exit(&mut self) -> Result<(), Errno> {
        self.vcpu.set_kvm_immediate_exit(1);
        let completed = self.vcpu.run().map(|_| ()).map_err(errno);
        self.keys.put_back();
        self.vcpu.set_kvm_immediate_exit(0);
        match completed {
            Err(Errno::INTR) => Ok(()),
            Err(other) => Err(other),
            Ok(()) => Err(Errno::PROTO),
        }
    }

    /// Returns the state in which the vCPU stopped, after its last `out` is completed.
    ///
    /// # Errors
    /// Returns the errors of [`Vm::complete_exit`], and KVM's error.
    pub fn save(&mut self) -> Result<VcpuState, Errno> {
        self.complete_exit()?;
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

    /// Makes KVM report registers and events with every exit from now on, in the page that it
    /// shares with this process (`KVM_CAP_SYNC_REGS`): each single call for them costs more than
    /// all of them together.
    pub fn watch_registers(&mut self) {
        for set in [
            SyncReg::Register,
            SyncReg::SystemRegister,
            SyncReg::VcpuEvents,
        ] {
            self.vcpu.set_sync_valid_reg(set);
        }
    }

    /// Compares a vCPU that is watched ([`Vm::watch_registers`]) and has stopped with the state to
    /// which it was restored. If ring 0 may have been entered, also compares the state that only
    /// ring 0 can change.
    ///
    /// # Errors
    /// Returns [`StateError::Changed`] if the guest has changed state that it may not change, and
    /// [`StateError::System`] if the comparison is impossible.
    pub fn check(&self, state: &VcpuState, ring_0_entered: bool) -> Result<(), StateError> {
        self.compare(state)?;
        if ring_0_entered {
            if !self.refuses_msrs {
                // Some MSRs are not read back by any call.
                return Err(StateError::System(Errno::OPNOTSUPP));
            }
            self.compare_hidden(state)?;
        }
        Ok(())
    }

    /// Drops KVM's shadows of table entries that were changed behind its back. The guest writes the
    /// entries anew ([`REWRITE`]), because KVM notices a guest's writes. `list` is the address of
    /// the list of entries, `count` their number. The vCPU must have been checked, and must be put
    /// back afterwards.
    ///
    /// # Errors
    /// Returns `PROTO` if the routine does not end as it should; otherwise KVM's error.
    pub fn rewrite(&mut self, state: &VcpuState, list: u64, count: u64) -> Result<(), Errno> {
        self.call(state, REWRITE, list, count, Doorbell::Rewritten)
    }

    /// Lets the guest read a word at each of `count` addresses ([`TOUCH`]), which are listed at
    /// `list`. Otherwise as [`Vm::rewrite`].
    ///
    /// # Errors
    /// Returns the errors of [`Vm::rewrite`].
    pub fn touch(&mut self, state: &VcpuState, list: u64, count: u64) -> Result<(), Errno> {
        self.call(state, TOUCH, list, count, Doorbell::Touched)
    }

    /// Runs one of the routines that every guest has for the host until it rings, unless the list
    /// is empty. The text of the routines and the tables that map it must have the seed's contents.
    fn call(
        &mut self,
        state: &VcpuState,
        routine: u64,
        list: u64,
        count: u64,
        end: Doorbell,
    ) -> Result<(), Errno> {
        if count == 0 {
            return Ok(());
        }
        let regs = kvm_regs::read_from_bytes(&state.regs).map_err(|_| Errno::INVAL)?;
        self.complete_exit()?;
        self.vcpu.sync_regs_mut().regs = kvm_regs {
            rip: routine,
            rdi: list,
            rsi: count,
            ..regs
        };
        self.vcpu.set_sync_dirty_reg(SyncReg::Register);
        match self.run()? {
            Stop::Rang(value) if value == end as u32 => Ok(()),
            _ => Err(Errno::PROTO),
        }
    }

    /// Changes a vCPU that was put back into `from`, and has completed its last exit, to another
    /// state. Parts that are equal in both states are not written.
    ///
    /// # Errors
    /// Returns `INVAL` if a state is not valid; otherwise KVM's error.
    pub fn turn(&mut self, from: &VcpuState, to: &VcpuState) -> Result<(), Errno> {
        if from.sregs != to.sregs || from.xcrs != to.xcrs {
            return self.restore(to);
        }
        if from.xsave != to.xsave {
            self.restore_vectors(to)?;
        }
        // The next run applies them, without a call of its own.
        let regs = kvm_regs::read_from_bytes(&to.regs).map_err(|_| Errno::INVAL)?;
        self.vcpu.sync_regs_mut().regs = regs;
        self.vcpu.set_sync_dirty_reg(SyncReg::Register);
        Ok(())
    }

    /// Resets a vCPU that was checked to the state to which it was restored. With `flush` KVM
    /// flushes the guest's TLB, which is necessary unless no page table was ever written.
    ///
    /// # Errors
    /// Returns the errors of [`Vm::complete_exit`], and `INVAL` if the state is not valid.
    pub fn put_back(&mut self, state: &VcpuState, flush: bool) -> Result<(), Errno> {
        let regs = kvm_regs::read_from_bytes(&state.regs).map_err(|_| Errno::INVAL)?;
        let sregs = kvm_sregs::read_from_bytes(&state.sregs).map_err(|_| Errno::INVAL)?;
        if self.vcpu.sync_regs().regs.rip == regs.rip {
            // The `out` in which the vCPU stopped is not completed yet, and KVM would take the new
            // instruction pointer for that of the `out`.
            self.complete_exit()?;
        }
        self.restore_vectors(state)?;
        let synced = self.vcpu.sync_regs_mut();
        synced.regs = regs;
        let is_other = synced.sregs.as_bytes() != sregs.as_bytes();
        synced.sregs = sregs;
        self.vcpu.set_sync_dirty_reg(SyncReg::Register);
        if !flush && !is_other {
            // The next run applies the registers.
            return Ok(());
        }
        if flush {
            self.vcpu.sync_regs_mut().sregs.cr4 ^= PAGE_GLOBAL_ENABLE;
            self.vcpu.set_sync_dirty_reg(SyncReg::SystemRegister);
            self.complete_exit()?;
            self.vcpu.sync_regs_mut().sregs = sregs;
        }
        self.vcpu.set_sync_dirty_reg(SyncReg::SystemRegister);
        // Left to the next run, this would take time of the next request.
        self.complete_exit()
    }

    /// Compares state that a guest may not change, as KVM reported it with the last exit.
    fn compare(&self, state: &VcpuState) -> Result<(), StateError> {
        let synced = self.vcpu.sync_regs();
        let mut sregs = synced.sregs;
        // The address of the last page fault: a trap of Wasm code changes it.
        sregs.cr2 = kvm_sregs::read_from_bytes(&state.sregs)
            .map_err(|_| Errno::INVAL)?
            .cr2;
        if sregs.as_bytes() != state.sregs.as_slice() {
            return Err(StateError::Changed(Change::Control));
        }
        if !self.fresh.has_events(synced.events) {
            return Err(StateError::Changed(Change::Events));
        }
        Ok(())
    }

    /// Compares state that only ring 0 can change and that KVM does not report with an exit.
    fn compare_hidden(&self, state: &VcpuState) -> Result<(), StateError> {
        let xcrs = self.vcpu.get_xcrs().map_err(errno)?;
        let is_same = [
            (Change::Extended, xcrs.as_bytes() == state.xcrs.as_slice()),
            (
                Change::Debug,
                self.fresh.has_debug_registers_of(&self.vcpu)?,
            ),
            (Change::Msr, self.fresh.has_msrs_of(&self.vcpu)?),
        ];
        match is_same.into_iter().find(|(_, same)| !same) {
            Some((change, _)) => Err(StateError::Changed(change)),
            None => Ok(()),
        }
    }
}

// Checks at compile time that the interface's arrays are as large as KVM's structures.
const _: () = assert!(
    size_of::<kvm_regs>() == 144
        && size_of::<kvm_sregs>() == 312
        && size_of::<kvm_xcrs>() == 392
        && size_of::<[u32; 1024]>() == 4096
);
