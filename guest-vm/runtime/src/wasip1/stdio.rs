//! Operations on every descriptor: reading, writing, closing, status. [`super::files`] has the
//! operations on files only.

use faasw_abi::channel::Channel;
use wasmtime::{Caller, Linker, Result};

use super::MODULE;
use super::errno::{Errno, Halt};
use super::files::{self, RIGHT_POLL, RIGHT_READ, RIGHT_WRITE};
use super::memory::{Memory, call, item, unsigned};
use crate::descriptors::{Descriptor, Stream};
use crate::platform::{Platform, read_some};
use crate::state::State;

/// Maximum number of buffers in one call, as in POSIX systems.
const MAX_BUFFERS: u32 = 1024;

/// Bytes of a buffer's pointer and length.
const BUFFER: u32 = 8;

/// Maximum bytes that one call moves. Buffers may overlap, so their sum is not limited by the
/// memory that they are in; larger requests result in a short read or write.
const MAX_TRANSFER: u32 = 1 << 20;

/// Returns the buffers of a call, cut to [`MAX_TRANSFER`] bytes in all.
pub(super) fn buffers(
    memory: &Memory<'_>,
    array: u32,
    count: u32,
) -> Result<impl Iterator<Item = Result<(u32, u32), Errno>>, Errno> {
    if count > MAX_BUFFERS {
        return Err(Errno::Inval);
    }
    let mut left = MAX_TRANSFER;
    Ok((0..count).map(move |index| {
        let at = item(array, index, BUFFER)?;
        let pointer = memory.read_u32(at)?;
        let length = memory.read_u32(at.checked_add(4).ok_or(Errno::Fault)?)?;
        let length = length.min(left);
        left -= length;
        Ok((pointer, length))
    }))
}

fn read<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    descriptor: u32,
    array: u32,
    count: u32,
    read_at: u32,
) -> Result<(), Halt> {
    match state.descriptors.get(descriptor) {
        Some(Descriptor::Stream(Stream::Stdin)) => {}
        Some(Descriptor::File(file)) => {
            return files::read(memory, state, descriptor, file, array, count, read_at);
        }
        _ => return Err(Errno::Badf.into()),
    }
    // The buffers are collected first, because reading writes to the memory that holds the array.
    let buffers = buffers(memory, array, count)?.collect::<Result<alloc::vec::Vec<_>, _>>()?;
    let mut total = 0;
    for (pointer, length) in buffers {
        let buffer = memory.bytes_mut(pointer, length)?;
        if buffer.is_empty() {
            continue;
        }
        // Only the first bytes are waited for, because later ones may take long.
        let taken = if total == 0 {
            read_some(&mut state.platform, Channel::INVOCATION, buffer)
        } else {
            state.platform.read(Channel::INVOCATION, buffer)
        };
        total += u32::try_from(taken).map_err(|_| Errno::Overflow)?;
        if taken < buffer.len() {
            break;
        }
    }
    Ok(memory.write_u32(read_at, total)?)
}

fn write<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    descriptor: u32,
    array: u32,
    count: u32,
    written_at: u32,
) -> Result<(), Halt> {
    let stream = match state.descriptors.get(descriptor) {
        Some(Descriptor::Stream(stream)) => stream,
        Some(Descriptor::File(file)) => {
            return files::write(memory, state, descriptor, file, array, count, written_at);
        }
        _ => return Err(Errno::Badf.into()),
    };
    let mut total = 0;
    for buffer in buffers(memory, array, count)? {
        let (pointer, length) = buffer?;
        let bytes = memory.bytes(pointer, length)?;
        match stream {
            Stream::Stdin => return Err(Errno::Badf.into()),
            Stream::Stdout => state.write_stdout(bytes)?,
            Stream::Stderr => state.write_stderr(bytes),
        }
        total += length;
    }
    // Output of a command is not buffered again, because its own library did that.
    if stream == Stream::Stdout {
        state.flush_stdout();
    }
    Ok(memory.write_u32(written_at, total)?)
}

/// Returns the `fdstat` of a stream: type, flags, rights. The type is "unknown", that of a pipe:
/// for a terminal C libraries would write line by line.
fn fdstat(stream: Stream) -> [u8; 24] {
    let rights = match stream {
        Stream::Stdin => RIGHT_READ | RIGHT_POLL,
        Stream::Stdout | Stream::Stderr => RIGHT_WRITE | RIGHT_POLL,
    };
    let mut stat = [0; 24];
    let (_, rights_base) = stat.split_at_mut(8);
    if let Some(base) = rights_base.first_chunk_mut() {
        *base = rights.to_le_bytes();
    }
    stat
}

/// Adds the functions of this module.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_read",
        |caller: Caller<'_, State<P>>, descriptor: i32, array: i32, count: i32, read_at: i32| {
            call(caller, |memory, state| {
                read(
                    memory,
                    state,
                    unsigned(descriptor),
                    unsigned(array),
                    unsigned(count),
                    unsigned(read_at),
                )
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_write",
        |caller: Caller<'_, State<P>>, descriptor: i32, array: i32, count: i32, written: i32| {
            call(caller, |memory, state| {
                write(
                    memory,
                    state,
                    unsigned(descriptor),
                    unsigned(array),
                    unsigned(count),
                    unsigned(written),
                )
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_close",
        |caller: Caller<'_, State<P>>, descriptor: i32| {
            call(caller, |_, state| {
                let closed = state.descriptors.close(unsigned(descriptor));
                let closed = closed.ok_or(Errno::Badf)?;
                files::closed(state, closed);
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_renumber",
        |caller: Caller<'_, State<P>>, from: i32, to: i32| {
            call(caller, |_, state| {
                let moved = state.descriptors.renumber(unsigned(from), unsigned(to));
                if let Some(replaced) = moved.ok_or(Errno::Badf)? {
                    files::closed(state, replaced);
                }
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_fdstat_get",
        |caller: Caller<'_, State<P>>, descriptor: i32, stat: i32| {
            call(caller, |memory, state| {
                let descriptor = state.descriptors.get(unsigned(descriptor));
                let told = match descriptor.ok_or(Errno::Badf)? {
                    Descriptor::Stream(stream) => fdstat(stream),
                    other => files::fdstat(&other),
                };
                Ok(memory.write(unsigned(stat), &told)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_fdstat_set_flags",
        |caller: Caller<'_, State<P>>, descriptor: i32, flags: i32| {
            call(caller, |_, state| {
                let descriptor = unsigned(descriptor);
                // Standard streams have no flags to change, so the call succeeds without effect.
                state.descriptors.get(descriptor).ok_or(Errno::Badf)?;
                if let Some(file) = state.descriptors.file_mut(descriptor) {
                    file.flags = u16::try_from(flags).map_err(|_| Errno::Inval)?;
                }
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_get",
        |caller: Caller<'_, State<P>>, descriptor: i32, stat: i32| {
            call(caller, |memory, state| {
                let told = files::filestat_of(state, unsigned(descriptor))?;
                Ok(memory.write(unsigned(stat), &told)?)
            })
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_streams_look_like_pipes() {
        let stat = fdstat(Stream::Stdin);
        assert_eq!(stat[0], 0);
        assert_eq!(stat[8..16], (RIGHT_READ | RIGHT_POLL).to_le_bytes());
        assert_eq!(stat[16..24], [0; 8]);
    }
}
