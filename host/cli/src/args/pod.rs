//! Arguments of `pod`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use faasw_client::FunctionName;

use super::super::{options::Options, preparation, serving::Serving, values::time};

#[derive(Debug, Args)]
pub struct Pod {
    /// WebAssembly component, WASI command, script, or folder of a script
    pub file: PathBuf,
    /// Entry file of a script's folder [default: handler, index, main or app], or MODULE:OBJECT
    #[arg(long, value_name = "PATH", help_heading = "Function")]
    pub entry: Option<String>,
    /// Name of the function in logs and metrics [default: the file's]
    #[arg(long, help_heading = "Function")]
    pub name: Option<FunctionName>,
    /// Serve the function on this address [default: port $PORT or 8080 of all addresses]
    ///
    /// The node accepts connections once the function's seed is ready. Port 0 takes any free port.
    #[arg(long, value_name = "ADDR", help_heading = "Pod")]
    pub listen: Option<SocketAddr>,
    /// Serve /livez, /readyz and /metrics on this address [default: port 9090 of all addresses]
    #[arg(long, value_name = "ADDR", help_heading = "Pod")]
    pub health_listen: Option<SocketAddr>,
    /// Keep accepting connections for this long after SIGTERM, while /readyz fails
    ///
    /// Load balancers notice the failing check with a delay.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        value_parser = delay,
        help_heading = "Pod"
    )]
    pub drain_delay: Duration,
    /// Read code and seed from this entry of the host's store instead of making them
    ///
    /// `faasw share find` prints the entry. If it is not valid here, the node makes code and seed.
    #[arg(
        long,
        value_name = "DIR",
        requires = "shared_key",
        conflicts_with = "data_dir",
        help_heading = "Pod"
    )]
    pub shared: Option<PathBuf>,
    /// Decrypt the entry with the key in this file
    ///
    /// The file must belong to root, and only root may write to it.
    #[arg(long, value_name = "FILE", requires = "shared", help_heading = "Pod")]
    pub shared_key: Option<PathBuf>,
    #[command(flatten)]
    pub serving: Serving,
    /// Keep the function, its code and logs in DIR [default: in memory]
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
        self.entry
            .as_deref()
            .filter(|entry| preparation::takes_entry(&self.file, entry))
    }
}
