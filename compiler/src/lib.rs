//! Turns a tenant's upload into an artifact that the guest can run.
//!
//! This is the only place that parses tenant Wasm on the host, and the only one
//! that links Cranelift. It runs as a process of its own, confined and limited
//! by the process that starts it ([`protocol::contract`]); nothing here
//! trusts the input, and nothing here runs what it compiles.
//!
//! - [`protocol`]: what the node asks and the helper answers. The node's side has no other
//!   module: all else needs the feature `program`.
//!
//! [`perform`] reads top to bottom:
//!
//! - `source`: binary, text, or something else that is named for what it is.
//! - `componentise`: a core module that says of which component it is the code, as that.
//! - `inspect`: what kind of function it is, what it imports, what memory it
//!   starts with; `outline` reads it, `module` and `component` apply the rules of each.
//! - `supported`: the imports that a function may have.
//! - `wizer`: code that can be asked what it has become, and the module that begins there.
//! - `packed`: a function's files, which are no code, but as little to be trusted.
//! - `artifact`: the compilation itself. `cache`: what it leaves for the next one.
//!
//! The program is `faasw-compiler`. Tests use the rest of it for helpers that do something
//! else than compile:
//!
//! - [`helper`]: the process, from its arguments to its report.
//! - [`jail`]: what is round it. [`exhaustion`]: what running out of memory does.
//!   `descriptors`: the files that it is given.
#![deny(unsafe_code)]

#[cfg(feature = "program")]
mod advice;
#[cfg(feature = "program")]
mod artifact;
#[cfg(feature = "program")]
mod cache;
#[cfg(feature = "program")]
mod component;
#[cfg(feature = "program")]
mod componentise;
#[cfg(feature = "program")]
mod descriptors;
#[cfg(feature = "program")]
pub mod exhaustion;
#[cfg(feature = "program")]
pub mod helper;
#[cfg(feature = "program")]
mod inspect;
#[cfg(feature = "program")]
mod interface;
#[cfg(feature = "program")]
pub mod jail;
#[cfg(feature = "program")]
mod module;
#[cfg(feature = "program")]
mod outline;
#[cfg(feature = "program")]
mod perform;
#[cfg(feature = "program")]
mod preview1;
pub mod protocol;
#[cfg(feature = "program")]
mod source;
#[cfg(feature = "program")]
mod supported;
#[cfg(feature = "program")]
mod wizer;

#[cfg(feature = "program")]
pub use perform::{Artifact, perform};
