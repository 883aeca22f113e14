//! The problems for a client of the admin API: why an operation was not done. The client is the
//! operator, so nothing is withheld.
//!
//! Each error names its fault, and the status follows from that ([`status_of`]). Three statuses do
//! not follow from a fault: the object does not exist (404), something else is in the way (409),
//! and the disk is full (507).

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
            Self::EngineGone(_) => Some(StatusCode::CONFLICT),
            _ => None,
        }
    }

    fn words(&self) -> Words {
        match self {
            Self::NoSpace => words::NO_SPACE,
            Self::EngineGone(_) => ("engine-gone", "The language engine is another one now"),
            _ => words::FAILED,
        }
    }
}

impl DeployError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        let fault = self.fault();
        let status = self.own_status().unwrap_or_else(|| status_of(fault));
        problem(status, self.words(), self.to_string(), fault)
    }

    fn own_status(&self) -> Option<StatusCode> {
        match self {
            Self::HostTaken { .. } | Self::HostOfDomain { .. } => Some(StatusCode::CONFLICT),
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
            Self::Unknown(_) => (
                Some(StatusCode::NOT_FOUND),
                ("unknown-engine", "No such language engine"),
            ),
            Self::Extensions(_) => (None, ("bad-extensions", "Not the extensions of an engine")),
            Self::Taken { .. } => (
                Some(StatusCode::CONFLICT),
                ("extension-taken", "The extension belongs to another engine"),
            ),
            Self::NotAnEngine => (None, ("not-an-engine", "Not a language engine")),
        };
        let fault = self.fault();
        let status = own_status.unwrap_or_else(|| status_of(fault));
        problem(status, words, self.to_string(), fault)
    }
}

impl RollbackError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        match self {
            Self::Unknown(name) => {
                Failure::UnknownFunction(name.clone()).problem(Audience::Operator)
            }
            Self::NotReady(error) => error.problem(),
            Self::NoVersion { .. } | Self::NothingBefore(_) | Self::Overtaken(_) => problem(
                StatusCode::NOT_FOUND,
                ("unknown-version", "No such version"),
                self.to_string(),
                self.fault(),
            ),
        }
    }
}

impl FunctionError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        let (own_status, words) = match self {
            Self::Unknown(name) => {
                return Failure::UnknownFunction(name.clone()).problem(Audience::Operator);
            }
            Self::NotReady(error) => return error.problem(),
            Self::NoImage { .. } => (
                Some(StatusCode::CONFLICT),
                ("no-image", "There is no image"),
            ),
            Self::NotExported { .. } => (
                Some(StatusCode::CONFLICT),
                ("not-exported", "The function was not exported"),
            ),
            Self::BadImage { .. } => (
                Some(StatusCode::CONFLICT),
                ("bad-image", "The image cannot be used"),
            ),
            Self::Registry(error) => (error.own_status(), error.words()),
        };
        let fault = self.fault();
        let status = own_status.unwrap_or_else(|| status_of(fault));
        problem(status, words, self.to_string(), fault)
    }
}

impl ImportError {
    /// Returns the problem for a client of the admin API.
    pub(crate) fn problem(&self) -> Problem {
        let (own_status, words) = match self {
            Self::Deploy(error) => return error.problem(),
            Self::NoKey => (
                Some(StatusCode::CONFLICT),
                ("no-images", "The node keeps no images"),
            ),
            Self::TimedOut(_) => (None, words::BODY_TIMEOUT),
            Self::BrokenOff(_) => (None, words::BODY_UNREADABLE),
            Self::Parcel(_) | Self::Manifest(_) | Self::Module => (
                None,
                ("bad-export", "Not an export that this node can open"),
            ),
        };
        let fault = self.fault();
        let status = own_status.unwrap_or_else(|| status_of(fault));
        problem(status, words, self.to_string(), fault)
    }
}
