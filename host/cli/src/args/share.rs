//! Arguments of `share`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use faasw::shared::Namespace;
use faasw_client::{Digest, FunctionName};

use super::{super::options::Options, Format};

#[derive(Debug, Subcommand)]
pub enum Share {
    /// Make the entry of a function, unless there is one
    #[command(after_help = "\
The function is compiled and initialised as a pod with the same options would, by a node that ends with the
command. Only root adds; the store is made where there is none. What the entry is of decides which pods find it:
namespace, name, file, options, this faasw and this processor and kernel.")]
    Add(Box<ShareAdd>),
    /// Print where the entry of a function is: its folder, then the file with its key
    #[command(after_help = "\
Exits with 5 where there is none: such a pod makes its function itself. Give a pod the folder, read only, and the
key, and nothing else of the store.")]
    Find(Box<ShareFind>),
    /// List the entries of a store
    Ls(ShareLs),
    /// Remove entries from a store
    Rm(ShareRm),
}

/// Which store.
#[derive(Debug, Args)]
#[group(skip)]
pub struct InStore {
    /// The store, a folder that root alone can come into
    #[arg(long, value_name = "DIR")]
    pub store: PathBuf,
}

/// What of a store.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Of {
    #[command(flatten)]
    pub within: InStore,
    /// Whose it is: nothing is shared between namespaces
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Namespace,
    /// Name of the function, as pods have it [default: the file's]
    #[arg(long, value_parser = super::name)]
    pub name: Option<FunctionName>,
    /// Begin with this file of the folder [default: its handler, index, main or app]
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
    /// What a pod is given: a component, a WASI command, the text form of either; a script, or a
    /// folder of one
    pub file: PathBuf,
    /// Ask the function for this path when it is made, any number of times, so that what such
    /// requests use is read first; what it does for them it does
    #[arg(long = "request", value_name = "PATH")]
    pub requests: Vec<String>,
    #[command(flatten)]
    pub of: Of,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ShareFind {
    /// What the pod is given
    #[arg(required_unless_present = "digest")]
    pub file: Option<PathBuf>,
    /// The SHA-256 of that, as the layer of an image has it, in place of the file
    #[arg(long, value_name = "[sha256:]DIGEST", value_parser = digest, requires = "name", conflicts_with_all = ["file", "folder"])]
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
    /// Those of this namespace alone
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<Namespace>,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ShareRm {
    /// Entries, as `share ls` calls them
    #[arg(required_unless_present_any = ["stale", "all"])]
    pub entries: Vec<Digest>,
    #[command(flatten)]
    pub within: InStore,
    /// Those of this namespace alone
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<Namespace>,
    /// Remove what no pod of this faasw finds on this machine, and what is damaged
    #[arg(long, conflicts_with_all = ["entries", "all"])]
    pub stale: bool,
    /// Remove all of a namespace
    #[arg(long, requires = "namespace", conflicts_with = "entries")]
    pub all: bool,
}

fn digest(text: &str) -> Result<Digest, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    digits.parse().map_err(|error| format!("{error}"))
}
