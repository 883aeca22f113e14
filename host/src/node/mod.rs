//! The node: deploys functions and answers requests.
//!
//! [`Node`] is the handle for embedding programs, the gateway and the admin API, which all use the
//! same paths. [`NodeBuilder`](crate::NodeBuilder) starts one. Its [`NodeParts`] are built over
//! each other. From top to bottom:
//!
//! - `dispatch` runs requests, and makes their outbound calls and self calls.
//! - `deploy` deploys functions, and replaces, rolls back and removes them.
//! - `startup_warmup` does the node's work in the background after its start.
//! - `inspect` describes functions and metrics, and exports versions; `info` describes one version.
//! - `secrets` opens the secrets of requests, and changes them.
//! - `versions` makes the versions of functions and the specifications of their seeds.
//! - `engines` adds and removes the language engines.
//! - `deployments` bounds the number of simultaneous deployments and lists them.
//! - `code` compiles code and keeps it in the registry.
//! - `functions` is the table of the functions, with what belongs to each.
//! - `storage` is what the node keeps on disk; `state` its life.

mod carried_engine;
mod code;
mod content;
mod deploy;
mod deployments;
mod dispatch;
mod engines;
mod functions;
mod handle;
mod info;
mod inspect;
mod parts;
mod secrets;
mod startup_warmup;
mod state;
mod storage;
mod versions;

#[cfg(feature = "fuzzing")]
pub(crate) use self::deploy::{export_note, note_of};
pub(crate) use self::{
    dispatch::ReportOptions,
    parts::{NodeInputs, NodeParts, RegisteredFunctions},
    startup_warmup::StartupWarmup,
    storage::Storage,
};
pub use handle::{FunctionService, Node};
pub use secrets::SecretError;
