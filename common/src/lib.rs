//! Types that several crates share: when a seed is frozen, where a log line came from, how a seed
//! is used, how long an instance polls for its next request. The pool, the node and the admin API's
//! client need them, and the client must not depend on the pool.
//!
//! [`options`]: the names, forms and permissions of a function's options. [`text`]: untrusted text,
//! escaped for display. [`Lock`]: a mutex without poisoning. `packet`: packets with descriptors.
#![forbid(unsafe_code)]

mod lock;
pub mod options;
#[cfg(feature = "packet")]
pub mod packet;
pub mod text;

use std::time::Duration;

pub use lock::Lock;

use serde::{Deserialize, Serialize};

/// How long an instance polls for its next request if polling is enabled without a time: as long as
/// KVM lets a halted vCPU poll.
pub const POLL: Duration = Duration::from_micros(200);

/// Longest time for which an instance may poll.
pub const POLL_MAX: Duration = Duration::from_millis(10);

/// When a function's seed is frozen (DESIGN, freeze policy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreezePolicy {
    /// After instantiation; before it if instantiation drew entropy, accessed a key-value store,
    /// read a secret or attempted an outbound call.
    #[default]
    Auto,
    /// Before instantiation: each request instantiates anew.
    BeforeInit,
    /// After instantiation, whatever it drew: requests share that state.
    AfterInit,
}

/// The stream that a log line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
    /// The node, about this instance.
    Node,
}

/// Why a function has fewer waiting instances than it is to have at all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShortfallCause {
    /// The limit of warm instances of all functions is reached (`--max-warm`).
    MaxWarm,
    /// The function uses all of its memory (`--function-memory`).
    FunctionMemory,
    /// Seeds use all of their memory: there is no room for the function's own seed, or a further
    /// instance would prevent that seed's eviction (`--seed-memory`).
    SeedMemory,
    /// All microVMs together use nearly all of their memory (`--instance-memory`).
    InstanceMemory,
    /// The machine has hardly any memory left.
    MachineMemory,
    /// The node has nearly reached its limit of open files.
    OpenFiles,
    /// Attempts to make instances failed recently. The node retries.
    Failures,
}

impl ShortfallCause {
    /// All values.
    pub const ALL: [Self; 7] = [
        Self::MaxWarm,
        Self::FunctionMemory,
        Self::SeedMemory,
        Self::InstanceMemory,
        Self::MachineMemory,
        Self::OpenFiles,
        Self::Failures,
    ];

    /// Returns the name in identifiers, for example in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxWarm => "max-warm",
            Self::FunctionMemory => "function-memory",
            Self::SeedMemory => "seed-memory",
            Self::InstanceMemory => "instance-memory",
            Self::MachineMemory => "machine-memory",
            Self::OpenFiles => "open-files",
            Self::Failures => "failures",
        }
    }

    /// Returns the description for people: the flag that sets the limit, if there is one.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::MaxWarm => "--max-warm",
            Self::FunctionMemory => "--function-memory",
            Self::SeedMemory => "--seed-memory",
            Self::InstanceMemory => "--instance-memory",
            Self::MachineMemory => "the machine's memory",
            Self::OpenFiles => "the limit of open files (ulimit -n)",
            Self::Failures => "making them fails, and is tried again",
        }
    }
}

/// Waiting instances that a function is to have, but lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmShortfall {
    /// The number of instances.
    pub instances: usize,
    /// Why they are not made.
    pub why: ShortfallCause,
}

