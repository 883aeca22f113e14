//! Running the compile helper: to compile an upload, to rewrite an upload that a guest has
//! initialised, and to pack a function's files.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use faasw_abi::files::bundle::BUNDLE_MAX;
use faasw_abi::isa::Isa;
use faasw_compiler_protocol::contract::{
    CACHE_MAX, EXIT_MEMORY, EXIT_REPORTED, STATE_MAX, UPLOAD_MAX,
};
use faasw_compiler_protocol::{CompileReport, Compiled as Report, REPORT_MAX, RefusalKind, Task};
use faasw_fri::messages::SpawnHelper;
use faasw_seedtree::memory_file;
use rustix::io::Errno;
use tokio::time::timeout;

use crate::error::{CompileError, PlatformError};
use crate::sandboxes::{Exit, Spawner};
use crate::snapshots::Code;
use std::sync::Arc;

/// An upload, and the purpose of its code.
#[derive(Clone, Debug, Default)]
pub struct Compilation {
    /// The function or engine that it belongs to: compilations are shared fairly between these.
    pub owner: String,
    /// The upload.
    pub upload: Bytes,
    /// The initialiser, if the upload is to be initialised: the code is then only for that.
    pub initialiser: Option<Initialiser>,
    /// The cache that an earlier compilation of the same function has left, by a pool of the same
    /// [generation](crate::Pool::generation); empty if there was none. Only with `Some`, this
    /// compilation leaves a cache, too. The cache must not come from another tenant's function,
    /// because an attacker who has taken over a helper can have written it.
    pub cache: Option<Bytes>,
}

/// The export that initialises an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initialiser {
    /// The export that the upload has for that purpose.
    Found,
    /// The export of this name.
    Named(String),
}

/// The limits of the helper.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The CPU time.
    pub cpu: Duration,
    /// The address space, in bytes.
    pub memory: u64,
}

/// How many times its CPU time a helper may take. It has the lowest priority, so a busy node may
/// delay it for long; but an attacker who has taken it over could have it wait forever.
const SLOWNESS_MAX: u32 = 30;

/// The signal that ends a process that has used up its CPU time, among others.
const SIGKILL: u64 = 9;

fn system(error: Errno) -> PlatformError {
    PlatformError::System {
        what: "the compile helper's files could not be made",
        error,
    }
}

/// The task of the helper and its data, in a file that it reads.
#[derive(Debug)]
pub struct Input {
    file: OwnedFd,
    keeps_cache: bool,
    /// How many more bytes of state may be pushed.
    room: u64,
    state_max: u64,
}

impl Input {
    /// Writes a task and its upload.
    ///
    /// With `cache`, the helper leaves a cache of this compilation. The content of `cache`, from an
    /// earlier compilation, may be empty. If it is larger than [`CACHE_MAX`], it is not used.
    ///
    /// # Errors
    /// Returns [`CompileError::Malformed`] if the upload is too large, or an error if the file
    /// cannot be written.
    pub fn new(task: &Task, upload: &[u8], cache: Option<&[u8]>) -> Result<Self, CompileError> {
        let bytes = upload.len() as u64;
        if bytes > UPLOAD_MAX {
            return Err(CompileError::Malformed(format!(
                "the file has {} MiB; the limit is {} MiB",
                bytes >> 20,
                UPLOAD_MAX >> 20
            )));
        }
        let file = memory_file("faasw-input").map_err(system)?;
        write_all(&file, &task.front(cache.is_some(), bytes)).map_err(system)?;
        write_all(&file, upload).map_err(system)?;
        let earlier = cache.filter(|cache| cache.len() as u64 <= CACHE_MAX);
        write_all(&file, earlier.unwrap_or_default()).map_err(system)?;
        Ok(Self {
            file,
            keeps_cache: cache.is_some(),
            room: 0,
            state_max: 0,
        })
    }

    /// Allows a guest's state to follow, of a function with this memory limit in bytes.
    #[must_use]
    pub fn with_state(self, memory_limit: u64) -> Self {
        /// For names and values. Runs consist of pages and take a few bytes each, for which there
        /// are 32 bytes a page.
        const RECORDS: u64 = 1 << 20;
        let state_max = memory_limit.saturating_add(memory_limit / 128 + RECORDS);
        let state_max = state_max.min(STATE_MAX);
        Self {
            room: state_max,
            state_max,
            ..self
        }
    }

