//! The records of the registry's store, in JSON so that a later version can add fields.

use faasw_client::{
    Digest, EngineUse, Extension, FunctionName, FunctionOptions, Initialisation, spelling,
};
use std::time::{Duration, SystemTime};

use faasw_abi::wire::FunctionKind;
use faasw_pool::{CodeDigest, FreezeReport, ImageId, Pieces};
use serde::{Deserialize, Serialize};

/// The version of tables and records, without what the later formats add. A registry of an unknown
/// version is rejected.
pub(super) const FORMAT: u64 = 2;

/// The version once there are language engines. Earlier versions of faasw would remove the engines'
/// files as garbage, so they must reject the registry.
pub(super) const FORMAT_WITH_ENGINES: u64 = 3;

/// The version once there are secrets. Earlier versions of faasw would leave them to a later
/// function of the same name.
pub(super) const FORMAT_WITH_SECRETS: u64 = 4;

/// The version once a function version has files. Earlier versions of faasw would remove these as
/// garbage.
pub(super) const FORMAT_WITH_FILES: u64 = 5;

/// The versions of a name: the current one, and the last number that was assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FunctionRecord {
    pub(super) current: u64,
    pub(super) newest: u64,
}

/// A version of a function as it was deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionRecord {
    /// The digest of its module or script.
    pub(crate) digest: Digest,
    /// The engine that runs it, if it is a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<EngineUse>,
    /// The version's files, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<FilesRecord>,
    /// How it was initialised, if it was.
    #[serde(default)]
    pub(crate) initialised: Option<Initialisation>,
    #[serde(with = "spelling::kind")]
    pub(crate) kind: FunctionKind,
    pub(crate) options: FunctionOptions,
    pub(crate) deployed: SystemTime,
    /// When the version whose image this one uses was first deployed, if that was on another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) imaged: Option<SystemTime>,
    pub(crate) freeze: FreezeRecord,
    /// Full names of the module's imports.
    pub(crate) imports: Vec<String>,
    pub(crate) module_bytes: u64,
    /// The size of its compiled code.
    pub(crate) code_bytes: u64,
}

/// The files of a version, as they were packed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesRecord {
    /// The digest of the bundle.
    pub(crate) digest: Digest,
    /// The size of the bundle.
    pub(crate) bundle_bytes: u64,
    /// The number of files, folders and links.
    pub(crate) entries: u32,
    /// The size of all files together.
    pub(crate) bytes: u64,
}

/// The content of a version on its way into the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewVersion<'a> {
    pub(crate) module: &'a [u8],
    /// The bundle of its files, if it has any.
    pub(crate) files: Option<&'a [u8]>,
}

/// A language engine as it was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EngineRecord {
    /// The digest of its component.
    pub(crate) digest: Digest,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) added: SystemTime,
    pub(crate) module_bytes: u64,
    /// Whether faasw carries the engine. Another version of faasw may replace it by its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_carried: bool,
}

/// The results of making the version's seed at its deployment.
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

/// The record of compiled code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ArtifactRecord {
    #[serde(with = "spelling::kind")]
    pub(super) kind: FunctionKind,
    pub(super) imports: Vec<String>,
    #[serde(default)]
    pub(super) has_initialiser: bool,
    /// See [`Artifact::only_for`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) only_for: Option<FunctionName>,
    /// The digest of the code.
    pub(super) digest: Digest,
    /// The pieces of the code. Earlier records have none, or pieces of a larger size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pieces: Option<PiecesRecord>,
}

/// The digests by which code is verified as it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PiecesRecord {
    /// The size of the code.
    pub(super) bytes: u64,
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

    /// Whether these are all pieces of the code, and of the current size.
    pub(super) fn has_all(&self) -> bool {
        self.pieces().are_of(self.bytes)
    }

    pub(super) fn pieces(&self) -> Pieces {
        let digests = self.digests.iter().copied();
        Pieces::known(digests.map(Digest::bytes).collect())
    }
}

impl VersionRecord {
    /// Returns the identifier of the version's func-image. Another version, of any function, has
    /// this identifier only if it uses this image.
    pub(crate) fn image(&self, name: &FunctionName) -> ImageId {
        let since = self.made().duration_since(SystemTime::UNIX_EPOCH);
        let deployed = since.unwrap_or_default().as_nanos();
        let text = format!(
            "func-image of {name} deployed {deployed} with {}",
            self.digest
        );
        Digest::of(text.as_bytes()).bytes()
    }

    /// Returns when the version whose image this one uses was first deployed.
    pub(crate) fn made(&self) -> SystemTime {
        self.imaged.unwrap_or(self.deployed)
    }

    /// Returns the digest of the module, or of the engine's component, that the version's code is
    /// compiled from.
    pub(crate) fn compiled_from(&self) -> Digest {
        let engine = self.engine.as_ref();
        engine.map_or(self.digest, |engine| engine.digest)
    }

    /// Returns the digests that name the version's files.
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
    /// Whether the module has an initialiser that no option names.
    pub(crate) has_initialiser: bool,
    /// The only function that may use the code, because a compile cache of its earlier uploads went
    /// into it. If it is `None`, any function with the module may use the code.
    pub(crate) only_for: Option<FunctionName>,
    pub(crate) code: Vec<u8>,
    pub(crate) proof: CodeProof,
}

/// The digests by which stored code is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeProof {
    /// The digest of all of the code, which versions of faasw from before pieces check.
    pub(super) whole: Digest,
    pub(super) pieces: PiecesRecord,
}

impl CodeProof {
    /// Returns the proof of this code, which is read completely.
    pub(crate) fn of(code: &[u8]) -> Self {
        Self {
            whole: Digest::of(code),
            pieces: PiecesRecord::of(code),
        }
    }

    /// Returns the digest that identifies the code.
    pub(crate) fn digest(&self) -> CodeDigest {
        self.pieces.pieces().digest(self.pieces.bytes)
    }
}

/// The description of stored compiled code, without the code itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredArtifact {
    pub(crate) kind: FunctionKind,
    /// See [`Artifact::imports`].
    pub(crate) imports: Vec<String>,
    /// See [`Artifact::has_initialiser`].
    pub(crate) has_initialiser: bool,
    /// Size of the code.
    pub(crate) bytes: u64,
    /// The digest that identifies the code.
    pub(crate) digest: CodeDigest,
}

/// Code on its way into the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewArtifact<'a> {
    /// The generation of the engine that compiled it.
    pub(crate) generation: &'a str,
    pub(crate) artifact: &'a Artifact,
}
