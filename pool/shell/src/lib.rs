//! What the spawner and the shells are made of. The program is `faasw-shell`;
//! this library exists so that tests can drive a VM without a process round it, and
//! programs that ask for it can have shells as threads of their own.
//!
//! - [`vm`], [`state`], [`prefault`]: one KVM VM with one vCPU, and its state; `cpuid`:
//!   what it is told of the CPU, `keys`: what a guest may reach of it all the same; `ioctls`: what
//!   KVM's calls are called.
//! - [`arena`], [`guest_memory`], [`page_map`]: its memory as this process maps it.
//! - [`fork`], [`preset`]: becoming an instance of a seed, at once or in two steps.
//! - [`reset`]: giving an instance its seed's exact state back.
//! - [`shell`], [`spawner`]: the processes.
//! - [`cell`]: what is round a shell. [`thread`]: a shell with nothing round it;
//!   `signals`: how that is ended. [`ending`]: how a shell ends that has no memory left.

pub mod arena;
pub mod cell;
mod clock;
mod cpuid;
pub mod ending;
pub mod fork;
mod fresh;
pub mod guest_memory;
mod ioctls;
mod keys;
pub mod launcher;
pub mod mailbox;
pub mod maker;
pub mod mapping;
pub mod outer;
pub mod page_map;
pub mod prefault;
pub mod preset;
mod priority;
mod process;
pub mod reset;
pub mod seal;
pub mod shell;
mod signals;
pub mod source;
pub mod spawner;
pub mod state;
mod statistics;
pub mod thread;
pub mod vm;
mod xsave;

/// The socket to the node.
pub const NODE_FD: i32 = 3;
/// The compile helper's program.
pub const HELPER_FD: i32 = 4;
