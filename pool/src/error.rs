//! What can go wrong, and whose fault it is.
//!
//! An error says when it can happen by its type: [`StartError`] is the host's,
//! [`CompileError`] and [`SeedError`] are a deployment's, [`InvokeError`] is a
//! request's. The last three say whose doing they are, too ([`crate::fault`]). Every message is
//! complete: it can be shown to a user as it is.

use std::fmt;
use std::time::Duration;

use faasw_abi::trap::TrapKind;
use faasw_jail::{JailError, Obstacle};
use rustix::io::Errno;
use thiserror::Error;

/// The system's error of a number that another process told; `IO` for a number that is
/// none, which [`Errno`] would panic on.
pub(crate) fn errno_told(number: u64) -> Errno {
    /// The largest that Linux has.
    const ERRNO_MAX: i32 = 4095;
    match i32::try_from(number) {
        Ok(errno @ 1..=ERRNO_MAX) => Errno::from_raw_os_error(errno),
        _ => Errno::IO,
    }
}

/// Cause and cure of an obstacle to confinement.
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
    /// `/dev/kvm` is there but does not work.
    #[error("/dev/kvm does not work: {0}")]
    KvmBroken(std::io::Error),
    /// KVM lacks something the pool cannot do without.
    #[error("this host's KVM lacks {0}, which faasw needs; a newer kernel has it")]
    KvmLacks(&'static str),
    /// The CPU lacks the instruction set that functions are compiled for.
    #[error("this CPU does not have all of {0}")]
    IsaMissing(&'static str),
    /// The spawner could not be started.
    #[error("the spawner process could not be started: {0}")]
    Spawner(std::io::Error),
    /// No microVM could be made.
    #[error("no microVM can be made here: {0}")]
    Sandbox(PlatformError),
}

/// Why a function was not compiled.
#[derive(Debug, Error)]
pub enum CompileError {
    /// It is not WebAssembly, or damaged.
    #[error("{0}")]
    Malformed(String),
    /// It imports what no function can have here.
    #[error("{message}")]
    UnknownImports {
        /// The whole message, names included.
        message: String,
        /// Full names of the imports.
        imports: Vec<String>,
    },
    /// It is sound, but nothing that faasw can run.
    #[error("{0}")]
    Unsupported(String),
    /// Compiling took more CPU time than allowed.
    #[error("compiling took more than the limit of {} s of CPU time", .0.as_secs())]
    CpuLimit(Duration),
    /// Compiling took more memory than allowed.
    #[error("compiling took more than the limit of {} MiB of memory", .0 >> 20)]
    MemoryLimit(u64),
    /// The helper failed for another reason.
    #[error("the compile helper failed: {0}")]
    Helper(String),
    /// The platform failed.
    #[error(transparent)]
    Platform(#[from] PlatformError),
}

/// Why no seed could be made of a compiled function.
#[derive(Clone, Debug, Error)]
pub enum SeedError {
    /// The function's memory limit is more than a guest can have.
    #[error("a memory limit of {} MiB is more than the {} MiB a function can have", wanted >> 20, most >> 20)]
    MemoryTooLarge {
        /// Bytes asked for.
        wanted: u64,
        /// Most bytes possible.
        most: u64,
    },
    /// Environment, configuration and arguments do not fit.
    #[error("environment, configuration and arguments take {0} bytes; at most {1} fit")]
    ConfigTooLarge(usize, u64),
    /// Its initialisation drew what all requests would share.
    #[error(
        "initialising it by {export:?} draws what every request would find the same ({drawn}); \
         draw it in requests, or freeze after-init to share it"
    )]
    InitDrew {
        /// The export that initialises it.
        export: String,
        /// What was drawn, by import.
        drawn: String,
    },
    /// What a script does before its first request drew what all requests would share; by
    /// import.
    #[error(
        "before its first request the script draws what every request would find the same ({0}); \
         draw it in requests, or freeze after-init to share it"
    )]
    ScriptDrew(String),
    /// It drew what all requests would share before its own code said that it is to be frozen;
    /// by import.
    #[error(
        "before it comes to its entry point the function draws what every request would find the \
         same ({0}); draw it behind that, or freeze after-init to share it"
    )]
    EntryDrew(String),
    /// It was frozen at its entry point before what was to be done, too.
    #[error(
        "the function comes to its entry point, where it is frozen, before {0}; they exclude each \
         other"
    )]
    EnteredBefore(String),
    /// It did not answer a request that was to warm it up.
    #[error("the warm-up request {request}: {error}")]
    WarmUp {
        /// Method and path.
        request: String,
        /// What became of it.
        error: InvokeError,
    },
    /// It drew what all requests would share before its seed was frozen, behind requests that
    /// warmed it up; by import.
    #[error(
        "before its seed is frozen, behind its warm-up requests, the function draws what every \
         request would find the same ({0}); warm it up by requests that draw nothing, or freeze \
         after-init to share it"
    )]
    WarmUpDrew(String),
    /// It is a command, and has warm-up requests.
    #[error("a command ends with the request that it answers, so no request can warm it up")]
    WarmUpOfCommand,
    /// Its warm-up requests take too much room.
    #[error("the warm-up requests take {0} bytes; at most {1} fit")]
    WarmUpTooLarge(usize, u64),
    /// A language engine drew what the requests of all its scripts would share; by import.
    #[error(
        "the language engine draws what every request would find the same ({0}); it is to seed its \
         generators from faasw:engine/fresh when a request begins"
    )]
    EngineDrew(String),
    /// The function failed while it was instantiated.
    #[error("{0}")]
    Function(InvokeError),
    /// The platform failed.
    #[error(transparent)]
    Platform(#[from] PlatformError),
}