/// A seed of the tree, and its usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedInfo {
    /// The name of the function or engine; for a common ancestor, a description.
    pub name: String,
    /// The number of its ancestors: 0 for the booted guest, 1 for the linked runtime, 2 for a
    /// function version or a language engine, 3 for a script.
    pub level: u8,
    /// Whether functions of all owners descend from the seed.
    #[serde(default)]
    pub is_shared: bool,
    /// Whether the seed is in memory now.
    pub is_in_memory: bool,
    /// Whether all of its memory and code is present; if not, some may still be read from disk.
    #[serde(default)]
    pub is_whole: bool,
    /// Pieces that an instance had to wait for, because they were not read yet when it touched one
    /// of their pages.
    #[serde(default)]
    pub late_pages: u64,
    /// Bytes of the seed's own pages. The number grows when instances read its holes.
    pub layer_bytes: u64,
    /// Bytes of code that stay in memory as long as the seed does, besides those of its ancestors.
    #[serde(default)]
    pub code_bytes: u64,
    /// Number of mappings that an instance's memory needs.
    pub windows: usize,
    /// Pages that the seed has instead of its parent's, including holes.
    pub changed_pages: u64,
    /// Pages that its instances write, as recorded.
    pub written_pages: u64,
    /// Pages that its instances only read, as recorded.
    pub read_pages: u64,
    /// Pages of its code that its instances use, as recorded; 0 if unknown.
    #[serde(default)]
    pub code_pages: u64,
    /// Instances that wait for a request.
    pub warm: usize,
    /// Bytes of the private pages of those instances, as reported by their sandboxes.
    pub warm_bytes: u64,
    /// Instances that serve a request, are being reset, or are being ended.
    pub busy: usize,
    /// How often the seed was forked.
    pub forks: u64,
    /// Requests that its instances served.
    pub requests: u64,
    /// Requests that a warm instance served.
    pub hits: u64,
    /// Page faults that KVM fixed for its instances while they served.
    pub page_faults: u64,
    /// Bytes of its image on disk, as recorded when the image was written or read; `None` if there
    /// is no image.
    #[serde(default)]
    pub image_bytes: Option<u64>,
}

/// Figures of a func-image, without any content of its pages.
///
/// Pages have 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    /// Version of the image format.
    pub format: u32,
    /// Digest of the content.
    pub content: String,
    /// Digest of the parent snapshot; `None` for the root.
    pub parent: Option<String>,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// Bytes of the file before the first page.
    pub header_bytes: u64,
    /// Number of parts that are sealed separately, besides the header.
    pub chunks: u64,
    /// Size of each of those parts except the last, in bytes.
    pub chunk_bytes: u64,
    /// Size of the guest's memory, in bytes: what a plain dump of it would take.
    pub dump_bytes: u64,
    /// The image's pages by their origin.
    pub pages: ImagePages,
    /// The pages that requests use, if they were known when the image was written.
    pub working_set: Option<ImageWorkingSet>,
    /// How requests have used the working set since the seed was loaded, if any were observed.
    pub reuse: Option<SetReuse>,
    /// The part of the image that differs from what was sealed; `None` if the image is intact.
    pub damage: Option<String>,
    /// Why this node would rebuild the seed instead of reading the image, as far as that can be
    /// determined; `None` if it would read the image.
    pub unfit: Option<String>,
}

/// Pages of a func-image by where a restore finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePages {
    /// Pages that an instance maps from the image: all of the following.
    pub own: u64,
    /// Pages that are stored in the file.
    pub stored: u64,
    /// Empty pages.
    pub zero: u64,
    /// Pages that equal the parent's, and come from there.
    pub inherited: u64,
}

/// The working set with which an image was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageWorkingSet {
    /// Pages that requests write.
    pub written: u64,
    /// Written pages that differed afterwards; the other written pages lie between those.
    pub changed: u64,
    /// Pages that requests read.
    pub read: u64,
    /// Pages that requests read or write.
    pub used: u64,
    /// Number of contiguous runs that these pages form in memory (REAP, fig. 3).
    pub runs: u64,
    /// Pages of the longest run.
    pub longest_run: u64,
    /// Pages of the set that are stored in the file.
    pub stored: u64,
    /// Pages of the set that are the image's own and empty.
    pub zero: u64,
    /// Pages of the set that come from ancestors.
    pub ancestors: u64,
}

/// How many of the pages that one request writes are also written by the next (REAP, fig. 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetReuse {
    /// Requests whose pages outside of the set were counted.
    pub requests: u64,
    /// Pages outside of the set, summed over those requests.
    pub outside: u64,
    /// Requests whose use of the set was counted as well, which are few.
    pub compared: u64,
    /// Pages of the set that those requests had written.
    pub inside: u64,
}
