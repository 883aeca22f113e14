//! `faasw`: the library's node on the command line. Each command has a module; `args` has their
//! arguments.
//!
//! `up`, `serve`, `pod`, `share add`, `wizen` and `doctor` run a node in this process. The other
//! commands talk to a running node through its admin socket. Data goes to standard output,
//! everything else to standard error.

mod access_log;
mod addresses;
mod admin_folder;
mod args;
mod background_writer;
mod clients;
mod confine;
mod doctor;
mod engines;
mod event_output;
mod events;
mod exit;
mod files;
mod foreground;
mod functions;
mod image;
mod inspect;
mod invoke;
mod kv;
mod kv_server;
mod logs;
mod new;
mod oci;
mod options;
mod output;
mod pod;
mod pod_log;
mod printer;
mod private_file;
mod running;
mod script;
mod sealing_key;
mod secret;
mod serving;
mod share;
mod signals;
mod source_folder;
mod startup_inputs;
mod stats;
mod table_file;
mod tree;
mod trim;
mod values;
mod watch;
mod wizen;

use std::{env, ffi::OsString, process::ExitCode};

use clap::Parser as _;

use args::{Cli, Command, Pod, Serve, Share, ShareAdd, Up};
use confine::Confinement;
use exit::Exit;
use foreground::Prepared;
use signals::Stop;
use startup_inputs::StartupInputs;

/// Runs the command line of this process.
fn main() -> ExitCode {
    // This comes first, because a signal that arrives earlier may be lost.
    let stop = env::args_os()
        .nth(1)
        .filter(stops_on_signal)
        .map(|_| Stop::begin());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::report_arguments(&error),
    };
    // The dialer has to start while there is one thread.
    if let Command::DialKv(args) = &cli.command {
        return confine::run_dialer(args);
    }
    let task = match begin(cli.command, stop) {
        Ok(task) => task,
        Err(exit) => return exit.report(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(task)),
        Err(error) => Err(Exit::failure(format!(
            "cannot start the async runtime: {error}"
        ))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

/// The work that the command line requests.
enum Task {
    Up(Box<Up>, Prepared, Confinement, Stop),
    Serve(Box<Serve>, StartupInputs, Confinement, Stop),
    Pod(Box<Pod>, Box<pod::Prepared>, Confinement, Stop),
    ShareAdd(Box<ShareAdd>, share::Prepared, Confinement),
    Other(Command),
}

/// Returns whether a command runs until a signal stops it.
fn stops_on_signal(command: &OsString) -> bool {
    ["up", "serve", "pod"].iter().any(|name| command == name)
}

/// Returns whether a command runs a node in this process. Other commands may start programs that
/// expect the usual limit of open files.
fn runs_node(command: &Command) -> bool {
    matches!(
        command,
        Command::Up(_)
            | Command::Serve(_)
            | Command::Pod(_)
            | Command::Share(_)
            | Command::Wizen(_)
            | Command::Doctor(_)
    )
}

/// Reads the inputs of commands that serve, and then starts their confinement. `stop` receives the
/// signals that stop them.
fn begin(command: Command, stop: Option<Result<Stop, Exit>>) -> Result<Task, Exit> {
    if runs_node(&command) {
        running::raise_open_files();
    }
    let stop = || stop.unwrap_or_else(Stop::begin);
    Ok(match command {
        Command::Up(args) => {
            let stop = stop()?;
            let prepared = Prepared::new(&args)?;
            let needs = foreground::needs_of_up(&args, &prepared);
            Task::Up(args, prepared, Confinement::begin(&needs)?, stop)
        }
        Command::Serve(args) => {
            let stop = stop()?;
            let inputs = foreground::startup_inputs_of_serve(&args)?;
            let needs = foreground::needs_of_serve(&args, &inputs)?;
            let confinement = Confinement::begin(&needs)?;
            Task::Serve(args, inputs, confinement, stop)
        }
        Command::Pod(args) => {
            let stop = stop()?;
            let prepared = pod::Prepared::new(&args)?;
            let needs = pod::needs(&args, &prepared);
            Task::Pod(args, Box::new(prepared), Confinement::begin(&needs)?, stop)
        }
        Command::Share(Share::Add(args)) => {
            let prepared = share::Prepared::new(&args)?;
            let confinement = Confinement::begin(&prepared.needs())?;
            Task::ShareAdd(args, prepared, confinement)
        }
        other => Task::Other(other),
    })
}

async fn dispatch(task: Task) -> Result<(), Exit> {
    let command = match task {
        Task::Up(args, prepared, confinement, stop) => {
            return foreground::up(*args, prepared, confinement, stop).await;
        }
        Task::Serve(args, inputs, confinement, stop) => {
            return foreground::serve(*args, inputs, confinement, stop).await;
        }
        Task::Pod(args, prepared, confinement, stop) => {
            return pod::pod(*args, *prepared, confinement, stop).await;
        }
        Task::ShareAdd(args, prepared, confinement) => {
            return share::add(*args, prepared, confinement).await;
        }
        Task::Other(command) => command,
    };
    match command {
        // These commands were handled above.
        Command::Up(_) | Command::Serve(_) | Command::Pod(_) | Command::DialKv(_) => Ok(()),
        Command::Deploy(args) => functions::deploy(*args).await,
        Command::Push(args) => oci::push(*args).await,
        Command::Pull(args) => oci::pull(args).await,
        Command::Invoke(args) => invoke::invoke(args).await,
        Command::Ls(args) => functions::list(args).await,
        Command::Inspect(args) => inspect::inspect(args).await,
        Command::Rollback(args) => functions::rollback(args).await,
        Command::Rm(args) => functions::remove(args).await,
        Command::Logs(args) => logs::logs(args).await,
        Command::Stats(args) => stats::stats(args).await,
        Command::Tree(args) => tree::tree(args).await,
        Command::Image(command) => image::image(command).await,
        Command::Kv(command) => kv::kv(command).await,
        Command::Share(command) => share::share(command),
        Command::Secret(command) => secret::secret(command).await,
        Command::Engine(command) => engines::engine(command).await,
        Command::Wizen(args) => wizen::wizen(args).await,
        Command::New(args) => new::new(&args),
        Command::Doctor(args) => doctor::doctor(args).await,
    }
}
