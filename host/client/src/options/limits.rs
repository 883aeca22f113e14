//! What a function may take: memory, times, requests at once, and looking for the next one.

use std::time::Duration;

use faasw_common::POLL_MAX;

use super::{FunctionOptions, OptionsError};
use crate::TimeLimit;

/// Least memory limit: one Wasm page, in bytes.
pub(super) const LEAST_MEMORY: u64 = 64 << 10;

/// Longest time limit. A request that may hold a microVM for longer than a
/// day is a job, not a request.
pub(super) const LONGEST_TIME: Duration = Duration::from_secs(24 * 3600);

impl FunctionOptions {
    /// Sets the most memory that the function's linear memories may take together, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets the CPU time that a request's instance may take.
    #[must_use]
    pub fn cpu_time(self, limit: Duration) -> Self {
        self.time(TimeLimit::CpuTime, limit)
    }

    /// Sets the wall time from the fork to the first byte of the response.
    #[must_use]
    pub fn first_byte(self, limit: Duration) -> Self {
        self.time(TimeLimit::Timeout, limit)
    }

    /// Sets for how long a client may take or send nothing while the function
    /// waits for it.
    #[must_use]
    pub fn idle_client(self, limit: Duration) -> Self {
        self.time(TimeLimit::IdleClient, limit)
    }

    /// Sets for how long the function may take or send nothing after its
    /// first byte.
    #[must_use]
    pub fn idle_guest(self, limit: Duration) -> Self {
        self.time(TimeLimit::IdleGuest, limit)
    }

    /// Sets the wall time from the fork to the end of the request.
    #[must_use]
    pub fn total_time(self, limit: Duration) -> Self {
        self.time(TimeLimit::TotalTime, limit)
    }

    /// Sets one of the times.
    #[must_use]
    pub fn time(mut self, limit: TimeLimit, value: Duration) -> Self {
        let microseconds = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.times_us.insert(limit, microseconds);
        self
    }

    /// Sets how many requests of the function run at once, whatever their
    /// versions; further ones are answered with 503.
    #[must_use]
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = Some(requests);
        self
    }

    /// The memory limit in bytes, unless it follows the node's.
    #[must_use]
    pub fn own_memory(&self) -> Option<u64> {
        self.memory
    }

    /// The memory limit in bytes; `default` where it follows the node's.
    #[must_use]
    pub fn memory_or(&self, default: u64) -> u64 {
        self.memory.unwrap_or(default)
    }

    /// The time limits that do not follow the node's.
    pub fn own_times(&self) -> impl Iterator<Item = (TimeLimit, Duration)> {
        self.times_us
            .iter()
            .map(|(limit, microseconds)| (*limit, Duration::from_micros(*microseconds)))
    }

    /// A time limit, unless it follows the node's.
    #[must_use]
    pub fn own_time(&self, limit: TimeLimit) -> Option<Duration> {
        self.times_us
            .get(&limit)
            .copied()
            .map(Duration::from_micros)
    }

    /// Most requests at once, if the function has a limit of its own.
    #[must_use]
    pub fn own_concurrency(&self) -> Option<usize> {
        self.concurrency
    }

    /// Sets for how long an instance of the function looks for the next request by itself at most,
    /// whatever the node's functions do otherwise; not at all, with no time.
    #[must_use]
    pub fn poll(mut self, most: Duration) -> Self {
        self.poll_us = Some(u64::try_from(most.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// How long its instances look for requests at most, unless that follows the node's.
    #[must_use]
    pub fn own_poll(&self) -> Option<Duration> {
        self.poll_us.map(Duration::from_micros)
    }

    /// Checks what the types cannot.
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
