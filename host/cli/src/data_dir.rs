//! `--data-dir`: the data directory of the node that a command runs or talks to.

use std::path::PathBuf;

use clap::Args;
use faasw_client::Client;

use super::exit::Exit;

#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Node")]
pub struct DataDir {
    /// The node's data directory [default: faasw in the user's state folder]
    #[arg(
        long,
        value_name = "DIR",
        env = "FAASW_DATA_DIR",
        hide_env_values = true
    )]
    pub data_dir: Option<PathBuf>,
}

impl DataDir {
    /// Returns the given directory, or the user's default.
    pub fn path(self) -> Result<PathBuf, Exit> {
        let absolute = |variable| {
            std::env::var_os(variable)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        self.data_dir
            .or_else(|| Some(absolute("XDG_STATE_HOME")?.join("faasw")))
            .or_else(|| Some(absolute("HOME")?.join(".local/state/faasw")))
            .ok_or_else(|| {
                Exit::usage("this user has no state folder: set a directory with --data-dir")
            })
    }

    /// Returns a client of the node that runs on this directory.
    pub fn client(self) -> Result<Client, Exit> {
        Ok(Client::new(&self.path()?))
    }
}
