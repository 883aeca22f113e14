//! Arguments of `share`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use faasw::shared::Namespace;
use faasw_client::{Digest, FunctionName};

use super::{super::options::Options, Format, help};

#[derive(Debug, Subcommand)]
pub enum Share {
    /// Make the entry of a function, unless it exists
    #[command(
        mut_args(help::show_only(help::SHORT_SHARE)),
        after_help = help::short(help::SHARE_ADD),
        after_long_help = help::SHARE_ADD
    )]
    Add(Box<ShareAdd>),
    /// Print the folder and the key file of a function's entry
    #[command(
        mut_args(help::show_only(help::SHORT_SHARE)),
        after_help = help::short(help::SHARE_FIND),
        after_long_help = help::SHARE_FIND
    )]
    Find(Box<ShareFind>),
    /// List the entries of a store
    Ls(ShareLs),
    /// Remove entries from a store
    Rm(ShareRm),
}

/// The store of a command.
#[derive(Debug, Args)]
#[group(skip)]
pub struct InStore {
    /// Folder of the store, which only root can access
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
}

/// The function of an entry.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Of {
    #[command(flatten)]
    pub within: InStore,
    /// Namespace of the entry; namespaces share nothing
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Namespace,
    /// Name of the function, equal to that in pods [default: the file's]
    #[arg(long)]
    pub name: Option<FunctionName>,
    /// Entry file of a script's folder [default: handler, index, main or app]
    #[arg(long, value_name = "PATH")]
    pub entry: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

impl Of {
    /// Returns the folder of the function's files, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        let files = self.options.files.as_ref();
        files.map(|files| files.folder.as_path())
    }
}

#[derive(Debug, Args)]
pub struct ShareAdd {
    /// The pod's component, WASI command, script, or folder of a script
    pub file: PathBuf,
    /// Request this path from the function, to record its working set (repeatable)
    ///
    /// The pages that such requests use are read first when a pod restores the seed. The requests
    /// are real: their side effects happen.
    #[arg(long = "request", value_name = "PATH")]
    pub requests: Vec<String>,
    #[command(flatten)]
    pub of: Of,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ShareFind {
    /// The pod's function file or folder
    #[arg(required_unless_present = "digest")]
    pub file: Option<PathBuf>,
    /// SHA-256 of the file, for example of an artifact's layer, instead of the file itself
    #[arg(
        long,
        value_name = "[sha256:]DIGEST",
        value_parser = digest,
        requires = "name",
        conflicts_with_all = ["file", "folder"]
    )]
    pub digest: Option<Digest>,
    #[command(flatten)]
    pub of: Of,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ShareLs {
    #[command(flatten)]
    pub within: InStore,
    /// List only entries of this namespace
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<Namespace>,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ShareRm {
    /// Entries, as `share ls` prints them
    #[arg(required_unless_present_any = ["stale", "all"])]
    pub entries: Vec<Digest>,
    #[command(flatten)]
    pub within: InStore,
    /// Remove only entries of this namespace
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<Namespace>,
    /// Remove damaged entries, and those that no pod of this faasw version on this host uses
    #[arg(long, conflicts_with_all = ["entries", "all"])]
    pub stale: bool,
    /// Remove all entries of the namespace
    #[arg(long, requires = "namespace", conflicts_with = "entries")]
    pub all: bool,
}

fn digest(text: &str) -> Result<Digest, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    digits.parse().map_err(|error| format!("{error}"))
}
