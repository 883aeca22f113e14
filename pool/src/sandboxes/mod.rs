//! Processes, and threads in their place, as the node sees them; sandboxes and zygotes.
//!
//! `spawner` (with `launcher`, `executable`, `own_file`) makes a `process`, `threads` a thread;
//! `confinement` chooses between them; `outside` holds the spawner with the host's network.
//! `sandbox` is the Function Runtime Interface as calls; `stock` keeps zygotes ready. `account`,
//! `groups`: the CPU time and memory that they take. A request that fails, times out or is dropped
//! leaves no process behind.

mod account;
mod confinement;
mod cpu_clock;
mod executable;
mod groups;
mod launcher;
mod outside;
mod own_file;
mod process;
mod progress;
mod sandbox;
mod spawner;
mod stock;
mod threads;
mod wall_clock;
mod watch;

pub use self::confinement::Confinement;
pub use self::groups::Groups;
pub use self::launcher::Launcher;
pub use self::outside::Outside;
pub use self::process::{Exit, Process};
#[cfg(feature = "measuring")]
pub use self::sandbox::Parts;
#[cfg(test)]
pub use self::sandbox::StandIn;
pub use self::sandbox::{CodePages, Event, Reached, Report, Sandbox};
#[cfg(feature = "fuzzing")]
pub use self::sandbox::{failure, not_prepared};
pub use self::spawner::Spawner;
pub use self::stock::{First, Ready, Stock, StockRules};
pub use self::wall_clock::WallClock;
