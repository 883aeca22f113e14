//! Sandboxes, seeds and instances.
//!
//! The pool owns every process that faasw starts: the spawner, the sandboxes that
//! the spawner forks, and the compile helper. Above it the node knows functions
//! and requests; below it a sandbox knows one VM.
//!
//! A request goes one way down: [`Pool::invoke`] takes a parked instance, or sends a sandbox
//! `fork`, then `activate`, and moves bytes between the client's bodies and the rings of the
//! mailbox until the doorbell says that the function is done. A deployment uses [`Pool::compile`]
//! and [`Pool::make_seed`].
//!
//! Rooms, from the top down; each uses only those below it, through their doors:
//!
//! - `pool`: what the node calls; `options`: how it is set up; `compile`: the compile helper.
//! - `exchange`: one request from its admission to what becomes of its instance.
//! - `seeds`: functions, what their instances are forked from, and what they hold in memory.
//! - `instances`: instances between requests: brought back, parked, numbered.
//! - `images`: seeds on disk.
//! - `sandboxes`: processes, and threads in their place; sandboxes, and those made ahead.
//! - `snapshots`: a snapshot with the state of its vCPU, code, and what sandboxes are preset with.
//! - `mailbox`: what node and guest say to each other.
//! - `opening`: files, and nothing else that may stand in their place.
//! - `error`, `fault`, `sink`, `stats`, `memory`: words and numbers that all of them tell.
//!
//! `doctor`: what the host offers. `ablation`: what a benchmark may switch off; `measuring`:
//! what one may look at. `steps`, `trial`: what tests may do.

#![deny(unsafe_code)]

mod ablation;
mod compile;
mod doctor;
mod error;
mod exchange;
mod fair_slots;
mod fault;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod images;
mod instances;
mod mailbox;
#[cfg(feature = "measuring")]
#[doc(hidden)]
pub mod measuring;
mod memory;
pub mod open_files;
mod opening;
mod options;
mod pool;
mod sandboxes;
mod seeds;
mod sink;
mod snapshots;
mod stats;
#[cfg(feature = "trial")]
#[doc(hidden)]
pub mod steps;
#[cfg(feature = "trial")]
#[doc(hidden)]
pub mod trial;

#[cfg(feature = "ablation")]
pub use ablation::Mechanism;
pub use compile::{Compilation, Initialiser};
pub use doctor::{Finding, State, check_kvm, findings};
pub use error::{
    ClientError, CompileError, InitialiseError, InvokeError, PlatformError, RequestPart, SeedError,
    StartError,
};
pub use exchange::{
    Account, Admitted, AnswerPart, Answering, Backlog, BacklogLimits, BudgetAccount, BudgetError,
    Call, CallLimits, Client, ConnectionBacklog, FunctionBacklog, INSTANCE_MEMORY, Lease, Outbound,
    OutgoingCall, OutgoingRequest, Part, Reply, ReplyBody, RequestBody, RequestBudget,
    ResponseStream, Secrets, Share, StoreService,
};
pub use faasw_abi::isa::Isa;
pub use faasw_abi::outgoing;
pub use faasw_abi::secrets::SECRETS_MAX;
pub use faasw_abi::trap::TrapKind;
pub use faasw_abi::wire::{FunctionKind, RequestHead, ResponseHead};
pub use faasw_common::POLL;
pub use faasw_common::{ImageInfo, ImagePages, ImageWorkingSet, SetReuse};
pub use faasw_fri::userfault::CALLS as PAGE_FAULT_CALLS;
pub use faasw_seedtree::image::{
    Contents, IMAGE_MAX, ImageError, Opening, ParcelError, ParcelPart, Sealing,
};
pub use fair_slots::{
    FairSlots, PendingSlot, QueuePosition, Slot, SlotRequest, SlotRules, Urgency,
};
pub use fault::{Fault, Manner};
pub use images::{Arriving, ExportError, ImageId, Images, Origin};
pub use memory::for_instances as memory_for_instances;
pub use opening::{GivenFolder, open_file, open_given, open_to_look};
pub use options::PoolOptions;
pub use pool::{Compiled, Connector, Egress, EgressProcess, Initialising, Pool, Starting, Worker};
pub use sandboxes::{Confinement, Launcher, WallClock};
pub use seeds::{
    FreezePolicy, FreezeReport, FunctionFiles, FunctionSpec, FunctionVersion, Known,
    LanguageEngine, Script, ScriptFiles, ScriptSource, WarmUp,
};
pub use sink::{Effort, LogSink, LogStream, ResetEffort, Served, Timing};
pub use snapshots::{
    Bringing, Code as SealedCode, CodeDigest, CodeError, CodeSource, Pieces, ReadCode,
};
pub use stats::{
    GroupStats, Lack, Lacking, LackingStats, MemoryStats, PollingStats, PoolStats, ResetStats,
    SeedInfo, StockStats,
};
