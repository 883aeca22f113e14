//! What a function version is made of, and what making its seed found out.

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
use crate::snapshots::Bringing;

/// What the memories of a language engine may have before it has a script.
pub const ENGINE_MEMORY: u64 = 128 << 20;

/// Everything that a function version is made of, but for its code.
#[derive(Clone, Debug)]
pub struct FunctionSpec {
    /// The function's name, which is also its program argument 0.
    pub name: String,
    /// Most bytes of all its linear memories together.
    pub memory_limit: u64,
    /// Its environment.
    pub environment: Vec<Pair>,
    /// Its configuration: keys and values, each UTF-8.
    pub configuration: Vec<Pair>,
    /// Names of its secrets, each UTF-8: they come with each request
    /// ([`Call::secrets`](crate::Call::secrets)).
    pub secrets: Vec<Vec<u8>>,
    /// When its seed is frozen.
    pub freeze: FreezePolicy,
    /// How long its instances look for their next requests by themselves at most; nothing where
    /// that is as [`PoolOptions::poll`](crate::PoolOptions::poll) has it.
    pub poll: Option<Duration>,
    /// An export without parameters and results that is called once it is instantiated and
    /// before its seed is frozen; one of a component's exported interface is named
    /// `interface#name`. Its seed is frozen afterwards then, and unless the policy says so
    /// neither may draw what requests are not to share.
    pub init: Option<String>,
    /// The script that a language engine becomes the function by: its code is the engine's
    /// then. Its seed is frozen once the engine has taken the script, and unless the policy
    /// says so the script may draw nothing before that which requests are not to share.
    pub script: Option<Script>,
    /// Program arguments behind its name.
    pub arguments: Vec<Vec<u8>>,
    /// Its files, if it has some; none of a script.
    pub files: Option<FunctionFiles>,
    /// Requests that it answers before its seed is frozen, one after the other, for what that
    /// leaves behind: its seed is frozen after its initialisation then, and unless the policy
    /// says so neither that nor they may draw what requests are not to share. Only for what
    /// can answer several: no command.
    pub warm_ups: Vec<WarmUp>,
    /// Whether it imports the func-entry point ([`faasw_abi::entry`]), and so may say itself where
    /// it is to be frozen.
    pub has_entry: bool,
    /// What its image is named by, if it is to have one: no other version, of whatever function,
    /// has that name.
    pub image: Option<ImageId>,
    /// Where goes what it logs while it is instantiated.
    pub log: Arc<dyn LogSink>,
}

/// A request that nobody made.
#[derive(Clone, Debug)]
pub struct WarmUp {
    /// Its head, as the function sees it.
    pub head: RequestHead,
    /// Its body.
    pub body: Bytes,
}

impl WarmUp {
    /// Method and path.
    pub(super) fn told(&self) -> String {
        let method = String::from_utf8_lossy(&self.head.method);
        let path = String::from_utf8_lossy(&self.head.path_and_query);
        format!("{method} {path}")
    }
}

/// A script for a language engine.
#[derive(Clone)]
pub struct Script {
    /// What the engine is called.
    pub engine: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Its files, as [`faasw_abi::script`] has them.
    pub files: ScriptFiles,
}

/// The files of a function, which its guests find in a folder.
#[derive(Clone, Debug)]
pub struct FunctionFiles {
    /// Where that is: an absolute path.
    pub mount: String,
    /// The one that is the function's func-entry point when it opens it, by its absolute path.
    pub freeze_at: Option<String>,
    /// Bytes of the bundle.
    pub bytes: u64,
    /// The bundle, as [`Pool::pack`](crate::Pool::pack) makes it.
    pub bundle: ScriptFiles,
}

/// Where a script's files are, or the bundle of a function's.
#[derive(Clone, Debug)]
pub enum ScriptFiles {
    /// Here.
    Here(Bytes),
    /// There, until its seed has to be made.
    Stored(Arc<dyn ScriptSource>),
}

/// Where a script's files are that are not in memory, or a bundle.
pub trait ScriptSource: fmt::Debug + Send + Sync {
    /// Reads them, proven to be what was stored.
    ///
    /// # Errors
    /// Why they cannot be had.
    fn read(&self) -> Bringing<'_, Result<Bytes, String>>;
}

impl ScriptFiles {
    /// Them.
    ///
    /// # Errors
    /// When they are stored and cannot be had.
    pub(super) async fn get(&self) -> Result<Bytes, PlatformError> {
        match self {
            Self::Here(files) => Ok(files.clone()),
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

/// What was found out while a seed was made.
#[derive(Clone, Debug)]
pub struct FreezeReport {
    /// Whether the seed is frozen after instantiation.
    pub after_init: bool,
    /// Whether it is frozen where its own code says so.
    pub at_entry: bool,
    /// Whether instantiation drew entropy.
    pub drew_entropy: bool,
    /// What instantiation drew, by import, one line each; empty when nothing.
    pub drawn: String,
    /// What instantiation takes, which each request pays when `after_init` is false.
    pub instantiation: Duration,
    /// Size of the seed's memory layer in bytes (pages that exist).
    pub layer_bytes: u64,
}

/// What an earlier making of a function's seed found out.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Whether the seed was frozen after instantiation.
    pub after_init: bool,
    /// What instantiation took.
    pub instantiation: Duration,
    /// Size of the seed's memory layer in bytes.
    pub layer_bytes: u64,
}
