//! The calling module's memory, with checks of every access.

use core::ops::Range;

use wasmtime::{Caller, Extern, Result};

use super::errno::{Errno, Halt};
use crate::platform::Platform;
use crate::state::State;

/// Maximum number of buffers in one call, as in POSIX systems.
const MAX_BUFFERS: u32 = 1024;

/// Bytes of a buffer's pointer and length.
const BUFFER: u32 = 8;

/// Maximum bytes that one call moves. Buffers may overlap, so their sum is not limited by the
/// memory that they are in; larger requests result in a short read or write.
const MAX_TRANSFER: u32 = 1 << 20;

/// The calling module's memory. Pointers are 32 bits, and unsigned.
pub(super) struct Memory<'a>(&'a mut [u8]);

impl Memory<'_> {
    /// Returns the `length` bytes at `pointer`.
    pub(super) fn bytes(&self, pointer: u32, length: u32) -> Result<&[u8], Errno> {
        self.0.get(range(pointer, length)).ok_or(Errno::Fault)
    }

    /// Returns the `length` bytes at `pointer`, for writing.
    pub(super) fn bytes_mut(&mut self, pointer: u32, length: u32) -> Result<&mut [u8], Errno> {
        self.0.get_mut(range(pointer, length)).ok_or(Errno::Fault)
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

    /// Writes little-endian numbers to `pointer`.
    pub(super) fn write_u64s<const N: usize>(
        &mut self,
        pointer: u32,
        values: [u64; N],
    ) -> Result<(), Errno> {
        self.write(pointer, values.map(u64::to_le_bytes).as_flattened())
    }

    /// Returns pointer and length of a call's buffers, cut to [`MAX_TRANSFER`] bytes in all.
    pub(super) fn buffers(
        &self,
        array: u32,
        count: u32,
    ) -> Result<impl Iterator<Item = Result<(u32, u32), Errno>>, Errno> {
        if count > MAX_BUFFERS {
            return Err(Errno::Inval);
        }
        let mut left = MAX_TRANSFER;
        Ok((0..count).map(move |index| {
            let at = item(array, index, BUFFER)?;
            let pointer = self.read_u32(at)?;
            let length = self.read_u32(at.checked_add(4).ok_or(Errno::Fault)?)?;
            let length = length.min(left);
            left -= length;
            Ok((pointer, length))
        }))
    }
}

/// Returns the range of bytes; the sum of two 32-bit numbers does not overflow 64 bits.
fn range(pointer: u32, length: u32) -> Range<usize> {
    pointer as usize..pointer as usize + length as usize
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
    match function(&mut Memory(bytes), state) {
        Ok(()) => Ok(0),
        Err(Halt::Errno(errno)) => Ok(errno as i32),
        Err(Halt::End(error)) => Err(error),
    }
}

/// Defines `add_to_linker`, which adds functions to a linker.
///
/// Before the semicolon, a function names the calling module's memory and the state; the parameters
/// from Wasm follow. The body returns `Result<(), Halt>`.
macro_rules! functions {
    ($(
        fn $name:ident($memory:pat, $state:ident; $($parameter:ident: $type:ty),+ $(,)?) $body:block
    )+) => {
        /// Adds the functions of this module.
        pub(super) fn add_to_linker<P: $crate::platform::Platform>(
            linker: &mut wasmtime::Linker<$crate::state::State<P>>,
        ) -> wasmtime::Result<()> {
            $(linker.func_wrap(
                $crate::wasip1::MODULE,
                stringify!($name),
                |caller: wasmtime::Caller<'_, $crate::state::State<P>>, $($parameter: $type),+| {
                    $crate::wasip1::memory::call(caller, |$memory, $state| $body)
                },
            )?;)+
            Ok(())
        }
    };
}
pub(super) use functions;

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
        assert_eq!(memory.write_u64s(1, [0]), Err(Errno::Fault));
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
