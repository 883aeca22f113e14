//! Arguments of `engine`, and of `up` for engines.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use faasw_client::{Extension, FunctionName};

use super::{DataDir, Format, Ls, help};

/// A language engine that `up` adds at its start.
#[derive(Clone, Debug)]
pub struct EngineFile {
    /// The extensions of its scripts.
    pub extensions: Vec<Extension>,
    /// The component.
    pub file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Engine {
    /// Add a language engine, or replace the one with this name
    #[command(after_help = help::ENGINE_ADD)]
    Add(EngineAdd),
    /// List the language engines of the running node
    Ls(Ls),
    /// Compile an engine and make its seed, so that the next script need not wait
    Warm(EngineName),
    /// Remove a language engine; deployed scripts keep it
    Rm(EngineName),
}

#[derive(Debug, Args)]
pub struct EngineAdd {
    /// Component that exports wasi:http/incoming-handler and faasw:engine/script
    pub file: PathBuf,
    /// Extension of its scripts' entry files (repeatable)
    #[arg(long, required = true, value_name = ".EXT", value_parser = Extension::new)]
    pub extension: Vec<Extension>,
    /// Name of the engine [default: the file's]
    #[arg(long)]
    pub name: Option<FunctionName>,
    #[command(flatten)]
    pub node: DataDir,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct EngineName {
    /// Name of the engine
    pub name: FunctionName,
    #[command(flatten)]
    pub node: DataDir,
}

pub(super) fn engine_file(text: &str) -> Result<EngineFile, String> {
    let (extensions, file) = text
        .split_once('=')
        .ok_or("not of the form .EXT[,.EXT]=FILE")?;
    let extensions = extensions.split(',').map(Extension::new);
    let extensions: Result<_, _> = extensions.collect();
    Ok(EngineFile {
        extensions: extensions.map_err(|error| error.to_string())?,
        file: file.into(),
    })
}
