//! The errors of this crate.
//!
//! The type of an error says when it can happen: [`StartError`] when a pool starts,
//! [`CompileError`] and [`SeedError`] in a deployment, [`InvokeError`] in a request. For the last
//! three, [`crate::fault`] says who caused them. Every message is complete and can be shown to a
//! user as it is.

use std::fmt;
use std::time::Duration;

use faasw_abi::trap::TrapKind;
use faasw_jail::{JailError, Obstacle};
use rustix::io::Errno;
use thiserror::Error;

/// Converts an error number from another process. Returns `IO` if the number is not an error number
/// of Linux, on which [`Errno`] would panic.
pub(crate) fn errno_from_report(number: u64) -> Errno {
    /// The largest error number of Linux.
    const ERRNO_MAX: i32 = 4095;
    match i32::try_from(number) {
        Ok(errno @ 1..=ERRNO_MAX) => Errno::from_raw_os_error(errno),
        _ => Errno::IO,
    }
}

/// Returns the cause of an obstacle to confinement and how to remove it.
fn advice(obstacle: &Obstacle) -> String {
    match obstacle.advice() {
        Some(advice) => format!(
            "{advice}. Or ask for less confinement, which needs no namespaces: \
             --confinement reduced"
        ),
        None => "`faasw doctor` says what this host offers".to_owned(),
    }
}

/// Why a pool could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no `/dev/kvm`.
    #[error(
        "/dev/kvm is missing: this host offers no hardware virtualisation to programs. Enable \
         virtualisation in the firmware (or nested virtualisation for this VM), then load the \
         kvm_intel or kvm_amd module"
    )]
    KvmMissing,
    /// `/dev/kvm` may not be opened.
    #[error(
        "/dev/kvm cannot be opened: permission denied. Add this user to the group that owns it \
         (usually: sudo usermod -aG kvm $USER, then log in again)"
    )]
    KvmPermission,
    /// `/dev/kvm` exists but does not work.
    #[error("/dev/kvm does not work: {0}")]
    KvmBroken(std::io::Error),
    /// KVM lacks a capability that the pool needs.
    #[error("this host's KVM lacks {0}; use a newer kernel")]
    KvmLacks(&'static str),
    /// The CPU lacks the instruction set that functions are compiled for.
    #[error("this CPU lacks features of {0}")]
    IsaMissing(&'static str),
    /// The spawner could not be started.
    #[error("the spawner process could not be started: {0}")]
    Spawner(std::io::Error),
    /// No sandbox could be made.
    #[error("this host cannot run microVMs: {0}")]
    Sandbox(PlatformError),
}

/// Why a function was not compiled.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The upload is not WebAssembly, or it is damaged.
    #[error("{0}")]
    Malformed(String),
    /// The upload imports something that the node does not offer to functions.
    #[error("{message}")]
    UnknownImports {
        /// The whole message, with the names of the imports.
        message: String,
        /// The full names of the imports.
        imports: Vec<String>,
    },
    /// The upload is valid, but the node cannot run it.
    #[error("{0}")]
    Unsupported(String),
    /// Compiling took more CPU time than allowed.
    #[error("compiling took more than the limit of {} s of CPU time", .0.as_secs())]
    CpuLimit(Duration),
    /// Compiling took more memory than allowed.
    #[error("compiling took more than the limit of {} MiB of memory", .0 >> 20)]
    MemoryLimit(u64),
    /// The compile helper failed for another reason.
    #[error("the compile helper failed: {0}")]
    Helper(String),
    /// The platform failed.
    #[error(transparent)]
    Platform(#[from] PlatformError),
}

/// Why no seed could be made of a compiled function.
#[derive(Clone, Debug, Error)]
pub enum SeedError {
    /// The function's memory limit exceeds the largest memory of a guest.
    #[error(
        "a memory limit of {} MiB exceeds the {} MiB that a function can have",
        wanted >> 20,
        most >> 20
    )]
    MemoryTooLarge {
        /// The memory limit in bytes.
        wanted: u64,
        /// The largest possible limit in bytes.
        most: u64,
    },
    /// Environment, configuration and arguments do not fit.
    #[error("environment, configuration and arguments take {0} bytes; the limit is {1}")]
    ConfigTooLarge(usize, u64),
    /// The function's initialisation drew values that all requests would share.
    #[error(
        "the export {export:?} uses randomness or clocks ({drawn}), shared by all requests. Move \
         this into the handler, or use --freeze after-init"
    )]
    InitDrew {
        /// The export that initialises the function.
        export: String,
        /// The draws of the initialisation, by import, in one line.
        drawn: String,
    },
    /// Before its first request, the script drew values that all requests would share. The field
    /// names the imports.
    #[error(
        "top-level code uses randomness ({0}), shared by all requests. Move this into the handler, \
         or use --freeze after-init"
    )]
    ScriptDrew(String),
    /// Before its entry point, at which it is frozen, the function drew values that all requests
    /// would share. The field names the imports.
    #[error(
        "code before the entry point uses randomness ({0}), shared by all requests. Move this \
         behind the entry point, or use --freeze after-init"
    )]
    EntryDrew(String),
    /// The function reached its entry point, where it is frozen, before another step that was to
    /// happen before the freeze.
    #[error(
        "the function reaches its entry point, where it is frozen, before {0}; use only one of them"
    )]
    EnteredBefore(String),
    /// The function failed to answer a warm-up request.
    #[error("the warm-up request {request}: {error}")]
    WarmUp {
        /// The method and path of the request.
        request: String,
        /// Why the request failed.
        error: InvokeError,
    },
    /// After its warm-up requests and before its seed was frozen, the function drew values that all
    /// requests would share. The field names the imports.
    #[error(
        "the warm-up requests use randomness or clocks ({0}), shared by all requests. Use other \
         warm-up requests, or --freeze after-init"
    )]
    WarmUpDrew(String),
    /// The function is a command and has warm-up requests.
    #[error("a command ends with its request, so warm-up requests are not possible")]
    WarmUpOfCommand,
    /// The warm-up requests are too large.
    #[error("the warm-up requests take {0} bytes; the limit is {1}")]
    WarmUpTooLarge(usize, u64),
    /// A language engine drew values that the requests of all its scripts would share. The field
    /// names the imports.
    #[error(
        "the language engine uses randomness ({0}), shared by all requests. It must seed its \
         generators from faasw:engine/fresh at the start of each request"
    )]
    EngineDrew(String),
    /// The function failed while it was instantiated.
    #[error("{0}")]
    Function(InvokeError),
    /// The platform failed.
    #[error(transparent)]
    Platform(#[from] PlatformError),
}