/// Why an upload was not initialised by Wizer.
#[derive(Debug, Error)]
pub enum InitialiseError {
    /// Its initialisation failed, or draws what it may not.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// It was initialised, but what it has become cannot be made a module.
    #[error("{0}")]
    Refused(String),
    /// The platform failed, or the helper for another reason than the upload.
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

/// Why the rest of a request's body will not come.
#[derive(Clone, Debug, Error)]
pub enum ClientError {
    /// It is larger than it may be.
    #[error("the request's body is larger than the {0} bytes that are taken")]
    TooLarge(u64),
    /// It comes too slowly.
    #[error("the request's body came with less than {0} bytes a second")]
    TooSlow(u64),
    /// The connection broke, or what came on it is not HTTP.
    #[error("the request's body could not be read: {0}")]
    Broken(String),
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPart {
    /// Its method, target and header fields.
    Head,
    /// The fields behind its body.
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
    #[error("the request {part} is {size} bytes; at most {limit} are taken")]
    RequestTooLarge {
        /// What of it.
        part: RequestPart,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// The function trapped.
    #[error("the function trapped: {report}")]
    Trap {
        /// Which trap, by the guest's word.
        kind: TrapKind,
        /// The trap, the Wasm function it happened in, and a backtrace.
        report: String,
    },
    /// The function exited.
    #[error("the function exited with code {code} before it gave a response")]
    Exit {
        /// Exit code.
        code: u32,
    },
    /// The function returned without a response.
    #[error(
        "the function returned without a response: a handler sets one, and a command writes one to \
         its standard output, with at least one header field or a body"
    )]
    NoResponse,
    /// The response does not fit.
    #[error("the function's response is too large: {report}")]
    ResponseTooLarge {
        /// What was too large, and the limit.
        report: String,
    },
    /// The function answered with an error code of its own.
    #[error("the function answered with an error: {report}")]
    FunctionError {
        /// The error code.
        report: String,
    },
    /// The response breaks the rules of HTTP or CGI.
    #[error("the function's response is not valid: {report}")]
    BadResponse {
        /// Which rule.
        report: String,
    },
    /// The function could not be loaded or instantiated in its VM.
    #[error("the function could not be instantiated: {report}")]
    LoadFailed {
        /// Why.
        report: String,
    },
    /// The response had not begun at the limit.
    #[error("the function ran longer than its limit of {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The function used up its CPU time.
    #[error("the function used more than its limit of {} s of CPU time", .0.as_secs_f64())]
    CpuLimit(Duration),
    /// The client's request and the nested invocations that it caused used up its CPU time.
    #[error(
        "the client's request and the invocations that it caused used more than its limit of {} s \
         of CPU time",
        .0.as_secs_f64()
    )]
    RequestCpuLimit(Duration),
    /// The function sent nothing for too long in the middle of its response.
    #[error("the function sent nothing for {} s in the middle of its response", .0.as_secs_f64())]
    IdleGuest(Duration),
    /// The exchange took longer than it may in all.
    #[error("the exchange took longer than its limit of {} s", .0.as_secs_f64())]
    TotalTime(Duration),
    /// The client neither sent nor took anything for too long.
    #[error("the client neither sent nor took anything for {} s", .0.as_secs_f64())]
    IdleClient(Duration),
    /// The client's request broke off.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The client went away before it had the whole response.
    #[error("the client went away before it had the whole response")]
    ClientGone,
    /// The guest broke a rule of the VM boundary, or its kernel failed.
    #[error("the function's microVM failed: {0}")]
    GuestFailed(String),
    /// No room for another instance right now.
    #[error("the node is at its capacity of {0} instances")]
    OverCapacity(usize),
    /// The function's seed has to be made first, and others are made before it.
    #[error("the function has to be initialised first, which is queued behind {behind} others")]
    SeedQueued {
        /// How many come before it.
        behind: usize,
    },
    /// Others wanted its place, and no exchange had waited longer for its client or for whom its
    /// function had asked.
    #[error("the node was full, and no other request had waited longer for others")]
    Evicted,
    /// The platform failed.
    #[error(transparent)]
    Platform(#[from] PlatformError),
}

