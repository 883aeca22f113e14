//! The parts of the spawner and of sandboxes. The program is `faasw-sandbox`; this library exists
//! so that tests can drive a VM without a process around it, and so that programs can run sandboxes
//! as threads of their own.
//!
//! The modules, each of which uses those before it:
//!
//! - [`memory`]: a guest's memory as this process maps it.
//! - [`vm`]: one KVM VM with one vCPU, and its state.
//! - [`instance`]: making a sandbox an instance of a seed, in one step or two; resetting it to
//!   exactly the seed's state; and making a seed of it.
//! - [`process`]: the environment of a sandbox's process, and its end if its heap is used up.
//! - [`sandbox`]: a sandbox that carries out the node's orders, as a process or as a thread.
//! - [`spawner`]: the process that makes all others; [`launcher`]: the process that makes spawners.

pub mod instance;
pub mod launcher;
pub mod memory;
pub mod process;
pub mod sandbox;
pub mod spawner;
pub mod vm;

/// The socket to the node.
pub const NODE_FD: i32 = 3;