    /// Appends the state that a guest reported, which the node does not parse.
    ///
    /// # Errors
    /// Returns [`CompileError::Unsupported`] if that is too much, or an error if the file cannot be
    /// written.
    pub fn push_state(&mut self, bytes: &[u8]) -> Result<(), CompileError> {
        match self.room.checked_sub(bytes.len() as u64) {
            Some(room) => self.room = room,
            None => {
                return Err(CompileError::Unsupported(format!(
                    "its initialised state takes more than {} MiB",
                    self.state_max >> 20
                )));
            }
        }
        Ok(write_all(&self.file, bytes).map_err(system)?)
    }

    fn seal(self) -> Result<OwnedFd, Errno> {
        faasw_seedtree::seal(&self.file)?;
        Ok(self.file)
    }
}

/// Compiles an upload for `isa`. Returns the report, the code, and the cache for the next
/// compilation of the same function. Dropping the future ends the helper.
///
/// # Errors
/// Returns a [`CompileError`] that names the fault of the upload, the limit that was reached, or
/// the failure of the helper or the platform.
pub async fn compile(
    spawner: &Arc<Spawner>,
    input: Input,
    isa: Isa,
    limits: Limits,
) -> Result<(Report, Code, Bytes), CompileError> {
    let output = Code::writable().map_err(system)?;
    let keeps_cache = input.keeps_cache;
    let report = perform(spawner, input, &output, isa, limits).await?;
    let cache_bytes = if keeps_cache { report.cache_bytes } else { 0 };
    let (output, cache) = split_off_end(output, cache_bytes).await?;
    let code = Code::seal(output).map_err(|error| match error {
        Errno::FBIG => CompileError::Unsupported(
            "its compiled code exceeds the limit of a function".to_owned(),
        ),
        other => system(other).into(),
    })?;
    Ok((report, code, cache))
}

