//! Why a request has no response of its function, and whose fault that is.
//!
//! The node makes a [`Failure`], which says whose doing it is and in which manner it
//! failed; only here it is decided which status that is for the caller. Details of the
//! platform stay in the node's own log: the caller can do nothing with them, and they may
//! say too much.

use faasw_control::Problem;
use faasw_pool::{ClientError, CompileError, Fault, InvokeError, Manner, PlatformError, SeedError};
use http::StatusCode;
use thiserror::Error;

use crate::{
    error::{DeployError, EngineError, FunctionError, RollbackError},
    message::Unfit,
    registry::RegistryError,
};

/// Seconds after which a refused request may find room.
const RETRY_AFTER: u32 = 1;

/// Why a request failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("there is no function named {0:?}")]
    UnknownFunction(String),
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("the node has no room for a request whose body is still to come")]
    NoRoom,
    #[error("the function is at its limit of {0} requests at once")]
    FunctionBusy(usize),
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    /// A stored function could not be made ready again.
    #[error("the function could not be made ready: {0}")]
    NotReady(DeployError),
    #[error("the node is shutting down")]
    ShuttingDown,
}

impl Failure {
    /// Whose doing it is, which decides how loud the node's log is about it, and in which
    /// manner it failed.
    pub(crate) fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::UnknownFunction(_) | Self::Unfit(Unfit::BodyUnreadable(_)) => {
                (Fault::Caller, Manner::Failed)
            }
            Self::Unfit(Unfit::HeadTooLarge { .. } | Unfit::BodyTooLarge(_)) => {
                (Fault::Caller, Manner::TooLarge)
            }
            Self::Unfit(Unfit::BodyTimeout(_)) => (Fault::Caller, Manner::TimedOut),
            // The limit does what its owner wants, possibly very often.
            Self::NoRoom | Self::FunctionBusy(_) => (Fault::Caller, Manner::NoRoom),
            Self::NotReady(DeployError::Seed(
                SeedError::Function(error) | SeedError::WarmUp { error, .. },
            ))
            | Self::Invoke(error) => error.fault(),
            Self::NotReady(_) => (Fault::Platform, Manner::Failed),
            Self::ShuttingDown => (Fault::Platform, Manner::NoRoom),
        }
    }

    /// Whether a function's code could not be had: it may have gone with the function.
    pub(crate) fn is_of_code(&self) -> bool {
        let gone = matches!(
            self,
            Self::Invoke(InvokeError::Platform(PlatformError::CodeGone(_)))
        );
        gone || matches!(self, Self::NotReady(_))
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::UnknownFunction(_) => StatusCode::NOT_FOUND,
            Self::Unfit(Unfit::HeadTooLarge { .. }) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Invoke(InvokeError::RequestTooLarge { part, .. }) if *part != BODY => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            _ => status_of(self.fault()),
        }
    }

    /// What the caller sees, but for function and instance.
    pub(crate) fn problem(&self) -> Problem {
        let (slug, title) = match self {
            Self::UnknownFunction(_) => ("unknown-function", "No such function"),
            Self::Unfit(Unfit::HeadTooLarge { .. }) => request_too_large("head"),
            Self::Unfit(Unfit::BodyTooLarge(_)) => request_too_large(BODY),
            Self::Unfit(Unfit::BodyUnreadable(_)) => BODY_UNREADABLE,
            Self::Unfit(Unfit::BodyTimeout(_)) => BODY_TIMEOUT,
            Self::NoRoom => OVER_CAPACITY,
            Self::FunctionBusy(_) => ("over-capacity", "The function is busy"),
            Self::NotReady(DeployError::Seed(
                SeedError::Function(error) | SeedError::WarmUp { error, .. },
            ))
            | Self::Invoke(error) => of_invocation(error),
            Self::NotReady(_) => FAILED,
            Self::ShuttingDown => SHUTTING_DOWN,
        };
        let status = self.status();
        let detail = if slug == PLATFORM_FAILURE {
            "the node failed to run the function; the node's own log has the reason".into()
        } else {
            self.to_string()
        };
        let mut problem = Problem::new(status, slug, title, detail);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem.retry_after = Some(RETRY_AFTER);
        }
        problem
    }
}

