//! Vocabulary that several crates share: when a seed is frozen, where a line of a log came from,
//! how a seed is used, how long an instance looks for its next request. The pool, the node and the
//! admin API's client need it, and the client must not depend on the pool.
//!
//! [`text`]: text of others, escaped so that it can be shown.
#![forbid(unsafe_code)]

pub mod text;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long an instance may look for its next request by itself where that is wanted and no time is
/// said: as long as KVM lets a vCPU poll that was halted.
pub const POLL: Duration = Duration::from_micros(200);

/// Longest time for which an instance may look.
pub const POLL_MAX: Duration = Duration::from_millis(10);

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

/// Why a function has fewer instances ahead of requests than it is to have at all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lack {
    /// As many as there may be are parked, of all functions (`--max-parked`).
    MaxParked,
    /// The function holds as much memory as it may (`--function-memory`).
    FunctionMemory,
    /// Seeds take all of their memory, so that there is no room for its own, or that one could not
    /// be evicted any more (`--seed-memory`).
    SeedMemory,
    /// All microVMs take nearly as much memory as they may (`--instance-memory`).
    InstanceMemory,
    /// The machine has hardly any memory left.
    MachineMemory,
    /// The node has nearly as many files open as it may.
    OpenFiles,
    /// Making them has failed lately; it is tried again.
    Failures,
}

impl Lack {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::MaxParked,
        Self::FunctionMemory,
        Self::SeedMemory,
        Self::InstanceMemory,
        Self::MachineMemory,
        Self::OpenFiles,
        Self::Failures,
    ];

    /// Its name where names are words, as in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxParked => "max-parked",
            Self::FunctionMemory => "function-memory",
            Self::SeedMemory => "seed-memory",
            Self::InstanceMemory => "instance-memory",
            Self::MachineMemory => "machine-memory",
            Self::OpenFiles => "open-files",
            Self::Failures => "failures",
        }
    }

    /// What it is, for people: the flag that sets it, where there is one.
    #[must_use]
    pub const fn told(self) -> &'static str {
        match self {
            Self::MaxParked => "--max-parked",
            Self::FunctionMemory => "--function-memory",
            Self::SeedMemory => "--seed-memory",
            Self::InstanceMemory => "--instance-memory",
            Self::MachineMemory => "the machine's memory",
            Self::OpenFiles => "the limit of open files (ulimit -n)",
            Self::Failures => "making them fails, and is tried again",
        }
    }
}

/// Instances ahead of requests that a function is to have and has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    /// How many.
    pub instances: usize,
    /// What keeps them from being made.
    pub why: Lack,
}

/// A seed of the tree, and how it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedInfo {
    /// The function's or the engine's name; of what all descend from, what it is.
    pub name: String,
    /// How many it descends from: 0 for the booted guest, 1 for what links imports, 2 for a
    /// function version or a language engine, 3 for a script.
    pub level: u8,
    /// Whether functions of all owners descend from it.
    #[serde(default)]
    pub is_shared: bool,
    /// Whether it is in memory now.
    pub is_in_memory: bool,
    /// Whether all of its memory is, and of its code; some may come from disk yet.
    #[serde(default)]
    pub is_whole: bool,
    /// Pieces of it that instances had to wait for, since they were not read yet when a page of
    /// them was touched.
    #[serde(default)]
    pub late_pages: u64,
    /// Bytes of the pages that it has of its own: more where instances have read its holes.
    pub layer_bytes: u64,
    /// Bytes of code that are in memory as long as it is, beside those of its ancestors.
    #[serde(default)]
    pub code_bytes: u64,
    /// Mappings that an instance's memory takes.
    pub windows: usize,
    /// Pages that it keeps instead of its parent's, holes included.
    pub changed_pages: u64,
    /// Pages that its instances write, as recorded.
    pub written_pages: u64,
    /// Pages that its instances only read, as recorded.
    pub read_pages: u64,
    /// Pages of its code that its instances use, as recorded; 0 where that is not known.
    #[serde(default)]
    pub code_pages: u64,
    /// Instances that wait for a request.
    pub parked: usize,
    /// Bytes of those instances' private pages, as their sandboxes told them.
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
    /// Bytes of its image on disk, as they were noted when that was written or read; nothing
    /// where there is none.
    #[serde(default)]
    pub image_bytes: Option<u64>,
}

/// What a func-image has, in numbers: nothing of what its pages hold.
///
/// Pages have 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    /// Version of its format.
    pub format: u32,
    /// Digest of what is in it.
    pub content: String,
    /// That of the snapshot that it was made over; nothing for the first of all.
    pub parent: Option<String>,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Bytes of that before the first page.
    pub header_bytes: u64,
    /// Parts that are sealed by themselves, beside the header.
    pub chunks: u64,
    /// Bytes of each of them, but for the last one.
    pub chunk_bytes: u64,
    /// Bytes of the guest's memory: what a plain dump of it would have.
    pub dump_bytes: u64,
    /// Its pages by where they come from.
    pub pages: ImagePages,
    /// The pages that requests use, where that was known when it was written.
    pub working_set: Option<ImageWorkingSet>,
    /// How requests have used them since its seed came into memory, where any was looked at.
    pub reuse: Option<SetReuse>,
    /// Which part of it is not what was sealed; nothing where all of it is.
    pub damage: Option<String>,
    /// Why this node would make the seed anew instead of reading it, as far as that can be
    /// told; nothing where it would read it.
    pub unfit: Option<String>,
}

/// Pages of a func-image by where a restore has them from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePages {
    /// Those that an instance maps of it: all that follow.
    pub own: u64,
    /// Those that are in the file.
    pub stored: u64,
    /// Those that are empty.
    pub zero: u64,
    /// Those that are as its parent has them, and come from there.
    pub inherited: u64,
}

/// The pages that requests use, as an image was written with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageWorkingSet {
    /// Those that are written.
    pub written: u64,
    /// Those of them that differed afterwards; the others lie between.
    pub changed: u64,
    /// Those that are read.
    pub read: u64,
    /// Those that are written or read.
    pub used: u64,
    /// Runs of neighbours that these are in memory (REAP, fig. 3).
    pub runs: u64,
    /// Pages of the longest of them.
    pub longest_run: u64,
    /// Those that are in the file.
    pub stored: u64,
    /// Those that are its own and empty.
    pub zero: u64,
    /// Those that come from its ancestors.
    pub ancestors: u64,
}

/// How many of the pages that one request writes the next one writes, too (REAP, fig. 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetReuse {
    /// Requests whose pages outside of the set were counted.
    pub requests: u64,
    /// Pages outside, of all of them.
    pub outside: u64,
    /// Requests whose use of the set was counted, too: few.
    pub compared: u64,
    /// Pages of the set that those had written.
    pub inside: u64,
}
