//! Why a container is not started.

use std::{fmt::Display, io};

use thiserror::Error;

/// Each ends what was asked for, and is what `kubectl describe pod` shows.
#[derive(Debug, Error)]
pub enum Error {
    /// This host cannot have microVMs, or is not set up for them.
    #[error("this host cannot run functions of faasw: {0}")]
    Host(String),
    /// containerd, or who configured it, asks for what there is not.
    #[error("{0}")]
    Refused(String),
    /// The image has no module that could be run.
    #[error("the image cannot be run as a function: {0}")]
    Image(String),
    /// Annotations, of the artifact or of the pod, say something that cannot be.
    #[error("annotation {name}: {why}")]
    Annotation {
        /// Which one.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// containerd did not answer, or not as it should.
    #[error("containerd: {0}")]
    Containerd(String),
    /// A file cannot be read or written, or a program not be executed.
    #[error("{what}: {error}")]
    Io {
        /// What was to be done.
        what: String,
        /// The system's answer.
        error: io::Error,
    },
}

impl Error {
    /// Of what the system says.
    pub fn io(what: impl Display, error: impl Into<io::Error>) -> Self {
        Self::Io {
            what: what.to_string(),
            error: error.into(),
        }
    }

    /// Of an image.
    pub fn image(why: impl Into<String>) -> Self {
        Self::Image(why.into())
    }

    /// Of an annotation.
    pub fn annotation(name: &str, why: impl Display) -> Self {
        Self::Annotation {
            name: name.to_owned(),
            why: why.to_string(),
        }
    }
}