/// A failure of the node itself: nothing the function or its caller did.
#[derive(Debug, Error, Clone)]
pub enum PlatformError {
    /// A sandbox ended by itself.
    #[error("the sandbox ended unexpectedly: {0}")]
    SandboxEnded(String),
    /// The system ended a sandbox for want of memory, or refused it some.
    #[error(
        "memory is short: the system has ended the microVM, or refused it memory, for its own \
         limit or that of all microVMs was reached"
    )]
    OutOfMemory,
    /// This process has as many files open as it may, but for those that it keeps.
    #[error("the node has no room for another microVM")]
    OpenFiles,
    /// A sandbox or the spawner said something that has no meaning.
    #[error("protocol violation: {0}")]
    Protocol(String),
    /// This host does not allow the confinement around a process that runs tenants' code, and
    /// no such process runs without it.
    #[error(
        "the confinement of a microVM cannot be made on this host: {error}. {}",
        advice(.obstacle)
    )]
    Jail {
        /// The step that failed, and the system's answer.
        error: JailError,
        /// The property of this host that is the cause, if it is known.
        obstacle: Obstacle,
    },
    /// Something took longer than it ever does.
    #[error("{what} took longer than {} s", .limit.as_secs())]
    TimedOut {
        /// What.
        what: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A seed, or what it descends from, was found to be damaged while it was read. It is made anew
    /// when it is asked for next.
    #[error("its seed could not be read to its end")]
    SeedUnreadable,
    /// A seed was not made: nobody waited for it any more.
    #[error("nobody waited for it any more")]
    Abandoned,
    /// The async runtime that the pool works in ends, or a task of the pool's panicked.
    #[error("the runtime that the pool works in ends")]
    RuntimeEnds,
    /// Code that had left memory was neither found undamaged nor compiled again.
    #[error("the function's compiled code could not be brought back: {0}")]
    CodeGone(String),
    /// The spawner is gone, or the pool was shut down.
    #[error("the spawner process has ended, or its pool was shut down")]
    SpawnerGone,
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        error: rustix::io::Errno,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_error_is_some_error() {
        assert_eq!(errno_told(12), Errno::NOMEM);
        for none in [0, 4096, 1 << 31, 1 << 32, u64::MAX] {
            assert_eq!(errno_told(none), Errno::IO);
        }
    }
}
