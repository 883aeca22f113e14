//! Arguments, environment, randomness and the end of the process.

use alloc::vec::Vec;

use wasmtime::{Caller, Linker, Result};

use super::MODULE;
use super::errno::{Errno, Halt, status};
use super::memory::{Memory, call, item, unsigned};
use crate::draws::Kind;
use crate::failure::RunEnd;
use crate::platform::Platform;
use crate::state::State;

/// Bytes of a pointer in an array of strings.
const POINTER: u32 = 4;

/// Returns the strings as in C, each followed by a NUL.
fn argument_strings<P: Platform>(state: &State<P>) -> Vec<Vec<u8>> {
    let terminated = |argument: &Vec<u8>| [argument, b"\0".as_slice()].concat();
    state.arguments.iter().map(terminated).collect()
}

fn environment_strings<P: Platform>(state: &State<P>) -> Vec<Vec<u8>> {
    let joined =
        |(name, value): &(Vec<u8>, Vec<u8>)| [name, b"=".as_slice(), value, b"\0"].concat();
    state.environment.iter().map(joined).collect()
}

/// Writes the number of strings and of their bytes.
fn write_sizes(
    memory: &mut Memory<'_>,
    strings: &[Vec<u8>],
    count_at: u32,
    size_at: u32,
) -> Result<(), Errno> {
    let count = u32::try_from(strings.len()).map_err(|_| Errno::Overflow)?;
    let size =
        u32::try_from(strings.iter().map(Vec::len).sum::<usize>()).map_err(|_| Errno::Overflow)?;
    memory.write_u32(count_at, count)?;
    memory.write_u32(size_at, size)
}

/// Writes the strings one after the other, and a pointer to each.
fn write_strings(
    memory: &mut Memory<'_>,
    strings: &[Vec<u8>],
    pointers_at: u32,
    strings_at: u32,
) -> Result<(), Errno> {
    let mut at = strings_at;
    for (index, string) in (0..).zip(strings) {
        memory.write_u32(item(pointers_at, index, POINTER)?, at)?;
        memory.write(at, string)?;
        let length = u32::try_from(string.len()).map_err(|_| Errno::Overflow)?;
        at = at.checked_add(length).ok_or(Errno::Fault)?;
    }
    Ok(())
}

/// Fills the function's buffer in place, so that the function's own memory is the limit.
fn random<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    buffer: u32,
    length: u32,
) -> Result<(), Halt> {
    let buffer = memory.bytes_mut(buffer, length)?;
    state.platform.random(buffer);
    state.draws.record(
        Kind::Entropy,
        "wasi_snapshot_preview1#random_get",
        buffer.len(),
    );
    Ok(())
}

/// Adds the functions of this module.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "args_sizes_get",
        |caller: Caller<'_, State<P>>, count: i32, size: i32| {
            call(caller, |memory, state| {
                let strings = argument_strings(state);
                Ok(write_sizes(
                    memory,
                    &strings,
                    unsigned(count),
                    unsigned(size),
                )?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "args_get",
        |caller: Caller<'_, State<P>>, pointers: i32, buffer: i32| {
            call(caller, |memory, state| {
                state
                    .draws
                    .record(Kind::Environment, "wasi_snapshot_preview1#args_get", 0);
                let strings = argument_strings(state);
                Ok(write_strings(
                    memory,
                    &strings,
                    unsigned(pointers),
                    unsigned(buffer),
                )?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "environ_sizes_get",
        |caller: Caller<'_, State<P>>, count: i32, size: i32| {
            call(caller, |memory, state| {
                let strings = environment_strings(state);
                Ok(write_sizes(
                    memory,
                    &strings,
                    unsigned(count),
                    unsigned(size),
                )?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "environ_get",
        |caller: Caller<'_, State<P>>, pointers: i32, buffer: i32| {
            call(caller, |memory, state| {
                state
                    .draws
                    .record(Kind::Environment, "wasi_snapshot_preview1#environ_get", 0);
                let strings = environment_strings(state);
                Ok(write_strings(
                    memory,
                    &strings,
                    unsigned(pointers),
                    unsigned(buffer),
                )?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "random_get",
        |caller: Caller<'_, State<P>>, buffer: i32, length: i32| {
            call(caller, |memory, state| {
                random(memory, state, unsigned(buffer), unsigned(length))
            })
        },
    )?;
    linker.func_wrap(MODULE, "proc_exit", |code: i32| -> Result<()> {
        Err(RunEnd::Exit(unsigned(code)).into())
    })?;
    linker.func_wrap(MODULE, "proc_raise", |_signal: i32| {
        status(Err(Errno::Nosys.into()))
    })?;
    linker.func_wrap(MODULE, "sched_yield", || 0i32)?;
    Ok(())
}
