//! The inputs of a function version, and the results of making its seed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::wire::{Pair, RequestHead};
pub use faasw_common::FreezePolicy;
use faasw_common::text::Line;

use crate::error::PlatformError;
use crate::images::ImageId;
use crate::sink::LogSink;
use crate::snapshots::LoadFuture;

/// The memory limit of a language engine before it has a script.
pub const ENGINE_MEMORY: u64 = 128 << 20;

/// The inputs of a function version, except its code.
#[derive(Clone, Debug)]
pub struct FunctionSpec {
    /// The function's name, which is also its program argument 0.
    pub name: String,
    /// The maximum size of all its linear memories together, in bytes.
    pub memory_limit: u64,
    /// The environment variables.
    pub environment: Vec<Pair>,
    /// The configuration: keys and values, each UTF-8.
    pub configuration: Vec<Pair>,
    /// The names of its secrets, each UTF-8. The values come with each request
    /// ([`InvocationRequest::secrets`](crate::InvocationRequest::secrets)).
    pub secrets: Vec<Vec<u8>>,
    /// The names of the shared key-value stores that it may open, each UTF-8. The service behind
    /// [`InvocationRequest::store`](crate::InvocationRequest::store) grants the access.
    pub stores: Vec<Vec<u8>>,
    /// When its seed is frozen.
    pub freeze: FreezePolicy,
    /// How long its instances poll for their next request at most; `None` for
    /// [`PoolOptions::poll`](crate::PoolOptions::poll).
    pub poll: Option<Duration>,
    /// An export without parameters and results that is called once it is instantiated and before
    /// its seed is frozen. An export of a component's exported interface is named `interface#name`.
    /// The seed is then frozen after the call. Unless the policy allows it, neither instantiation
    /// nor the call may draw values that requests must not share.
    pub init: Option<String>,
    /// The script that a language engine runs as the function; the function's code is then the
    /// engine's. Its seed is frozen once the engine has loaded the script. Unless the policy allows
    /// it, the script may not draw values before that which requests must not share.
    pub script: Option<Script>,
    /// The program arguments after its name.
    pub arguments: Vec<Vec<u8>>,
    /// The function's files, if it has some. Those of a script are in [`FunctionSpec::script`].
    pub files: Option<FunctionFiles>,
    /// Warm-up requests that it answers before its seed is frozen, one after the other, for the
    /// state that they leave. Its seed is then frozen after its initialisation. Unless the policy
    /// allows it, neither the initialisation nor the requests may draw values that requests must
    /// not share. Not for commands, which answer a single request.
    pub warm_ups: Vec<WarmUp>,
    /// Whether it imports the func-entry point ([`faasw_abi::entry`]), and so may choose itself
    /// where it is frozen.
    pub has_entry: bool,
    /// The ID of its image, if it is to have one. No other version of any function has this ID.
    pub image: Option<ImageId>,
    /// The receiver of its log while it is instantiated.
    pub log: Arc<dyn LogSink>,
}

/// A warm-up request.
#[derive(Clone, Debug)]
pub struct WarmUp {
    /// The head, as the function sees it.
    pub head: RequestHead,
    /// The body.
    pub body: Bytes,
}

impl WarmUp {
    pub(super) fn describe(&self) -> String {
        let method = String::from_utf8_lossy(&self.head.method);
        let path = String::from_utf8_lossy(&self.head.path_and_query);
        format!("{method} {path}")
    }
}

/// A script for a language engine.
#[derive(Clone)]
pub struct Script {
    /// The name of the engine.
    pub engine: String,
    /// The size of its files in bytes.
    pub bytes: u64,
    /// The files, in the format of [`faasw_abi::script`].
    pub files: ScriptFiles,
}

/// The files of a function, which its guests find in a folder.
#[derive(Clone, Debug)]
pub struct FunctionFiles {
    /// The absolute path of that folder.
    pub mount: String,
    /// The absolute path of the file whose opening is the function's entry point.
    pub freeze_at: Option<String>,
    /// The size of the bundle in bytes.
    pub bytes: u64,
    /// The bundle, as [`Pool::pack`](crate::Pool::pack) makes it.
    pub bundle: ScriptFiles,
}

/// The files of a script, or the bundle of a function's files.
#[derive(Clone, Debug)]
pub enum ScriptFiles {
    /// In memory.
    InMemory(Bytes),
    /// Stored elsewhere until the seed has to be made.
    Stored(Arc<dyn ScriptSource>),
}

/// The storage of a script's files or a bundle that are not in memory.
pub trait ScriptSource: fmt::Debug + Send + Sync {
    /// Reads the files, verified to be what was stored.
    ///
    /// # Errors
    /// Returns the reason if they cannot be read.
    fn read(&self) -> LoadFuture<'_, Result<Bytes, String>>;
}

impl ScriptFiles {
    /// Returns the files.
    ///
    /// # Errors
    /// Returns [`PlatformError::CodeGone`] if they are stored and cannot be read.
    pub(super) async fn get(&self) -> Result<Bytes, PlatformError> {
        match self {
            Self::InMemory(files) => Ok(files.clone()),
            Self::Stored(source) => {
                let read = source.read().await;
                read.map_err(|why| PlatformError::CodeGone(Line(why).to_string()))
            }
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("engine", &self.engine)
            .field("bytes", &self.bytes)
            .finish()
    }
}

/// The results of making a seed.
#[derive(Clone, Debug)]
pub struct FreezeReport {
    /// Whether the seed is frozen after instantiation.
    pub after_init: bool,
    /// Whether it is frozen at its entry point.
    pub at_entry: bool,
    /// Whether instantiation drew entropy.
    pub drew_entropy: bool,
    /// The draws of the instantiation, by import, one line each; empty if there were none.
    pub drawn: String,
    /// The duration of the instantiation, which each request pays if `after_init` is false.
    pub instantiation: Duration,
    /// The size of the seed's memory layer in bytes (existing pages).
    pub layer_bytes: u64,
}

/// The results of an earlier making of a function's seed.
#[derive(Clone, Copy, Debug)]
pub struct EarlierBuild {
    /// Whether the seed was frozen after instantiation.
    pub after_init: bool,
    /// The duration of the instantiation.
    pub instantiation: Duration,
    /// The size of the seed's memory layer in bytes.
    pub layer_bytes: u64,
}
