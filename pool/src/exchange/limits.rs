//! How long a request may take, and who may keep whom waiting.

use std::time::Duration;

use faasw_abi::channel::CALLS;

/// Time limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// CPU time of the instance.
    pub cpu: Duration,
    /// The longest time from one look at the CPU time to the next. The first look is when the time
    /// since the begin allows the limit to be reached.
    pub cpu_check: Duration,
    /// Wall time until the response's head is there, counted from the last byte
    /// of the request that the function was given.
    pub first_byte: Duration,
    /// How long the client may neither send what the function waits for nor
    /// take what waits for it.
    pub idle_client: Duration,
    /// How long the function may send nothing once its response has begun.
    pub idle_guest: Duration,
    /// Wall time of the whole exchange.
    pub total: Option<Duration>,
    /// How many requests of its own the function may have under way at once, at most
    /// [`CALLS`](faasw_abi::channel::CALLS).
    pub calls: usize,
    /// How long nothing may pass on a request of the function's own, either way: it fails then.
    pub idle_call: Duration,
    /// How long the function may wait for others' answers and nothing else, in all, while neither
    /// [`CallLimits::first_byte`] nor [`CallLimits::idle_guest`] goes on; not once its response was
    /// passed on.
    pub upstream: Duration,
}

impl Default for CallLimits {
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

impl CallLimits {
    /// What a request has until its response must have begun.
    pub(crate) fn begins_within(&self) -> Duration {
        self.cpu.min(self.first_byte)
    }
}
