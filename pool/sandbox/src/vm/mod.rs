//! A KVM VM with one vCPU, and its state.
//!
//! `machine` is the VM. `cpuid` makes the CPUID table that its guest sees. `protection_keys`
//! restores the register that the guest may reach all the same. `initial_state` has the state that
//! a new vCPU has and keeps, and [`ring3`] the system registers of guests. [`state`] saves,
//! restores and compares the vCPU's state, with `xsave` for the part that the kernel handles as
//! bytes. [`page_walk`] observes how the host translates guests' addresses. [`prefault`] lets the
//! kernel fill second-level page tables in advance, and `statistics` counts the faults that remain.
//! [`clock`] has the time. `signals` calls a vCPU out of the guest, and [`alarm`] one whose guest
//! polls for too long. `ioctls` has the numbers of KVM's calls.

pub mod alarm;
pub mod clock;
mod cpuid;
mod initial_state;
pub(crate) mod ioctls;
mod machine;
pub mod page_walk;
pub mod prefault;
mod protection_keys;
pub mod ring3;
pub(crate) mod signals;
pub mod state;
mod statistics;
mod xsave;

pub use machine::{Slot, Stop, Vm, VmTemplate};
pub use page_walk::PageWalk;
pub use statistics::FaultCount;
