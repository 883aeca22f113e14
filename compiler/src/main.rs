//! `faasw-compiler`, the compile helper as a process.
//!
//! [`faasw_compile_report::contract`] says how it is started and how it ends.
//! Exceeding a limit ends it on the spot and without a report, which is the
//! reason for what is unusual here: the allocator that exits, and writing the
//! report last.
#![deny(unsafe_op_in_unsafe_fn)]

mod cell;
mod descriptors;
mod exhaustion;

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

use faasw_abi::isa::Isa;
use faasw_compile_report::{
    CompileReport, Compiled, Refusal, RefusalKind,
    contract::{CELL_FLAG, EXIT_IO, EXIT_REPORTED, EXIT_USAGE, ISA_FLAG, UNCONFINED_FLAG},
};
use faasw_compiler::Artifact;
use rustix::time::{ClockId, clock_gettime};

use descriptors::Descriptors;

#[global_allocator]
static ALLOCATOR: exhaustion::ExitingAllocator = exhaustion::ExitingAllocator;

fn main() -> ExitCode {
    let (isa, cell) = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => return end(EXIT_USAGE, &message),
    };
    let mut descriptors = match Descriptors::take() {
        Ok(descriptors) => descriptors,
        Err(message) => return end(EXIT_USAGE, &message),
    };
    // Before anything is read that a tenant has written.
    let closed = cell.map_or(Ok(()), |cell| {
        cell::close(&cell)
            .map_err(|error| internal(format!("its cell could not be closed: {error}")))
    });
    let report = CompileReport {
        result: closed.and_then(|()| run(&mut descriptors, isa)),
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
            "usage: faasw-compiler {ISA_FLAG} LEVEL {CELL_FLAG} CELL | {UNCONFINED_FLAG}; the node starts it, people do not"
        )
    };
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (isa, cell) = match words.as_slice() {
        [ISA_FLAG, isa, UNCONFINED_FLAG] => (isa, None),
        [ISA_FLAG, isa, CELL_FLAG, cell] => (isa, Some((*cell).to_owned())),
        _ => return Err(usage()),
    };
    let isa = isa.parse().map_err(|error| format!("{error}"))?;
    Ok((isa, cell))
}

/// Compiles what is in the input and leaves the code in the output.
fn run(descriptors: &mut Descriptors, isa: Isa) -> Result<Compiled, Refusal> {
    let upload = descriptors.read_input()?;
    // A panic of a parser or of the compiler is this one upload's trouble.
    let compiled = panic::catch_unwind(AssertUnwindSafe(|| faasw_compiler::compile(&upload, isa)));
    let Artifact { mut compiled, code } = compiled.unwrap_or_else(|_| {
        Err(internal(
            "the compiler panicked; this is a bug worth a report",
        ))
    })?;
    descriptors.write_output(&code)?;
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
