//! The jail: the confinement of a process that an attacker may take over.
//!
//! A guest that breaks out of its VM is in its sandbox's process. An upload that breaks a parser is
//! in the compile helper's process. Either is confined here: no privilege, no file system, no
//! network, no other process, and few system calls. (AFaaS §4.1 and §7, Catalyzer §6.8 and
//! Firecracker's jailer do the same.)
//!
//! - [`Site`]: the resources that are made once, by the process that forks the others: empty
//!   network and IPC namespaces that all of them share, and an empty root.
//! - [`Site::fork`]: a child in process, mount and UTS namespaces of its own.
//! - [`Jail::close`]: the steps of the child before it accesses any tenant's data.
//! - [`ConfinementLevel`]: whether a jail has namespaces; [`Obstacle`]: why a host allows none.
//! - [`helper`], [`egress`]: the compile helper, and the processes of outbound calls. They are
//!   other programs, in jails that they close themselves; [`embedded_program`]: where these
//!   programs are until their first start.
//! - [`group`]: the limits of memory, processors and processes that the kernel enforces.
//! - [`confine_daemon`], [`kill_list`], [`daemon_allow`]: what the node gives up and keeps, which
//!   is not a jail.
//! - [`filter`]: the system calls that are allowed, and their arguments; [`libc_baseline`]: those
//!   that most programs make.
//!
//! Nothing here is done for each request: jails are closed in advance.

mod bpf_tree;
mod close;
pub mod daemon_allow;
mod descriptors;
pub mod egress;
pub mod embedded_program;
mod empty_folder;
pub mod filter;
pub mod group;
pub mod helper;
pub mod kill_list;
mod landlock;
mod level;
pub mod libc_baseline;
pub mod obstacle;
mod privileges;
mod program;
mod signals;
mod site;

/// The argument that makes the spawner create sandboxes without a jail.
#[cfg(feature = "ablation")]
pub const WITHOUT_JAIL: &str = "--without-jail";

pub use close::{Jail, JailError, Limits, Step};
pub use descriptors::dup_to_high_fd;
pub use landlock::has_landlock;
pub use level::{ConfinementLevel, Network};
pub use obstacle::Obstacle;
pub use privileges::{confine_daemon, without_privilege};
pub use program::{Program, close_handed_over};
pub use rustix::thread::CapabilitySet;
pub use signals::unblock_signals;
pub use site::{ForkSide, Site, has_privilege};