/// Why Wizer did not initialise an upload.
#[derive(Debug, Error)]
pub enum InitialiseError {
    /// The initialisation failed, or it drew values that all requests would share.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The upload was initialised, but no module can be made of the result.
    #[error("{0}")]
    Refused(String),
    /// The platform failed, or the compile helper failed for another reason than the upload.
    #[error(transparent)]
    Compile(CompileError),
}

impl From<CompileError> for InitialiseError {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Helper(_) | CompileError::Platform(_) => Self::Compile(error),
            other => Self::Refused(other.to_string()),
        }
    }
}

impl From<PlatformError> for InitialiseError {
    fn from(error: PlatformError) -> Self {
        Self::Compile(error.into())
    }
}

/// Why the rest of a request's body does not arrive.
#[derive(Clone, Debug, Error)]
pub enum ClientError {
    /// The body exceeds its size limit.
    #[error("the request's body is larger than the limit of {0} bytes")]
    TooLarge(u64),
    /// The body arrives too slowly.
    #[error("the request's body was slower than {0} bytes a second")]
    TooSlow(u64),
    /// The connection broke, or the data on it is not HTTP.
    #[error("the request's body could not be read: {0}")]
    Broken(String),
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPart {
    /// The method, target and header fields.
    Head,
    /// The fields after the body.
    Trailers,
}

impl fmt::Display for RequestPart {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(match self {
            Self::Head => "head",
            Self::Trailers => "trailers",
        })
    }
}

