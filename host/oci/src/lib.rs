//! Modules as OCI artifacts.
//!
//! Only the `faasw` program calls this crate, in the process of a user who runs `push`, `pull` or
//! `deploy oci://…`. A node never connects to a registry. No data from a registry or an artifact is
//! trusted. Every body has a size limit, and every wait has a timeout. All stored bytes are checked
//! against a digest that was known beforehand. Credentials go only to the registry for which they
//! are stored, and to token servers that its name vouches for ([`access`]).
//!
//! | module | purpose |
//! | --- | --- |
//! | [`mod@reference`] | `registry/repository:tag` |
//! | [`credentials`] | the logins that Docker and Podman store |
//! | [`access`] | connection settings: authorities, timeouts, hosts that may receive credentials |
//! | [`registry`] | the protocol: manifests, blobs, uploads |
//! | [`artifact`] | the module among an artifact's layers, and their contents |
//! | [`push`] | creates an artifact from a module |
#![forbid(unsafe_code)]

pub mod access;
pub mod artifact;
mod authorization;
pub mod credentials;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod push;
pub mod reference;
pub mod registry;

pub use access::Access;
pub use artifact::Artifact;
pub use error::OciError;
pub use reference::Reference;
pub use registry::Registry;
