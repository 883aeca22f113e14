//! The types and titles of problems.

use faasw_pool::{
    ClientError, CompileError, Fault, InvokeError, PlatformError, RequestPart, SeedError,
};

/// A problem's slug and its title.
pub(super) type Words = (&'static str, &'static str);

pub(super) const FAILED: Words = ("platform-failure", "The node failed");
pub(super) const UNKNOWN_FUNCTION: Words = ("unknown-function", "No such function");
pub(super) const FUNCTION_BUSY: Words = ("over-capacity", "The function is busy");
pub(super) const OVER_CAPACITY: Words = ("over-capacity", "The node is busy");
pub(super) const SHUTTING_DOWN: Words = ("shutting-down", "The node is shutting down");
pub(super) const NO_SPACE: Words = ("no-space", "The disk is full");
pub(super) const HEAD_TOO_LARGE: Words = (
    "request-head-too-large",
    "The request's header fields are too large",
);
pub(super) const BODY_TOO_LARGE: Words =
    ("request-body-too-large", "The request's body is too large");
pub(super) const BODY_UNREADABLE: Words = (
    "request-body-unreadable",
    "The request's body could not be read",
);
pub(super) const BODY_TIMEOUT: Words =
    ("request-body-timeout", "The request's body came too slowly");
const SEED_QUEUED: Words = (
    "initialisation-queued",
    "The function waits to be initialised",
);
const OUT_OF_MEMORY: Words = ("out-of-memory", "Memory for microVMs is short");
const EVICTED: Words = (
    "evicted",
    "The node is busy, and this request had waited long",
);
const TOO_LONG: &str = "The function took too long";
const NOT_COMPILED: &str = "The module was not compiled";

pub(super) fn of_invocation(error: &InvokeError) -> Words {
    match error {
        InvokeError::RequestTooLarge {
            part: RequestPart::Head | RequestPart::Trailers,
            ..
        } => HEAD_TOO_LARGE,
        InvokeError::OverCapacity(_) => OVER_CAPACITY,
        InvokeError::SeedQueued { .. } => SEED_QUEUED,
        InvokeError::Platform(error) => of_platform(error),
        InvokeError::TimedOut(_) => ("timed-out", TOO_LONG),
        InvokeError::CpuLimit(_) | InvokeError::RequestCpuLimit(_) => ("cpu-limit", TOO_LONG),
        InvokeError::IdleGuest(_) => ("idle-guest", TOO_LONG),
        InvokeError::TotalTime(_) => ("total-time", TOO_LONG),
        InvokeError::IdleClient(_) => ("idle-client", "The client was too slow"),
        InvokeError::Evicted => EVICTED,
        InvokeError::Client(ClientError::TooLarge(_)) => BODY_TOO_LARGE,
        InvokeError::Client(ClientError::TooSlow(_)) => BODY_TIMEOUT,
        InvokeError::Client(ClientError::Broken(_)) | InvokeError::ClientGone => BODY_UNREADABLE,
        InvokeError::Trap { .. } => ("trapped", "The function trapped"),
        InvokeError::Exit { .. } => ("exited", "The function exited"),
        InvokeError::NoResponse => ("no-response", "The function gave no response"),
        InvokeError::ResponseTooLarge { .. } => {
            ("response-too-large", "The function's response is too large")
        }
        InvokeError::FunctionError { .. } => ("function-error", "The function returned an error"),
        InvokeError::BadResponse { .. } => ("bad-response", "The function's response is not valid"),
        InvokeError::LoadFailed { .. } => ("load-failed", "The function could not be instantiated"),
        InvokeError::GuestFailed(_) => ("microvm-failed", "The function's microVM failed"),
    }
}

pub(super) fn of_compilation(error: &CompileError) -> Words {
    let slug = match error {
        CompileError::Malformed(_) => "malformed-module",
        CompileError::UnknownImports { .. } => "unknown-imports",
        CompileError::CpuLimit(_) => "compile-cpu-limit",
        CompileError::MemoryLimit(_) => "compile-memory-limit",
        CompileError::Unsupported(_) | CompileError::Helper(_) => "not-compilable",
        CompileError::Platform(error) => return of_platform(error),
    };
    (slug, NOT_COMPILED)
}

pub(super) fn of_seed(error: &SeedError) -> Words {
    match error {
        SeedError::Platform(error) => of_platform(error),
        SeedError::Function(error) | SeedError::WarmUp { error, .. }
            if error.fault().0 != Fault::Function =>
        {
            of_invocation(error)
        }
        _ => ("no-seed", "No seed could be made of the function"),
    }
}

fn of_platform(error: &PlatformError) -> Words {
    match error {
        PlatformError::OutOfMemory => OUT_OF_MEMORY,
        PlatformError::OpenFiles => OVER_CAPACITY,
        _ => FAILED,
    }
}
