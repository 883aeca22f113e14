//! Layers and seeds: frozen memory that instances are forked from.
//!
//! Knows nothing of KVM or HTTP. A [`LayerBuilder`] is filled, by the host and
//! then by a guest that runs in it, or by what a guest changed of its parent's;
//! [`LayerBuilder::freeze`] makes it a [`Layer`], which nobody can write any more.
//! A [`Seed`] is a layer over its parent's and the vCPU state that belongs to it
//! (Catalyzer §4, AFaaS §4: what a sandbox is forked from).

#![forbid(unsafe_code)]

mod eviction;
mod extent;
mod file;
mod layer;
mod overlay;
mod seed;
mod view;

pub use eviction::{Candidate, Yielding, victims, yielding};
pub use extent::{Extent, coalesce, sound};
pub use file::memory_file;
pub use layer::{Layer, LayerBuilder};
pub use overlay::{Window, overlay};
pub use seed::{Level, Seed};
pub use view::View;
