//! What a node says of its functions.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use faasw_abi::wire::FunctionKind;
use faasw_common::{FreezePolicy, Lacking};
use serde::{Deserialize, Serialize};

use crate::{
    Digest, EngineUse, FunctionName, HostName, Outbound, RequestLimits, SecretName, StoreName,
    spelling,
};

/// A function in a list: its current version, in what is short of every function.
///
/// What its owner wrote, which may be long, is in [`FunctionInfo`]: a node may have thousands of
/// functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionBrief {
    /// Its name.
    pub name: FunctionName,
    /// Number of the version.
    pub version: u64,
    /// What it is.
    #[serde(with = "spelling::kind")]
    pub kind: FunctionKind,
    /// Digest of its module, or of its script.
    pub digest: Digest,
    /// The name of the engine that runs it, where it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<FunctionName>,
    /// When it was deployed.
    pub deployed: SystemTime,
    /// Memory limit in bytes.
    pub memory: u64,
    /// Time to the first byte of its responses.
    #[serde(rename = "timeout_us", with = "spelling::microseconds")]
    pub timeout: Duration,
    /// Whether its seed is frozen after instantiation.
    pub frozen_after_init: bool,
    /// Whether it is frozen where its own code says so.
    #[serde(default)]
    pub frozen_at_entry: bool,
    /// Whether its seed is in memory now.
    pub ready: bool,
}

/// A version of a function that the node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionInfo {
    /// Its name.
    pub name: FunctionName,
    /// Number of the version: 1 is the first that was deployed under the name.
    pub version: u64,
    /// What it is.
    #[serde(with = "spelling::kind")]
    pub kind: FunctionKind,
    /// Digest of its module, or of its script.
    pub digest: Digest,
    /// Where it came from, as its owner said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The engine that runs it, where it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineUse>,
    /// When it was deployed.
    pub deployed: SystemTime,
    /// Memory limit in bytes.
    pub memory: u64,
    /// The times that hold for its requests.
    pub limits: RequestLimits,
    /// Most requests at once; nothing where only the node's limit holds.
    pub concurrency: Option<usize>,
    /// How long its instances look for their next requests by themselves at most, in microseconds;
    /// nothing where that is as the node has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_us: Option<u64>,
    /// Hosts that are its own, but for the one in the node's domain.
    #[serde(default)]
    pub hosts: Vec<HostName>,
    /// Names of its environment variables. Values may be secrets and stay.
    pub environment: Vec<String>,
    /// Its configuration, by its keys. That is no place for secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub configuration: BTreeMap<String, String>,
    /// The key-value stores that it shares, beside its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<StoreName>,
    /// What it may make requests to.
    #[serde(default)]
    pub outbound: Vec<Outbound>,
    /// Names of the secrets that it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretName>,
    /// Names of the secrets that are bound to hosts, and to which.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bound_secrets: BTreeMap<SecretName, Vec<Outbound>>,
    /// Its program arguments, but for its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Its files, if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesInfo>,
    /// Full names of its module's imports.
    pub imports: Vec<String>,
    /// Size of its module, or of its script, in bytes.
    pub module_bytes: u64,
    /// Size of its compiled code in bytes.
    pub code_bytes: u64,
    /// The freeze policy that was asked for.
    #[serde(with = "spelling::freeze")]
    pub freeze: FreezePolicy,
    /// How it was initialised when it was deployed, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Initialised>,
    /// The requests that it answers whenever its seed is made: method and path of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_ups: Vec<String>,
    /// Whether its seed is frozen after instantiation: the policy in force.
    pub frozen_after_init: bool,
    /// Whether it is frozen where its own code says so, at its func-entry point.
    #[serde(default)]
    pub frozen_at_entry: bool,
    /// What instantiating it drew, by import, one line each; empty when nothing.
    pub drawn: String,
    /// What its instantiation takes.
    #[serde(rename = "instantiation_us", with = "spelling::microseconds")]
    pub instantiation: Duration,
    /// Size of its seed's memory layer in bytes.
    pub layer_bytes: u64,
    /// Whether its seed is in memory now. After a restart it is read from its image, or made in
    /// the background, or when a request comes, which is served from what all functions share
    /// meanwhile.
    pub ready: bool,
    /// Bytes of its seed's image on disk; nothing where there is none.
    #[serde(default)]
    pub image_bytes: Option<u64>,
}

/// The files that a function was deployed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesInfo {
    /// Where it finds them.
    pub at: String,
    /// The one at which the function is frozen when it opens it, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze_at: Option<String>,
    /// Of the bundle that they are packed to.
    pub digest: Digest,
    /// How many files, folders and links there are.
    pub entries: u32,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Bytes of the bundle: what they take in memory and on disk.
    pub bundle_bytes: u64,
}

/// How a function was initialised when it was deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initialised {
    /// Its module is another than the one that was sent: it begins where the export has left
    /// that.
    AsModule {
        /// The export.
        export: String,
        /// Digest of the module that was sent.
        upload: Digest,
    },
    /// The export is called whenever its seed is made.
    InMemory {
        /// The export.
        export: String,
        /// Why its module cannot begin there.
        reason: String,
    },
}

impl Initialised {
    /// The export that initialised it.
    #[must_use]
    pub fn export(&self) -> &str {
        match self {
            Self::AsModule { export, .. } | Self::InMemory { export, .. } => export,
        }
    }
}

/// A function and the versions of it that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionDetails {
    /// The version that serves.
    pub function: FunctionInfo,
    /// Requests that are under way now, on whatever version.
    pub under_way: usize,
    /// What it lacks of the instances that are to be parked ahead of requests, and what keeps them
    /// from being made; nothing where it has all, or they are being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacking: Option<Lacking>,
    /// Versions that can be gone back to, and the current one; newest first.
    pub versions: Vec<FunctionInfo>,
}

/// A deployment that went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// The function.
    pub function: FunctionInfo,
    /// What compiling took; nothing when the code was there already.
    #[serde(rename = "compile_us", with = "spelling::optional_microseconds")]
    pub compile_time: Option<Duration>,
    /// What making the seed took.
    #[serde(rename = "seed_us", with = "spelling::microseconds")]
    pub seed_time: Duration,
    /// What its owner should know about the freeze, if anything.
    pub notice: Option<String>,
}

/// What another node has exported is a function here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The function.
    pub deployed: Deployed,
    /// Why its image is not used, so that it was initialised anew; nothing where it is.
    pub rebuilt: Option<String>,
}
