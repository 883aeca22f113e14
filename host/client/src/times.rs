//! The kinds of time that a request may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spelling;

/// The times that hold for a request: the function's own where it set them,
/// else the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLimits {
    /// CPU time of the instance.
    #[serde(rename = "cpu_time_us", with = "spelling::microseconds")]
    pub cpu_time: Duration,
    /// From the fork to the first byte of the response.
    #[serde(rename = "first_byte_us", with = "spelling::microseconds")]
    pub first_byte: Duration,
    /// Without progress of the client while the function waits for it.
    #[serde(rename = "idle_client_us", with = "spelling::microseconds")]
    pub idle_client: Duration,
    /// Without progress of the function after its first byte.
    #[serde(rename = "idle_guest_us", with = "spelling::microseconds")]
    pub idle_guest: Duration,
    /// From the fork to the end; nothing is no limit.
    #[serde(rename = "total_time_us", with = "spelling::optional_microseconds")]
    pub total_time: Option<Duration>,
}

/// A kind of time that can be limited. The same word is the flag of the command
/// line, the parameter of the admin API and the key in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeLimit {
    /// CPU time of the instance.
    CpuTime,
    /// To the first byte.
    Timeout,
    /// Without progress of the client.
    IdleClient,
    /// Without progress of the function.
    IdleGuest,
    /// To the end.
    TotalTime,
}

impl TimeLimit {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::CpuTime => "cpu-time",
            Self::Timeout => "timeout",
            Self::IdleClient => "idle-client",
            Self::IdleGuest => "idle-guest",
            Self::TotalTime => "total-time",
        }
    }

    /// The kind that a word stands for, if any.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::CpuTime,
            Self::Timeout,
            Self::IdleClient,
            Self::IdleGuest,
            Self::TotalTime,
        ]
        .into_iter()
        .find(|limit| limit.word() == word)
    }
}
