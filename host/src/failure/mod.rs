//! The reasons why a request has no response from its function, and whose fault that is.
//!
//! The node makes a [`Failure`], which names the fault and the manner of the failure. This module
//! derives the status for the caller from it, and [`admin`] does so for a client of the admin API.
//! Details of the platform stay in the node's own log: the caller cannot act on them, and they may
//! reveal too much. Details that come from a guest stay in the function's log: an error message may
//! quote a secret, and a backtrace shows the function's code. [`Audience`] selects what a problem
//! body contains.

mod admin;
mod public;
#[cfg(test)]
mod tests;
mod words;

use std::borrow::Cow;

use faasw_client::Problem;
use faasw_pool::{Fault, InvokeError, Manner, PlatformError, RequestPart, SeedError};
use http::StatusCode;
use thiserror::Error;

use self::words::Words;
use crate::{error::DeployError, message::RequestRejection};

/// Seconds after which a rejected request may be retried.
const RETRY_AFTER: u32 = 1;

/// The reason why a request failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("no function named {0:?}")]
    UnknownFunction(String),
    #[error(transparent)]
    Rejected(#[from] RequestRejection),
    #[error("the node has no memory left for a request whose body has not arrived")]
    NoRoom,
    #[error("the function has reached its limit of {0} requests at once")]
    FunctionBusy(usize),
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    /// A stored function could not be made ready again.
    #[error("the function could not be prepared: {0}")]
    NotReady(DeployError),
    #[error("the function's secrets cannot be read: {0}")]
    Secrets(String),
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// The reader of a problem body, which determines how much of the reason the body contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A client of a function: it receives nothing that a guest wrote.
    Client,
    /// The operator or the developer of the function: they receive what the function's log has.
    Operator,
}

impl Failure {
    /// Returns whose fault the failure is, which decides the level in the node's log, and its
    /// manner.
    pub(crate) fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::UnknownFunction(_) | Self::Rejected(RequestRejection::BodyUnreadable(_)) => {
                (Fault::Caller, Manner::Failed)
            }
            Self::Rejected(
                RequestRejection::HeadTooLarge { .. }
                | RequestRejection::BodyTooLarge(_)
                | RequestRejection::LengthUnknown(_),
            ) => (Fault::Caller, Manner::TooLarge),
            Self::Rejected(RequestRejection::BodyTimeout(_)) => (Fault::Caller, Manner::TimedOut),
            // The operator chose the limit, and requests may exceed it very often.
            Self::NoRoom | Self::FunctionBusy(_) => (Fault::Caller, Manner::NoRoom),
            Self::NotReady(DeployError::Seed(
                SeedError::Function(error) | SeedError::WarmUp { error, .. },
            ))
            | Self::Invoke(error) => error.fault(),
            // The function was in order when it was deployed.
            Self::NotReady(_) | Self::Secrets(_) => (Fault::Platform, Manner::Failed),
            Self::ShuttingDown => (Fault::Platform, Manner::NoRoom),
        }
    }

    /// Whether a function's code was unavailable: it may have been removed with the function.
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
            Self::Rejected(RequestRejection::HeadTooLarge { .. }) => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::Invoke(InvokeError::RequestTooLarge {
                part: RequestPart::Head | RequestPart::Trailers,
                ..
            }) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => status_of(self.fault()),
        }
    }

    /// Returns the problem without its function and instance.
    pub(crate) fn problem(&self, audience: Audience) -> Problem {
        let fault = self.fault();
        let detail = match fault {
            // A lack of capacity is not hidden, because the client may retry.
            (Fault::Platform, Manner::TooLarge | Manner::TimedOut | Manner::Failed) => {
                "the node failed to run the function; the node's own log has the reason".into()
            }
            _ if audience == Audience::Operator => self.to_string().into(),
            _ => self.public_detail(),
        };
        problem(self.status(), self.words(), detail, fault)
    }

    /// Returns the cause for the node's own log: one of a fixed set.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Invoke(InvokeError::Trap { kind, .. }) => kind.name(),
            _ => self.words().0,
        }
    }

    /// Returns the last part of the problem's type.
    pub(crate) fn slug(&self) -> &'static str {
        self.words().0
    }

    fn words(&self) -> Words {
        match self {
            Self::UnknownFunction(_) => words::UNKNOWN_FUNCTION,
            Self::Rejected(RequestRejection::HeadTooLarge { .. }) => words::HEAD_TOO_LARGE,
            Self::Rejected(
                RequestRejection::BodyTooLarge(_) | RequestRejection::LengthUnknown(_),
            ) => words::BODY_TOO_LARGE,
            Self::Rejected(RequestRejection::BodyUnreadable(_)) => words::BODY_UNREADABLE,
            Self::Rejected(RequestRejection::BodyTimeout(_)) => words::BODY_TIMEOUT,
            Self::NoRoom => words::OVER_CAPACITY,
            Self::FunctionBusy(_) => words::FUNCTION_BUSY,
            Self::NotReady(DeployError::Seed(
                SeedError::Function(error) | SeedError::WarmUp { error, .. },
            ))
            | Self::Invoke(error) => words::of_invocation(error),
            Self::NotReady(_) | Self::Secrets(_) => words::FAILED,
            Self::ShuttingDown => words::SHUTTING_DOWN,
        }
    }
}

/// Returns a problem, with the time after which to retry if the failure is a lack of capacity.
fn problem(
    status: StatusCode,
    (slug, title): Words,
    detail: impl Into<Cow<'static, str>>,
    (_, manner): (Fault, Manner),
) -> Problem {
    let mut problem = Problem::new(status, slug, title, detail);
    if manner == Manner::NoRoom {
        problem.retry_after = Some(RETRY_AFTER);
    }
    problem
}

/// Returns the status of a fault for the caller, if the failure has no status of its own.
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

impl From<PlatformError> for Failure {
    fn from(error: PlatformError) -> Self {
        Self::Invoke(error.into())
    }
}
