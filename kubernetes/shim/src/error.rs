//! Reasons why a container is not started.

use std::{fmt::Display, io};

use thiserror::Error;

/// An error of the shim. Each ends the requested operation; `kubectl describe pod` shows it.
#[derive(Debug, Error)]
pub enum Error {
    /// The host cannot run microVMs, or is not set up for them.
    #[error("this host cannot run functions of faasw: {0}")]
    Host(String),
    /// containerd, its configuration or a pod requests something unsupported or malformed.
    #[error("{0}")]
    Refused(String),
    /// The image has no module that can be run.
    #[error("the image cannot be run as a function: {0}")]
    Image(String),
    /// An annotation of the artifact or of the pod is unknown or has an invalid value.
    #[error("annotation {name}: {why}")]
    Annotation {
        /// The annotation's name.
        name: String,
        /// The reason.
        why: String,
    },
    /// containerd did not answer, or answered with an error or an unreadable message.
    #[error("containerd: {0}")]
    Containerd(String),
    /// A file cannot be read or written, or a program cannot be executed.
    #[error("{what}: {error}")]
    Io {
        /// The operation or the file.
        what: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl Error {
    /// Returns an [`Error::Io`].
    pub fn io(what: impl Display, error: impl Into<io::Error>) -> Self {
        Self::Io {
            what: what.to_string(),
            error: error.into(),
        }
    }

    /// Returns an [`Error::Image`].
    pub fn image(why: impl Into<String>) -> Self {
        Self::Image(why.into())
    }

    /// Returns an [`Error::Annotation`].
    pub fn annotation(name: &str, why: impl Display) -> Self {
        Self::Annotation {
            name: name.to_owned(),
            why: why.to_string(),
        }
    }
}
