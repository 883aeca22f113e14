//! How long a request may take, and how long its client and its guest may keep each other waiting.

use std::time::Duration;

use faasw_abi::channel::CALLS;

/// Time limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvocationLimits {
    /// CPU time of the instance.
    pub cpu: Duration,
    /// The longest time between two checks of the CPU time. A check comes earlier if the limit may
    /// be reached before.
    pub cpu_check: Duration,
    /// Wall time until the head of the response is there, counted from the last bytes of the
    /// request that the function received.
    pub first_byte: Duration,
    /// How long the client may neither send what the function waits for nor take what waits for it.
    pub idle_client: Duration,
    /// How long the function may send nothing after its response has begun.
    pub idle_guest: Duration,
    /// Wall time of the whole invocation.
    pub total: Option<Duration>,
    /// How many outbound calls the function may have under way at once, at most
    /// [`CALLS`](faasw_abi::channel::CALLS).
    pub calls: usize,
    /// How long nothing may move on an outbound call in either direction. After that the call
    /// fails.
    pub idle_call: Duration,
    /// How long in total the function may wait for answers to outbound calls and nothing else,
    /// while [`InvocationLimits::first_byte`] and [`InvocationLimits::idle_guest`] stand still. It
    /// does not apply after the response was passed on.
    pub upstream: Duration,
}

impl Default for InvocationLimits {
    fn default() -> Self {
        Self {
            cpu: Duration::from_secs(10),
            cpu_check: Duration::MAX,
            first_byte: Duration::from_secs(10),
            idle_client: Duration::from_secs(30),
            idle_guest: Duration::from_secs(60),
            total: None,
            calls: CALLS,
            idle_call: Duration::from_secs(600),
            upstream: Duration::from_secs(600),
        }
    }
}

impl InvocationLimits {
    /// Returns the time within which the response must begin.
    pub(crate) fn begins_within(&self) -> Duration {
        self.cpu.min(self.first_byte)
    }
}
