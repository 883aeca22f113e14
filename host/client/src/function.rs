//! Descriptions of functions in the admin API.

use std::time::{Duration, SystemTime};

use faasw_abi::wire::FunctionKind;
use faasw_common::WarmShortfall;
use serde::{Deserialize, Serialize};

use crate::{Digest, EngineUse, FunctionName, FunctionOptions, RequestLimits, spelling};

/// A short description of a function's current version, for lists.
///
/// A node may have thousands of functions, so texts of the owner, which may be long, are only in
/// [`FunctionInfo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionBrief {
    /// The function's name.
    pub name: FunctionName,
    /// The number of the version.
    pub version: u64,
    /// The kind of function.
    #[serde(with = "spelling::kind")]
    pub kind: FunctionKind,
    /// The digest of the module or of the script.
    pub digest: Digest,
    /// The name of the engine that runs it, if it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<FunctionName>,
    /// The time of the deployment.
    pub deployed: SystemTime,
    /// The memory limit in bytes.
    pub memory: u64,
    /// The maximum time to the first byte of a response.
    #[serde(rename = "timeout_us", with = "spelling::microseconds")]
    pub timeout: Duration,
    /// Whether the seed is frozen after instantiation.
    pub frozen_after_init: bool,
    /// Whether the seed is frozen at the function's own entry point.
    #[serde(default)]
    pub frozen_at_entry: bool,
    /// Whether the seed is in memory now.
    pub ready: bool,
}

/// A version of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionInfo {
    /// The function's name.
    pub name: FunctionName,
    /// The number of the version. The first deployment under a name has number 1.
    pub version: u64,
    /// The kind of function.
    #[serde(with = "spelling::kind")]
    pub kind: FunctionKind,
    /// The digest of the module or of the script.
    pub digest: Digest,
    /// The engine that runs it, if it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineUse>,
    /// The time of the deployment.
    pub deployed: SystemTime,
    /// The memory limit in bytes.
    pub memory: u64,
    /// The time limits of its requests.
    pub limits: RequestLimits,
    /// The names of its environment variables. The values may be secret and are not reported.
    pub environment: Vec<String>,
    /// The warm-up requests that it answers whenever its seed is made: method and path of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_ups: Vec<String>,
    /// The function's options, without environment and warm-up requests. An option that is not set
    /// has the node's default.
    pub options: FunctionOptions,
    /// The files of the function, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesInfo>,
    /// The full names of its module's imports.
    pub imports: Vec<String>,
    /// The size of the module or of the script in bytes.
    pub module_bytes: u64,
    /// The size of the compiled code in bytes.
    pub code_bytes: u64,
    /// How the function was initialised at its deployment, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Initialisation>,
    /// Whether the seed is frozen after instantiation: the policy in force.
    pub frozen_after_init: bool,
    /// Whether the seed is frozen at the function's own entry point.
    #[serde(default)]
    pub frozen_at_entry: bool,
    /// The function's reads before its first request, by import, one line each: randomness,
    /// clocks, environment, secrets, stores and outbound calls. Empty if there were none.
    pub drawn: String,
    /// The duration of its instantiation.
    #[serde(rename = "instantiation_us", with = "spelling::microseconds")]
    pub instantiation: Duration,
    /// The size of its seed's memory layer in bytes.
    pub layer_bytes: u64,
    /// Whether the seed is in memory now. After a restart, the seed is read from its image or made:
    /// in the background, or when a request arrives. Until then, requests are served from what all
    /// functions share.
    pub ready: bool,
    /// The size of the seed's image on disk in bytes. `None` if there is no image.
    #[serde(default)]
    pub image_bytes: Option<u64>,
}

/// The files with which a function was deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesInfo {
    /// The path at which the function sees them.
    pub at: String,
    /// The digest of the bundle that contains them.
    pub digest: Digest,
    /// The number of files, folders and links.
    pub entries: u32,
    /// The size of all files together in bytes.
    pub bytes: u64,
    /// The size of the bundle in bytes: what the files occupy in memory and on disk.
    pub bundle_bytes: u64,
}

/// How a function was initialised at its deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initialisation {
    /// The initialised state became a new module. The function starts where the export left the
    /// uploaded module.
    AsModule {
        /// The name of the export.
        export: String,
        /// The digest of the uploaded module.
        upload: Digest,
    },
    /// The export is called whenever the seed is made.
    InMemory {
        /// The name of the export.
        export: String,
        /// The reason why the initialised state could not become a module.
        reason: String,
    },
}

impl Initialisation {
    /// Returns the name of the export that initialised the function.
    #[must_use]
    pub fn export(&self) -> &str {
        match self {
            Self::AsModule { export, .. } | Self::InMemory { export, .. } => export,
        }
    }
}

/// A function and its kept versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionDetails {
    /// The current version.
    pub function: FunctionInfo,
    /// The number of requests in progress, on any version.
    pub under_way: usize,
    /// The instances that are to be warm ahead of requests but are missing, and the reason.
    /// `None` if none is missing or they are being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacking: Option<WarmShortfall>,
    /// The kept versions, including the current one, newest first.
    pub versions: Vec<FunctionInfo>,
}

/// A successful deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployOutcome {
    /// The function.
    pub function: FunctionInfo,
    /// The duration of the compilation. `None` if the code existed already.
    #[serde(rename = "compile_us", with = "spelling::optional_microseconds")]
    pub compile_time: Option<Duration>,
    /// The duration of making the seed.
    #[serde(rename = "seed_us", with = "spelling::microseconds")]
    pub seed_time: Duration,
    /// Notices for the owner, if there are any: about the initialisation and the freeze, about
    /// configuration, secrets, stores or grants that the function cannot use, and about secrets
    /// without a value.
    pub notice: Option<String>,
}

/// A function that was deployed from another node's export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOutcome {
    /// The deployment.
    pub deployed: DeployOutcome,
    /// The reason why the exported image was not used and the function was initialised anew. `None`
    /// if the image is used.
    pub rebuilt: Option<String>,
}
