//! Sandboxes, seeds and instances.
//!
//! The pool owns every process that faasw starts: the spawner, the sandboxes that the spawner
//! forks, and the compile helper. Above the pool, the node knows functions and requests; below it,
//! a sandbox knows one virtual machine.
//!
//! A request takes one path: [`Pool::invoke`] takes a warm instance, or sends `fork` and then
//! `activate` to a sandbox. It then moves bytes between the client's bodies and the rings of the
//! mailbox until the doorbell reports that the function is done. A deployment uses
//! [`Pool::compile`] and [`Pool::make_seed`].
//!
//! The modules, from the top down. Each uses only the modules below it, through their public
//! interfaces.
//!
//! - `pool`: the interface for the node; `options`: its settings; `compile`: the compile helper.
//! - `invocation`: one request, from its admission to the retirement of its instance.
//! - `seeds`: functions, the seeds that their instances are forked from, and the memory they hold.
//! - `instances`: instances between requests: reset, warm, numbered.
//! - `images`: seeds on disk.
//! - `sandboxes`: processes, and threads in their place; sandboxes and zygotes.
//! - `snapshots`: snapshots with the state of their vCPU, code, and the state that zygotes are
//!   specialised with.
//! - `mailbox`: the messages between node and guest.
//! - `opening`: opening files while refusing anything else that may stand in their place.
//! - `fair_slots`: slots that owners share fairly; `open_files`: how many files may be open.
//! - `confinement`, `error`, `fault`, `sink`, `stats`, `memory`: types and numbers that all modules
//!   use.
//!
//! `doctor` examines what the host offers. `ablation` lists the mechanisms that a benchmark may
//! switch off; `measuring` is the interface for benchmarks. `steps` and `trial` are interfaces for
//! tests.

#![deny(unsafe_code)]

mod ablation;
mod compile;
mod confinement;
mod doctor;
mod error;
mod fair_slots;
mod fault;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod images;
mod instances;
mod invocation;
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
pub use confinement::Confinement;
pub use doctor::{Finding, FindingState, check_kvm, findings};
pub use error::{
    ClientError, CompileError, InitialiseError, InvokeError, PlatformError, RequestPart, SeedError,
    StartError,
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
pub use images::{ExportError, ImageId, ImageImport, ImageOrigin, Images};
pub use invocation::{
    Account, AnswerPart, Backlog, BacklogLimits, BudgetAccount, BudgetError, CallerPermit,
    ConnectionBacklog, FunctionBacklog, INSTANCE_MEMORY, InvocationLimits, InvocationRequest,
    Lease, Outbound, OutgoingCall, OutgoingRequest, PermitShare, Reply, ReplyBody, RequestBody,
    RequestBudget, RequestClient, ResponsePart, ResponseStream, Secrets, StoreAnswerFuture,
    StoreService,
};
pub use memory::for_instances as memory_for_instances;
pub use opening::{TrustedFolder, open_buffered, open_file, open_trusted};
pub use options::PoolOptions;
pub use pool::{
    CompileOutput, CompiledFunction, Egress, EgressProcess, InitialisationPlan, InitialisedModule,
    Pool, SeededVersion, SpawnedConnector, SpawnedWorker, StartingPool,
};
pub use sandboxes::{Launcher, WallClock};
pub use seeds::{
    EarlierBuild, FreezePolicy, FreezeReport, FunctionFiles, FunctionSpec, FunctionVersion, Script,
    ScriptFiles, ScriptSource, WarmUp,
};
pub use sink::{Effort, LogSink, LogStream, ResetEffort, Served, Timing};
pub use snapshots::{
    Code as SealedCode, CodeDigest, CodeError, CodeSource, LoadFuture, LoadedCode, Pieces,
};
pub use stats::{
    GroupStats, MemoryStats, PollingStats, PoolStats, ResetStats, SeedInfo, ShortfallCause,
    ShortfallStats, WarmShortfall, ZygotePoolStats,
};
