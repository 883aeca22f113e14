//! The problems for a client of the admin API: why an operation was not done. The client is the
//! operator, so nothing is withheld.
//!
//! Each error names its fault, and the status follows from that ([`status_of`]). Three statuses do
//! not follow from a fault: the object does not exist (404), something else is in the way (409),
//! and the disk is full (507). Whether to retry follows from the fault as well
//! ([`Manner::NoRoom`]).

use std::fmt::Display;

use faasw_client::Problem;
use faasw_pool::{Fault, Manner};
use http::StatusCode;

use super::{
    problem,
    words::{self, Words},
};
use crate::{
    error::{DeployError, EngineError, FilesRefused, FunctionError, ImportError, RollbackError},
    registry::RegistryError,
};

/// The meaning of an error for a client.
struct Meaning {
    fault: (Fault, Manner),
    /// The status, if it does not follow from the fault.
    status: Option<StatusCode>,
    words: Words,
}

impl Meaning {
    fn new(fault: (Fault, Manner), words: Words) -> Self {
        Self {
            fault,
            status: None,
            words,
        }
    }

    fn of_caller(words: Words) -> Self {
        Self::new((Fault::Caller, Manner::Failed), words)
    }

    fn of_function(words: Words) -> Self {
        Self::new((Fault::Function, Manner::Failed), words)
    }

    fn of_platform(words: Words) -> Self {
        Self::new((Fault::Platform, Manner::Failed), words)
    }

    fn with_status(self, status: StatusCode) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    fn problem(self, error: &impl Display) -> Problem {
        let status = self.status.unwrap_or_else(|| status_of(self.fault));
        problem(status, self.words, error.to_string(), self.fault)
    }
}

/// Returns the status of a fault, if the error has no status of its own.
fn status_of(fault: (Fault, Manner)) -> StatusCode {
    match fault {
        (_, Manner::NoRoom) => StatusCode::SERVICE_UNAVAILABLE,
        // The request is well-formed, but the uploaded content cannot be processed.
        (Fault::Function, _) => StatusCode::UNPROCESSABLE_ENTITY,
        fault => super::status_of(fault),
    }
}

macro_rules! has_fault {
    ($($error:ty),*) => {$(
        impl $error {
            /// Returns whose fault the error is, and the manner of the failure.
            #[must_use]
            pub fn fault(&self) -> (Fault, Manner) {
                self.meaning().fault
            }
        }
    )*};
}

macro_rules! has_problem {
    ($($error:ty),*) => {$(
        impl $error {
            /// Returns the problem for a client of the admin API.
            pub(crate) fn problem(&self) -> Problem {
                self.meaning().problem(self)
            }
        }
    )*};
}

has_fault!(
    RegistryError,
    DeployError,
    EngineError,
    RollbackError,
    FunctionError,
    ImportError
);
has_problem!(
    DeployError,
    EngineError,
    RollbackError,
    FunctionError,
    ImportError
);

impl RegistryError {
    fn meaning(&self) -> Meaning {
        match self {
            // An engine was added or removed by another client in the meantime.
            Self::EngineGone(_) => {
                Meaning::of_caller(("engine-gone", "The language engine was replaced"))
                    .with_status(StatusCode::CONFLICT)
            }
            // A full disk stays full until an operator frees space, so a retry is not suggested.
            Self::NoSpace => {
                Meaning::of_platform(words::NO_SPACE).with_status(StatusCode::INSUFFICIENT_STORAGE)
            }
            Self::Store(_)
            | Self::File { .. }
            | Self::Format { .. }
            | Self::Record { .. }
            | Self::VersionMissing { .. }
            | Self::Module(_)
            | Self::Engine(_)
            | Self::Interrupted => Meaning::of_platform(words::FAILED),
        }
    }
}

