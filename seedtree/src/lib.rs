//! Layers and seeds: frozen memory that instances are forked from.
//!
//! This crate has no code for KVM or HTTP. The host fills a [`LayerBuilder`]; then a guest that
//! runs in it writes to it, or it receives the pages that a guest changed of its parent's.
//! [`LayerBuilder::freeze`] makes it a [`Layer`], which is immutable. A [`Snapshot`] is a layer
//! over its parent's, the vCPU state that belongs to it (Catalyzer §4, AFaaS §4.3: what a sandbox
//! is forked from), and data about its instances: the difference that a fork applies, and the pages
//! that they use. A seed is a snapshot's place in the tree: the [`Graph`] records which seeds can
//! be made, and which are in memory. [`limits`] bounds all of it.

#![forbid(unsafe_code)]

mod comparison;
mod content;
mod descent;
mod difference;
mod eviction;
mod file;
mod freeze;
pub mod graph;
pub mod image;
mod key;
mod layer;
pub mod limits;
mod overlay;
mod prepared;
pub mod reading;
mod snapshot;
mod use_rate;
mod view;
mod working_set;

pub use content::Content;
pub use difference::Difference;
pub use eviction::{Candidate, Evictions, evict_to_fit, seeds_to_evict};
pub use file::{held_bytes, memory_file, read_at, reopen_read_only, seal, write_at};
pub use graph::Graph;
pub use key::{Key, Owner, StepDigest};
pub use layer::{Layer, LayerBuilder};
pub use overlay::{Window, Windows, overlay, overlay_layer};
pub use snapshot::Snapshot;
pub use use_rate::{HALF_LIFE, UseRate};
pub use view::View;
pub use working_set::{Misses, PageSets, Reuse, UsedPages, WorkingSet};
