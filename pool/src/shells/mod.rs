//! Processes, and threads in their place, from this side; shells, and those made ahead.
//!
//! `spawner` (by `launcher`, `executable`, `own_file`) makes a `process`, `threads` a thread;
//! `confinement` says which; `outside` has the spawner with the host's network. `shell` is the
//! Function Runtime Interface as calls, `stock` has shells ready. `account`, `groups`: what they
//! take. Whatever becomes of a request, its process goes with it.

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
mod shell;
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
pub use self::shell::Parts;
#[cfg(test)]
pub use self::shell::StandIn;
pub use self::shell::{CodePages, Event, Reached, Report, Shell};
#[cfg(feature = "fuzzing")]
pub use self::shell::{failure, not_prepared};
pub use self::spawner::Spawner;
pub use self::stock::{First, Ready, Stock, StockRules};
pub use self::wall_clock::WallClock;
