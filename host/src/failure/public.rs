//! The part of a failure's reason that any client of a function may read.
//!
//! A guest chooses the text of its errors, its exit code and the names in its backtraces, so none
//! of these is included. Limits, sizes and times are the node's own and are included.

use std::borrow::Cow;

use faasw_pool::{InvokeError, SeedError};

use super::Failure;
use crate::error::DeployError;

/// Appends where the omitted part of the reason is.
macro_rules! in_the_log {
    ($what:literal) => {
        concat!(
            $what,
            "; the function's log has the reason, on the lines with this request's id"
        )
    };
}

const NOT_READY: &str = in_the_log!("the function could not be made ready");

impl Failure {
    /// Returns the reason without anything that a guest wrote.
    pub(super) fn public_detail(&self) -> Cow<'static, str> {
        match self {
            Self::Invoke(error) => of_invocation(error),
            Self::NotReady(DeployError::Seed(
                SeedError::Function(error) | SeedError::WarmUp { error, .. },
            )) => match generic(error) {
                // The text is the limit's or the node's.
                None => self.to_string().into(),
                Some(_) => NOT_READY.into(),
            },
            Self::NotReady(_) | Self::Secrets(_) => NOT_READY.into(),
            Self::UnknownFunction(_)
            | Self::Rejected(_)
            | Self::NoRoom
            | Self::FunctionBusy(_)
            | Self::ShuttingDown => self.to_string().into(),
        }
    }
}

fn of_invocation(error: &InvokeError) -> Cow<'static, str> {
    match generic(error) {
        Some(text) => text.into(),
        None => error.to_string().into(),
    }
}

/// Returns the text that replaces an error's own, if that contains text of the guest.
fn generic(error: &InvokeError) -> Option<&'static str> {
    Some(match error {
        InvokeError::Trap { .. } => in_the_log!("the function trapped"),
        InvokeError::Exit { .. } => in_the_log!("the function exited before it gave a response"),
        InvokeError::ResponseTooLarge { .. } => {
            in_the_log!("the function's response is too large")
        }
        InvokeError::FunctionError { .. } => in_the_log!("the function returned an error"),
        InvokeError::BadResponse { .. } => in_the_log!("the function's response is not valid"),
        InvokeError::LoadFailed { .. } => in_the_log!("the function could not be instantiated"),
        InvokeError::GuestFailed(_) => in_the_log!("the function's microVM failed"),
        // The caller of this function withholds the details of platform failures, unless they are a
        // lack of capacity.
        InvokeError::Platform(_)
        | InvokeError::NoResponse
        | InvokeError::RequestTooLarge { .. }
        | InvokeError::TimedOut(_)
        | InvokeError::CpuLimit(_)
        | InvokeError::RequestCpuLimit(_)
        | InvokeError::SeedQueued { .. }
        | InvokeError::IdleGuest(_)
        | InvokeError::TotalTime(_)
        | InvokeError::IdleClient(_)
        | InvokeError::Client(_)
        | InvokeError::ClientGone
        | InvokeError::OverCapacity(_)
        | InvokeError::Evicted => return None,
    })
}
