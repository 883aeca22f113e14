//! Arguments of `up` and `serve`.

use std::path::{Path, PathBuf};

use clap::Args;
use faasw_client::FunctionName;

use super::{
    super::{
        addresses::Addresses,
        options::{Options, OwnLimits},
        preparation,
        serving::Serving,
    },
    DataDir, EngineFile, Format,
    engine::engine_file,
};

#[derive(Debug, Args)]
pub struct Up {
    /// WebAssembly components, WASI commands, scripts, or folders of scripts
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Entry file of a script's folder [default: handler, index, main or app], or MODULE:OBJECT
    #[arg(long, value_name = "PATH", help_heading = "Function")]
    pub entry: Option<String>,
    /// Run scripts with these extensions by this engine (repeatable)
    #[arg(
        help_heading = "Function",
        long = "engine",
        value_name = ".EXT[,.EXT]=FILE",
        value_parser = engine_file
    )]
    pub engines: Vec<EngineFile>,
    /// Name of the function, if there is one file [default: the file's]
    #[arg(long, help_heading = "Function")]
    pub name: Option<FunctionName>,
    /// Deploy a file again when it changes
    #[arg(long, help_heading = "Function")]
    pub watch: bool,
    #[command(flatten)]
    pub addresses: Addresses,
    #[command(flatten)]
    pub serving: Serving,
    /// Keep functions, code and logs in DIR [default: until the node ends]
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
        self.entry
            .as_deref()
            .filter(|entry| preparation::takes_entry(file, entry))
    }
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub addresses: Addresses,
    #[command(flatten)]
    pub serving: Serving,
    /// Send Server-Timing to clients that send X-Faasw-Timing: 1
    ///
    /// This reveals how busy the node is. `up` always does it.
    #[arg(long, help_heading = "Node")]
    pub timing: bool,
    /// Send clients the full reason of a function's failure
    ///
    /// The reason includes the error's text, which may quote secrets, the exit code and the
    /// backtrace of a trap. Without this option only the function's log has it. `up` always sends
    /// it.
    #[arg(long, help_heading = "Node")]
    pub verbose_errors: bool,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten, next_help_heading = "Default limits of functions")]
    pub own: OwnLimits,
    #[command(flatten)]
    pub format: Format,
}
