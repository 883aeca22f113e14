//! Arguments of `image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use faasw_client::FunctionName;

use super::{DataDir, Format, Inspect, name};

#[derive(Debug, Subcommand)]
pub enum Image {
    /// Show what the image of a function has: pages, working set, whether it is sound
    #[command(after_help = "\
All of it is read to see whether it is what was sealed. A restore reads the pages in
the file; those that are empty or its ancestors' cost nothing. RUNS are neighbours in
memory; in the file all that requests use is one run, in front. docs/func-image.md")]
    Inspect(Inspect),
    /// Write a function with its image to a file, for a node with the same image key
    #[command(after_help = "\
The file has the module, the options with the values of --env and
--config, and the image, sealed
with the node's image key (DATA_DIR/image.key, or serve --image-key): who has not that
can do nothing with it.

Examples:
  faasw image export shop -o shop.faasw               then, on the other node:
  faasw image import shop.faasw")]
    Export(ImageExport),
    /// Make a function, or a new version of one, of a file that `export` wrote
    #[command(after_help = "\
Where the image is good on this node it is read, and nothing is initialised. Else the
function is deployed from the module inside, and the output says why.
docs/func-image.md says when an image is good on another node.")]
    Import(ImageImport),
}

#[derive(Debug, Args)]
pub struct ImageExport {
    /// Name of the function
    #[arg(value_parser = name)]
    pub name: FunctionName,
    /// Write it to this file
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub node: DataDir,
}

#[derive(Debug, Args)]
pub struct ImageImport {
    /// What `faasw image export` has written
    pub file: PathBuf,
    /// Name of the function; under another one than its own its image is not used
    /// [default: its own]
    #[arg(long, value_parser = name)]
    pub name: Option<FunctionName>,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}
