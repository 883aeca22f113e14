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
//! - `pool`: what the node calls; `capacity`: whom it has room for. `error`, `function`: its words.
//! - `spawner`, `shell`, `stock`, `watch`: processes, from this side.
//! - `tree`, `seed`, `frozen`, `making`: seeds. `boot_image`, `code`, `huge`: what
//!   they are made of.
//! - `instance`, `parking`, `retire`, `working_set`: instances kept for the next request.
//! - `mailbox`, `exchange`, `body`, `limits`, `run`, `log_lines`: following an instance.
//! - `compile`, `executable`: the compile helper.
//! - `doctor`: what the host offers.

#![deny(unsafe_code)]

mod body;
mod boot_image;
mod capacity;
mod code;
mod compile;
mod difference;
mod doctor;
mod error;
mod exchange;
mod executable;
mod frozen;
mod function;
mod huge;
mod instance;
mod limits;
mod log_lines;
mod mailbox;
mod making;
mod parking;
mod pool;
mod preset;
mod retire;
mod run;
mod seed;
mod shell;
mod spawner;
mod stock;
mod tree;
mod watch;
mod working_set;

pub use body::{ClientError, Part, ReplyBody, RequestBody, ResponseStream};
pub use doctor::{Finding, State, check_kvm, findings};
pub use error::{CompileError, InvokeError, PlatformError, SeedError, StartError};
pub use faasw_abi::isa::Isa;
pub use faasw_abi::wire::{FunctionKind, RequestHead, ResponseHead};
pub use function::{
    Call, Effort, FreezePolicy, FreezeReport, FunctionSpec, LogSink, LogStream, Reply, ResetEffort,
    SeedInfo, Served, Timing,
};
pub use limits::CallLimits;
pub use pool::{Compiled, EngineStats, Pool, PoolOptions};
pub use seed::Seed;
