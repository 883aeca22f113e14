//! Why a request has no response of its function, and whose fault that is.
//!
//! The node makes a [`Failure`], and only here it is decided which status the
//! caller sees. Details of the platform stay in the node's own log: the caller
//! can do nothing with them, and they may say too much.

use std::time::Duration;

use faasw_pool::{ClientError, CompileError, InvokeError, PlatformError, SeedError};
use http::StatusCode;
use thiserror::Error;

use crate::{
    error::{DeployError, FunctionError, RollbackError},
    problem::Problem,
    registry::RegistryError,
};

/// Seconds after which a refused request may find room.
const RETRY_AFTER: u32 = 1;

/// Why a request failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("there is no function named {0:?}")]
    UnknownFunction(String),
    #[error("the request's header fields take {size} {unit}; at most {limit} are taken")]
    HeadTooLarge {
        size: usize,
        unit: &'static str,
        limit: usize,
    },
    #[error("the request's body is larger than the {0} bytes that are taken")]
    BodyTooLarge(usize),
    #[error("the request's body could not be read: {0}")]
    BodyUnreadable(String),
    #[error("the request's body did not arrive within {} s", .0.as_secs_f64())]
    BodyTimeout(Duration),
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

/// Who has to act on a failure; decides how loud the node's log is about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Caller,
    Function,
    Platform,
}

impl Failure {
    pub(crate) fn fault(&self) -> Fault {
        if let Self::FunctionBusy(_)
        | Self::NoRoom
        | Self::Invoke(InvokeError::OverCapacity(_) | InvokeError::Evicted) = self
        {
            // The limit does what its owner wants, possibly very often.
            return Fault::Caller;
        }
        match self.problem().status {
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => Fault::Function,
            status if status.is_server_error() => Fault::Platform,
            _ => Fault::Caller,
        }
    }

    /// What the caller sees, but for function and instance.
    pub(crate) fn problem(&self) -> Problem {
        let (status, slug, title) = match self {
            Self::UnknownFunction(_) => (
                StatusCode::NOT_FOUND,
                "unknown-function",
                "No such function",
            ),
            Self::HeadTooLarge { .. } => request_too_large("head"),
            Self::BodyTooLarge(_) => request_too_large("body"),
            Self::BodyUnreadable(_) => (
                StatusCode::BAD_REQUEST,
                "request-body-unreadable",
                "The request's body could not be read",
            ),
            Self::BodyTimeout(_) => (
                StatusCode::REQUEST_TIMEOUT,
                "request-body-timeout",
                "The request's body came too slowly",
            ),
            Self::NoRoom => OVER_CAPACITY,
            Self::FunctionBusy(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "over-capacity",
                "The function is busy",
            ),
            Self::NotReady(DeployError::Seed(SeedError::Function(error))) | Self::Invoke(error) => {
                of_invocation(error)
            }
            Self::NotReady(_) => platform_failure(),
            Self::ShuttingDown => (
                StatusCode::SERVICE_UNAVAILABLE,
                "shutting-down",
                "The node is shutting down",
            ),
        };
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
            Self::Registry(RegistryError::NoSpace) => NO_SPACE,
            Self::Compile(CompileError::Platform(PlatformError::OutOfMemory))
            | Self::Seed(
                SeedError::Platform(PlatformError::OutOfMemory)
                | SeedError::Function(InvokeError::Platform(PlatformError::OutOfMemory)),
            ) => OUT_OF_MEMORY,
            Self::Compile(CompileError::Platform(_)) | Self::Registry(_) => platform_failure(),
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
            Self::Seed(SeedError::Platform(_) | SeedError::Function(InvokeError::Platform(_))) => {
                platform_failure()
            }
            Self::Seed(SeedError::Function(InvokeError::OverCapacity(_))) => OVER_CAPACITY,
            Self::Seed(_) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "no-seed",
                "No seed could be made of the function",
            ),
            Self::ShuttingDown => (
                StatusCode::SERVICE_UNAVAILABLE,
                "shutting-down",
                "The node is shutting down",
            ),
        };
        let mut problem = Problem::new(status, slug, title, self.to_string());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            problem.retry_after = Some(RETRY_AFTER);
        }
        problem
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
            Self::Registry(RegistryError::NoSpace) => NO_SPACE,
            Self::Registry(_) => platform_failure(),
        };
        Problem::new(status, slug, title, self.to_string())
    }
}

