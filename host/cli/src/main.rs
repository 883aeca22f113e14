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
mod data_dir;
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
mod preparation;
mod printer;
mod private_file;
mod running;
mod script;
mod script_contents;
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

use std::{env, ffi::OsString, future::ready, pin::Pin, process::ExitCode, time::Duration};

use clap::Parser as _;

use args::{Cli, Command, Share};
use confine::Confinement;
use exit::Exit;
use signals::Stop;

/// How long the end waits for blocking work. A script's reading can take minutes, but its result is
/// of no use then.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(1);

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
    // These have to start while there is one thread.
    match &cli.command {
        Command::DialKv(args) => return confine::run_dialer(args),
        Command::PrepareScript(args) => return preparation::run_worker(args),
        Command::ReadScripts => return preparation::run_reader(),
        _ => {}
    }
    let work = match begin(cli.command, stop) {
        Ok(work) => work,
        Err(exit) => return output::report(&exit),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(work);
            runtime.shutdown_timeout(BLOCKING_TIMEOUT);
            result
        }
        Err(error) => Err(Exit::failure(format!(
            "cannot start the async runtime: {error}"
        ))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => output::report(&exit),
    }
}

/// The work of a command, which needs the runtime.
type Work = Pin<Box<dyn Future<Output = Result<(), Exit>>>>;

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

/// Returns the work of a command. Of a command that serves, the inputs are read and the confinement
/// begins here, while the process has one thread. `stop` receives the signals that stop it.
fn begin(command: Command, stop: Option<Result<Stop, Exit>>) -> Result<Work, Exit> {
    if runs_node(&command) {
        running::raise_open_files();
    }
    let stop = || stop.unwrap_or_else(Stop::begin);
    Ok(match command {
        Command::Up(args) => {
            let stop = stop()?;
            let prepared = foreground::Prepared::new(&args)?;
            let confinement = Confinement::begin(&foreground::needs_of_up(&args, &prepared))?;
            Box::pin(foreground::up(*args, prepared, confinement, stop))
        }
        Command::Serve(args) => {
            let stop = stop()?;
            let inputs = foreground::startup_inputs_of_serve(&args)?;
            let confinement = Confinement::begin(&foreground::needs_of_serve(&args, &inputs)?)?;
            Box::pin(foreground::serve(*args, inputs, confinement, stop))
        }
        Command::Pod(args) => {
            let stop = stop()?;
            let prepared = pod::Prepared::new(&args)?;
            let confinement = Confinement::begin(&pod::needs(&args, &prepared))?;
            Box::pin(pod::pod(*args, prepared, confinement, stop))
        }
        Command::Share(Share::Add(args)) => {
            let prepared = share::Prepared::new(&args)?;
            let confinement = Confinement::begin(&prepared.needs())?;
            Box::pin(share::add(*args, prepared, confinement))
        }
        Command::Share(command) => Box::pin(ready(share::share(command))),
        Command::Deploy(args) => Box::pin(functions::deploy(*args)),
        Command::Push(args) => Box::pin(oci::push(*args)),
        Command::Pull(args) => Box::pin(oci::pull(args)),
        Command::Invoke(args) => Box::pin(invoke::invoke(args)),
        Command::Ls(args) => Box::pin(functions::list(args)),
        Command::Inspect(args) => Box::pin(inspect::inspect(args)),
        Command::Rollback(args) => Box::pin(functions::rollback(args)),
        Command::Rm(args) => Box::pin(functions::remove(args)),
        Command::Logs(args) => Box::pin(logs::logs(args)),
        Command::Stats(args) => Box::pin(stats::stats(args)),
        Command::Tree(args) => Box::pin(tree::tree(args)),
        Command::Image(command) => Box::pin(image::image(command)),
        Command::Kv(command) => Box::pin(kv::kv(command)),
        Command::Secret(command) => Box::pin(secret::secret(command)),
        Command::Engine(command) => Box::pin(engines::engine(command)),
        Command::Wizen(args) => Box::pin(wizen::wizen(args)),
        Command::New(args) => Box::pin(ready(new::new(&args))),
        Command::Doctor(args) => Box::pin(doctor::doctor(args)),
        // `main` runs these before.
        Command::DialKv(_) | Command::PrepareScript(_) | Command::ReadScripts => {
            Box::pin(ready(Ok(())))
        }
    })
}
