//! How long a request may take, and who may keep whom waiting.

use std::time::Duration;

/// Time limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// CPU time of the instance.
    pub cpu: Duration,
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
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            cpu: Duration::from_secs(10),
            first_byte: Duration::from_secs(10),
            idle_client: Duration::from_secs(30),
            idle_guest: Duration::from_secs(60),
            total: None,
        }
    }
}

impl CallLimits {
    /// What a request has until its response must have begun.
    pub(crate) fn begins_within(&self) -> Duration {
        self.cpu.min(self.first_byte)
    }
}
