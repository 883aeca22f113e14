//! Key-value stores: two drafts of `wasi:keyvalue`, and Spin's own interface.
//!
//! All of them are one thing: a bucket is the name of a store, and each call is a record to the
//! node and its answer ([`faasw_abi::store`]), on a channel that is open while a request is
//! answered by a function that imports any of this. Before, a call is a draw, and refused: what a
//! store says then would be part of the seed. Nothing is kept here, so what one call has written
//! the next one finds.

mod ask;
mod buckets;
mod drafts;
mod spin;

use alloc::string::String;

use wasmtime::Result;
use wasmtime::component::Linker;

use crate::platform::Platform;
use crate::state::State;

/// A store that a function has opened.
pub(super) struct Bucket {
    /// As the function calls it.
    name: String,
}

/// Adds all interfaces of this module.
///
/// # Errors
/// When memory runs out; the names are distinct.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    drafts::add_to_linker(linker)?;
    spin::add_to_linker(linker)
}
