//! The reasons why a node did not start, or a deployment failed.
//!
//! Failures of requests are separate (`failure`): they become responses, not errors. Every message
//! is complete and can be shown as it is.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use faasw_abi::files::FilesError;
use faasw_abi::script::{ENGINE_VERSION, ScriptError};
use faasw_client::{EXTENSIONS_MAX, Extension, FunctionName, HostName, NameError, OptionsError};
use faasw_pool::{CompileError, ExportError, ImageError, ParcelError, SeedError};
use thiserror::Error;

use crate::{
    data_dir::DataDirError, registry::RegistryError, server::TlsError,
    services::key_value::StoreError,
};

/// The reason why a node did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The host cannot run microVMs.
    #[error(transparent)]
    Pool(#[from] faasw_pool::StartError),
    /// The address of a listener cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The data directory cannot be used.
    #[error("the data directory {path:?} cannot be used: {error}")]
    DataDir {
        /// The file or folder that failed.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The data directory is locked by another node.
    #[error(
        "another node (process {pid}) uses the data directory {path:?}; each node needs its own"
    )]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// The process id of the other node, or `?` if it is unknown.
        pid: String,
    },
    /// The admin API's socket cannot be created.
    #[error("cannot create the admin socket {path:?}: {error}")]
    AdminSocket {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The admin API was requested without a data directory for its socket.
    #[error("the admin API needs a data directory: its socket is a file there")]
    AdminNeedsDataDir,
    /// A shared entry was passed to a node with a data directory, which makes its own.
    #[error("a node with a data directory cannot use a shared entry")]
    SharedNeedsMemory,
    /// The key-value store cannot be opened.
    #[error(transparent)]
    KeyValue(#[from] StoreError),
    /// The registry cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A redirect was requested without a gateway with TLS.
    #[error(
        "a redirect to https needs a gateway with TLS: a certificate and an address to listen on"
    )]
    RedirectNeedsTls,
}

impl From<DataDirError> for StartError {
    fn from(error: DataDirError) -> Self {
        match error {
            DataDirError::Fails { path, error } => Self::DataDir { path, error },
            DataDirError::Locked { path, pid } => Self::Locked { path, pid },
        }
    }
}

/// The reason why the files of an upload were rejected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FilesRefused {
    /// The upload ends before its module, or the files have an invalid length.
    #[error("{0}")]
    Upload(FilesError),
    /// The files break a rule.
    #[error("its files are invalid: {0}")]
    Bundle(CompileError),
    /// The options name a file as the freeze point of a script.
    #[error("a script has no freeze point: it is frozen after its top-level code")]
    FreezePointOfScript,
    /// The options refer to files, but none were sent.
    #[error("the path of its files or a freeze point is set, but it has no files")]
    Missing,
}

