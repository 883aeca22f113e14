//! Deployments: from an upload, an export or the host's shared entry to a function that serves
//! requests.
//!
//! All three are a [`DeploymentInput`](input::DeploymentInput) and pass the same stages. Each stage
//! is a file and takes the result of the stage before it. [`input`] checks the input, [`prepare`]
//! packs its files and computes its digest, [`compile`] finds its code or compiles it, and
//! [`initialise`] initialises it. [`seed`] makes its seed, or reads it from an image that was made
//! before ([`restore`]). [`commit`] stores the version and lets it serve. Nothing changes before
//! the commit, so a deployment that fails leaves the current version as it is.
//!
//! [`import`] receives exports of other nodes, and [`shared`] uses what the host has made before.
//! [`current`] replaces, rolls back and removes the current versions.

mod commit;
mod compile;
mod current;
mod deployer;
mod export_receiver;
mod import;
mod initialise;
mod input;
mod prepare;
mod restore;
mod seed;
mod shared;

pub(super) use self::deployer::Deployer;
#[cfg(feature = "fuzzing")]
pub(crate) use self::import::{export_note, note_of};
