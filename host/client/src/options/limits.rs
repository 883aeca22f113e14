//! Options for limits of a function: memory, times, concurrent requests, and polling.

use std::time::Duration;

use faasw_common::POLL_MAX;

use super::{FunctionOptions, OptionsError};
use crate::TimeLimit;

/// Minimum memory limit in bytes: one Wasm page.
pub(super) const LEAST_MEMORY: u64 = 64 << 10;

/// Maximum time limit. A request that holds a microVM for more than a day is a job, not a request.
pub(super) const LONGEST_TIME: Duration = Duration::from_secs(24 * 3600);

impl FunctionOptions {
    /// Sets the maximum size of the function's linear memories together, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets the maximum CPU time of a request's instance.
    #[must_use]
    pub fn cpu_time(self, limit: Duration) -> Self {
        self.time(TimeLimit::CpuTime, limit)
    }

    /// Sets the maximum wall time from the fork to the first byte of the response.
    #[must_use]
    pub fn first_byte(self, limit: Duration) -> Self {
        self.time(TimeLimit::Timeout, limit)
    }

    /// Sets how long a client may neither take nor send data while the function waits for it.
    #[must_use]
    pub fn idle_client(self, limit: Duration) -> Self {
        self.time(TimeLimit::IdleClient, limit)
    }

    /// Sets how long the function may neither take nor send data after its first byte.
    #[must_use]
    pub fn idle_guest(self, limit: Duration) -> Self {
        self.time(TimeLimit::IdleGuest, limit)
    }

    /// Sets the maximum wall time from the fork to the end of the request.
    #[must_use]
    pub fn total_time(self, limit: Duration) -> Self {
        self.time(TimeLimit::TotalTime, limit)
    }

    /// Sets one of the time limits.
    #[must_use]
    pub fn time(mut self, limit: TimeLimit, value: Duration) -> Self {
        let microseconds = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.times_us.insert(limit, microseconds);
        self
    }

    /// Sets the maximum number of concurrent requests of the function, over all versions. Further
    /// requests are answered with 503.
    #[must_use]
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = Some(requests);
        self
    }

    /// Returns the memory limit in bytes, unless the node's default applies.
    #[must_use]
    pub fn own_memory(&self) -> Option<u64> {
        self.memory
    }

    /// Returns the memory limit in bytes, or `default` if the node's default applies.
    #[must_use]
    pub fn memory_or(&self, default: u64) -> u64 {
        self.memory.unwrap_or(default)
    }

    /// Returns the time limits that the function sets itself.
    pub fn own_times(&self) -> impl Iterator<Item = (TimeLimit, Duration)> {
        self.times_us
            .iter()
            .map(|(limit, microseconds)| (*limit, Duration::from_micros(*microseconds)))
    }

    /// Returns a time limit, unless the node's default applies.
    #[must_use]
    pub fn own_time(&self, limit: TimeLimit) -> Option<Duration> {
        self.times_us
            .get(&limit)
            .copied()
            .map(Duration::from_micros)
    }

    /// Returns the maximum number of concurrent requests, if the function has a limit of its own.
    #[must_use]
    pub fn own_concurrency(&self) -> Option<usize> {
        self.concurrency
    }

    /// Sets how long an instance of the function polls for the next request at most, instead of the
    /// node's setting. Zero disables polling.
    #[must_use]
    pub fn poll(mut self, most: Duration) -> Self {
        self.poll_us = Some(u64::try_from(most.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// Returns the maximum polling time, unless the node's setting applies.
    #[must_use]
    pub fn own_poll(&self) -> Option<Duration> {
        self.poll_us.map(Duration::from_micros)
    }

    /// Checks constraints that the types do not express.
    pub(super) fn check_limits(&self) -> Result<(), OptionsError> {
        if let Some(bytes) = self.memory.filter(|bytes| *bytes < LEAST_MEMORY) {
            return Err(OptionsError::Memory(bytes));
        }
        for (limit, value) in self.own_times() {
            if value < Duration::from_millis(1) || value > LONGEST_TIME {
                let limit = limit.word();
                return Err(OptionsError::TimeLimit { limit, value });
            }
        }
        if self.own_poll().is_some_and(|most| most > POLL_MAX) {
            return Err(OptionsError::Poll);
        }
        if self.concurrency == Some(0) {
            return Err(OptionsError::Concurrency);
        }
        Ok(())
    }
}
