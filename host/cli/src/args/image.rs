//! Arguments of `image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use faasw_client::FunctionName;

use super::{DataDir, Format, Inspect, help};

#[derive(Debug, Subcommand)]
pub enum Image {
    /// Show a func-image: pages, working set, integrity
    #[command(after_help = help::IMAGE_INSPECT)]
    Inspect(Inspect),
    /// Export a function with its func-image, for a node with the same image key
    #[command(after_help = help::IMAGE_EXPORT)]
    Export(ImageExport),
    /// Deploy a function from an exported file
    #[command(after_help = help::IMAGE_IMPORT)]
    Import(ImageImport),
}

#[derive(Debug, Args)]
pub struct ImageExport {
    /// Name of the function
    pub name: FunctionName,
    /// Write to this file
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub node: DataDir,
}

#[derive(Debug, Args)]
pub struct ImageImport {
    /// File that `faasw image export` wrote
    pub file: PathBuf,
    /// Name of the function; another name than the exported one makes a new seed [default: the
    /// exported name]
    #[arg(long)]
    pub name: Option<FunctionName>,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}
