//! WASI preview 1 for core modules: commands in CGI style.
//!
//! The descriptors are 0, 1 and 2, and there never are others. Functions on
//! files, directories and sockets answer with the error that a process without
//! any would get ([`refused`]).

mod clock;
mod errno;
mod memory;
mod poll;
mod process;
mod refused;
mod stdio;

use faasw_abi::entry::{ENTRY_MODULE, ENTRY_NAME};
use wasmtime::{Caller, Engine, Linker, Result};

use crate::platform::Platform;
use crate::state::State;
use crate::supported::PREVIEW1_MODULE as MODULE;

/// A linker with every import that a core module may have.
///
/// # Errors
/// When memory runs out; the names are distinct.
pub(crate) fn linker<P: Platform>(engine: &Engine) -> Result<Linker<State<P>>> {
    let mut linker = Linker::new(engine);
    process::add_to_linker(&mut linker)?;
    clock::add_to_linker(&mut linker)?;
    stdio::add_to_linker(&mut linker)?;
    poll::add_to_linker(&mut linker)?;
    refused::add_to_linker(&mut linker)?;
    let entry = |mut caller: Caller<'_, State<P>>| caller.data_mut().enter();
    linker.func_wrap(ENTRY_MODULE, ENTRY_NAME, entry)?;
    Ok(linker)
}
