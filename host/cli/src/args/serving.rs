//! Arguments of `up` and `serve`.

use std::path::{Path, PathBuf};

use clap::Args;
use faasw_client::FunctionName;

use super::{
    super::{
        addresses::Addresses,
        options::{Options, OwnLimits},
        serving::Serving,
    },
    DataDir, EngineFile, Format,
    engine::engine_file,
    name,
};

#[derive(Debug, Args)]
pub struct Up {
    /// WebAssembly components, WASI commands, their text form; scripts, or folders of them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Begin with this file of a folder [default: its handler, index, main or app]
    #[arg(long, value_name = "PATH")]
    pub entry: Option<String>,
    /// Run scripts that end like this by this engine, any number of times
    #[arg(long = "engine", value_name = ".EXT[,.EXT]=FILE", value_parser = engine_file)]
    pub engines: Vec<EngineFile>,
    /// Name of the function, where there is one file [default: the file's]
    #[arg(long, value_parser = name)]
    pub name: Option<FunctionName>,
    /// Deploy a file again when it changes
    #[arg(long)]
    pub watch: bool,
    #[command(flatten)]
    pub addresses: Addresses,
    #[command(flatten)]
    pub serving: Serving,
    /// Keep functions, code and logs in DIR; without it they end with the node
    #[arg(long, value_name = "DIR", help_heading = "Node")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub options: Options,
    #[command(flatten)]
    pub format: Format,
}

impl Up {
    /// Returns the folder of the functions' files, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        let files = self.options.files.as_ref();
        files.map(|files| files.folder.as_path())
    }

    /// Returns the entry of a script in this file or folder, if it is named.
    pub fn entry_of(&self, file: &Path) -> Option<&str> {
        self.entry.as_deref().filter(|_| file.is_dir())
    }
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub addresses: Addresses,
    #[command(flatten)]
    pub serving: Serving,
    /// Tell clients that ask with X-Faasw-Timing: 1 where their requests' time went,
    /// which shows how busy others keep the node; `up` does
    #[arg(long, help_heading = "Node")]
    pub timing: bool,
    /// Send clients the whole reason of a function's failure: its error's text, which may quote
    /// secrets, its exit code, the backtrace of a trap. Without it only the function's log has
    /// them. `up` sends them
    #[arg(long, help_heading = "Node")]
    pub verbose_errors: bool,
    #[command(flatten)]
    pub node: DataDir,
    #[command(
        flatten,
        next_help_heading = "Functions that set no limits of their own"
    )]
    pub own: OwnLimits,
    #[command(flatten)]
    pub format: Format,
}
