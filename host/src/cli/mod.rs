//! The command line. Each command is a module; `args` is what they take.
//!
//! `up`, `serve` and `doctor` run a node in this process; the others ask a
//! running one through its admin socket. Data goes to standard output,
//! everything else to standard error.

mod args;
mod doctor;
mod exit;
mod foreground;
mod functions;
mod inspect;
mod invoke;
mod logs;
mod output;
mod stats;
mod tree;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};
use exit::Exit;

/// Runs the command line that this process was given.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(cli)),
        Err(error) => Err(Exit::failure(format!(
            "the runtime does not start: {error}"
        ))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

async fn dispatch(cli: Cli) -> Result<(), Exit> {
    match cli.command {
        Command::Up(args) => foreground::up(args).await,
        Command::Serve(args) => foreground::serve(args).await,
        Command::Deploy(args) => functions::deploy(args).await,
        Command::Invoke(args) => invoke::invoke(args).await,
        Command::Ls(args) => functions::list(args).await,
        Command::Inspect(args) => inspect::inspect(args).await,
        Command::Rollback(args) => functions::rollback(args).await,
        Command::Rm(args) => functions::remove(args).await,
        Command::Logs(args) => logs::logs(args).await,
        Command::Stats(args) => stats::stats(args).await,
        Command::Tree(args) => tree::tree(args).await,
        Command::Doctor(args) => doctor::doctor(args).await,
    }
}
