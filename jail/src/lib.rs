//! The jail: what is round a process that may come to be run by an attacker.
//!
//! A guest that breaks out of its VM is in its sandbox's process, and a parser that is
//! broken by an upload in the compile helper's. Either finds itself here: no
//! privilege, no file system, no network, no other process, and few system calls.
//! (AFaaS §4.1 and §7, Catalyzer §6.8 and Firecracker's jailer do the like.)
//!
//! - [`Site`]: what is made once, by the process that forks the others: empty network
//!   and IPC namespaces that all of them share, and an empty root.
//! - [`Site::fork`]: a child in process, mount and UTS namespaces of its own.
//! - [`Jail::close`]: what the child does before it touches anything of a tenant.
//! - [`ConfinementLevel`]: whether a jail has namespaces; [`Obstacle`]: why a host allows none.
//! - [`helper`], [`egress`]: the compile helper, and what holds connections to elsewhere, which are
//!   other programs, in jails that they close themselves; [`carried`]: where those are until they
//!   are started first.
//! - [`group`]: what the kernel holds it to of memory, processors and processes.
//! - [`confine_daemon`], [`dangerous`], [`ordinary`]: what the node gives up and keeps,
//!   which is no jail.
//! - [`filter`]: which system calls are left, with which arguments; [`habits`]: those that most
//!   programs make.
//!
//! Nothing here is done for each request: jails are closed ahead of need.

mod by_number;
pub mod carried;
mod close;
pub mod dangerous;
mod descriptors;
pub mod egress;
mod empty_folder;
pub mod filter;
pub mod group;
pub mod habits;
pub mod helper;
mod landlock;
mod level;
pub mod obstacle;
pub mod ordinary;
mod privileges;
mod program;
mod signals;
mod site;

/// What has the spawner make sandboxes without a jail.
#[cfg(feature = "ablation")]
pub const WITHOUT_JAIL: &str = "--without-jail";

pub use close::{Jail, JailError, Limits, Step};
pub use descriptors::out_of_the_way;
pub use landlock::has_landlock;
pub use level::ConfinementLevel;
pub use obstacle::Obstacle;
pub use privileges::{confine_daemon, without_privilege};
pub use program::{Program, close_handed_over};
pub use rustix::thread::CapabilitySet;
pub use signals::unblock_signals;
pub use site::{Born, Network, Site, has_privilege};
