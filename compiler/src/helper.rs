//! The compile helper as a process.
//!
//! [`crate::protocol::contract`] defines how it is started and how it ends. Exceeding a limit ends
//! the process at once and without a report. For this reason the allocator exits
//! ([`crate::exhaustion`]), and the report is written last.

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

use crate::protocol::{
    CompileReport, Compiled, Input, Refusal, RefusalKind,
    contract::{
        EXIT_IO, EXIT_REPORTED, EXIT_USAGE, ISA_FLAG, JAIL_FLAG, UNCONFINED_FLAG, UPLOAD_MAX,
    },
};
use faasw_abi::isa::Isa;
use faasw_jail::filter::Filter;
use rustix::time::{ClockId, clock_gettime};

use crate::{Artifact, descriptors::Descriptors, jail};

/// The function that performs a task: [`crate::perform`], except in tests.
pub type Perform = fn(&Input<'_>, Isa) -> Result<Artifact, Refusal>;

/// Runs the whole process. Once its jail is closed, the process may make only the calls that
/// `filter` allows.
pub fn run(filter: Result<Filter, String>, perform: Perform) -> ExitCode {
    let (isa, jail) = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => return end(EXIT_USAGE, &message),
    };
    let mut descriptors = match Descriptors::take() {
        Ok(descriptors) => descriptors,
        Err(message) => return end(EXIT_USAGE, &message),
    };
    // The jail is closed before any data of a tenant is read.
    let closed = jail.map_or(Ok(()), |jail| {
        filter
            .and_then(|filter| jail::close(&jail, &filter))
            .map_err(|error| internal(format!("its jail could not be set up: {error}")))
    });
    let report = CompileReport {
        result: closed.and_then(|()| performed(&descriptors, isa, perform)),
    };
    let written = report
        .to_json()
        .map_err(|error| error.to_string())
        .and_then(|json| descriptors.write_report(&json));
    match written {
        Ok(()) => exit_code(EXIT_REPORTED),
        Err(message) => end(EXIT_IO, &message),
    }
}

fn arguments() -> Result<(Isa, Option<String>), String> {
    let usage = || {
        format!(
            "usage: faasw-compiler {ISA_FLAG} LEVEL {JAIL_FLAG} JAIL | {UNCONFINED_FLAG}; the node \
             starts it, people do not"
        )
    };
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (isa, jail) = match words.as_slice() {
        [ISA_FLAG, isa, UNCONFINED_FLAG] => (isa, None),
        [ISA_FLAG, isa, JAIL_FLAG, jail] => (isa, Some((*jail).to_owned())),
        _ => return Err(usage()),
    };
    let isa = isa.parse().map_err(|error| format!("{error}"))?;
    Ok((isa, jail))
}

/// Performs the task in the input, and writes its result to the output.
fn performed(descriptors: &Descriptors, isa: Isa, perform: Perform) -> Result<Compiled, Refusal> {
    let input = descriptors.read_input()?;
    let input = Input::read(&input).ok_or_else(|| internal("it received no order"))?;
    let bytes = input.upload.len() as u64;
    if bytes > UPLOAD_MAX {
        return Err(Refusal::new(
            RefusalKind::Unsupported,
            format!(
                "the file has {} MiB; the limit is {} MiB",
                bytes >> 20,
                UPLOAD_MAX >> 20
            ),
        ));
    }
    // A panic of a parser or of the compiler concerns only this upload.
    let made = panic::catch_unwind(AssertUnwindSafe(|| perform(&input, isa)));
    let artifact = made.unwrap_or_else(|_| {
        Err(internal(
            "the compiler panicked; this is a bug worth a report",
        ))
    })?;
    let Artifact {
        mut compiled,
        code,
        cache,
    } = artifact;
    descriptors.write_output(&code, 0)?;
    descriptors.write_output(&cache, code.len() as u64)?;
    compiled.cpu_milliseconds = processor_milliseconds();
    Ok(compiled)
}

fn processor_milliseconds() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let milliseconds = used
        .tv_sec
        .saturating_mul(1000)
        .saturating_add(used.tv_nsec / 1_000_000);
    milliseconds.try_into().unwrap_or(0)
}

fn internal(message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::Internal, message)
}

fn end(code: i32, message: &str) -> ExitCode {
    eprintln!("faasw-compiler: {message}");
    exit_code(code)
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
