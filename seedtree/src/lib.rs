//! Layers and seeds: frozen memory that instances are forked from.
//!
//! Knows nothing of KVM or HTTP. A [`LayerBuilder`] is filled, by the host and
//! then by a guest that runs in it; [`LayerBuilder::freeze`] makes it a
//! [`Layer`], which nobody can write any more. A [`Seed`] is a layer and the
//! vCPU state that belongs to it (Catalyzer §4, AFaaS §4: what a sandbox is
//! forked from).

#![forbid(unsafe_code)]

mod extent;
mod layer;
mod seed;

pub use extent::{Extent, coalesce};
pub use layer::{Layer, LayerBuilder};
pub use seed::{Level, Seed};
