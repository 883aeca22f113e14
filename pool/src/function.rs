//! What a function is to the pool, and what goes in and out of a run.

use std::{sync::Arc, time::Duration};

use faasw_abi::wire::{Pair, RequestHead, ResponseHead};
use serde::{Deserialize, Serialize};

use crate::backlog::Account;
use crate::body::{ReplyBody, RequestBody};
use crate::error::InvokeError;
use crate::limits::CallLimits;

/// When a function's seed is frozen (DESIGN, freeze policy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreezePolicy {
    /// After instantiation, unless that drew entropy; then before it.
    #[default]
    Auto,
    /// Before instantiation: each request instantiates anew.
    BeforeInit,
    /// After instantiation, whatever it drew: requests share that state.
    AfterInit,
}

/// Everything that a function version is made of, but for its code.
#[derive(Clone, Debug)]
pub struct FunctionSpec {
    /// The function's name, which is also its program argument 0.
    pub name: String,
    /// Most bytes of all its linear memories together.
    pub memory_limit: u64,
    /// Its environment.
    pub environment: Vec<Pair>,
    /// When its seed is frozen.
    pub freeze: FreezePolicy,
    /// Where goes what it logs while it is instantiated.
    pub log: Arc<dyn LogSink>,
}

/// What was found out while a seed was made.
#[derive(Clone, Debug)]
pub struct FreezeReport {
    /// Whether the seed is frozen after instantiation.
    pub after_init: bool,
    /// Whether instantiation drew entropy.
    pub drew_entropy: bool,
    /// What instantiation drew, by import, one line each; empty when nothing.
    pub drawn: String,
    /// What instantiation takes, which each request pays when `after_init` is false.
    pub instantiation: Duration,
    /// Size of the seed's memory layer in bytes (pages that exist).
    pub layer_bytes: u64,
}

/// What an earlier making of a function's seed found out.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Whether the seed was frozen after instantiation.
    pub after_init: bool,
    /// What instantiation took.
    pub instantiation: Duration,
}

/// A request as the pool takes it.
#[derive(Debug)]
pub struct Call {
    /// Its head, already in the form that the function sees.
    pub head: RequestHead,
    /// Its body.
    pub body: RequestBody,
    /// How long it may take.
    pub limits: CallLimits,
    /// Where log lines go.
    pub log: Arc<dyn LogSink>,
    /// Who sends it.
    pub client: Client,
}

/// What the pool has to know of who sends a request.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Whom the bytes of the response count for until they are taken; nobody unless set.
    pub account: Account,
    /// The request begins before its body is there, as far as that is waited for: it is
    /// the first to be cut when others want its place.
    pub is_early: bool,
}

/// A function's response.
#[derive(Debug)]
pub struct Reply {
    /// Status and headers, as the function made them: not validated.
    pub head: ResponseHead,
    /// The body.
    pub body: ReplyBody,
    /// Where the time went, as far as it is known by now.
    pub timing: Timing,
}

/// Where the time of a request went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The instance's number: unlike any other's of the pool, in no order.
    pub instance: u64,
    /// Waiting for a shell.
    pub queue: Duration,
    /// Turning the shell into an instance.
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
    /// A shell made in advance, turned into an instance for this request.
    Shell,
    /// A shell forked from what all functions share, because the function's own
    /// seed is not in memory.
    Ancestor,
    /// A shell made for this request.
    #[default]
    Made,
}

impl Served {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Parked,
        Self::Ready,
        Self::Shell,
        Self::Ancestor,
        Self::Made,
    ];

    /// Its name in headers and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Ready => "ready",
            Self::Shell => "shell",
            Self::Ancestor => "ancestor",
            Self::Made => "made",
        }
    }
}

/// What a request took of its microVM, known when that has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Exits from the VM to its shell.
    pub exits: u64,
    /// Page faults that KVM fixed for the VM.
    pub page_faults: u64,
    /// What bringing it back to its seed's state took, if it was.
    pub reset: Option<ResetEffort>,
}

/// A seed of the tree, and how it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SeedInfo {
    /// The function's name; of levels that all share, what they are.
    pub name: String,
    /// 0 for the booted guest, 1 for the linked engine, 2 for a function version.
    pub level: u8,
    /// Whether it is in memory now.
    pub is_in_memory: bool,
    /// Bytes of the pages that it has of its own.
    pub layer_bytes: u64,
    /// Mappings that an instance's memory takes.
    pub windows: usize,
    /// Pages that it keeps instead of its parent's, holes included.
    pub changed_pages: u64,
    /// Pages that its instances write, as recorded.
    pub written_pages: u64,
    /// Pages that its instances only read, as recorded.
    pub read_pages: u64,
    /// Instances that wait for a request.
    pub parked: usize,
    /// Bytes of those instances' private pages, as their shells told them.
    pub parked_bytes: u64,
    /// Instances at work, being reset or being ended.
    pub busy: usize,
    /// How often it was forked.
    pub forks: u64,
    /// Requests that its instances served.
    pub requests: u64,
    /// Those that a parked instance served.
    pub hits: u64,
    /// Page faults that KVM fixed for its instances while they served.
    pub page_faults: u64,
}

/// What a reset did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetEffort {
    /// Pages filled again from the seed.
    pub filled: u64,
    /// Private pages given back to the system.
    pub let_go: u64,
    /// Private pages that were not in the write set.
    pub outside: u64,
    /// Private pages of the write set that were as the seed has them; counted now and
    /// then.
    pub unused: Option<u64>,
    /// Page tables of the guest had changed.
    pub tables_changed: bool,
    /// Time it took.
    pub took: Duration,
}

/// Which stream a log line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
    /// The node, about this instance.
    Node,
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
