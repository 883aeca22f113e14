//! Why options were refused.

use std::time::Duration;

use faasw_common::POLL_MAX;
use thiserror::Error;

use super::{
    LONGEST_SOURCE,
    given::{ARGUMENT_BYTES, CONFIGURATION_BYTES, LONGEST_KEY, MOST_ARGUMENTS},
    limits::{LEAST_MEMORY, LONGEST_TIME},
    reach::{MOST_OUTBOUND, MOST_SECRETS, MOST_STORES},
};
use crate::{Outbound, SecretName, spelling};

/// Why options were refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionsError {
    /// A variable that no environment can hold.
    #[error(
        "{0:?} cannot be an environment variable: a name is not empty and has neither = nor a zero \
         byte, a value has no zero byte"
    )]
    Environment(String),
    /// A key that no configuration can have.
    #[error(
        "{0:?} cannot be a key of the configuration: it has 1 to {LONGEST_KEY} bytes, without = \
         and control characters"
    )]
    Key(String),
    /// A configuration that is too large.
    #[error(
        "the configuration takes {0} bytes; keys and values take {CONFIGURATION_BYTES} at most"
    )]
    Configuration(usize),
    /// Too many shared stores.
    #[error("a function shares {MOST_STORES} stores at most, not {0}")]
    Stores(usize),
    /// Too many grants of requests.
    #[error("a function has {MOST_OUTBOUND} grants of outbound requests at most, not {0}")]
    Outbound(usize),
    /// Too many secrets.
    #[error("a function reads {MOST_SECRETS} secrets at most, not {0}")]
    Secrets(usize),
    /// A function is to read a secret, and not to.
    #[error("{0} cannot be both a secret that the function reads and one that is bound to hosts")]
    SecretReadAndBound(SecretName),
    /// Others could read it on its way, or anybody could be sent it.
    #[error("a secret is bound to `https://` and a host, not to {0}: that is who gets it")]
    SecretBound(Outbound),
    /// A secret is bound to too much.
    #[error("a secret is bound to {MOST_OUTBOUND} hosts at most, not {0}")]
    SecretHosts(usize),
    /// An argument that no program can have.
    #[error("an argument has no zero byte: {0:?}")]
    Argument(String),
    /// Too many arguments, or too long ones.
    #[error(
        "a function has {MOST_ARGUMENTS} arguments of {ARGUMENT_BYTES} bytes together at most, not \
         {0} of {1}"
    )]
    Arguments(usize, usize),
    /// A path that no files can be at.
    #[error(
        "{0:?} is no place for files: that is / or an absolute path, without a slash at its end, . \
         and .."
    )]
    FilesAt(String),
    /// What is no absolute path of a file.
    #[error("{0:?} is no file to be frozen at: that is an absolute path, without . and ..")]
    FreezeAt(String),
    /// A text that says nothing of where something came from.
    #[error("a source is told by 1 to {LONGEST_SOURCE} bytes without control characters")]
    Source,
    /// What it asks for by this name would be one or the other.
    #[error("{0} cannot be both a secret and a key of the configuration")]
    SecretInConfiguration(SecretName),
    /// Too little memory.
    #[error("a memory limit of {0} bytes is less than the least, {LEAST_MEMORY} bytes")]
    Memory(u64),
    /// No time, or too much.
    #[error("a limit {limit} of {} s is not between 1 ms and {} s", .value.as_secs_f64(), LONGEST_TIME.as_secs())]
    TimeLimit {
        /// Which one, as flags and parameters spell it.
        limit: &'static str,
        /// What was asked for.
        value: Duration,
    },
    /// An export that cannot be named, or is called too late to matter.
    #[error("{0}")]
    Init(&'static str),
    /// Requests that cannot warm the function up.
    #[error("{0}")]
    WarmUps(&'static str),
    /// Instances that look for longer than is sensible.
    #[error(
        "instances look for requests for {} at most",
        spelling::poll::word(POLL_MAX)
    )]
    Poll,
    /// No request could ever run.
    #[error("a concurrency of 0 would refuse every request; remove the function instead")]
    Concurrency,
}