impl DeployError {
    /// What a client of the admin API sees. It is the node's operator, so
    /// nothing is held back.
    pub(crate) fn problem(&self) -> Problem {
        let (status, slug, title) = match self {
            Self::Name(_) => (StatusCode::BAD_REQUEST, "bad-name", "Not a function name"),
            Self::Options(_) => (StatusCode::BAD_REQUEST, "bad-options", "Not valid options"),
            Self::HostTaken { .. } | Self::HostOfDomain { .. } => (
                StatusCode::CONFLICT,
                "host-taken",
                "The host belongs to another function",
            ),
            Self::TooLarge { .. } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "module-too-large",
                "The module is too large",
            ),
            Self::Registry(RegistryError::NoSpace) => {
                with(StatusCode::INSUFFICIENT_STORAGE, NO_SPACE)
            }
            Self::Registry(RegistryError::EngineGone(_)) => (
                StatusCode::CONFLICT,
                "engine-gone",
                "The language engine is another one now",
            ),
            Self::Compile(CompileError::Platform(PlatformError::OutOfMemory))
            | Self::Seed(
                SeedError::Platform(PlatformError::OutOfMemory)
                | SeedError::Function(InvokeError::Platform(PlatformError::OutOfMemory)),
            ) => with(StatusCode::SERVICE_UNAVAILABLE, OUT_OF_MEMORY),
            Self::Compile(CompileError::Platform(_)) | Self::Registry(_) => {
                with(StatusCode::INTERNAL_SERVER_ERROR, FAILED)
            }
            Self::Compile(error) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                match error {
                    CompileError::Malformed(_) => "malformed-module",
                    CompileError::UnknownImports { .. } => "unknown-imports",
                    CompileError::CpuLimit(_) => "compile-cpu-limit",
                    CompileError::MemoryLimit(_) => "compile-memory-limit",
                    _ => "not-compilable",
                },
                "The module was not compiled",
            ),
            Self::Script(_) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad-script",
                "Not a script",
            ),
            Self::NoEngine { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "no-engine",
                "No language engine for the script",
            ),
            Self::NotInitialised(_) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "not-initialised",
                "No module begins where the initialisation has left it",
            ),
            Self::Seed(SeedError::Platform(_) | SeedError::Function(InvokeError::Platform(_))) => {
                with(StatusCode::INTERNAL_SERVER_ERROR, FAILED)
            }
            Self::Seed(SeedError::Function(InvokeError::OverCapacity(_))) => {
                with(StatusCode::SERVICE_UNAVAILABLE, OVER_CAPACITY)
            }
            Self::Seed(_) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "no-seed",
                "No seed could be made of the function",
            ),
            Self::ShuttingDown => with(StatusCode::SERVICE_UNAVAILABLE, SHUTTING_DOWN),
        };
        let mut problem = Problem::new(status, slug, title, self.to_string());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem.retry_after = Some(RETRY_AFTER);
        }
        problem
    }
}

impl EngineError {
    /// What a client of the admin API sees.
    pub(crate) fn problem(&self) -> Problem {
        let (status, slug, title) = match self {
            Self::NotReady(error) => return error.problem(),
            Self::Unknown(_) => (
                StatusCode::NOT_FOUND,
                "unknown-engine",
                "No such language engine",
            ),
            Self::Extensions(_) => (
                StatusCode::BAD_REQUEST,
                "bad-extensions",
                "Not the extensions of an engine",
            ),
            Self::Taken { .. } => (
                StatusCode::CONFLICT,
                "extension-taken",
                "The extension belongs to another engine",
            ),
            Self::NotAnEngine => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "not-an-engine",
                "Not a language engine",
            ),
        };
        Problem::new(status, slug, title, self.to_string())
    }
}

impl RollbackError {
    /// What a client of the admin API sees.
    pub(crate) fn problem(&self) -> Problem {
        match self {
            Self::Unknown(name) => Failure::UnknownFunction(name.clone()).problem(),
            Self::NotReady(error) => error.problem(),
            Self::NoVersion { .. } | Self::NothingBefore(_) | Self::Overtaken(_) => Problem::new(
                StatusCode::NOT_FOUND,
                "unknown-version",
                "No such version",
                self.to_string(),
            ),
        }
    }
}

impl FunctionError {
    /// What a client of the admin API sees.
    pub(crate) fn problem(&self) -> Problem {
        let (status, slug, title) = match self {
            Self::Unknown(name) => return Failure::UnknownFunction(name.clone()).problem(),
            Self::Registry(RegistryError::NoSpace) => {
                with(StatusCode::INSUFFICIENT_STORAGE, NO_SPACE)
            }
            Self::Registry(_) => with(StatusCode::INTERNAL_SERVER_ERROR, FAILED),
        };
        Problem::new(status, slug, title, self.to_string())
    }
}

