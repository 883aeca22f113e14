//! Whose doing it is that something was not deployed, changed or found, and in which manner it
//! failed: what the statuses of the admin API follow from, and whether to try again
//! ([`Manner::NoRoom`]).

use faasw_pool::{Fault, Manner};

use crate::{
    error::{DeployError, EngineError, FilesRefused, FunctionError, ImportError, RollbackError},
    registry::RegistryError,
};

impl RegistryError {
    /// Whose doing it is, and in which manner it failed.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            // Whoever added or removed an engine meanwhile.
            Self::EngineGone(_) => (Fault::Caller, Manner::Failed),
            // A full disk stays full until somebody makes room.
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
    /// Whose doing it is, and in which manner it failed.
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
    /// Whose doing it is, and in which manner it failed.
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
    /// Whose doing it is, and in which manner it failed.
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
    /// Whose doing it is, and in which manner it failed.
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
    /// Whose doing it is, and in which manner it failed.
    #[must_use]
    pub fn fault(&self) -> (Fault, Manner) {
        match self {
            Self::NoKey | Self::BrokenOff(_) => (Fault::Caller, Manner::Failed),
            Self::TimedOut(_) => (Fault::Caller, Manner::TimedOut),
            // Of what was sent.
            Self::Parcel(_) | Self::Manifest(_) | Self::Module => (Fault::Function, Manner::Failed),
            Self::Deploy(error) => error.fault(),
        }
    }
}
