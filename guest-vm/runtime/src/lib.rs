//! Runs one WebAssembly function over a [`platform::Platform`].
//!
//! The guest kernel and the native tests use it in the same order: [`function::Loaded`] (compiled
//! code found in memory), [`function::Prepared`] (linked, nothing has run: the early freeze point),
//! [`function::Ready`] (instantiated: the late freeze point), [`function::Ready::handle`] (one
//! request).
//!
//! - [`engine`]: settings shared with the compile helper.
//! - [`function`]: the steps above.
//! - [`platform`]: what the runtime needs from below.
//! - [`failure`]: reports of failed runs.
//! - [`draws`]: what a function read before the freeze.
//! - [`supported`]: every import that a function may have.
//! - `testing` (feature): a platform over plain memory.
//!
//! Internally there is one module for each family of host functions: `wasip1` (core modules),
//! `wasip2` (components), `http` (`wasi:http`), and `cgi` (how commands answer requests). They all
//! work on `state`, with the `descriptors` of a core module and the `invocation` of a component.
//! `files` is the view of a function's files for both. `front` is their view of the platform.
//! `memory` limits what the function allocates.
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cgi;
mod descriptors;
pub mod draws;
pub mod engine;
pub mod failure;
mod files;
mod front;
pub mod function;
mod headers;
mod http;
mod invocation;
mod memory;
pub mod platform;
mod secrets;
mod state;
pub mod supported;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wasip1;
mod wasip2;
