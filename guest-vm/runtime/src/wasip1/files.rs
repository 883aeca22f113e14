//! Operations on open files.

use alloc::vec::Vec;
use core::time::Duration;

use faasw_abi::files::Kind;
use wasmtime::{Caller, Linker, Result};

use super::MODULE;
use super::errno::{Errno, Halt};
use super::memory::{Memory, call, unsigned};
use super::stdio::buffers;
use crate::descriptors::{Descriptor, OpenFile};
use crate::files::{Files, Node, Stat};
use crate::memory::MemoryLimit;
use crate::platform::Platform;
use crate::state::State;

/// `rights` that are checked.
pub(super) const RIGHT_READ: u64 = 1 << 1;
pub(super) const RIGHT_WRITE: u64 = 1 << 6;
pub(super) const RIGHT_POLL: u64 = 1 << 27;

/// `rights` of every file: `fd_seek`, `fd_fdstat_set_flags`, `fd_sync`, `fd_tell`, `fd_advise`,
/// `fd_datasync`, `fd_filestat_get`, `fd_filestat_set_times`, polling.
const OF_FILES: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 21 | 1 << 23 | 1 << 27;

/// Rights of a file open for writing: `fd_write`, `fd_allocate`, `fd_filestat_set_size`.
const OF_WRITTEN: u64 = RIGHT_WRITE | 1 << 8 | 1 << 22;

/// Rights of a folder: all on paths except `path_filestat_set_size`, listing, and those that apply
/// to folders as well as to files.
const OF_FOLDERS: u64 =
    0b11_1111 << 9 | 0b111 << 15 | 1 << 18 | 1 << 20 | 1 << 21 | 1 << 23 | 0b111 << 24;

/// `filetype`s.
const TYPE_FOLDER: u8 = 3;
const TYPE_FILE: u8 = 4;
const TYPE_LINK: u8 = 7;

/// `fdflags`: writes append to the file.
const APPEND: u16 = 1;

/// `fstflags`: which times are set, and their source.
const ATIM: u32 = 1;
const ATIM_NOW: u32 = 2;
const MTIM: u32 = 4;
const MTIM_NOW: u32 = 8;

pub(super) fn filetype(kind: Kind) -> u8 {
    match kind {
        Kind::Folder => TYPE_FOLDER,
        Kind::File => TYPE_FILE,
        Kind::Link => TYPE_LINK,
    }
}

impl<P: Platform> State<P> {
    /// Returns the function's files, the account that pays for them, and the time.
    pub(super) fn files(&mut self) -> Result<(&mut Files, &mut MemoryLimit, Duration), Errno> {
        self.file_system().ok_or(Errno::Badf)
    }

    /// Returns the folder behind a descriptor.
    pub(super) fn folder(&self, descriptor: u32) -> Result<Node, Errno> {
        match self.descriptors.get(descriptor).ok_or(Errno::Badf)? {
            Descriptor::Folder { node, .. } => Ok(node),
            Descriptor::Stream(_) | Descriptor::File(_) => Err(Errno::Notdir),
        }
    }

    /// Returns the file behind a descriptor, or the error `of_stream` for a stream.
    fn file(&self, descriptor: u32, of_stream: Errno) -> Result<OpenFile, Errno> {
        match self.descriptors.get(descriptor).ok_or(Errno::Badf)? {
            Descriptor::File(file) => Ok(file),
            Descriptor::Stream(_) => Err(of_stream),
            Descriptor::Folder { .. } => Err(Errno::Badf),
        }
    }
}

/// Releases the node of a closed descriptor.
pub(super) fn closed<P: Platform>(state: &mut State<P>, descriptor: Descriptor) {
    if let (Some(node), Ok((files, room, _))) = (descriptor.node(), state.files()) {
        files.close(node, room);
    }
}

/// Reads into buffers from a position on, and returns the number of bytes.
fn read_at<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    file: OpenFile,
    (array, count): (u32, u32),
) -> Result<u32, Halt> {
    if !file.reads {
        return Err(Errno::Badf.into());
    }
    // The buffers are collected first, because reading writes to the memory that holds the array.
    let buffers = buffers(memory, array, count)?.collect::<Result<Vec<_>, _>>()?;
    let (files, ..) = state.files()?;
    let mut total = 0;
    for (pointer, length) in buffers {
        let buffer = memory.bytes_mut(pointer, length)?;
        let read = files.read(file.node, file.at.saturating_add(total.into()), buffer)?;
        total += u32::try_from(read).map_err(|_| Errno::Overflow)?;
        if read < buffer.len() {
            break;
        }
    }
    Ok(total)
}

