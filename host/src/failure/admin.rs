//! Why a deployment, or what else the node's operator asked for, was not done: what a client of
//! the admin API sees. It is the operator, so nothing is held back.
//!
//! Each error says whose doing it is, and a status follows from that ([`status_of`]). Beside
//! those there are three that no fault says: that there is no such thing (404), that something
//! else is in the way (409), and that the disk is full (507).

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

/// The status of what was not done by a fault, where nothing more is known of it.
fn status_of(fault: (Fault, Manner)) -> StatusCode {
    match fault {
        (_, Manner::NoRoom) => StatusCode::SERVICE_UNAVAILABLE,
        // What was asked for is understood; what was sent cannot do it.
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
    /// What a client of the admin API sees.
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
    /// What a client of the admin API sees.
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
    /// What a client of the admin API sees.
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
    /// What a client of the admin API sees.
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
    /// What a client of the admin API sees.
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