/// Cuts bytes off the end of a file that has no writer any more. Returns the file and the bytes.
async fn split_off_end(file: OwnedFd, bytes: u64) -> Result<(OwnedFd, Bytes), CompileError> {
    if bytes == 0 {
        return Ok((file, Bytes::new()));
    }
    let all = rustix::fs::fstat(&file).map_err(system)?.st_size;
    let all = u64::try_from(all).unwrap_or(0);
    let (Some(rest), 1..=CACHE_MAX) = (all.checked_sub(bytes), bytes) else {
        let lie = format!("it has kept {bytes} bytes of {all}");
        return Err(CompileError::Helper(lie));
    };
    let cut = tokio::task::spawn_blocking(move || {
        let cut = read_all(&file, rest, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        rustix::fs::ftruncate(&file, rest)?;
        Ok((file, cut.into()))
    });
    let cut = cut.await;
    let cut = cut.map_err(|error| PlatformError::Protocol(error.to_string()))?;
    Ok(cut.map_err(system)?)
}

/// Rewrites an upload so that it begins with the state that was pushed after it. Dropping the
/// future ends the helper.
///
/// # Errors
/// Returns a [`CompileError`] that names the fault of the state, the limit that was reached, or the
/// failure of the helper or the platform. It is [`CompileError::Unsupported`] if the module would
/// have more than `most_bytes`.
pub async fn rewrite(
    spawner: &Arc<Spawner>,
    input: Input,
    isa: Isa,
    limits: Limits,
    most_bytes: usize,
) -> Result<Bytes, CompileError> {
    let output = memory_file("faasw-module").map_err(system)?;
    perform(spawner, input, &output, isa, limits).await?;
    let too_large = |bytes| {
        CompileError::Unsupported(format!(
            "after initialisation it has {bytes} bytes; the limit is {most_bytes}"
        ))
    };
    read_output(output, most_bytes, too_large).await
}

/// Packs a function's files into a bundle. Dropping the future ends the helper.
///
/// # Errors
/// Returns a [`CompileError`] that names the fault of the files, the limit that was reached, or the
/// failure of the helper or the platform.
pub async fn pack(
    spawner: &Arc<Spawner>,
    input: Input,
    isa: Isa,
    limits: Limits,
) -> Result<Bytes, CompileError> {
    let output = memory_file("faasw-files").map_err(system)?;
    perform(spawner, input, &output, isa, limits).await?;
    let most = usize::try_from(BUNDLE_MAX).unwrap_or(usize::MAX);
    let too_large = |bytes| CompileError::Helper(format!("it has packed {bytes} bytes of files"));
    read_output(output, most, too_large).await
}

/// Returns the content of a file that a helper has written. The helper has ended, so the file has
/// no writer any more.
async fn read_output(
    output: OwnedFd,
    most_bytes: usize,
    too_large: impl FnOnce(usize) -> CompileError,
) -> Result<Bytes, CompileError> {
    let bytes = rustix::fs::fstat(&output).map_err(system)?.st_size;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes > most_bytes {
        return Err(too_large(bytes));
    }
    let content = tokio::task::spawn_blocking(move || read_all(&output, 0, bytes)).await;
    let content = content.map_err(|error| PlatformError::Protocol(error.to_string()))?;
    Ok(content.map_err(system)?.into())
}

fn read_all(file: &OwnedFd, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut content = vec![0; bytes];
    let mut read = 0;
    while let Some(rest) = content.get_mut(read..)
        && !rest.is_empty()
    {
        match rustix::io::pread(file, rest, offset + read as u64)? {
            0 => return Err(Errno::IO),
            count => read += count,
        }
    }
    Ok(content)
}

/// Runs a helper on `input`.
async fn perform(
    spawner: &Arc<Spawner>,
    input: Input,
    output: &OwnedFd,
    isa: Isa,
    limits: Limits,
) -> Result<Report, CompileError> {
    let input = input.seal().map_err(system)?;
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
    let limit = limits.cpu.saturating_mul(SLOWNESS_MAX);
    let exit = timeout(limit, helper.ended()).await;
    let exit = exit.map_err(|_| PlatformError::TimedOut {
        what: "the compile helper",
        limit,
    })??;
    check_exit(exit, helper.account().closed_at(), limits)?;
    let mut json = vec![0; REPORT_MAX + 1];
    let read = rustix::io::pread(&report, json.as_mut_slice(), 0).map_err(system)?;
    json.truncate(read);
    let report =
        CompileReport::parse(&json).map_err(|error| CompileError::Helper(error.to_string()))?;
    report.result.map_err(|refusal| match refusal.kind {
        RefusalKind::Malformed => CompileError::Malformed(refusal.message),
        RefusalKind::UnknownImports => CompileError::UnknownImports {
            message: refusal.message,
            imports: refusal.imports,
        },
        RefusalKind::Unsupported => CompileError::Unsupported(refusal.message),
        RefusalKind::Internal => CompileError::Helper(refusal.message),
    })
}

/// Interprets how a helper ended that had used this much CPU time.
fn check_exit(exit: Exit, used: Duration, limits: Limits) -> Result<(), CompileError> {
    let code = i32::try_from(exit.code).unwrap_or(-1);
    match exit.signal {
        _ if exit.out_of_memory => Err(PlatformError::from(exit).into()),
        // The kernel counts towards the limit by ticks, so the exact time may be less.
        SIGKILL if used >= limits.cpu / 2 => Err(CompileError::CpuLimit(limits.cpu)),
        // An operator, or a kernel without control groups that lacked memory.
        SIGKILL => Err(PlatformError::from(exit).into()),
        0 if code == EXIT_REPORTED => Ok(()),
        0 if code == EXIT_MEMORY => Err(CompileError::MemoryLimit(limits.memory)),
        _ => Err(CompileError::Helper(exit.to_string())),
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::write(file, bytes)?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use faasw_fri::messages::{FriGroups, Kill, Spawned};

    use super::*;

    #[test]
    fn a_killed_helper_has_exceeded_its_cpu_limit_only_if_it_used_so_much() {
        let limits = Limits {
            cpu: Duration::from_secs(20),
            memory: 1 << 30,
        };
        let killed = |used, out_of_memory| {
            let exit = Exit {
                signal: SIGKILL,
                code: 0,
                out_of_memory,
            };
            check_exit(exit, Duration::from_secs(used), limits).unwrap_err()
        };
        assert!(matches!(killed(20, false), CompileError::CpuLimit(_)));
        for (used, out_of_memory) in [(0, false), (1, false), (20, true)] {
            let error = killed(used, out_of_memory);
            assert!(matches!(error, CompileError::Platform(_)), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_compile_helper_that_waits_forever_is_ended() {
        let (spawner, peer) = Spawner::fake();
        let input = Input::new(&Task::Pack, b"files", None).unwrap();
        let limits = Limits {
            cpu: Duration::from_secs(20),
            memory: 1 << 30,
        };
        let packing = pack(&spawner, input, Isa::V2, limits);
        let making = async {
            let order: SpawnHelper = peer.receive().await.unwrap().message().unwrap();
            peer.send(&Spawned {
                token: order.token,
                pid: 0,
                group_nanoseconds: 0,
                fork_nanoseconds: 0,
                groups: FriGroups::default(),
            });
            order.token
        };
        let (packed, token) = tokio::join!(timeout(Duration::from_secs(7200), packing), making);
        let error = packed.unwrap().unwrap_err();
        assert!(
            matches!(
                error,
                CompileError::Platform(PlatformError::TimedOut { .. })
            ),
            "{error}"
        );
        let killed: Kill = peer.receive().await.unwrap().message().unwrap();
        assert_eq!(killed.token, token);
    }
}
