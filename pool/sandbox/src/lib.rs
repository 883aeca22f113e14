//! What the spawner and the sandboxes are made of. The program is `faasw-sandbox`;
//! this library exists so that tests can drive a VM without a process round it, and
//! programs that ask for it can have sandboxes as threads of their own.
//!
//! In the order in which they know of each other:
//!
//! - [`memory`]: a guest's memory as this process maps it.
//! - [`vm`]: one KVM VM with one vCPU, and its state.
//! - [`instance`]: becoming an instance of a seed, at once or in two steps; giving it its seed's
//!   exact state back; and becoming a seed.
//! - [`process`]: what is round a sandbox, and how it ends that has no memory left.
//! - [`sandbox`]: one that does what the node orders, as a process or as a thread.
//! - [`spawner`]: what makes processes; [`launcher`]: what makes spawners.

pub mod instance;
pub mod launcher;
pub mod memory;
pub mod process;
pub mod sandbox;
pub mod spawner;
pub mod vm;

/// The socket to the node.
pub const NODE_FD: i32 = 3;
