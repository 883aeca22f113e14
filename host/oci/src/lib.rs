//! Modules as OCI artifacts.
//!
//! Who calls this is the `faasw` program, in the process of whoever typed `push`, `pull` or
//! `deploy oci://…`: a node never speaks to a registry. Nothing that a registry or an artifact says
//! is trusted: every body has a bound before it is read, every wait an end, every byte that is kept
//! a digest that was known before it came, and credentials go to the registry that they are for and
//! to whom that vouches for by its name alone ([`access`]).
//!
//! | module | what it has |
//! | --- | --- |
//! | [`mod@reference`] | `registry/repository:tag` |
//! | [`credentials`] | what Docker and Podman keep of log-ins |
//! | [`access`] | how a registry is spoken to: authorities, times, who may be shown credentials |
//! | [`registry`] | the protocol: manifests, blobs, uploads |
//! | [`artifact`] | which of an artifact's layers is the module, and what is in them |
//! | [`push`] | an artifact of a module |
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
