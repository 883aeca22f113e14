//! Why a node did not start, or a deployment failed.
//!
//! Failures of requests are apart (`failure`): they become responses, not
//! errors. Every message is complete and can be shown as it is.

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

/// Why a node did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The host cannot run microVMs.
    #[error(transparent)]
    Pool(#[from] faasw_pool::StartError),
    /// The gateway's address cannot be had.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// The data directory cannot be used.
    #[error("the data directory {path:?} cannot be used: {error}")]
    DataDir {
        /// The file or folder that fails.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// Another node has the data directory.
    #[error(
        "another node (process {pid}) uses the data directory {path:?}; each node needs its own"
    )]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// The other node's process, `?` if it did not say.
        pid: String,
    },
    /// The admin API's socket cannot be made.
    #[error("the admin socket {path:?} cannot be made: {error}")]
    AdminSocket {
        /// Where it would be.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The admin API was asked for, but it lives in a data directory.
    #[error("the admin API needs a data directory: its socket is a file there")]
    AdminNeedsDataDir,
    /// An entry that is shared was given to a node with a data directory, which has its own.
    #[error(
        "a node with a data directory takes nothing that is shared: it keeps what it makes itself"
    )]
    SharedNeedsMemory,
    /// The key-value store cannot begin.
    #[error(transparent)]
    KeyValue(#[from] StoreError),
    /// The registry cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is nothing to redirect to.
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

/// Why a function cannot have the files that were sent with it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FilesRefused {
    /// The upload ends before its module, or the files have a length that none may have.
    #[error("{0}")]
    Upload(FilesError),
    /// They break a rule.
    #[error("its files were not taken: {0}")]
    Bundle(CompileError),
    /// A script brings its own.
    #[error("a script has no files beside its own: they are for modules and components")]
    OfScript,
    /// There are none.
    #[error(
        "it was said where its files are to be, or at which of them it is to be frozen, but none \
         were sent"
    )]
    Missing,
}

/// Why a deployment failed. What was deployed under the name before stays.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeployError {
    /// The name cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The options make no sense.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Another function has a host that was asked for.
    #[error("the host {host} belongs to the function {function}; deploy that one without it first")]
    HostTaken {
        /// The host.
        host: HostName,
        /// Whose it is.
        function: FunctionName,
    },
    /// A host that was asked for is in the node's domain.
    #[error(
        "the host {host} is in the node's domain: there, NAME.{domain} is the function NAME, \
         without being asked for"
    )]
    HostOfDomain {
        /// The host.
        host: HostName,
        /// The node's domain.
        domain: HostName,
    },
    /// The module is larger than the node takes.
    #[error("the module is {size} bytes; at most {limit} are taken")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The script cannot be taken apart.
    #[error("{0}")]
    Script(ScriptError),
    /// What was sent as its files are none, or not for this.
    #[error("{0}")]
    Files(FilesRefused),
    /// There is no language engine for a script.
    #[error("there is no language engine for {file:?}: {}", known(extensions))]
    NoEngine {
        /// The file to begin with.
        file: String,
        /// What there are engines for.
        extensions: Vec<Extension>,
    },
    /// It was not compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// No seed could be made of it.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// There is no module that begins where an initialisation has left it.
    #[error("{0}")]
    NotInitialised(String),
    /// It was not stored.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// Why a function was not removed or inspected, or its log or its image not read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// There is none of that name.
    #[error("there is no function named {0:?}")]
    Unknown(String),
    /// There is no image of its seed.
    #[error("there is no image of {name}: {why}")]
    NoImage {
        /// The function.
        name: FunctionName,
        /// Why that may be, and what can be done.
        why: &'static str,
    },
    /// The image of its seed cannot be read.
    #[error(
        "the image of {name} is not used: {error}; its seed is made anew when it is next needed"
    )]
    BadImage {
        /// The function.
        name: FunctionName,
        /// What is wrong with it.
        error: ImageError,
    },
    /// It cannot be exported.
    #[error("{name} was not exported: {error}")]
    NotExported {
        /// The function.
        name: FunctionName,
        /// Why.
        error: ExportError,
    },
    /// It could not be made ready.
    #[error(transparent)]
    NotReady(#[from] DeployError),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Why what another node has exported was not taken in. What was deployed under the name before
/// stays.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The node has no key.
    #[error(
        "this node keeps no images, and so has no key that opens the export: give it a data \
         directory, and an --image-disk that is not 0"
    )]
    NoKey,
    /// It does not come, or too slowly.
    #[error(
        "the export did not arrive: nothing of it, or less than a MiB, came within {} s; send it \
         once more",
        .0.as_secs_f64()
    )]
    TimedOut(Duration),
    /// Whoever sent it has broken off.
    #[error("the export did not arrive: {0}")]
    BrokenOff(String),
    /// It cannot be opened.
    #[error("the export was not opened: {0}{cure}", cure = cure(.0))]
    Parcel(#[from] ParcelError),
    /// It was made by somebody who has the key, and makes no sense.
    #[error("the export makes no sense: {0}; was it made by another version of faasw?")]
    Manifest(#[from] serde_json::Error),
    /// The module in it is another one.
    #[error("the export makes no sense: the module in it is not the one that it names")]
    Module,
    /// What is in it was not deployed.
    #[error(transparent)]
    Deploy(#[from] DeployError),
}

impl From<RegistryError> for ImportError {
    fn from(error: RegistryError) -> Self {
        Self::Deploy(error.into())
    }
}

/// What can be done about an export that is not opened.
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

/// Why a language engine was not added, warmed or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is none of that name.
    #[error("there is no language engine named {0:?}")]
    Unknown(String),
    /// Another engine has an extension that was asked for.
    #[error("scripts that end with {extension} are the engine {engine}'s; remove that first")]
    Taken {
        /// The extension.
        extension: Extension,
        /// Whose it is.
        engine: FunctionName,
    },
    /// It is for no scripts, or for too many.
    #[error("an engine has 1 to {EXTENSIONS_MAX} extensions, not {0}")]
    Extensions(usize),
    /// The component takes no scripts.
    #[error(
        "this is no language engine: it does not export wasi:http/incoming-handler and \
         faasw:engine/script@{}, both with their functions",
        ENGINE_VERSION
    )]
    NotAnEngine,
    /// It does not compile, or does not start.
    #[error(transparent)]
    NotReady(#[from] DeployError),
}

impl From<RegistryError> for EngineError {
    fn from(error: RegistryError) -> Self {
        Self::NotReady(error.into())
    }
}

/// What can be done where a script has no engine.
fn known(extensions: &[Extension]) -> String {
    let texts: Vec<_> = extensions.iter().map(Extension::to_string).collect();
    let there_are = match texts.as_slice() {
        [] => "this node has none".to_owned(),
        _ => format!("this node has some for {}", texts.join(", ")),
    };
    format!("{there_are}; `faasw engine add` adds one")
}

/// Why a function was not rolled back. What served before still does.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RollbackError {
    /// There is none of that name.
    #[error("there is no function named {0:?}")]
    Unknown(String),
    /// The version asked for is not kept.
    #[error("there is no version {version}; kept are: {}", list(kept))]
    NoVersion {
        /// What was asked for.
        version: u64,
        /// What there is.
        kept: Vec<u64>,
    },
    /// The current version is the oldest that is kept.
    #[error("no version before {0}, the current one, is kept")]
    NothingBefore(u64),
    /// The function was removed, or deployed so often that the version went.
    #[error("version {0} was removed in the meantime")]
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
