//! A serverless node in which every request runs as WebAssembly in a microVM
//! of its own, forked from a snapshot.
//!
//! [`Node`] is the entry point: [`Node::builder`] starts one inside this process,
//! [`Node::deploy`] turns a module into a function, and [`Node::invoke`] turns
//! an [`http::Request`] into an [`http::Response`]. The `faasw` program is a
//! thin layer over the same library.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use faasw::{FunctionOptions, Limits, Node};
//!
//! let mut limits = Limits::default();
//! limits.first_byte = Duration::from_secs(2);
//! let node = Node::builder()
//!     .data_dir("/var/lib/edge")
//!     .listen("127.0.0.1:8080".parse()?)
//!     .limits(limits)
//!     .start()
//!     .await?;
//! let module = std::fs::read("hello.wasm")?;
//! let deployed = node.deploy("hello", module, FunctionOptions::default()).await?;
//! println!("{} compiled in {:?}", deployed.function.name, deployed.compile_time);
//! # Ok(())
//! # }
//! ```
//!
//! The modules, from top to bottom: `gateway` and [`admin`] handle requests from their sockets
//! (`server`). `node` finds functions and runs them. `message` defines the requests and responses
//! that pass between clients and functions. `backend` is the interface to the pool of microVMs.
//! `registry`, `data_dir` and `log` store data, and [`metrics`] counts.

pub mod admin;
#[doc(hidden)]
pub mod backend;
pub mod budgets;
#[doc(hidden)]
pub mod file_fingerprint;

/// The features of the host that a node needs.
pub mod host {
    pub use faasw_pool::{Finding, FindingState, check_kvm, findings};

    pub use crate::open_files::open_files_finding;
}

/// Scripts for language engines, as [`Node::deploy`] takes them.
///
/// ```
/// let files: [faasw::script::File<'_>; 2] = [
///     ("handler.lua", b"return require('lib.greet')"),
///     ("lib/greet.lua", b"return function() return 'hello' end"),
/// ];
/// let script = faasw::script::write(&files)?;
/// assert!(faasw::script::is_script(&script));
/// # Ok::<(), faasw::script::ScriptError>(())
/// ```
pub mod script {
    pub use faasw_abi::script::{
        FILES_MAX, File, PATH_MAX, SCRIPT_MAX, ScriptError, is_script, read, write,
    };
}

/// Files for a function: [`Node::deploy`] takes them in front of its module.
///
/// ```
/// use faasw::files::{Files, Kind};
///
/// let mut files = Files::default();
/// files.add(Kind::File, "lib/greeting.txt", b"hello");
/// files.add(Kind::Link, "greeting", b"lib/greeting.txt");
/// let upload = files.before(b"\0asm\x01\0\0\0");
/// // node.deploy("greeter", upload, FunctionOptions::default().files_at("/data"))
/// ```
pub mod files {
    pub use faasw_abi::files::{
        CONTENTS_MAX, ENTRIES_MAX, FilesError, Kind, PATH_MAX, is_mount, upload::Files,
    };
}

mod builder;
mod data_dir;
mod error;
mod failure;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod limits;
mod log;
mod message;
pub mod metrics;
mod node;
mod open_files;
mod readiness;
mod redb_file;
mod registry;
mod server;
mod services;
pub mod shared;

/// A range of addresses, as [`NodeBuilder::trusted_proxy`] takes it.
pub use ipnet::IpNet;

pub use builder::NodeBuilder;
pub use error::{
    DeployError, EngineError, FilesRefused, FunctionError, ImportError, RollbackError, StartError,
};
pub use limits::Limits;
pub use log::{Event, EventLimiter};
pub use message::{AccessRecord, Body, BodyError, RemoteAddress};
pub use node::{FunctionService, Node, SecretError};
pub use readiness::Readiness;
pub use registry::RegistryError;
pub use server::TlsError;
pub use services::{
    key_value::{Dial, Dialing, KeyValueServer, KeyValueServerError, ServerAddress, StoreError},
    outbound::OutboundOptions,
    trust::TrustError,
};

pub use faasw_client::{
    DeployOutcome, DeployStage, DeploymentInfo, Digest, DigestError, EngineInfo, EngineUse,
    Extension, ExtensionError, FilesInfo, FreezePolicy, FunctionBrief, FunctionDetails,
    FunctionInfo, FunctionKind, FunctionName, FunctionOptions, HostName, HostNameError, ImageInfo,
    ImagePages, ImageWorkingSet, ImportOutcome, Initialisation, LogLine, LogPage, LogStream,
    NameError, OptionsError, Outbound as OutboundGrant, RequestId, RequestIdError, RequestLimits,
    SECRET_BYTES, STORE_PAGE, STORE_VALUE_BYTES, SecretInfo, SecretName, SecretNameError, SeedInfo,
    SetReuse, ShortfallCause, Store, StoreInfo, StoreKeys, StoreName, StoreNameError, TraceContext,
    WarmShortfall, WarmUpError, WarmUpRequest, spelling,
};
pub use faasw_pool::outgoing;
pub use faasw_pool::{
    AnswerPart, CompileError, Confinement, ExportError, Fault, ImageError, InvokeError, Isa,
    Launcher, Manner, Outbound, OutgoingCall, OutgoingRequest, ParcelError, PlatformError,
    RequestPart, SeedError, Served, StartError as PoolStartError, Timing, TrapKind,
};
