//! The process that parses a script's modules.
//!
//! The process is this program with a hidden command. Foreign code can overflow a parser's stack or
//! take all memory; then only this process ends. It has no privilege but reading, no network, no
//! other process, and on systems with Landlock a file system that it can only read. It writes to
//! standard output: a line with each path that it begins to parse, a line with its report, and the
//! bundle.

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    thread,
};

use faasw::script::{self, FILES_MAX, SCRIPT_MAX};
use faasw_jail::{CapabilitySet, confine_daemon};
use faasw_scripts::{Limits, Prepared, prepare};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use serde::{Deserialize, Serialize};

use crate::{args::PrepareScript, confine, exit::Exit};

/// The hidden command.
pub const COMMAND: &str = "prepare-script";

/// The first byte of a line with a path.
pub const PROGRESS: u8 = b'P';

/// The first byte of the line with the report.
pub const REPORT: u8 = b'R';

/// The stack of the parser, which calls itself for each nested expression.
const STACK: usize = 256 << 20;

/// Maximum address space in bytes: far more than the largest script needs.
const MEMORY: u64 = 4 << 30;

/// Maximum time of the processor in seconds. The largest scripts take about one.
const CPU_SECONDS: u64 = 60;

/// The result of a preparation.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The reason why there is no bundle.
    pub error: Option<String>,
    pub warnings: Vec<String>,
    /// The files and folders whose change can change the result.
    pub inputs: Vec<String>,
    /// Whether the script runs as it is.
    pub is_plain: bool,
}

/// Runs the process.
pub fn run(args: &PrepareScript) -> ExitCode {
    let done = confine().and_then(|()| {
        // The main thread's stack has the size that the user's shell sets.
        let (path, folder) = (args.path.clone(), args.folder.clone());
        let worker = thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || work(&path, folder.as_deref()));
        let joined = worker.map(|worker| worker.join());
        match joined {
            Ok(Ok(done)) => done.map_err(Exit::failure),
            // The parent names the last file.
            Ok(Err(_)) => std::process::exit(1),
            Err(error) => Err(Exit::failure(error)),
        }
    });
    let reported = done.or_else(|exit| report_failure(&exit));
    match reported {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Sends the parent a report of a failure. Standard error leads nowhere.
fn report_failure(exit: &Exit) -> io::Result<()> {
    let report = Report {
        error: Some(exit.to_string()),
        ..Report::default()
    };
    write_report(&report, b"")
}

fn write_report(report: &Report, bundle: &[u8]) -> io::Result<()> {
    let mut line = vec![REPORT];
    serde_json::to_writer(&mut line, report)?;
    line.push(b'\n');
    let mut out = io::stdout();
    out.write_all(&line)?;
    out.write_all(bundle)?;
    out.flush()
}

fn work(path: &Path, folder: Option<&Path>) -> io::Result<()> {
    let mut out = io::stdout();
    let limits = Limits {
        bytes: SCRIPT_MAX,
        files: FILES_MAX,
    };
    let preparation = prepare(path, folder, limits, &mut |path| {
        // If this process is killed, its parent knows the file.
        let mut line = vec![PROGRESS];
        line.extend_from_slice(path.as_bytes());
        line.push(b'\n');
        let written = out.write_all(&line).and_then(|()| out.flush());
        // The parent reads no more.
        if written.is_err() {
            std::process::exit(1);
        }
    });
    let inputs = preparation.inputs.into_iter();
    let mut report = Report {
        inputs: inputs
            .filter_map(|path| path.into_os_string().into_string().ok())
            .collect(),
        ..Report::default()
    };
    let mut bundle = Vec::new();
    match preparation.result {
        Ok(Prepared {
            files,
            warnings,
            is_plain,
        }) => {
            report.warnings = warnings;
            report.is_plain = is_plain;
            let files: Vec<script::File<'_>> = files
                .iter()
                .map(|(path, content)| (path.as_str(), content.as_slice()))
                .collect();
            match script::write(&files) {
                Ok(written) => bundle = written,
                Err(error) => report.error = Some(error.to_string()),
            }
        }
        Err(error) => report.error = Some(error.to_string()),
    }
    write_report(&report, &bundle)
}

/// Gives up everything that reading files does not require.
fn confine() -> Result<(), Exit> {
    let failed = |error: &dyn std::fmt::Display| {
        Exit::failure(format_args!("the preparation is not confined: {error}"))
    };
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::As, MEMORY),
        (Resource::Cpu, CPU_SECONDS),
    ] {
        // The user's own limit may be lower, and cannot be raised.
        let inherited = getrlimit(resource).maximum;
        let most = inherited.map_or(most, |inherited| inherited.min(most));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(|error| failed(&error))?;
    }
    confine_daemon(CapabilitySet::DAC_READ_SEARCH).map_err(|error| failed(&error))?;
    // This comes last, because a change of privileges can undo it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    confine::restrict_preparation().map_err(|error| failed(&error))
}
