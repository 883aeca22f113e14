//! Running the compile helper.

use std::os::fd::AsFd;
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::isa::Isa;
use faasw_compile_report::contract::{EXIT_MEMORY, EXIT_REPORTED, INPUT_MAX};
use faasw_compile_report::{CompileReport, Compiled as Report, REPORT_MAX, RefusalKind};
use faasw_fri::messages::SpawnHelper;
use faasw_seedtree::memory_file;
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::error::{CompileError, PlatformError};
use crate::shells::{Exit, Spawner};
use crate::snapshots::Code;
use std::sync::Arc;

/// What the helper may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// CPU time.
    pub cpu: Duration,
    /// Address space, in bytes.
    pub memory: u64,
}

/// Signal of a process that has used up its CPU time.
const SIGKILL: u64 = 9;

fn system(error: Errno) -> PlatformError {
    PlatformError::System {
        what: "the compile helper's files could not be made",
        error,
    }
}

/// Compiles an upload for `isa`. Dropping the future ends the helper.
///
/// # Errors
/// What is wrong with the upload, or which limit it met.
pub async fn compile(
    spawner: &Arc<Spawner>,
    wasm: Bytes,
    isa: Isa,
    limits: Limits,
) -> Result<(Report, Code), CompileError> {
    if wasm.len() as u64 > INPUT_MAX {
        return Err(CompileError::Malformed(format!(
            "the file is {} MiB; at most {} MiB are taken",
            wasm.len() >> 20,
            INPUT_MAX >> 20
        )));
    }
    let input = sealed_input(&wasm).map_err(system)?;
    drop(wasm);
    let output = Code::writable().map_err(system)?;
    let report = memory_file("faasw-report").map_err(system)?;
    let order = SpawnHelper {
        token: 0,
        cpu_seconds: limits.cpu.as_secs().max(1),
        memory_bytes: limits.memory,
        isa,
    };
    let mut helper = spawner
        .helper(order, [input.as_fd(), output.as_fd(), report.as_fd()])
        .await?;
    let exit = helper.ended().await?;
    ended_well(exit, limits)?;
    let mut json = vec![0; REPORT_MAX + 1];
    let read = rustix::io::pread(&report, json.as_mut_slice(), 0).map_err(system)?;
    json.truncate(read);
    let report =
        CompileReport::parse(&json).map_err(|error| CompileError::Helper(error.to_string()))?;
    match report.result {
        Ok(compiled) => {
            let code = Code::seal(output).map_err(|error| match error {
                Errno::FBIG => CompileError::Unsupported(
                    "its compiled code is larger than a function can have".to_owned(),
                ),
                other => system(other).into(),
            })?;
            Ok((compiled, code))
        }
        Err(refusal) => Err(match refusal.kind {
            RefusalKind::Malformed => CompileError::Malformed(refusal.message),
            RefusalKind::UnknownImports => CompileError::UnknownImports {
                message: refusal.message,
                imports: refusal.imports,
            },
            RefusalKind::Unsupported => CompileError::Unsupported(refusal.message),
            RefusalKind::Internal => CompileError::Helper(refusal.message),
        }),
    }
}

fn ended_well(exit: Exit, limits: Limits) -> Result<(), CompileError> {
    let code = i32::try_from(exit.code).unwrap_or(-1);
    match exit.signal {
        _ if exit.out_of_memory => Err(PlatformError::from(exit).into()),
        SIGKILL => Err(CompileError::CpuLimit(limits.cpu)),
        0 if code == EXIT_REPORTED => Ok(()),
        0 if code == EXIT_MEMORY => Err(CompileError::MemoryLimit(limits.memory)),
        _ => Err(CompileError::Helper(exit.to_string())),
    }
}

fn sealed_input(wasm: &[u8]) -> Result<std::os::fd::OwnedFd, Errno> {
    let input = memory_file("faasw-input")?;
    let mut rest = wasm;
    while !rest.is_empty() {
        let written = rustix::io::write(&input, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::fcntl_add_seals(
        &input,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(input)
}
