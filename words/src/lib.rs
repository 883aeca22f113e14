//! What the pool, the node and its admin API say to each other of functions: when a
//! seed is frozen, where a line of a log came from, how a seed is used.
//!
//! Below all three, and without code: whoever asks a node needs these, and nothing else
//! of what runs functions.

use serde::{Deserialize, Serialize};

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
