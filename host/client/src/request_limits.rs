//! The time limits of a request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spelling;

/// The time limits of a request: those of the function, or else the node's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLimits {
    /// The CPU time of the instance.
    #[serde(rename = "cpu_time_us", with = "spelling::microseconds")]
    pub cpu_time: Duration,
    /// The time from the fork to the first byte of the response.
    #[serde(rename = "first_byte_us", with = "spelling::microseconds")]
    pub first_byte: Duration,
    /// The time without progress of the client while the function waits for it.
    #[serde(rename = "idle_client_us", with = "spelling::microseconds")]
    pub idle_client: Duration,
    /// The time without progress of the function after its first byte.
    #[serde(rename = "idle_guest_us", with = "spelling::microseconds")]
    pub idle_guest: Duration,
    /// The time from the fork to the end. `None` means unlimited.
    #[serde(rename = "total_time_us", with = "spelling::optional_microseconds")]
    pub total_time: Option<Duration>,
}

impl RequestLimits {
    /// Returns one of the limits. `None` means unlimited.
    #[must_use]
    pub fn of(&self, limit: TimeLimit) -> Option<Duration> {
        match limit {
            TimeLimit::CpuTime => Some(self.cpu_time),
            TimeLimit::Timeout => Some(self.first_byte),
            TimeLimit::IdleClient => Some(self.idle_client),
            TimeLimit::IdleGuest => Some(self.idle_guest),
            TimeLimit::TotalTime => self.total_time,
        }
    }
}

/// A kind of time limit. The flag of the command line, the annotation of artifacts and the key in
/// JSON are the same word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeLimit {
    /// The CPU time of the instance.
    CpuTime,
    /// The time to the first byte.
    Timeout,
    /// The time without progress of the client.
    IdleClient,
    /// The time without progress of the function.
    IdleGuest,
    /// The time to the end.
    TotalTime,
}

impl TimeLimit {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::CpuTime,
        Self::Timeout,
        Self::IdleClient,
        Self::IdleGuest,
        Self::TotalTime,
    ];

    /// Returns the word for the limit.
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

    /// Returns the limit for a word, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.word() == word)
    }
}
