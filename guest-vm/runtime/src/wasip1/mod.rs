//! WASI preview 1 for core modules: commands in CGI style.
//!
//! The descriptors are 0, 1 and 2. If the function was deployed with files, 3 is their folder, and
//! the function can open others there ([`files`], [`folders`], [`paths`]). Functions on sockets
//! return the error that a process without any sockets would receive ([`refused`]).

mod clock;
mod errno;
mod files;
mod folders;
mod memory;
mod paths;
mod poll;
mod process;
mod refused;
mod stdio;

use faasw_abi::entry::{ENTRY_MODULE, ENTRY_NAME};
use wasmtime::{Caller, Engine, Linker, Result};

use self::errno::Errno;
use crate::failure::RunEnd;
use crate::platform::Platform;
use crate::state::State;
use crate::supported::PREVIEW1_MODULE as MODULE;

/// Returns a linker with every import that a core module may have.
///
/// # Errors
/// Returns Wasmtime's error if memory runs out; the names are distinct.
pub(crate) fn linker<P: Platform>(engine: &Engine) -> Result<Linker<State<P>>> {
    let mut linker = Linker::new(engine);
    process::add_to_linker(&mut linker)?;
    clock::add_to_linker(&mut linker)?;
    stdio::add_to_linker(&mut linker)?;
    files::add_to_linker(&mut linker)?;
    folders::add_to_linker(&mut linker)?;
    paths::add_to_linker(&mut linker)?;
    poll::add_to_linker(&mut linker)?;
    refused::add_to_linker(&mut linker)?;
    linker.func_wrap(MODULE, "proc_exit", |code: u32| -> Result<()> {
        Err(RunEnd::Exit(code).into())
    })?;
    linker.func_wrap(MODULE, "proc_raise", |_signal: i32| Errno::Nosys as i32)?;
    linker.func_wrap(MODULE, "sched_yield", || 0i32)?;
    let entry = |mut caller: Caller<'_, State<P>>| caller.data_mut().enter();
    linker.func_wrap(ENTRY_MODULE, ENTRY_NAME, entry)?;
    Ok(linker)
}
