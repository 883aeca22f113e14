//! Processes, and threads in their place, as the node sees them; sandboxes and zygotes.
//!
//! `spawner` (in a `spawner_slot`; with `launcher`, `executable`, `own_file`) makes a `process`,
//! `threads` a thread; `sandbox_maker` is one of both; `egress_spawner` holds the spawner with the
//! host's network. `sandbox` is the Function Runtime Interface as calls; `zygote_pool` keeps
//! zygotes ready. `cpu_account`, `group_account`: the CPU time and memory that they take. A request
//! that fails, times out or is dropped leaves no process behind.

mod cpu_account;
mod cpu_clock;
mod egress_spawner;
mod executable;
mod group_account;
mod launcher;
mod own_file;
mod process;
mod progress_doorbell;
mod sandbox;
mod sandbox_maker;
mod spawner;
mod spawner_slot;
mod threads;
mod wall_clock;
mod watch;
mod zygote_pool;

pub use self::egress_spawner::EgressSpawner;
pub use self::group_account::GroupAccount;
pub use self::launcher::Launcher;
pub use self::process::{Exit, Process};
#[cfg(test)]
pub use self::sandbox::FakeSandbox;
#[cfg(feature = "measuring")]
pub use self::sandbox::SandboxCreationTimes;
pub use self::sandbox::{CodePages, ResetProgress, RingReport, Sandbox, SandboxEvent};
#[cfg(feature = "fuzzing")]
pub use self::sandbox::{failure_text, preparation_error};
pub use self::spawner::Spawner;
pub use self::wall_clock::WallClock;
pub use self::zygote_pool::{FirstSandbox, Zygote, ZygotePool, ZygotePoolOptions};