/// Why a request got no response from its function.
#[derive(Debug, Error, Clone)]
pub enum InvokeError {
    /// The request does not fit a mailbox.
    #[error("the request {part} has {size} bytes; the limit is {limit}")]
    RequestTooLarge {
        /// The part that is too large.
        part: RequestPart,
        /// The size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// The function trapped.
    #[error("the function trapped: {report}")]
    Trap {
        /// The kind of trap, as the guest reports it.
        kind: TrapKind,
        /// The trap, the Wasm function it happened in, and a backtrace.
        report: String,
    },
    /// The function exited.
    #[error("the function exited with code {code} before its response")]
    Exit {
        /// Exit code.
        code: u32,
    },
    /// The function returned without a response.
    #[error(
        "the function returned without a response. A handler must set one; a command must write a \
         header field or a body to standard output"
    )]
    NoResponse,
    /// The response does not fit.
    #[error("the function's response is too large: {report}")]
    ResponseTooLarge {
        /// The part that was too large, and the limit.
        report: String,
    },
    /// The function returned an error code instead of a response.
    #[error("the function returned an error: {report}")]
    FunctionError {
        /// The error code.
        report: String,
    },
    /// The response breaks the rules of HTTP or CGI.
    #[error("the function's response is invalid: {report}")]
    BadResponse {
        /// The rule that it breaks.
        report: String,
    },
    /// The function could not be loaded or instantiated in its VM.
    #[error("the function could not be instantiated: {report}")]
    LoadFailed {
        /// The reason.
        report: String,
    },
    /// The response had not begun when the time limit was reached.
    #[error("the function ran longer than its limit of {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The function used up its CPU time.
    #[error("the function used more than its limit of {} s of CPU time", .0.as_secs_f64())]
    CpuLimit(Duration),
    /// The client's request and the nested invocations that it caused used up the request's CPU
    /// time.
    #[error(
        "the client's request and the invocations that it caused used more than its limit of {} s \
         of CPU time",
        .0.as_secs_f64()
    )]
    RequestCpuLimit(Duration),
    /// The function sent nothing for too long in the middle of its response.
    #[error("the function sent nothing for {} s in the middle of its response", .0.as_secs_f64())]
    IdleGuest(Duration),
    /// The invocation exceeded its total time limit.
    #[error("the request took longer than its limit of {} s", .0.as_secs_f64())]
    TotalTime(Duration),
    /// The client neither sent nor received anything for too long.
    #[error("the client neither sent nor read anything for {} s", .0.as_secs_f64())]
    IdleClient(Duration),
    /// The client's request ended early.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The client disconnected before it had received the whole response.
    #[error("the client disconnected before the end of the response")]
    ClientGone,
    /// The guest broke a rule of the VM boundary, or its kernel failed.
    #[error("the function's microVM failed: {0}")]
    GuestFailed(String),
    /// The node has no capacity for another instance at the moment.
    #[error("the node has reached its limit of {0} requests at once")]
    OverCapacity(usize),
    /// The function's seed has to be made first, and other seeds are queued before it.
    #[error("the function's initialisation waits behind {behind} others")]
    SeedQueued {
        /// The number of seeds that are queued before it.
        behind: usize,
    },
    /// The request was evicted for another one, because no invocation had waited longer for its
    /// client or for an outbound call of its function.
    #[error(
        "the node was full and evicted this request, which had waited longest for its \
         client or an outbound call"
    )]
    Evicted,
    /// The platform failed.
    #[error(transparent)]
    Platform(#[from] PlatformError),
}

/// A failure of the node itself, which neither the function nor the caller caused.
#[derive(Debug, Error, Clone)]
pub enum PlatformError {
    /// A sandbox or the compile helper ended by itself, or was killed.
    #[error("its process ended unexpectedly: {0}")]
    SandboxEnded(String),
    /// The kernel killed a sandbox because memory was short, or refused memory to it.
    #[error(
        "out of memory: the kernel ended the microVM or refused it memory, at its own limit or \
         that of all microVMs"
    )]
    OutOfMemory,
    /// This process has reached its limit of open files, less a reserve.
    #[error("the node has no open files left for another microVM")]
    OpenFiles,
    /// A sandbox or the spawner sent a message that has no meaning.
    #[error("protocol violation: {0}")]
    Protocol(String),
    /// This host does not allow the confinement of a process that runs tenants' code. The process
    /// is not started with less confinement.
    #[error(
        "this host does not allow the confinement of microVMs: {error}. {}",
        advice(.obstacle)
    )]
    Jail {
        /// The step that failed, and the error of the system.
        error: JailError,
        /// The property of this host that is the cause, if it is known.
        obstacle: Obstacle,
    },
    /// An operation exceeded its timeout.
    #[error("{what} took longer than {} s", .limit.as_secs())]
    TimedOut {
        /// The operation.
        what: &'static str,
        /// The timeout.
        limit: Duration,
    },
    /// A seed or one of its ancestors was found to be damaged while it was read. It is made again
    /// when it is next needed.
    #[error("its seed could not be read completely")]
    SeedUnreadable,
    /// A seed was not made, because no request or deployment waited for it any more.
    #[error("it was cancelled because no request waited for it")]
    Abandoned,
    /// The async runtime of the pool is shutting down, or a task of the pool panicked.
    #[error("the pool's runtime is shutting down")]
    RuntimeEnds,
    /// Code that had been evicted from memory was neither found undamaged nor compiled again.
    #[error("the function's compiled code could not be loaded again: {0}")]
    CodeGone(String),
    /// The spawner has ended, or the pool was shut down.
    #[error("the spawner process has ended, or its pool was shut down")]
    SpawnerGone,
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The error number.
        error: rustix::io::Errno,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_errno_becomes_eio() {
        assert_eq!(errno_from_report(12), Errno::NOMEM);
        for none in [0, 4096, 1 << 31, 1 << 32, u64::MAX] {
            assert_eq!(errno_from_report(none), Errno::IO);
        }
    }
}
