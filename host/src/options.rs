//! What a deployment may choose about its function.

use std::time::Duration;

use faasw_pool::FreezePolicy;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::spelling;

/// Least memory limit: one Wasm page, in bytes.
const LEAST_MEMORY: u64 = 64 << 10;

/// Longest time limit. A request that may hold a microVM for longer than an
/// hour is a job, not a request.
const LONGEST_TIME: Duration = Duration::from_secs(3600);

/// Options of one function; what is left out follows the node's [`crate::Limits`].
///
/// ```
/// use std::time::Duration;
/// use faasw::FunctionOptions;
///
/// let options = FunctionOptions::default()
///     .env("GREETING", "hello")
///     .memory(64 << 20)
///     .time_limit(Duration::from_millis(500));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionOptions {
    environment: Vec<(String, String)>,
    /// Bytes.
    memory: Option<u64>,
    /// Microseconds, as `spelling::microseconds` has it.
    time_limit_us: Option<u64>,
    #[serde(with = "spelling::freeze")]
    freeze: FreezePolicy,
}

/// Why options were refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionsError {
    /// A variable that no environment can hold.
    #[error(
        "{0:?} cannot be an environment variable: a name is not empty and has neither = nor a zero byte, a value has no zero byte"
    )]
    Environment(String),
    /// Too little memory.
    #[error("a memory limit of {0} bytes is less than the least, {LEAST_MEMORY} bytes")]
    Memory(u64),
    /// No time, or too much.
    #[error("a time limit of {} s is not between 1 ms and {} s", .0.as_secs_f64(), LONGEST_TIME.as_secs())]
    TimeLimit(Duration),
}

impl FunctionOptions {
    /// Adds an environment variable; a later one of the same name replaces it.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.environment.retain(|(other, _)| *other != name);
        self.environment.push((name, value.into()));
        self
    }

    /// Sets the most memory that the function's linear memories may take together, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets the wall time that a request may take, from the fork to the response.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit_us = Some(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// Sets when the function's seed is frozen.
    #[must_use]
    pub fn freeze(mut self, policy: FreezePolicy) -> Self {
        self.freeze = policy;
        self
    }

    pub(crate) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// The memory limit in bytes, unless it follows the node's.
    pub(crate) fn own_memory(&self) -> Option<u64> {
        self.memory
    }

    /// The time limit, unless it follows the node's.
    pub(crate) fn own_time_limit(&self) -> Option<Duration> {
        self.time_limit_us.map(Duration::from_micros)
    }

    pub(crate) fn memory_or(&self, default: u64) -> u64 {
        self.memory.unwrap_or(default)
    }

    pub(crate) fn time_limit_or(&self, default: Duration) -> Duration {
        self.own_time_limit().unwrap_or(default)
    }

    pub(crate) fn freeze_policy(&self) -> FreezePolicy {
        self.freeze
    }

    /// Checks what the types cannot.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(OptionsError::Environment(name.clone()));
            }
        }
        if let Some(bytes) = self.memory.filter(|bytes| *bytes < LEAST_MEMORY) {
            return Err(OptionsError::Memory(bytes));
        }
        if let Some(limit) = self.own_time_limit()
            && (limit < Duration::from_millis(1) || limit > LONGEST_TIME)
        {
            return Err(OptionsError::TimeLimit(limit));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_follows_the_node() {
        let options = FunctionOptions::default();
        assert_eq!(options.memory_or(7), 7);
        assert_eq!(
            options.time_limit_or(Duration::from_secs(7)),
            Duration::from_secs(7)
        );
        assert_eq!(options.check(), Ok(()));
        let read: FunctionOptions = serde_json::from_str("{}").unwrap();
        assert_eq!(read, options);
    }

    #[test]
    fn the_last_value_of_a_variable_counts() {
        let options = FunctionOptions::default()
            .env("A", "1")
            .env("B", "2")
            .env("A", "3");
        let expected = [("B".into(), "2".into()), ("A".into(), "3".into())];
        assert_eq!(options.environment(), expected);
    }

    #[test]
    fn impossible_options_are_refused() {
        let default = FunctionOptions::default;
        for name in ["", "A=B", "A\0"] {
            assert!(matches!(
                default().env(name, "x").check(),
                Err(OptionsError::Environment(_))
            ));
        }
        assert!(default().env("A", "x\0").check().is_err());
        assert_eq!(default().memory(1).check(), Err(OptionsError::Memory(1)));
        for limit in [Duration::ZERO, Duration::from_secs(3601)] {
            assert_eq!(
                default().time_limit(limit).check(),
                Err(OptionsError::TimeLimit(limit))
            );
        }
    }
}
