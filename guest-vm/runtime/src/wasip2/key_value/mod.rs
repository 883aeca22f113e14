//! Key-value stores: two drafts of `wasi:keyvalue`, and Spin's own interface.
//!
//! All of them have one implementation: a bucket is the name of a store. Each call sends a record
//! to the node and receives its answer ([`faasw_abi::store`]). The channel is open while a function
//! that imports any of these interfaces answers a request. A call before that is a draw, and
//! refused, because the answer would be part of the seed. Nothing is cached here, so each call
//! finds what earlier calls have written.

mod buckets;
mod drafts;
mod spin;
mod store_calls;

use alloc::string::String;

use wasmtime::Result;
use wasmtime::component::Linker;

use crate::platform::Platform;
use crate::state::State;

/// A store that a function has opened.
pub(super) struct Bucket {
    /// Name of the store, as the function uses it.
    name: String,
}

/// Adds all interfaces of this module.
///
/// # Errors
/// Returns Wasmtime's error if memory runs out; the names are distinct.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    drafts::add_to_linker(linker)?;
    spin::add_to_linker(linker)
}
