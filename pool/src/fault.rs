//! The cause and the manner of a failure, and whether it may be retried. These belong to the error,
//! so that status codes, logs and programs that embed the pool follow one table.

use crate::error::{ClientError, CompileError, InvokeError, PlatformError, SeedError};

/// The party that caused a failure and could have avoided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The sender of the request or deployment, or the operator who set the limit that it reached.
    Caller,
    /// The function.
    Function,
    /// The node.
    Platform,
}

/// The manner of a failure. A request that failed with [no room](Manner::NoRoom) may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Something exceeds a size limit.
    TooLarge,
    /// Something exceeded a time limit.
    TimedOut,
    /// There was no capacity; there may be soon.
    NoRoom,
    /// Any other failure.
    Failed,
}

impl InvokeError {
    /// Returns who caused the error, and in which manner it failed.
    ///
    /// | error | fault | manner | may be retried |
    /// | --- | --- | --- | --- |
    /// | `RequestTooLarge`, `Client(TooLarge)` | caller | too large | no |
    /// | `IdleClient`, `Client(TooSlow)` | caller | timed out | no |
    /// | `Client(Broken)`, `ClientGone` | caller | failed | no |
    /// | `OverCapacity`, `SeedQueued`, `Evicted` | caller: the node's limits do what their owner wants | no room | yes |
    /// | `ResponseTooLarge` | function | too large | no |
    /// | `TimedOut`, `CpuLimit`, `RequestCpuLimit`, `IdleGuest`, `TotalTime` | function | timed out | no |
    /// | `Trap`, `Exit`, `NoResponse`, `FunctionError`, `BadResponse`, `LoadFailed`, `GuestFailed` | function | failed | no |
    /// | `Platform(OutOfMemory)`, `Platform(OpenFiles)` | platform | no room | yes |
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
            Self::OverCapacity(_) | Self::SeedQueued { .. } | Self::Evicted => {
                (Fault::Caller, Manner::NoRoom)
            }
            Self::ResponseTooLarge { .. } => (Fault::Function, Manner::TooLarge),
            Self::TimedOut(_)
            | Self::CpuLimit(_)
            | Self::RequestCpuLimit(_)
            | Self::IdleGuest(_)
            | Self::TotalTime(_) => (Fault::Function, Manner::TimedOut),
            Self::Trap { .. }
            | Self::Exit { .. }
            | Self::NoResponse
            | Self::FunctionError { .. }
            | Self::BadResponse { .. }
            | Self::LoadFailed { .. }
            | Self::GuestFailed(_) => (Fault::Function, Manner::Failed),
            Self::Platform(error) => error.fault(),
        }
    }

    /// Returns whether the same request may succeed if it is sent again later. A request that was
    /// evicted, or whose sandbox was killed for lack of memory, may have run in part. The client
    /// must know that such a request can safely be repeated.
    #[must_use]
    pub fn may_be_retried(&self) -> bool {
        self.fault().1 == Manner::NoRoom
    }
}

impl PlatformError {
    /// Returns that the platform caused the error, and in which manner it failed.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        let manner = match self {
            Self::OutOfMemory | Self::OpenFiles => Manner::NoRoom,
            Self::TimedOut { .. } => Manner::TimedOut,
            Self::SandboxEnded(_)
            | Self::SeedUnreadable
            | Self::Protocol(_)
            | Self::Jail { .. }
            | Self::Abandoned
            | Self::RuntimeEnds
            | Self::CodeGone(_)
            | Self::SpawnerGone
            | Self::System { .. } => Manner::Failed,
        };
        (Fault::Platform, manner)
    }
}

impl CompileError {
    /// Returns who caused the error, and in which manner it failed. The function causes it, except
    /// where the platform failed: the helper only does what the function makes it do.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::Malformed(_)
            | Self::UnknownImports { .. }
            | Self::Unsupported(_)
            | Self::Helper(_) => (Fault::Function, Manner::Failed),
            Self::CpuLimit(_) => (Fault::Function, Manner::TimedOut),
            Self::MemoryLimit(_) => (Fault::Function, Manner::TooLarge),
            Self::Platform(error) => error.fault(),
        }
    }
}

impl SeedError {
    /// Returns who caused the error, and in which manner it failed. The function causes it, except
    /// where the underlying error has another cause.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::MemoryTooLarge { .. } | Self::ConfigTooLarge(..) | Self::WarmUpTooLarge(..) => {
                (Fault::Function, Manner::TooLarge)
            }
            Self::InitDrew { .. }
            | Self::ScriptDrew(_)
            | Self::EntryDrew(_)
            | Self::EnteredBefore(_)
            | Self::WarmUpDrew(_)
            | Self::WarmUpOfCommand
            | Self::EngineDrew(_) => (Fault::Function, Manner::Failed),
            Self::Function(error) | Self::WarmUp { error, .. } => error.fault(),
            Self::Platform(error) => error.fault(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_lack_of_room_may_be_retried() {
        let long = Duration::from_secs(1);
        for (error, may_be) in [
            (InvokeError::OverCapacity(1), true),
            (InvokeError::SeedQueued { behind: 1 }, true),
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
    fn a_seed_error_has_the_fault_of_its_cause() {
        let request = "GET /".to_owned();
        for (error, fault) in [
            (SeedError::WarmUpOfCommand, Fault::Function),
            (
                SeedError::Function(InvokeError::NoResponse),
                Fault::Function,
            ),
            (
                SeedError::Function(PlatformError::SpawnerGone.into()),
                Fault::Platform,
            ),
            (
                SeedError::WarmUp {
                    request: request.clone(),
                    error: InvokeError::NoResponse,
                },
                Fault::Function,
            ),
            (
                SeedError::WarmUp {
                    request,
                    error: PlatformError::SpawnerGone.into(),
                },
                Fault::Platform,
            ),
            (PlatformError::Abandoned.into(), Fault::Platform),
        ] {
            assert_eq!(error.fault(), (fault, Manner::Failed), "{error}");
        }
    }

    #[test]
    fn a_timeout_of_any_party_has_the_manner_timed_out() {
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
