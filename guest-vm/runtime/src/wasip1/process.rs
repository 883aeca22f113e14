//! Arguments, environment and randomness.

use alloc::vec::Vec;

use super::errno::Errno;
use super::memory::{Memory, functions, item};
use crate::draws::Kind;
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
    let size: usize = strings.iter().map(Vec::len).sum();
    let (count, size) = (strings.len().try_into()?, size.try_into()?);
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
        at = at
            .checked_add(string.len().try_into()?)
            .ok_or(Errno::Fault)?;
    }
    Ok(())
}

functions! {
    fn args_sizes_get(memory, state; count: u32, size: u32) {
        Ok(write_sizes(memory, &argument_strings(state), count, size)?)
    }

    fn args_get(memory, state; pointers: u32, buffer: u32) {
        state.draws.record(Kind::Environment, "wasi_snapshot_preview1#args_get", 0);
        Ok(write_strings(memory, &argument_strings(state), pointers, buffer)?)
    }

    fn environ_sizes_get(memory, state; count: u32, size: u32) {
        Ok(write_sizes(memory, &environment_strings(state), count, size)?)
    }

    fn environ_get(memory, state; pointers: u32, buffer: u32) {
        state.draws.record(Kind::Environment, "wasi_snapshot_preview1#environ_get", 0);
        Ok(write_strings(memory, &environment_strings(state), pointers, buffer)?)
    }

    fn random_get(memory, state; buffer: u32, length: u32) {
        // The function's buffer is filled in place, so the function's own memory is the limit.
        let buffer = memory.bytes_mut(buffer, length)?;
        state.platform.random(buffer);
        state.draws.record(Kind::Entropy, "wasi_snapshot_preview1#random_get", buffer.len());
        Ok(())
    }
}