impl DeployError {
    fn meaning(&self) -> Meaning {
        match self {
            Self::Name(_) => Meaning::of_caller(("bad-name", "Not a function name")),
            Self::Options(_) => Meaning::of_caller(("bad-options", "Not valid options")),
            Self::HostTaken { .. } | Self::HostOfDomain { .. } => {
                Meaning::of_caller(("host-taken", "The host belongs to another function"))
                    .with_status(StatusCode::CONFLICT)
            }
            Self::TooLarge { .. } => Meaning::new(
                (Fault::Caller, Manner::TooLarge),
                ("module-too-large", "The module is too large"),
            ),
            Self::Script(_) => Meaning::of_function(("bad-script", "Not a script")),
            Self::Files(error) => Meaning::new(
                match error {
                    FilesRefused::Missing => (Fault::Caller, Manner::Failed),
                    FilesRefused::Upload(_) | FilesRefused::FreezePointOfScript => {
                        (Fault::Function, Manner::Failed)
                    }
                    FilesRefused::Bundle(error) => error.fault(),
                },
                ("bad-files", "Not the files of a function"),
            ),
            Self::NoEngine { .. } => {
                Meaning::of_function(("no-engine", "No language engine for the script"))
            }
            Self::NotInitialised(_) => Meaning::of_function((
                "not-initialised",
                "No module begins where the initialisation has left it",
            )),
            Self::Compile(error) => Meaning::new(error.fault(), words::of_compilation(error)),
            Self::Seed(error) => Meaning::new(error.fault(), words::of_seed(error)),
            Self::Registry(error) => error.meaning(),
            Self::ShuttingDown => {
                Meaning::new((Fault::Platform, Manner::NoRoom), words::SHUTTING_DOWN)
            }
        }
    }
}

impl EngineError {
    fn meaning(&self) -> Meaning {
        match self {
            Self::NotReady(error) => error.meaning(),
            Self::Unknown(_) => Meaning::of_caller(("unknown-engine", "No such language engine"))
                .with_status(StatusCode::NOT_FOUND),
            Self::Extensions(_) => {
                Meaning::of_caller(("bad-extensions", "Not the extensions of an engine"))
            }
            Self::Taken { .. } => {
                Meaning::of_caller(("extension-taken", "The extension belongs to another engine"))
                    .with_status(StatusCode::CONFLICT)
            }
            Self::NotAnEngine => Meaning::of_function(("not-an-engine", "Not a language engine")),
        }
    }
}

impl RollbackError {
    fn meaning(&self) -> Meaning {
        match self {
            Self::Unknown(_) => unknown_function(),
            Self::NotReady(error) => error.meaning(),
            Self::NoVersion { .. } | Self::NothingBefore(_) | Self::Overtaken(_) => {
                Meaning::of_caller(("unknown-version", "No such version"))
                    .with_status(StatusCode::NOT_FOUND)
            }
        }
    }
}

fn unknown_function() -> Meaning {
    Meaning::of_caller(words::UNKNOWN_FUNCTION).with_status(StatusCode::NOT_FOUND)
}

impl FunctionError {
    fn meaning(&self) -> Meaning {
        let conflict = match self {
            Self::Unknown(_) => return unknown_function(),
            Self::NotReady(error) => return error.meaning(),
            Self::Registry(error) => return error.meaning(),
            Self::NoImage { .. } => Meaning::of_caller(("no-image", "There is no image")),
            Self::NotExported { .. } => {
                Meaning::of_caller(("not-exported", "The function was not exported"))
            }
            Self::BadImage { .. } => {
                Meaning::of_platform(("bad-image", "The image cannot be used"))
            }
        };
        conflict.with_status(StatusCode::CONFLICT)
    }
}

impl ImportError {
    fn meaning(&self) -> Meaning {
        match self {
            Self::Deploy(error) => error.meaning(),
            Self::NoKey => Meaning::of_caller(("no-images", "The node keeps no images"))
                .with_status(StatusCode::CONFLICT),
            Self::TimedOut(_) => {
                Meaning::new((Fault::Caller, Manner::TimedOut), words::BODY_TIMEOUT)
            }
            Self::BrokenOff(_) => Meaning::of_caller(words::BODY_UNREADABLE),
            // The uploaded export is at fault.
            Self::Parcel(_) | Self::Manifest(_) | Self::Module => {
                Meaning::of_function(("bad-export", "Not an export that this node can open"))
            }
        }
    }
}