/// The status that a failure is to its caller, where nothing more is known of it.
fn status_of(fault: (Fault, Manner)) -> StatusCode {
    match fault {
        (_, Manner::NoRoom) => StatusCode::SERVICE_UNAVAILABLE,
        (Fault::Caller, Manner::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        (Fault::Caller, Manner::TimedOut) => StatusCode::REQUEST_TIMEOUT,
        (Fault::Caller, Manner::Failed) => StatusCode::BAD_REQUEST,
        (Fault::Function, Manner::TimedOut) => StatusCode::GATEWAY_TIMEOUT,
        (Fault::Function, Manner::TooLarge | Manner::Failed) => StatusCode::BAD_GATEWAY,
        (Fault::Platform, Manner::TooLarge | Manner::TimedOut | Manner::Failed) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// The part of a request that is its body.
const BODY: &str = "body";

/// A problem's slug and its title.
type Words = (&'static str, &'static str);

const PLATFORM_FAILURE: &str = "platform-failure";

const FAILED: Words = (PLATFORM_FAILURE, "The node failed");
const OVER_CAPACITY: Words = ("over-capacity", "The node is busy");
const OUT_OF_MEMORY: Words = ("out-of-memory", "Memory for microVMs is short");
const EVICTED: Words = ("evicted", "The node is busy, and this client was slow");
const NO_SPACE: Words = ("no-space", "The disk is full");
const SHUTTING_DOWN: Words = ("shutting-down", "The node is shutting down");
const BODY_UNREADABLE: Words = (
    "request-body-unreadable",
    "The request's body could not be read",
);
const BODY_TIMEOUT: Words = ("request-body-timeout", "The request's body came too slowly");
const TOO_LONG: &str = "The function took too long";

fn with(status: StatusCode, (slug, title): Words) -> (StatusCode, &'static str, &'static str) {
    (status, slug, title)
}

fn request_too_large(part: &str) -> Words {
    if part == BODY {
        ("request-body-too-large", "The request's body is too large")
    } else {
        (
            "request-head-too-large",
            "The request's header fields are too large",
        )
    }
}

fn of_invocation(error: &InvokeError) -> Words {
    match error {
        InvokeError::RequestTooLarge { part, .. } => request_too_large(part),
        InvokeError::OverCapacity(_) => OVER_CAPACITY,
        InvokeError::Platform(PlatformError::OutOfMemory) => OUT_OF_MEMORY,
        InvokeError::Platform(_) => FAILED,
        InvokeError::TimedOut(_) => ("timed-out", TOO_LONG),
        InvokeError::CpuLimit(_) => ("cpu-limit", TOO_LONG),
        InvokeError::IdleGuest(_) => ("idle-guest", TOO_LONG),
        InvokeError::TotalTime(_) => ("total-time", TOO_LONG),
        InvokeError::IdleClient(_) => ("idle-client", "The client was too slow"),
        InvokeError::Evicted => EVICTED,
        InvokeError::Client(ClientError::TooLarge(_)) => request_too_large(BODY),
        InvokeError::Client(ClientError::TooSlow(_)) => BODY_TIMEOUT,
        InvokeError::Client(ClientError::Broken(_)) | InvokeError::ClientGone => BODY_UNREADABLE,
        InvokeError::Trap { .. } => ("trapped", "The function trapped"),
        InvokeError::Exit { .. } => ("exited", "The function exited"),
        InvokeError::NoResponse => ("no-response", "The function gave no response"),
        InvokeError::ResponseTooLarge { .. } => {
            ("response-too-large", "The function's response is too large")
        }
        InvokeError::FunctionError { .. } => {
            ("function-error", "The function answered with an error")
        }
        InvokeError::BadResponse { .. } => ("bad-response", "The function's response is not valid"),
        InvokeError::LoadFailed { .. } => ("load-failed", "The function could not be instantiated"),
        InvokeError::GuestFailed(_) => ("microvm-failed", "The function's microVM failed"),
    }
}

impl From<PlatformError> for Failure {
    fn from(error: PlatformError) -> Self {
        Self::Invoke(error.into())
    }
}

#[cfg(test)]
mod tests {
    use faasw_pool::TrapKind;

    use super::*;
    use std::time::Duration;

    fn status_of(failure: Failure) -> (u16, &'static str, Fault) {
        let problem = failure.problem();
        (problem.status.as_u16(), problem.slug, failure.fault().0)
    }

    #[test]
    fn every_failure_has_the_status_that_says_whose_fault_it_is() {
        let trap = InvokeError::Trap {
            kind: TrapKind::Unreachable,
            report: "unreachable in spin".into(),
        };
        let head = InvokeError::RequestTooLarge {
            part: "head",
            size: 9,
            limit: 8,
        };
        for (failure, expected) in [
            (
                Failure::UnknownFunction("f".into()),
                (404, "unknown-function", Fault::Caller),
            ),
            (
                Unfit::BodyTooLarge(1).into(),
                (413, "request-body-too-large", Fault::Caller),
            ),
            (head.into(), (431, "request-head-too-large", Fault::Caller)),
            (trap.into(), (502, "trapped", Fault::Function)),
            (
                InvokeError::Exit { code: 3 }.into(),
                (502, "exited", Fault::Function),
            ),
            (
                InvokeError::NoResponse.into(),
                (502, "no-response", Fault::Function),
            ),
            (
                InvokeError::TimedOut(Duration::from_secs(10)).into(),
                (504, "timed-out", Fault::Function),
            ),
            (
                InvokeError::CpuLimit(Duration::from_secs(1)).into(),
                (504, "cpu-limit", Fault::Function),
            ),
            (
                InvokeError::IdleGuest(Duration::from_secs(1)).into(),
                (504, "idle-guest", Fault::Function),
            ),
            (
                InvokeError::TotalTime(Duration::from_secs(1)).into(),
                (504, "total-time", Fault::Function),
            ),
            (
                InvokeError::IdleClient(Duration::from_secs(1)).into(),
                (408, "idle-client", Fault::Caller),
            ),
            (
                InvokeError::Client(ClientError::TooSlow(9)).into(),
                (408, "request-body-timeout", Fault::Caller),
            ),
            (
                InvokeError::Client(ClientError::TooLarge(9)).into(),
                (413, "request-body-too-large", Fault::Caller),
            ),
            (
                InvokeError::ClientGone.into(),
                (400, "request-body-unreadable", Fault::Caller),
            ),
            (
                InvokeError::ResponseTooLarge {
                    report: String::new(),
                }
                .into(),
                (502, "response-too-large", Fault::Function),
            ),
            (
                InvokeError::GuestFailed(String::new()).into(),
                (502, "microvm-failed", Fault::Function),
            ),
            (InvokeError::Evicted.into(), (503, "evicted", Fault::Caller)),
            (
                Failure::ShuttingDown,
                (503, "shutting-down", Fault::Platform),
            ),
            (Failure::NoRoom, (503, "over-capacity", Fault::Caller)),
            (
                Unfit::BodyTimeout(Duration::from_secs(1)).into(),
                (408, "request-body-timeout", Fault::Caller),
            ),
            (
                Unfit::BodyUnreadable(String::new()).into(),
                (400, "request-body-unreadable", Fault::Caller),
            ),
            (
                InvokeError::OverCapacity(4).into(),
                (503, "over-capacity", Fault::Caller),
            ),
            (
                Failure::FunctionBusy(3),
                (503, "over-capacity", Fault::Caller),
            ),
            (
                PlatformError::OutOfMemory.into(),
                (503, "out-of-memory", Fault::Platform),
            ),
            (
                PlatformError::SpawnerGone.into(),
                (500, "platform-failure", Fault::Platform),
            ),
        ] {
            assert_eq!(status_of(failure), expected);
        }
    }

    #[test]
    fn the_detail_names_the_trap_and_hides_the_platform() {
        let trap = InvokeError::Trap {
            kind: TrapKind::Unreachable,
            report: "wasm `unreachable` in spin".into(),
        };
        assert!(Failure::from(trap).problem().detail.contains("spin"));
        let platform = Failure::from(PlatformError::ShellEnded("signal 9".into()));
        assert!(!platform.problem().detail.contains("signal"));
        assert!(platform.to_string().contains("signal 9"));
    }

    #[test]
    fn a_busy_node_says_when_to_try_again() {
        let problem = Failure::from(InvokeError::OverCapacity(4)).problem();
        assert_eq!(problem.retry_after, Some(RETRY_AFTER));
        assert!(problem.detail.contains("4 instances"));
    }

    #[test]
    fn a_full_disk_is_told_apart_from_a_broken_one() {
        let problem = DeployError::Registry(RegistryError::NoSpace).problem();
        assert_eq!((problem.status.as_u16(), problem.slug), (507, "no-space"));
        assert!(problem.detail.contains("make room"), "{}", problem.detail);
    }

    #[test]
    fn a_module_that_is_to_blame_is_unprocessable() {
        let error = DeployError::Compile(CompileError::Malformed("not Wasm".into()));
        let problem = error.problem();
        assert_eq!(
            (problem.status.as_u16(), problem.slug),
            (422, "malformed-module")
        );
        assert_eq!(problem.detail, "not Wasm");
    }
}
