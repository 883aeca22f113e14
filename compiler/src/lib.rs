//! Turns a tenant's upload into an artifact that the guest can run.
//!
//! This crate is the only place that parses tenant Wasm on the host, and the only one that links
//! Cranelift. It runs as a process of its own, which the process that starts it confines and limits
//! ([`protocol::contract`]). It does not trust the input, and does not run what it compiles.
//!
//! The messages between node and helper are a crate of their own, [`protocol`], because the node
//! must contain no compiler.
//!
//! [`perform`] reads top to bottom:
//!
//! - `source`: recognises a binary or text; names anything else for what it is.
//! - `componentise`: makes a component of a core module that declares to be a component's code.
//! - `inspect`: determines the kind of function, its imports, and its initial memory; `outline`
//!   reads the binary, `module` and `component` apply the rules of each.
//! - `supported`: the imports that a function may have.
//! - `wizer`: instruments code so that its state can be read, and makes a module that starts from a
//!   state.
//! - `artifact`: the compilation itself. `cache`: its results for the next one.
//!
//! The program is `faasw-compiler`. Tests use the other modules for helpers that do something other
//! than compile:
//!
//! - [`helper`]: the process, from its arguments to its report.
//! - [`jail`]: the confinement. [`exhaustion`]: how running out of memory ends the process.
//!   `descriptors`: the files that the process receives.
#![deny(unsafe_code)]

mod advice;
mod artifact;
mod cache;
mod component;
mod componentise;
mod descriptors;
pub mod exhaustion;
pub mod helper;
mod inspect;
mod interface;
pub mod jail;
mod module;
mod outline;
mod perform;
mod preview1;
mod source;
mod supported;
mod wizer;

pub use faasw_compiler_protocol as protocol;
pub use perform::{Artifact, perform};
