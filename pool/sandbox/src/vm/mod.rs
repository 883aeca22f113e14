//! One KVM VM with one vCPU, and its state.
//!
//! `machine` is the VM. `cpuid` is what its guest is told of the CPU, `keys` what it may reach of
//! it all the same, `fresh` what it must not find of what was there before; [`state`] is what the
//! vCPU has in its registers, by `xsave` for those that the kernel gives away as bytes;
//! [`page_walk`] observes how the host translates guests' addresses, [`prefault`] has the kernel
//! fill their second-level page tables, `statistics` counts what that left to do. [`clock`] is the
//! time, `signals` how a vCPU is called out of the guest and [`alarm`] when one is that polls,
//! `ioctls` what KVM's calls are called.

pub mod alarm;
pub mod clock;
mod cpuid;
mod fresh;
pub(crate) mod ioctls;
mod keys;
mod machine;
pub mod page_walk;
pub mod prefault;
pub(crate) mod signals;
pub mod state;
mod statistics;
mod xsave;

pub use machine::{Slot, Stop, Template, Vm};
pub use page_walk::PageWalk;
pub use statistics::FaultCount;
