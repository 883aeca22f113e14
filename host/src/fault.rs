//! The fault and the manner of failures to deploy, change or find something. The statuses of the
//! admin API follow from both, and so does whether to retry ([`Manner::NoRoom`]).

use faasw_pool::{Fault, Manner};

use crate::{
    error::{DeployError, EngineError, FilesRefused, FunctionError, ImportError, RollbackError},
    registry::RegistryError,
};

impl RegistryError {
    /// Returns whose fault the error is, and the manner of the failure.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            // An engine was added or removed by another client in the meantime.
            Self::EngineGone(_) => (Fault::Caller, Manner::Failed),
            // A full disk stays full until an operator frees space, so a retry is not suggested.
            Self::NoSpace
            | Self::Store(_)
            | Self::File { .. }
            | Self::Format { .. }
            | Self::Record { .. }
            | Self::VersionMissing { .. }
            | Self::Module(_)
            | Self::Engine(_)
            | Self::Interrupted => (Fault::Platform, Manner::Failed),
        }
    }
}

impl DeployError {
    /// Returns whose fault the error is, and the manner of the failure.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::Name(_)
            | Self::Options(_)
            | Self::HostTaken { .. }
            | Self::HostOfDomain { .. } => (Fault::Caller, Manner::Failed),
            Self::TooLarge { .. } => (Fault::Caller, Manner::TooLarge),
            Self::Script(_) | Self::NoEngine { .. } | Self::NotInitialised(_) => {
                (Fault::Function, Manner::Failed)
            }
            Self::Files(FilesRefused::Missing) => (Fault::Caller, Manner::Failed),
            Self::Files(FilesRefused::Upload(_) | FilesRefused::OfScript) => {
                (Fault::Function, Manner::Failed)
            }
            Self::Files(FilesRefused::Bundle(error)) | Self::Compile(error) => error.fault(),
            Self::Seed(error) => error.fault(),
            Self::Registry(error) => error.fault(),
            Self::ShuttingDown => (Fault::Platform, Manner::NoRoom),
        }
    }
}

impl EngineError {
    /// Returns whose fault the error is, and the manner of the failure.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::Unknown(_) | Self::Taken { .. } | Self::Extensions(_) => {
                (Fault::Caller, Manner::Failed)
            }
            Self::NotAnEngine => (Fault::Function, Manner::Failed),
            Self::NotReady(error) => error.fault(),
        }
    }
}

impl RollbackError {
    /// Returns whose fault the error is, and the manner of the failure.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::Unknown(_)
            | Self::NoVersion { .. }
            | Self::NothingBefore(_)
            | Self::Overtaken(_) => (Fault::Caller, Manner::Failed),
            Self::NotReady(error) => error.fault(),
        }
    }
}

impl FunctionError {
    /// Returns whose fault the error is, and the manner of the failure.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::Unknown(_) | Self::NoImage { .. } | Self::NotExported { .. } => {
                (Fault::Caller, Manner::Failed)
            }
            Self::BadImage { .. } => (Fault::Platform, Manner::Failed),
            Self::NotReady(error) => error.fault(),
            Self::Registry(error) => error.fault(),
        }
    }
}

impl ImportError {
    /// Returns whose fault the error is, and the manner of the failure.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::NoKey | Self::BrokenOff(_) => (Fault::Caller, Manner::Failed),
            Self::TimedOut(_) => (Fault::Caller, Manner::TimedOut),
            // The uploaded export is at fault.
            Self::Parcel(_) | Self::Manifest(_) | Self::Module => (Fault::Function, Manner::Failed),
            Self::Deploy(error) => error.fault(),
        }
    }
}
