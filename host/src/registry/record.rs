//! What the registry's store holds, as JSON so that a later version can add to it.

use faasw_client::{
    Digest, EngineUse, Extension, FunctionName, FunctionOptions, Initialised, spelling,
};
use std::time::{Duration, SystemTime};

use faasw_abi::wire::FunctionKind;
use faasw_pool::{CodeDigest, FreezeReport, ImageId, Pieces};
use serde::{Deserialize, Serialize};

/// Version of tables and records. Another one is refused, never guessed at.
pub(super) const FORMAT: u64 = 2;

/// The same, where there are language engines: versions before would take their files for
/// garbage, so that they are to refuse the whole.
pub(super) const FORMAT_WITH_ENGINES: u64 = 3;

/// The same once there were secrets: who knows nothing of them would leave them to the next of a
/// function's name.
pub(super) const FORMAT_WITH_SECRETS: u64 = 4;

/// The same once a version had files: who knows nothing of them would take them for garbage.
pub(super) const FORMAT_WITH_FILES: u64 = 5;

/// A name's versions: which one serves, and which number was given last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FunctionRecord {
    pub(super) current: u64,
    pub(super) newest: u64,
}

/// A version of a function as it was deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionRecord {
    /// Of its module, or of its script.
    pub(crate) digest: Digest,
    /// The engine that runs it, where it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<EngineUse>,
    /// Its files, if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<FilesRecord>,
    /// How it was initialised, if it was.
    #[serde(default)]
    pub(crate) initialised: Option<Initialised>,
    #[serde(with = "spelling::kind")]
    pub(crate) kind: FunctionKind,
    pub(crate) options: FunctionOptions,
    pub(crate) deployed: SystemTime,
    /// When what its seed was made of first was deployed, where that was on another node and its
    /// image came from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) imaged: Option<SystemTime>,
    pub(crate) freeze: FreezeRecord,
    /// Full names of the module's imports.
    pub(crate) imports: Vec<String>,
    pub(crate) module_bytes: u64,
    /// Of its compiled code.
    pub(crate) code_bytes: u64,
}

/// The files of a version, as they were packed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesRecord {
    /// Of the bundle.
    pub(crate) digest: Digest,
    /// Of the bundle.
    pub(crate) bundle_bytes: u64,
    /// Files, folders and links.
    pub(crate) entries: u32,
    /// Of all files together.
    pub(crate) bytes: u64,
}

/// What a version is made of, on its way into the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewVersion<'a> {
    pub(crate) module: &'a [u8],
    /// The bundle of its files, if it has some.
    pub(crate) files: Option<&'a [u8]>,
}

/// A language engine as it was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EngineRecord {
    /// Of its component.
    pub(crate) digest: Digest,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) added: SystemTime,
    pub(crate) module_bytes: u64,
    /// Whether it is one that faasw carries, which another faasw may replace by its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_carried: bool,
}

/// What was found out when its seed was made at deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FreezeRecord {
    pub(crate) after_init: bool,
    #[serde(default)]
    pub(crate) at_entry: bool,
    pub(crate) drew_entropy: bool,
    pub(crate) drawn: String,
    #[serde(rename = "instantiation_us", with = "spelling::microseconds")]
    pub(crate) instantiation: Duration,
    pub(crate) layer_bytes: u64,
}

/// Compiled code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ArtifactRecord {
    #[serde(with = "spelling::kind")]
    pub(super) kind: FunctionKind,
    pub(super) imports: Vec<String>,
    #[serde(default)]
    pub(super) has_initialiser: bool,
    /// As [`Artifact::only_for`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) only_for: Option<FunctionName>,
    /// Of the code.
    pub(super) digest: Digest,
    /// Of its pieces; records of before have none, or those of larger ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pieces: Option<PiecesRecord>,
}

/// By what code is verified as it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PiecesRecord {
    /// Of the code.
    pub(super) bytes: u64,
    /// Of each piece.
    pub(super) digests: Vec<Digest>,
}

impl PiecesRecord {
    pub(super) fn of(code: &[u8]) -> Self {
        let pieces = Pieces::of(code);
        Self {
            bytes: code.len() as u64,
            digests: pieces.digests().iter().copied().map(Digest::from).collect(),
        }
    }

    /// Whether they are pieces of the size that they have now, and all of them.
    pub(super) fn has_all(&self) -> bool {
        self.pieces().are_of(self.bytes)
    }

    pub(super) fn pieces(&self) -> Pieces {
        let digests = self.digests.iter().copied();
        Pieces::known(digests.map(Digest::bytes).collect())
    }
}

impl VersionRecord {
    /// What its func-image is named by: no other version's, of whatever function, unless the
    /// image of that is its own.
    pub(crate) fn image(&self, name: &FunctionName) -> ImageId {
        let since = self.made().duration_since(SystemTime::UNIX_EPOCH);
        let deployed = since.unwrap_or_default().as_nanos();
        let told = format!(
            "func-image of {name} deployed {deployed} with {}",
            self.digest
        );
        Digest::of(told.as_bytes()).bytes()
    }

    /// When what its seed was made of first was deployed.
    pub(crate) fn made(&self) -> SystemTime {
        self.imaged.unwrap_or(self.deployed)
    }

    /// The digests of what its files are named by.
    pub(super) fn digests(&self) -> impl Iterator<Item = Digest> {
        let engine = self.engine.as_ref().map(|engine| engine.digest);
        let files = self.files.as_ref().map(|files| files.digest);
        std::iter::once(self.digest).chain(engine).chain(files)
    }
}

impl From<&FreezeReport> for FreezeRecord {
    fn from(report: &FreezeReport) -> Self {
        Self {
            after_init: report.after_init,
            at_entry: report.at_entry,
            drew_entropy: report.drew_entropy,
            drawn: report.drawn.clone(),
            instantiation: report.instantiation,
            layer_bytes: report.layer_bytes,
        }
    }
}

/// Compiled code, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    pub(crate) kind: FunctionKind,
    /// Full names of the module's imports.
    pub(crate) imports: Vec<String>,
    /// Whether the module has what initialises it though nobody has named it.
    pub(crate) has_initialiser: bool,
    /// The one function that it may be the code of: what was kept of its earlier uploads went
    /// into it. Any function's that has the module, where nothing is named.
    pub(crate) only_for: Option<FunctionName>,
    pub(crate) code: Vec<u8>,
    pub(crate) proof: Proof,
}

/// By what stored code is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Of all of it: versions of before it had pieces look at that.
    pub(super) whole: Digest,
    pub(super) pieces: PiecesRecord,
}

impl Proof {
    /// That of this code, all of which is looked at.
    pub(crate) fn of(code: &[u8]) -> Self {
        Self {
            whole: Digest::of(code),
            pieces: PiecesRecord::of(code),
        }
    }

    /// What the code is known by.
    pub(crate) fn digest(&self) -> CodeDigest {
        self.pieces.pieces().digest(self.pieces.bytes)
    }
}

/// What is known of compiled code that is stored, without a look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredArtifact {
    pub(crate) kind: FunctionKind,
    /// As [`Artifact::imports`].
    pub(crate) imports: Vec<String>,
    /// As [`Artifact::has_initialiser`].
    pub(crate) has_initialiser: bool,
    /// Size of the code.
    pub(crate) bytes: u64,
    /// What it is known by.
    pub(crate) digest: CodeDigest,
}

/// Code on its way into the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewArtifact<'a> {
    /// Of the engine that compiled it.
    pub(crate) generation: &'a str,
    pub(crate) artifact: &'a Artifact,
}
