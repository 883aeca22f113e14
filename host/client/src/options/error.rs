//! Errors in the options of a deployment.

use std::time::Duration;

use faasw_common::POLL_MAX;
use thiserror::Error;

use super::{
    LONGEST_SOURCE,
    access::{MOST_OUTBOUND, MOST_SECRETS, MOST_STORES},
    inputs::{ARGUMENT_BYTES, CONFIGURATION_BYTES, LONGEST_KEY, MOST_ARGUMENTS},
    limits::{LEAST_MEMORY, LONGEST_TIME},
};
use crate::{Outbound, SecretName, spelling};

/// The reason why options are invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionsError {
    /// A variable is not valid in an environment.
    #[error(
        "{0:?} cannot be an environment variable: a name is not empty and has neither = nor a zero \
         byte, a value has no zero byte"
    )]
    Environment(String),
    /// A key is not valid in a configuration.
    #[error(
        "{0:?} cannot be a key of the configuration: it has 1 to {LONGEST_KEY} bytes, without = \
         and control characters"
    )]
    Key(String),
    /// The configuration is too large.
    #[error(
        "the configuration takes {0} bytes; keys and values take {CONFIGURATION_BYTES} at most"
    )]
    Configuration(usize),
    /// There are too many shared stores.
    #[error("a function shares {MOST_STORES} stores at most, not {0}")]
    Stores(usize),
    /// There are too many grants of outbound requests.
    #[error("a function has {MOST_OUTBOUND} grants of outbound requests at most, not {0}")]
    Outbound(usize),
    /// There are too many secrets.
    #[error("a function reads {MOST_SECRETS} secrets at most, not {0}")]
    Secrets(usize),
    /// A secret is both readable by the function and bound to hosts.
    #[error("{0} cannot be both a secret that the function reads and one that is bound to hosts")]
    SecretReadAndBound(SecretName),
    /// A secret is bound to a destination without TLS, which exposes it on the way, or to one that
    /// is not a host, so that anyone could receive it.
    #[error("a secret is bound to `https://` and a host, not to {0}: that is who gets it")]
    SecretBound(Outbound),
    /// A secret is bound to too many hosts.
    #[error("a secret is bound to {MOST_OUTBOUND} hosts at most, not {0}")]
    SecretHosts(usize),
    /// An argument has a zero byte.
    #[error("an argument has no zero byte: {0:?}")]
    Argument(String),
    /// There are too many arguments, or they are too long.
    #[error(
        "a function has {MOST_ARGUMENTS} arguments of {ARGUMENT_BYTES} bytes together at most, not \
         {0} of {1}"
    )]
    Arguments(usize, usize),
    /// A path is not a valid place for files.
    #[error(
        "{0:?} is no place for files: that is / or an absolute path, without a slash at its end, . \
         and .."
    )]
    FilesAt(String),
    /// A path is not a valid absolute path of a file.
    #[error("{0:?} is no file to be frozen at: that is an absolute path, without . and ..")]
    FreezeAt(String),
    /// A source is empty, too long, or has control characters.
    #[error("a source has 1 to {LONGEST_SOURCE} bytes without control characters")]
    Source,
    /// A name is both a secret and a key of the configuration, so a lookup would be ambiguous.
    #[error("{0} cannot be both a secret and a key of the configuration")]
    SecretInConfiguration(SecretName),
    /// The memory limit is too low.
    #[error("a memory limit of {0} bytes is less than the least, {LEAST_MEMORY} bytes")]
    Memory(u64),
    /// A time limit is out of range.
    #[error(
        "a limit {limit} of {} s is not between 1 ms and {} s",
        .value.as_secs_f64(),
        LONGEST_TIME.as_secs()
    )]
    TimeLimit {
        /// The limit, as flags and parameters spell it.
        limit: &'static str,
        /// The requested value.
        value: Duration,
    },
    /// The initialising export has an invalid name, or the freeze policy excludes it.
    #[error("{0}")]
    Init(&'static str),
    /// The warm-up requests are too large, or the freeze policy excludes them.
    #[error("{0}")]
    WarmUps(&'static str),
    /// The polling time is too long.
    #[error(
        "instances look for requests for {} at most",
        spelling::poll::word(POLL_MAX)
    )]
    Poll,
    /// A concurrency of 0 would reject every request.
    #[error("a concurrency of 0 would refuse every request; remove the function instead")]
    Concurrency,
}
