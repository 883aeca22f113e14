//! The interface for observers of a request: its log, its timing, and the resources it used.
//!
//! Observers of the pool implement [`LogSink`]; the modules above this one call it.

use std::time::Duration;

pub use faasw_common::LogStream;

use crate::error::InvokeError;

/// The timing of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The instance's number: unique in the pool, in no order.
    pub instance: u64,
    /// The time spent waiting for a sandbox.
    pub queue: Duration,
    /// The time spent turning the sandbox into an instance.
    pub fork: Duration,
    /// The time in the guest from its resumption to the handler, as the guest reports it.
    pub init: Duration,
    /// The time in the handler, as the guest reports it.
    pub exec: Duration,
    /// The time from the activation to the end of the run.
    pub run: Duration,
    /// The kind of sandbox that served the request.
    pub served: Served,
}

/// The kind of sandbox that served a request, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Served {
    /// A warm instance of the function: specialised, reset and warm.
    Warm,
    /// An instance of the function that has not run yet.
    Ready,
    /// A zygote, turned into an instance for this request.
    Zygote,
    /// A sandbox forked from a seed that all functions share, because the function's own seed is
    /// not in memory.
    Ancestor,
    /// A sandbox made for this request.
    #[default]
    Made,
}

impl Served {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Warm,
        Self::Ready,
        Self::Zygote,
        Self::Ancestor,
        Self::Made,
    ];

    /// Returns the name that headers and metrics use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Ready => "ready",
            Self::Zygote => "zygote",
            Self::Ancestor => "ancestor",
            Self::Made => "made",
        }
    }
}

/// The resources that a request used in its sandbox, known once the sandbox has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Exits from the VM to its sandbox.
    pub exits: u64,
    /// Page faults that KVM fixed for the VM.
    pub page_faults: u64,
    /// The effort of the reset to the seed's state, if there was a reset.
    pub reset: Option<ResetEffort>,
}

/// The effort of a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetEffort {
    /// Pages filled again from the seed.
    pub filled: u64,
    /// Private pages that were not in the write set.
    pub outside: u64,
    /// Private pages of the write set that were identical to the seed's; counted only in some
    /// resets.
    pub unused: Option<u64>,
    /// The duration of the reset.
    pub took: Duration,
}

/// Receives a function's log, line by line.
pub trait LogSink: Send + Sync + std::fmt::Debug {
    /// Reports that the instance with this number is about to run; its lines follow.
    fn begins(&self, instance: u64) {
        let _ = instance;
    }

    /// Reports one line without its line break, of at most 16 KiB. Longer lines arrive in parts.
    fn line(&self, instance: u64, stream: LogStream, line: &[u8]);

    /// Reports the effort of an instance that has stopped by itself after its request, also if the
    /// function failed. Not called for an instance that was ended before it stopped, or whose reset
    /// failed. Follows the response.
    fn retired(&self, instance: u64, effort: &Effort) {
        let _ = (instance, effort);
    }

    /// Reports the CPU time that an instance used for the request, including its reset or its end.
    /// The report follows the response. It is also sent after a request that failed or whose client
    /// disconnected.
    fn charged(&self, instance: u64, cpu: Duration) {
        let _ = (instance, cpu);
    }

    /// Reports that an instance whose response had begun has finished, or that it misbehaved after
    /// that and was ended.
    fn stream_ended(&self, result: Result<&Timing, &InvokeError>) {
        let _ = result;
    }
}
