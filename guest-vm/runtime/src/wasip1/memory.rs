//! The calling module's memory, with checks of every access.

use wasmtime::{Caller, Extern, Result};

use super::errno::{Errno, Halt, status};
use crate::platform::Platform;
use crate::state::State;

/// Converts a pointer, length or descriptor from what Wasm passes.
pub(super) fn unsigned(value: i32) -> u32 {
    value.cast_unsigned()
}

/// The calling module's memory. Pointers are 32 bits, and unsigned.
pub(super) struct Memory<'a>(&'a mut [u8]);

impl Memory<'_> {
    /// Returns the `length` bytes at `pointer`.
    pub(super) fn bytes(&self, pointer: u32, length: u32) -> Result<&[u8], Errno> {
        let (start, end) = range(pointer, length)?;
        self.0.get(start..end).ok_or(Errno::Fault)
    }

    /// Returns the `length` bytes at `pointer`, for writing.
    pub(super) fn bytes_mut(&mut self, pointer: u32, length: u32) -> Result<&mut [u8], Errno> {
        let (start, end) = range(pointer, length)?;
        self.0.get_mut(start..end).ok_or(Errno::Fault)
    }

    /// Returns a copy of the `N` bytes at `pointer`.
    pub(super) fn read<const N: usize>(&self, pointer: u32) -> Result<[u8; N], Errno> {
        let length = u32::try_from(N).map_err(|_| Errno::Fault)?;
        let bytes = self.bytes(pointer, length)?;
        bytes.try_into().map_err(|_| Errno::Fault)
    }

    /// Returns the little-endian number at `pointer`.
    pub(super) fn read_u32(&self, pointer: u32) -> Result<u32, Errno> {
        Ok(u32::from_le_bytes(self.read(pointer)?))
    }

    /// Copies `bytes` to `pointer`.
    pub(super) fn write(&mut self, pointer: u32, bytes: &[u8]) -> Result<(), Errno> {
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::Fault)?;
        self.bytes_mut(pointer, length)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes a little-endian number to `pointer`.
    pub(super) fn write_u32(&mut self, pointer: u32, value: u32) -> Result<(), Errno> {
        self.write(pointer, &value.to_le_bytes())
    }

    /// Writes a little-endian number to `pointer`.
    pub(super) fn write_u64(&mut self, pointer: u32, value: u64) -> Result<(), Errno> {
        self.write(pointer, &value.to_le_bytes())
    }
}

fn range(pointer: u32, length: u32) -> Result<(usize, usize), Errno> {
    let end = u64::from(pointer) + u64::from(length);
    let start = usize::try_from(pointer).map_err(|_| Errno::Fault)?;
    Ok((start, usize::try_from(end).map_err(|_| Errno::Fault)?))
}

/// Returns the address of item `index` of an array at `pointer` whose items have `size` bytes.
pub(super) fn item(pointer: u32, index: u32, size: u32) -> Result<u32, Errno> {
    index
        .checked_mul(size)
        .and_then(|offset| pointer.checked_add(offset))
        .ok_or(Errno::Fault)
}

/// Runs one call of a host function, and returns its result for Wasm.
pub(super) fn call<P: Platform>(
    mut caller: Caller<'_, State<P>>,
    function: impl FnOnce(&mut Memory<'_>, &mut State<P>) -> Result<(), Halt>,
) -> Result<i32> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        wasmtime::bail!("the module exports no memory named 'memory'");
    };
    let (bytes, state) = memory.data_and_store_mut(&mut caller);
    status(function(&mut Memory(bytes), state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_end_where_memory_ends() {
        let mut bytes = [7; 8];
        let mut memory = Memory(&mut bytes);
        assert_eq!(memory.bytes(0, 8), Ok([7; 8].as_slice()));
        assert_eq!(memory.bytes(8, 0), Ok([].as_slice()));
        assert_eq!(memory.bytes(8, 1), Err(Errno::Fault));
        assert_eq!(memory.bytes(u32::MAX, u32::MAX), Err(Errno::Fault));
        assert_eq!(memory.write_u64(1, 0), Err(Errno::Fault));
        assert_eq!(memory.write_u32(4, 1), Ok(()));
        assert_eq!(memory.read_u32(4), Ok(1));
    }

    #[test]
    fn items_that_wrap_around_are_faults() {
        assert_eq!(item(16, 2, 8), Ok(32));
        assert_eq!(item(16, u32::MAX, 8), Err(Errno::Fault));
        assert_eq!(item(u32::MAX, 1, 1), Err(Errno::Fault));
    }
}
