//! Arguments of `pod`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use faasw_client::FunctionName;

use super::super::{options::Options, serving::Serving, values::time};

#[derive(Debug, Args)]
pub struct Pod {
    /// A WebAssembly component, a WASI command, the text form of either; a script, or a
    /// folder of one
    pub file: PathBuf,
    /// Begin with this file of the folder [default: its handler, index, main or app]
    #[arg(long, value_name = "PATH")]
    pub entry: Option<String>,
    /// Name of the function in logs and metrics [default: the file's]
    #[arg(long, value_parser = super::name)]
    pub name: Option<FunctionName>,
    /// Serve the function on this address, with all paths, once its seed is there; port 0 takes any
    /// free one [default: port $PORT, or 8080, of all addresses]
    #[arg(long, value_name = "ADDR", help_heading = "Pod")]
    pub listen: Option<SocketAddr>,
    /// Serve /livez, /readyz and /metrics on this address, from the start on
    /// [default: port 9090 of all addresses]
    #[arg(long, value_name = "ADDR", help_heading = "Pod")]
    pub health_listen: Option<SocketAddr>,
    /// Accept connections for this long after SIGTERM, while /readyz says that none should come:
    /// others hear of that with a delay
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = delay, help_heading = "Pod")]
    pub drain_delay: Duration,
    /// Read code and seed from this folder, the entry of a host's store that `faasw share` has
    /// found, as far as they are good here, instead of making them
    #[arg(
        long,
        value_name = "DIR",
        requires = "shared_key",
        conflicts_with = "data_dir",
        help_heading = "Pod"
    )]
    pub shared: Option<PathBuf>,
    /// Open what is shared with the key in this file, which is root's and which nobody else may
    /// write to
    #[arg(long, value_name = "FILE", requires = "shared", help_heading = "Pod")]
    pub shared_key: Option<PathBuf>,
    #[command(flatten)]
    pub serving: Serving,
    /// Keep the function, its code and logs in DIR; without it they are in memory
    #[arg(long, value_name = "DIR", help_heading = "Node")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub options: Options,
}

/// Parses a time, which may be zero.
fn delay(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => time(text),
    }
}

impl Pod {
    /// Returns the folder of the function's files, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        let files = self.options.files.as_ref();
        files.map(|files| files.folder.as_path())
    }

    /// Returns the entry of the script, if it is named.
    pub fn entry(&self) -> Option<&str> {
        self.entry.as_deref().filter(|_| self.file.is_dir())
    }
}