/// Writes buffers from a position on, and returns the number of bytes.
fn write_at<P: Platform>(
    memory: &Memory<'_>,
    state: &mut State<P>,
    file: OpenFile,
    (array, count): (u32, u32),
) -> Result<u32, Halt> {
    if !file.writes {
        return Err(Errno::Badf.into());
    }
    let (files, room, now) = state.files()?;
    let mut total = 0;
    for buffer in buffers(memory, array, count)? {
        let (pointer, length) = buffer?;
        let bytes = memory.bytes(pointer, length)?;
        let at = file.at.checked_add(total.into()).ok_or(Errno::Fbig)?;
        let written = match files.write(file.node, at, bytes, now, room) {
            Ok(written) => written,
            Err(_) if total > 0 => break,
            Err(error) => return Err(error.into()),
        };
        total += u32::try_from(written).map_err(|_| Errno::Overflow)?;
        if written < bytes.len() {
            break;
        }
    }
    Ok(total)
}

/// `fd_read` of a file.
pub(super) fn read<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    descriptor: u32,
    file: OpenFile,
    array: u32,
    count: u32,
    read_to: u32,
) -> Result<(), Halt> {
    let read = read_at(memory, state, file, (array, count))?;
    if let Some(file) = state.descriptors.file_mut(descriptor) {
        file.at += u64::from(read);
    }
    Ok(memory.write_u32(read_to, read)?)
}

/// `fd_write` of a file.
pub(super) fn write<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    descriptor: u32,
    mut file: OpenFile,
    array: u32,
    count: u32,
    written_to: u32,
) -> Result<(), Halt> {
    if file.flags & APPEND != 0 {
        file.at = state.files()?.0.stat(file.node)?.size;
    }
    let written = write_at(memory, state, file, (array, count))?;
    if let Some(open) = state.descriptors.file_mut(descriptor) {
        open.at = file.at + u64::from(written);
    }
    Ok(memory.write_u32(written_to, written)?)
}

/// Returns the `fdstat` of a file or folder: type, flags, rights.
pub(super) fn fdstat(descriptor: &Descriptor) -> [u8; 24] {
    let (filetype, flags, rights, inheriting) = match descriptor {
        Descriptor::File(file) => {
            let read = if file.reads { RIGHT_READ } else { 0 };
            let written = if file.writes { OF_WRITTEN } else { 0 };
            (TYPE_FILE, file.flags, OF_FILES | read | written, 0)
        }
        _ => {
            let all = OF_FOLDERS | OF_FILES | OF_WRITTEN | RIGHT_READ;
            (TYPE_FOLDER, 0, OF_FOLDERS, all)
        }
    };
    let mut stat = [0; 24];
    let head = [[filetype, 0], flags.to_le_bytes()];
    let longs = [rights, inheriting].map(u64::to_le_bytes);
    let bytes = head.iter().flatten().chain(&[0; 4]);
    for (to, from) in stat.iter_mut().zip(bytes.chain(longs.iter().flatten())) {
        *to = *from;
    }
    stat
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the `filestat` of a node.
pub(super) fn filestat(stat: &Stat) -> [u8; 64] {
    let longs = [
        1,
        inode(stat.node),
        filetype(stat.kind).into(),
        stat.links.into(),
        stat.size,
        nanoseconds(stat.times.accessed),
        nanoseconds(stat.times.modified),
        nanoseconds(stat.times.changed),
    ];
    let mut bytes = [0; 64];
    for (to, from) in bytes
        .iter_mut()
        .zip(longs.iter().flat_map(|long| long.to_le_bytes()))
    {
        *to = from;
    }
    bytes
}

/// Returns the inode number of a node. No file has the number 0.
pub(super) fn inode(node: Node) -> u64 {
    u64::from(node) + 1
}

/// Returns the `filestat` of a descriptor; all zero for a pipe.
pub(super) fn filestat_of<P: Platform>(
    state: &mut State<P>,
    descriptor: u32,
) -> Result<[u8; 64], Errno> {
    match state.descriptors.get(descriptor).ok_or(Errno::Badf)?.node() {
        Some(node) => Ok(filestat(&state.files()?.0.stat(node)?)),
        None => Ok([0; 64]),
    }
}

/// Returns the times that `fstflags` set.
pub(super) fn times(
    (accessed, modified): (i64, i64),
    flags: i32,
    now: Duration,
) -> Result<(Option<Duration>, Option<Duration>), Errno> {
    let flags = unsigned(flags);
    let time = |given: i64, set, set_now| match (flags & set != 0, flags & set_now != 0) {
        (true, true) => Err(Errno::Inval),
        (true, false) => Ok(Some(Duration::from_nanos(given.cast_unsigned()))),
        (false, true) => Ok(Some(now)),
        (false, false) => Ok(None),
    };
    Ok((
        time(accessed, ATIM, ATIM_NOW)?,
        time(modified, MTIM, MTIM_NOW)?,
    ))
}

/// Moves the position of a file relative to `whence`: its start, its position, or its end.
fn seek<P: Platform>(
    state: &mut State<P>,
    descriptor: u32,
    offset: i64,
    whence: i32,
) -> Result<u64, Errno> {
    let file = state.file(descriptor, Errno::Spipe)?;
    let from = match whence {
        0 => 0,
        1 => file.at,
        2 => state.files()?.0.stat(file.node)?.size,
        _ => return Err(Errno::Inval),
    };
    let at = from.checked_add_signed(offset).ok_or(Errno::Inval)?;
    if let Some(file) = state.descriptors.file_mut(descriptor) {
        file.at = at;
    }
    Ok(at)
}

/// Adds the functions of this module.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    add_positions(linker)?;
    add_changes(linker)
}

