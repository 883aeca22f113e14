//! Whose doing a failed request is, in which manner it failed, and whether it may be
//! sent again: part of the error, so that statuses, logs and whoever embeds the pool
//! follow one table.

use crate::error::{ClientError, InvokeError, PlatformError};

/// Whose doing a failure is: who could have avoided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Whoever sent the request, or whoever set the limit that it met.
    Caller,
    /// The function.
    Function,
    /// The node.
    Platform,
}

/// In which manner something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Something is larger than it may be.
    TooLarge,
    /// Something took longer than it may.
    TimedOut,
    /// There was no room; there may be soon.
    NoRoom,
    /// Any other.
    Failed,
}

impl InvokeError {
    /// Whose doing it is, and in which manner it failed.
    ///
    /// | error | fault | manner | may be retried |
    /// | --- | --- | --- | --- |
    /// | `RequestTooLarge`, `Client(TooLarge)` | caller | too large | no |
    /// | `IdleClient`, `Client(TooSlow)` | caller | timed out | no |
    /// | `Client(Broken)`, `ClientGone` | caller | failed | no |
    /// | `OverCapacity`, `Evicted` | caller: the node's limits do what their owner wants | no room | yes |
    /// | `ResponseTooLarge` | function | too large | no |
    /// | `TimedOut`, `CpuLimit`, `IdleGuest`, `TotalTime` | function | timed out | no |
    /// | `Trap`, `Exit`, `NoResponse`, `FunctionError`, `BadResponse`, `LoadFailed`, `GuestFailed` | function | failed | no |
    /// | `Platform(OutOfMemory)` | platform | no room | yes |
    /// | `Platform(TimedOut)` | platform | timed out | no |
    /// | `Platform`, any other | platform | failed | no |
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::RequestTooLarge { .. } | Self::Client(ClientError::TooLarge(_)) => {
                (Fault::Caller, Manner::TooLarge)
            }
            Self::IdleClient(_) | Self::Client(ClientError::TooSlow(_)) => {
                (Fault::Caller, Manner::TimedOut)
            }
            Self::Client(ClientError::Broken(_)) | Self::ClientGone => {
                (Fault::Caller, Manner::Failed)
            }
            Self::OverCapacity(_) | Self::Evicted => (Fault::Caller, Manner::NoRoom),
            Self::ResponseTooLarge { .. } => (Fault::Function, Manner::TooLarge),
            Self::TimedOut(_) | Self::CpuLimit(_) | Self::IdleGuest(_) | Self::TotalTime(_) => {
                (Fault::Function, Manner::TimedOut)
            }
            Self::Trap { .. }
            | Self::Exit { .. }
            | Self::NoResponse
            | Self::FunctionError { .. }
            | Self::BadResponse { .. }
            | Self::LoadFailed { .. }
            | Self::GuestFailed(_) => (Fault::Function, Manner::Failed),
            Self::Platform(error) => (Fault::Platform, error.manner()),
        }
    }

    /// Whether the same request, sent again later, may find room. One that was evicted, or
    /// whose microVM died of too little memory, may have run in part: who sends it again
    /// must know that it can be.
    #[must_use]
    pub fn may_be_retried(&self) -> bool {
        self.fault().1 == Manner::NoRoom
    }
}

impl PlatformError {
    fn manner(&self) -> Manner {
        match self {
            Self::OutOfMemory => Manner::NoRoom,
            Self::TimedOut { .. } => Manner::TimedOut,
            Self::ShellEnded(_)
            | Self::Protocol(_)
            | Self::Cell(_)
            | Self::CodeGone(_)
            | Self::SpawnerGone
            | Self::System { .. } => Manner::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_may_be_retried_is_what_there_was_no_room_for() {
        let long = Duration::from_secs(1);
        for (error, may_be) in [
            (InvokeError::OverCapacity(1), true),
            (InvokeError::Evicted, true),
            (PlatformError::OutOfMemory.into(), true),
            (InvokeError::TimedOut(long), false),
            (InvokeError::NoResponse, false),
            (InvokeError::ClientGone, false),
            (PlatformError::SpawnerGone.into(), false),
        ] {
            assert_eq!(error.may_be_retried(), may_be, "{error}");
        }
    }

    #[test]
    fn a_timeout_is_one_whoever_was_too_slow() {
        let long = Duration::from_secs(1);
        let what = "starting a guest";
        for (error, fault) in [
            (InvokeError::TimedOut(long), Fault::Function),
            (InvokeError::IdleClient(long), Fault::Caller),
            (ClientError::TooSlow(1).into(), Fault::Caller),
            (
                PlatformError::TimedOut { what, limit: long }.into(),
                Fault::Platform,
            ),
        ] {
            assert_eq!(error.fault(), (fault, Manner::TimedOut), "{error}");
        }
    }
}
