//! Functions on sockets, which do not exist, and on rights, which cannot be changed.
//!
//! These functions do not access memory, so they work in a module that exports none.

use wasmtime::{Caller, Linker, Result};

use super::MODULE;
use super::errno::Errno;
use crate::platform::Platform;
use crate::state::State;

/// Returns the error of a function for Wasm: `errno` if the descriptor is open.
fn refusal<P: Platform>(caller: &Caller<'_, State<P>>, descriptor: u32, errno: Errno) -> i32 {
    match caller.data().descriptors.get(descriptor) {
        Some(_) => errno as i32,
        None => Errno::Badf as i32,
    }
}

/// Adds the functions of this module.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_fdstat_set_rights",
        |caller: Caller<'_, State<P>>, descriptor: u32, _base: u64, _inheriting: u64| {
            refusal(&caller, descriptor, Errno::Notsup)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "sock_accept",
        |caller: Caller<'_, State<P>>, descriptor: u32, _flags: u32, _accepted: u32| {
            refusal(&caller, descriptor, Errno::Notsock)
        },
    )?;
    linker.func_wrap(
        MODULE,
        "sock_recv",
        |caller: Caller<'_, State<P>>,
         descriptor: u32,
         _array: u32,
         _count: u32,
         _flags: u32,
         _read: u32,
         _read_flags: u32| { refusal(&caller, descriptor, Errno::Notsock) },
    )?;
    linker.func_wrap(
        MODULE,
        "sock_send",
        |caller: Caller<'_, State<P>>,
         descriptor: u32,
         _array: u32,
         _count: u32,
         _flags: u32,
         _written: u32| { refusal(&caller, descriptor, Errno::Notsock) },
    )?;
    linker.func_wrap(
        MODULE,
        "sock_shutdown",
        |caller: Caller<'_, State<P>>, descriptor: u32, _how: u32| {
            refusal(&caller, descriptor, Errno::Notsock)
        },
    )?;
    Ok(())
}
