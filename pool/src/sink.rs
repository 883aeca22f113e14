//! Who is told of a request: its log, where its time went, and what it took.
//!
//! Whoever observes the pool implements [`LogSink`]; everything that is observed is above
//! this module and calls it.

use std::time::Duration;

pub use faasw_common::LogStream;

use crate::error::InvokeError;

/// Where the time of a request went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The instance's number: unlike any other's of the pool, in no order.
    pub instance: u64,
    /// Waiting for a sandbox.
    pub queue: Duration,
    /// Turning the sandbox into an instance.
    pub fork: Duration,
    /// In the guest, from its resumption to the handler; the guest's word.
    pub init: Duration,
    /// In the handler; the guest's word.
    pub exec: Duration,
    /// From the activation to the end of the run.
    pub run: Duration,
    /// What kind of microVM served the request.
    pub served: Served,
}

/// What kind of microVM served a request, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Served {
    /// A parked instance of the function: specialised, reset and warm.
    Parked,
    /// An instance of the function that has not run yet.
    Ready,
    /// A zygote, turned into an instance for this request.
    Zygote,
    /// A sandbox forked from what all functions share, because the function's own
    /// seed is not in memory.
    Ancestor,
    /// A sandbox made for this request.
    #[default]
    Made,
}

impl Served {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Parked,
        Self::Ready,
        Self::Zygote,
        Self::Ancestor,
        Self::Made,
    ];

    /// Its name in headers and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Ready => "ready",
            Self::Zygote => "zygote",
            Self::Ancestor => "ancestor",
            Self::Made => "made",
        }
    }
}

/// What a request took of its microVM, known when that has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Exits from the VM to its sandbox.
    pub exits: u64,
    /// Page faults that KVM fixed for the VM.
    pub page_faults: u64,
    /// What bringing it back to its seed's state took, if it was.
    pub reset: Option<ResetEffort>,
}

/// What a reset did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetEffort {
    /// Pages filled again from the seed.
    pub filled: u64,
    /// Private pages that were not in the write set.
    pub outside: u64,
    /// Private pages of the write set that were as the seed has them; counted now and
    /// then.
    pub unused: Option<u64>,
    /// Time it took.
    pub took: Duration,
}

/// Takes a function's log, line by line.
pub trait LogSink: Send + Sync + std::fmt::Debug {
    /// An instance with this number is about to run; its lines follow.
    fn begins(&self, instance: u64) {
        let _ = instance;
    }

    /// One line without its line break; at most 16 KiB, longer ones come in parts.
    fn line(&self, instance: u64, stream: LogStream, line: &[u8]);

    /// An instance has stopped after a request that did not fail. Comes after
    /// the response.
    fn retired(&self, instance: u64, effort: &Effort) {
        let _ = (instance, effort);
    }

    /// CPU time that an instance has used for the request, bringing it back or ending it
    /// included. Comes when that is over, so after the response, also after a request that
    /// failed or whose client went away.
    fn charged(&self, instance: u64, cpu: Duration) {
        let _ = (instance, cpu);
    }

    /// An instance whose response had begun has come to its end; or it has misbehaved
    /// after that, and was ended.
    fn stream_ended(&self, result: Result<&Timing, &InvokeError>) {
        let _ = result;
    }
}
