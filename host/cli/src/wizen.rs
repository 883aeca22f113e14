//! `wizen`: writes a module that starts from its initialised state.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use faasw::{DeployError, Event, FreezePolicy, FunctionOptions, LogLine, Node, SeedError};

use super::{
    args::Wizen,
    exit::Exit,
    output::{read_module, say, size},
};

/// Writes a module that starts where the initialising export has left the given one.
pub async fn wizen(args: Wizen) -> Result<(), Exit> {
    let module = read_module(&args.file)?;
    let mut options = FunctionOptions::default();
    if let Some(export) = &args.init {
        options = options.init(export);
    }
    if args.allow_draws {
        options = options.freeze(FreezePolicy::AfterInit);
    }
    if let Some(mebibytes) = args.memory {
        options = options.memory(u64::from(mebibytes) << 20);
    }
    for (name, value) in &args.environment {
        options = options.env(name, value);
    }
    let before = module.len() as u64;
    let node = Node::builder().zygotes(1).observe(show);
    let node = node.start().await.map_err(Exit::failure)?;
    let rewritten = node.wizen(module, options).await;
    node.shutdown().await;
    let rewritten = rewritten.map_err(|error| match error {
        DeployError::Seed(SeedError::InitDrew { .. }) => {
            Exit::failure(error).hint("--allow-draws allows this")
        }
        error => Exit::failure(error),
    })?;
    write(&args.output, &rewritten).map_err(|error| Exit::unwritable(&args.output, error))?;
    let after = rewritten.len() as u64;
    say(format_args!(
        "{}: {}, of {}",
        args.output.display(),
        size(after),
        size(before)
    ));
    Ok(())
}

/// Shows the output of the initialisation.
fn show(event: Event<'_>) {
    if let Event::Log {
        line: LogLine { text, .. },
        ..
    } = event
    {
        say(text);
    }
}

/// Writes a file completely, or leaves the old one.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut part: OsString = path.into();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let written = fs::write(&part, content).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&part);
    }
    written
}
