//! Describes a node's functions, seeds and metrics, and exports versions.

mod exports;
mod inspector;
mod tree;

pub(super) use self::{
    exports::{ExportManifest, TransferPermits},
    inspector::Inspector,
};
