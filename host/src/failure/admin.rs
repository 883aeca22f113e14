//! The problems for a client of the admin API: why an operation was not done. The client is the
//! operator, so nothing is withheld.
//!
//! Each error names its fault, and the status follows from that ([`status_of`]). Three statuses do
//! not follow from a fault: the object does not exist (404), something else is in the way (409),
//! and the disk is full (507).

use std::fmt::Display;

use faasw_client::Problem;
use faasw_pool::{Fault, Manner};
use http::StatusCode;

use super::{
    Audience, Failure, problem,
    words::{self, Words},
};
use crate::{
    error::{DeployError, EngineError, FunctionError, ImportError, RollbackError},
    registry::RegistryError,
};

const NOT_FOUND: Option<StatusCode> = Some(StatusCode::NOT_FOUND);
const CONFLICT: Option<StatusCode> = Some(StatusCode::CONFLICT);

/// Returns the status of a fault, if the error has no status of its own.
fn status_of(fault: (Fault, Manner)) -> StatusCode {
    match fault {
        (_, Manner::NoRoom) => StatusCode::SERVICE_UNAVAILABLE,
        // The request is well-formed, but the uploaded content cannot be processed.
        (Fault::Function, _) => StatusCode::UNPROCESSABLE_ENTITY,
        fault => super::status_of(fault),
    }
}

impl RegistryError {
    fn own_status(&self) -> Option<StatusCode> {
        match self {
            Self::NoSpace => Some(StatusCode::INSUFFICIENT_STORAGE),
            Self::EngineGone(_) => CONFLICT,
            _ => None,
        }
    }

    fn words(&self) -> Words {
        match self {
            Self::NoSpace => words::NO_SPACE,
            Self::EngineGone(_) => ("engine-gone", "The language engine was replaced"),
            _ => words::FAILED,
        }
    }
}

/// Returns the problem of an error. The fault decides the status, unless the error has one of its
/// own.
fn problem_of(
    error: &impl Display,
    fault: (Fault, Manner),
    own_status: Option<StatusCode>,
    words: Words,
) -> Problem {
    let status = own_status.unwrap_or_else(|| status_of(fault));
    problem(status, words, error.to_string(), fault)
}

impl DeployError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        problem_of(self, self.fault(), self.own_status(), self.words())
    }

    fn own_status(&self) -> Option<StatusCode> {
        match self {
            Self::HostTaken { .. } | Self::HostOfDomain { .. } => CONFLICT,
            Self::Registry(error) => error.own_status(),
            _ => None,
        }
    }

    fn words(&self) -> Words {
        match self {
            Self::Name(_) => ("bad-name", "Not a function name"),
            Self::Options(_) => ("bad-options", "Not valid options"),
            Self::HostTaken { .. } | Self::HostOfDomain { .. } => {
                ("host-taken", "The host belongs to another function")
            }
            Self::TooLarge { .. } => ("module-too-large", "The module is too large"),
            Self::Script(_) => ("bad-script", "Not a script"),
            Self::Files(_) => ("bad-files", "Not the files of a function"),
            Self::NoEngine { .. } => ("no-engine", "No language engine for the script"),
            Self::NotInitialised(_) => (
                "not-initialised",
                "No module begins where the initialisation has left it",
            ),
            Self::Compile(error) => words::of_compilation(error),
            Self::Seed(error) => words::of_seed(error),
            Self::Registry(error) => error.words(),
            Self::ShuttingDown => words::SHUTTING_DOWN,
        }
    }
}

impl EngineError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        let (own_status, words) = match self {
            Self::NotReady(error) => return error.problem(),
            Self::Unknown(_) => (NOT_FOUND, ("unknown-engine", "No such language engine")),
            Self::Extensions(_) => (None, ("bad-extensions", "Not the extensions of an engine")),
            Self::Taken { .. } => {
                let title = "The extension belongs to another engine";
                (CONFLICT, ("extension-taken", title))
            }
            Self::NotAnEngine => (None, ("not-an-engine", "Not a language engine")),
        };
        problem_of(self, self.fault(), own_status, words)
    }
}

impl RollbackError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        match self {
            Self::Unknown(name) => unknown_function(name),
            Self::NotReady(error) => error.problem(),
            Self::NoVersion { .. } | Self::NothingBefore(_) | Self::Overtaken(_) => {
                let words = ("unknown-version", "No such version");
                problem_of(self, self.fault(), NOT_FOUND, words)
            }
        }
    }
}

impl FunctionError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        let (own_status, words) = match self {
            Self::Unknown(name) => return unknown_function(name),
            Self::NotReady(error) => return error.problem(),
            Self::NoImage { .. } => (CONFLICT, ("no-image", "There is no image")),
            Self::NotExported { .. } => {
                (CONFLICT, ("not-exported", "The function was not exported"))
            }
            Self::BadImage { .. } => (CONFLICT, ("bad-image", "The image cannot be used")),
            Self::Registry(error) => (error.own_status(), error.words()),
        };
        problem_of(self, self.fault(), own_status, words)
    }
}

fn unknown_function(name: &str) -> Problem {
    Failure::UnknownFunction(name.to_owned()).problem(Audience::Operator)
}

impl ImportError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        let (own_status, words) = match self {
            Self::Deploy(error) => return error.problem(),
            Self::NoKey => (CONFLICT, ("no-images", "The node keeps no images")),
            Self::TimedOut(_) => (None, words::BODY_TIMEOUT),
            Self::BrokenOff(_) => (None, words::BODY_UNREADABLE),
            Self::Parcel(_) | Self::Manifest(_) | Self::Module => {
                let title = "Not an export that this node can open";
                (None, ("bad-export", title))
            }
        };
        problem_of(self, self.fault(), own_status, words)
    }
}
