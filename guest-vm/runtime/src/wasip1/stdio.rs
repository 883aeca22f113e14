//! Operations on every descriptor: reading, writing, closing, status. [`super::files`] has the
//! operations on files only.

use alloc::vec::Vec;

use super::errno::{Errno, Halt};
use super::files::{self, RIGHT_POLL, RIGHT_READ, RIGHT_WRITE};
use super::memory::{Memory, functions};
use crate::descriptors::{Descriptor, Stream};
use crate::platform::{Platform, read_some};
use crate::state::State;
use faasw_abi::channel::Channel;

/// Reads into buffers, and returns the number of bytes.
fn read<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    descriptor: u32,
    array: u32,
    count: u32,
) -> Result<u32, Halt> {
    match state.descriptors.get(descriptor) {
        Some(Descriptor::Stream(Stream::Stdin)) => {}
        Some(Descriptor::File(file)) => {
            return files::read(memory, state, descriptor, file, array, count);
        }
        _ => return Err(Errno::Badf.into()),
    }
    // The buffers are collected first, because reading writes to the memory that holds the array.
    let buffers = memory
        .buffers(array, count)?
        .collect::<Result<Vec<_>, _>>()?;
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
        total += u32::try_from(taken)?;
        if taken < buffer.len() {
            break;
        }
    }
    Ok(total)
}

/// Writes buffers, and returns the number of bytes.
fn write<P: Platform>(
    memory: &Memory<'_>,
    state: &mut State<P>,
    descriptor: u32,
    array: u32,
    count: u32,
) -> Result<u32, Halt> {
    let stream = match state.descriptors.get(descriptor) {
        Some(Descriptor::Stream(stream)) => stream,
        Some(Descriptor::File(file)) => {
            return files::write(memory, state, descriptor, file, array, count);
        }
        _ => return Err(Errno::Badf.into()),
    };
    let mut total = 0;
    for buffer in memory.buffers(array, count)? {
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
    Ok(total)
}

/// Returns the `fdstat` of a stream: type, flags, rights. The type is "unknown", that of a pipe:
/// for a terminal C libraries would write line by line.
fn fdstat(stream: Stream) -> [u64; 3] {
    let rights = match stream {
        Stream::Stdin => RIGHT_READ | RIGHT_POLL,
        Stream::Stdout | Stream::Stderr => RIGHT_WRITE | RIGHT_POLL,
    };
    [0, rights, 0]
}

functions! {
    fn fd_read(memory, state; descriptor: u32, array: u32, count: u32, read_to: u32) {
        let read = read(memory, state, descriptor, array, count)?;
        Ok(memory.write_u32(read_to, read)?)
    }

    fn fd_write(memory, state; descriptor: u32, array: u32, count: u32, written_to: u32) {
        let written = write(memory, state, descriptor, array, count)?;
        Ok(memory.write_u32(written_to, written)?)
    }

    fn fd_close(_memory, state; descriptor: u32) {
        let closed = state.descriptors.close(descriptor).ok_or(Errno::Badf)?;
        files::release(state, closed);
        Ok(())
    }

    fn fd_renumber(_memory, state; from: u32, to: u32) {
        if let Some(replaced) = state.descriptors.renumber(from, to).ok_or(Errno::Badf)? {
            files::release(state, replaced);
        }
        Ok(())
    }

    fn fd_fdstat_get(memory, state; descriptor: u32, stat_to: u32) {
        let stat = match state.descriptors.get(descriptor).ok_or(Errno::Badf)? {
            Descriptor::Stream(stream) => fdstat(stream),
            other => files::fdstat(&other),
        };
        Ok(memory.write_u64s(stat_to, stat)?)
    }

    fn fd_fdstat_set_flags(_memory, state; descriptor: u32, flags: u32) {
        // Standard streams have no flags to change, so the call succeeds without effect.
        state.descriptors.get(descriptor).ok_or(Errno::Badf)?;
        if let Some(file) = state.descriptors.file_mut(descriptor) {
            file.flags = u16::try_from(flags).map_err(|_| Errno::Inval)?;
        }
        Ok(())
    }

    fn fd_filestat_get(memory, state; descriptor: u32, stat_to: u32) {
        Ok(memory.write_u64s(stat_to, files::filestat_of(state, descriptor)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_streams_look_like_pipes() {
        assert_eq!(fdstat(Stream::Stdin), [0, RIGHT_READ | RIGHT_POLL, 0]);
    }
}