/// The reason why a deployment failed. The version that was deployed before stays.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeployError {
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The options are not valid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A requested host belongs to another function.
    #[error(
        "the host {host} belongs to the function {function}; first deploy that function \
         without the host"
    )]
    HostTaken {
        /// The host.
        host: HostName,
        /// The function that has the host.
        function: FunctionName,
    },
    /// A requested host is in the node's domain.
    #[error(
        "the host {host} is in the node's domain, where NAME.{domain} always is the function NAME"
    )]
    HostOfDomain {
        /// The host.
        host: HostName,
        /// The node's domain.
        domain: HostName,
    },
    /// The module is larger than the node accepts.
    #[error("the module has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// The size of the module in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The script cannot be parsed.
    #[error("{0}")]
    Script(ScriptError),
    /// The files are not valid, or not allowed for this upload.
    #[error("{0}")]
    Files(FilesRefused),
    /// No language engine runs the script.
    #[error("no language engine for {file:?}: {}", known(extensions))]
    NoEngine {
        /// The file that the script starts with.
        file: String,
        /// The extensions that the node has engines for.
        extensions: Vec<Extension>,
    },
    /// The module was not compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// No seed could be made of the function.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The initialisation did not produce a module that starts in the initialised state.
    #[error("{0}")]
    NotInitialised(String),
    /// The version was not stored.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// The reason why a function was not removed or inspected, or its log or image not read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// No function has this name.
    #[error("no function named {0:?}")]
    Unknown(String),
    /// The function's seed has no image.
    #[error("{name} has no func-image: {why}")]
    NoImage {
        /// The function.
        name: FunctionName,
        /// The likely reason, and what the operator can do.
        why: &'static str,
    },
    /// The image of the function's seed cannot be read.
    #[error(
        "the func-image of {name} is not used: {error}; the seed is made again when it is next \
         needed"
    )]
    BadImage {
        /// The function.
        name: FunctionName,
        /// The reason.
        error: ImageError,
    },
    /// The function cannot be exported.
    #[error("{name} was not exported: {error}")]
    NotExported {
        /// The function.
        name: FunctionName,
        /// The reason.
        error: ExportError,
    },
    /// The function could not be made ready.
    #[error(transparent)]
    NotReady(#[from] DeployError),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// The reason why an export of another node was not imported. The version that was deployed before
/// stays.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The node has no key for exports.
    #[error(
        "this node stores no func-images and has no key for the export: use a data directory and \
         an --image-disk above 0"
    )]
    NoKey,
    /// The export did not arrive, or arrived too slowly.
    #[error(
        "the export did not arrive: less than 1 MiB came within {} s; send it again",
        .0.as_secs_f64()
    )]
    TimedOut(Duration),
    /// The client broke off the upload.
    #[error("the export did not arrive: {0}")]
    BrokenOff(String),
    /// The export cannot be opened.
    #[error("the export cannot be decrypted: {0}{cure}", cure = cure(.0))]
    Parcel(#[from] ParcelError),
    /// The note of the export cannot be parsed, although it was sealed with the right key.
    #[error("the export is invalid: {0}; was it made by another version of faasw?")]
    Manifest(#[from] serde_json::Error),
    /// The module in the export is not the one that the export names.
    #[error("the export is invalid: its module has another digest")]
    Module,
    /// The function in the export was not deployed.
    #[error(transparent)]
    Deploy(#[from] DeployError),
}

impl From<RegistryError> for ImportError {
    fn from(error: RegistryError) -> Self {
        Self::Deploy(error.into())
    }
}

/// Returns what the operator can do about an export that was not opened.
fn cure(error: &ParcelError) -> &'static str {
    match error {
        ParcelError::Key => {
            "; both nodes need the same key: copy image.key from the other node's data directory, \
             or name it with --image-key"
        }
        ParcelError::CutOff | ParcelError::TooLong | ParcelError::Damaged => {
            "; copy the file once more"
        }
        ParcelError::Format(_) => "; export it once more by this version of faasw",
        ParcelError::Foreign => "; `faasw image export` makes one",
        ParcelError::Io(_) | ParcelError::TooLarge | ParcelError::Random => "",
    }
}

/// The reason why a language engine was not added, warmed or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No engine has this name.
    #[error("no language engine named {0:?}")]
    Unknown(String),
    /// A requested extension belongs to another engine.
    #[error("the extension {extension} belongs to the engine {engine}; remove that engine first")]
    Taken {
        /// The extension.
        extension: Extension,
        /// The engine that has the extension.
        engine: FunctionName,
    },
    /// The engine has no extensions, or too many.
    #[error("an engine has 1 to {EXTENSIONS_MAX} extensions, not {0}")]
    Extensions(usize),
    /// The component does not run scripts.
    #[error(
        "this is not a language engine: it does not export wasi:http/incoming-handler and \
         faasw:engine/script@{}, both with their functions",
        ENGINE_VERSION
    )]
    NotAnEngine,
    /// The engine does not compile, or does not start.
    #[error(transparent)]
    NotReady(#[from] DeployError),
}

impl From<RegistryError> for EngineError {
    fn from(error: RegistryError) -> Self {
        Self::NotReady(error.into())
    }
}

/// Returns what the operator can do if a script has no engine.
fn known(extensions: &[Extension]) -> String {
    let texts: Vec<_> = extensions.iter().map(Extension::to_string).collect();
    let there_are = match texts.as_slice() {
        [] => "this node has none".to_owned(),
        _ => format!("this node has some for {}", texts.join(", ")),
    };
    format!("{there_are}; `faasw engine add` adds one")
}

/// The reason why a function was not rolled back. The version that served before still does.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RollbackError {
    /// No function has this name.
    #[error("no function named {0:?}")]
    Unknown(String),
    /// The requested version is not kept.
    #[error("no version {version}; stored versions: {}", list(kept))]
    NoVersion {
        /// The requested version.
        version: u64,
        /// The versions that are kept.
        kept: Vec<u64>,
    },
    /// The current version is the oldest that is kept.
    #[error("no version before {0}, the current one, is stored")]
    NothingBefore(u64),
    /// The function was removed, or the version was dropped by later deployments.
    #[error("version {0} has just been removed")]
    Overtaken(u64),
    /// The version could not be made ready.
    #[error(transparent)]
    NotReady(#[from] DeployError),
}

impl From<RegistryError> for RollbackError {
    fn from(error: RegistryError) -> Self {
        Self::NotReady(error.into())
    }
}

fn list(versions: &[u64]) -> String {
    let texts: Vec<_> = versions.iter().map(u64::to_string).collect();
    texts.join(", ")
}
