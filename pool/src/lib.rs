//! Shells, seeds and instances.
//!
//! The pool owns every process that faasw starts: the spawner, the shells that
//! the spawner forks, and the compile helper. Above it the node knows functions
//! and requests; below it a shell knows one VM.
//!
//! A request goes one way down: [`Pool::invoke`] takes a parked instance, or sends a
//! shell `fork`, then `activate`, and moves bytes between the client's bodies and the
//! rings of the mailbox until the doorbell says that the function is done. A deployment uses [`Pool::compile`] and [`Pool::make_seed`].
//!
//! - `pool`: what the node calls; `options`: how it is set up; `stats`: what it tells of
//!   itself; `admission`, `places`, `waits`: whom it has room for; `backlog`: what clients have not taken yet;
//!   `memory`: what there is for all instances. `error`, `function`: its words.
//! - `confinement`: what is round a microVM. `launcher`, `spawner`, `threads`, `process`, `shell`, `progress`,
//!   `stock`, `watch`: processes, and threads in their place, from this side. `groups`: what
//!   spawners tell of control groups.
//! - `tree`, `seed`, `frozen`, `making`: seeds. `boot_image`, `code`, `huge`: what
//!   they are made of.
//! - `instance`, `parking`, `retire`, `working_set`: instances kept for the next request.
//!   `holding`: what a function may keep in memory.
//! - `mailbox`, `exchange`, `body`, `limits`, `pace`, `run`, `log_lines`: following an instance.
//! - `compile`, `executable`: the compile helper.
//! - `ablation`: what a benchmark may switch off; `measuring`: what one may look at.
//! - `doctor`: what the host offers. `wall_clock`: the time of day.

#![deny(unsafe_code)]

mod ablation;
mod account;
mod admission;
mod backlog;
mod body;
mod boot_image;
mod code;
mod compile;
mod confinement;
mod difference;
mod doctor;
mod error;
mod exchange;
mod executable;
mod frozen;
mod function;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod holding;
mod huge;
mod instance;
mod instance_numbers;
mod launcher;
mod limits;
mod log_lines;
mod mailbox;
mod making;
#[cfg(feature = "measuring")]
#[doc(hidden)]
pub mod measuring;
mod memory;
mod options;
mod pace;
mod parking;
mod places;
mod pool;
mod preset;
mod process;
mod progress;
mod retire;
mod run;
mod seed;
mod settle;
mod shell;
mod spawner;
mod stats;
mod stock;
mod threads;
mod tree;
#[cfg(feature = "trial")]
#[doc(hidden)]
pub mod trial;
mod waits;
mod wall_clock;
mod watch;
mod working_set;

#[cfg(feature = "ablation")]
pub use ablation::Mechanism;
pub use backlog::{Account, Backlog, BacklogLimits, ConnectionBacklog, FunctionBacklog, Lease};
pub use body::{ClientError, Part, ReplyBody, RequestBody, ResponseStream};
pub use confinement::Confinement;
pub use doctor::{Finding, State, check_kvm, findings};
pub use error::{CompileError, InvokeError, PlatformError, SeedError, StartError};
pub use faasw_abi::isa::Isa;
pub use faasw_abi::wire::{FunctionKind, RequestHead, ResponseHead};
pub use function::{
    Call, Client, Effort, FreezePolicy, FreezeReport, FunctionSpec, Known, LogSink, LogStream,
    Reply, ResetEffort, SeedInfo, Served, Timing,
};
pub use launcher::Launcher;
pub use limits::CallLimits;
pub use memory::for_instances as memory_for_instances;
pub use options::PoolOptions;
pub use pool::{Compiled, Pool};
pub use seed::Seed;
pub use stats::{EngineStats, GroupStats, MemoryStats, StockStats};
pub use wall_clock::WallClock;