/// Adds the functions that read, write, and change positions.
fn add_positions<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_pread",
        |caller: Caller<'_, State<P>>,
         descriptor: i32,
         array: i32,
         count: i32,
         at: i64,
         read_to: i32| {
            call(caller, |memory, state| {
                let mut file = state.file(unsigned(descriptor), Errno::Spipe)?;
                file.at = at.cast_unsigned();
                let buffers = (unsigned(array), unsigned(count));
                let read = read_at(memory, state, file, buffers)?;
                Ok(memory.write_u32(unsigned(read_to), read)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_pwrite",
        |caller: Caller<'_, State<P>>,
         descriptor: i32,
         array: i32,
         count: i32,
         at: i64,
         written_to: i32| {
            call(caller, |memory, state| {
                let mut file = state.file(unsigned(descriptor), Errno::Spipe)?;
                file.at = at.cast_unsigned();
                let buffers = (unsigned(array), unsigned(count));
                let written = write_at(memory, state, file, buffers)?;
                Ok(memory.write_u32(unsigned(written_to), written)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_seek",
        |caller: Caller<'_, State<P>>, descriptor: i32, offset: i64, whence: i32, at_to: i32| {
            call(caller, |memory, state| {
                let at = seek(state, unsigned(descriptor), offset, whence)?;
                Ok(memory.write_u64(unsigned(at_to), at)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_tell",
        |caller: Caller<'_, State<P>>, descriptor: i32, at_to: i32| {
            call(caller, |memory, state| {
                let file = state.file(unsigned(descriptor), Errno::Spipe)?;
                Ok(memory.write_u64(unsigned(at_to), file.at)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_advise",
        |caller: Caller<'_, State<P>>, descriptor: i32, _at: i64, _length: i64, advice: i32| {
            call(caller, |_, state| {
                state.file(unsigned(descriptor), Errno::Spipe)?;
                match advice {
                    0..=5 => Ok(()),
                    _ => Err(Errno::Inval.into()),
                }
            })
        },
    )?;
    Ok(())
}

/// Adds the functions that change a file, other than by writing.
fn add_changes<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_allocate",
        |caller: Caller<'_, State<P>>, descriptor: i32, at: i64, length: i64| {
            call(caller, |_, state| {
                let file = state.file(unsigned(descriptor), Errno::Spipe)?;
                let end = at.cast_unsigned().checked_add(length.cast_unsigned());
                let end = end.filter(|_| length != 0).ok_or(Errno::Inval)?;
                if !file.writes {
                    return Err(Errno::Badf.into());
                }
                let (files, room, now) = state.files()?;
                if end > files.stat(file.node)?.size {
                    files.set_size(file.node, end, now, room)?;
                }
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_set_size",
        |caller: Caller<'_, State<P>>, descriptor: i32, size: i64| {
            call(caller, |_, state| {
                let file = state.file(unsigned(descriptor), Errno::Inval)?;
                if !file.writes {
                    return Err(Errno::Badf.into());
                }
                let (files, room, now) = state.files()?;
                Ok(files.set_size(file.node, size.cast_unsigned(), now, room)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_set_times",
        |caller: Caller<'_, State<P>>,
         descriptor: i32,
         accessed: i64,
         modified: i64,
         flags: i32| {
            call(caller, |_, state| {
                let descriptor = state.descriptors.get(unsigned(descriptor));
                let node = descriptor.ok_or(Errno::Badf)?.node().ok_or(Errno::Inval)?;
                let (files, room, now) = state.files()?;
                let (accessed, modified) = times((accessed, modified), flags, now)?;
                Ok(files.set_times(node, accessed, modified, now, room)?)
            })
        },
    )?;
    for name in ["fd_sync", "fd_datasync"] {
        linker.func_wrap(
            MODULE,
            name,
            |caller: Caller<'_, State<P>>, descriptor: i32| {
                call(caller, |_, state| {
                    let descriptor = state.descriptors.get(unsigned(descriptor));
                    // Files exist in memory only, so there is nothing to synchronise.
                    descriptor.ok_or(Errno::Badf)?.node().ok_or(Errno::Inval)?;
                    Ok(())
                })
            },
        )?;
    }
    Ok(())
}