type Kind = (StatusCode, &'static str, &'static str);

const PLATFORM_FAILURE: &str = "platform-failure";

const OVER_CAPACITY: Kind = (
    StatusCode::SERVICE_UNAVAILABLE,
    "over-capacity",
    "The node is busy",
);

const OUT_OF_MEMORY: Kind = (
    StatusCode::SERVICE_UNAVAILABLE,
    "out-of-memory",
    "Memory for microVMs is short",
);

const EVICTED: Kind = (
    StatusCode::SERVICE_UNAVAILABLE,
    "evicted",
    "The node is busy, and this client was slow",
);

const NO_SPACE: Kind = (
    StatusCode::INSUFFICIENT_STORAGE,
    "no-space",
    "The disk is full",
);

fn platform_failure() -> Kind {
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        PLATFORM_FAILURE,
        "The node failed",
    )
}

fn request_too_large(part: &str) -> Kind {
    if part != "body" {
        (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "request-head-too-large",
            "The request's header fields are too large",
        )
    } else {
        (
            StatusCode::PAYLOAD_TOO_LARGE,
            "request-body-too-large",
            "The request's body is too large",
        )
    }
}

fn took_too_long(slug: &'static str) -> Kind {
    (
        StatusCode::GATEWAY_TIMEOUT,
        slug,
        "The function took too long",
    )
}

fn of_invocation(error: &InvokeError) -> Kind {
    let (slug, title) = match error {
        InvokeError::RequestTooLarge { part, .. } => return request_too_large(part),
        InvokeError::OverCapacity(_) => return OVER_CAPACITY,
        InvokeError::Platform(PlatformError::OutOfMemory) => return OUT_OF_MEMORY,
        InvokeError::Platform(_) => return platform_failure(),
        InvokeError::TimedOut(_) => {
            return took_too_long("timed-out");
        }
        InvokeError::CpuLimit(_) => return took_too_long("cpu-limit"),
        InvokeError::IdleGuest(_) => return took_too_long("idle-guest"),
        InvokeError::TotalTime(_) => return took_too_long("total-time"),
        InvokeError::IdleClient(_) => {
            return (
                StatusCode::REQUEST_TIMEOUT,
                "idle-client",
                "The client was too slow",
            );
        }
        InvokeError::Evicted => return EVICTED,
        InvokeError::Client(ClientError::TooLarge(_)) => return request_too_large("body"),
        InvokeError::Client(ClientError::TooSlow(_)) => {
            return (
                StatusCode::REQUEST_TIMEOUT,
                "request-body-timeout",
                "The request's body came too slowly",
            );
        }
        InvokeError::Client(ClientError::Broken(_)) | InvokeError::ClientGone => {
            return (
                StatusCode::BAD_REQUEST,
                "request-body-unreadable",
                "The request's body could not be read",
            );
        }
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
    };
    (StatusCode::BAD_GATEWAY, slug, title)
}

impl From<PlatformError> for Failure {
    fn from(error: PlatformError) -> Self {
        Self::Invoke(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(failure: Failure) -> (u16, &'static str, Fault) {
        let problem = failure.problem();
        (problem.status.as_u16(), problem.slug, failure.fault())
    }

    #[test]
    fn every_failure_has_the_status_that_says_whose_fault_it_is() {
        let trap = InvokeError::Trap {
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
                Failure::BodyTooLarge(1),
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
