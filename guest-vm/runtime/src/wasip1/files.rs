//! Operations on open files.

use alloc::vec::Vec;
use core::time::Duration;

use super::errno::{Errno, Halt};
use super::memory::{Memory, functions};
use crate::descriptors::{Descriptor, OpenFile};
use crate::files::{Node, Stat};
use crate::platform::Platform;
use crate::state::State;
use faasw_abi::files::Kind;

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
pub(super) fn release<P: Platform>(state: &mut State<P>, descriptor: Descriptor) {
    if let Some(node) = descriptor.node() {
        state.file_system().close(node);
    }
}

/// Reads into buffers from a position on, and returns the number of bytes.
fn read_at<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    file: OpenFile,
    array: u32,
    count: u32,
) -> Result<u32, Halt> {
    if !file.reads {
        return Err(Errno::Badf.into());
    }
    // The buffers are collected first, because reading writes to the memory that holds the array.
    let buffers = memory
        .buffers(array, count)?
        .collect::<Result<Vec<_>, _>>()?;
    let files = state.file_system();
    let mut total = 0;
    for (pointer, length) in buffers {
        let buffer = memory.bytes_mut(pointer, length)?;
        let read = files.read(file.node, file.at.saturating_add(total.into()), buffer)?;
        total += u32::try_from(read)?;
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
    array: u32,
    count: u32,
) -> Result<u32, Halt> {
    if !file.writes {
        return Err(Errno::Badf.into());
    }
    let mut files = state.file_system();
    let mut total = 0;
    for buffer in memory.buffers(array, count)? {
        let (pointer, length) = buffer?;
        let bytes = memory.bytes(pointer, length)?;
        let at = file.at.checked_add(total.into()).ok_or(Errno::Fbig)?;
        let written = match files.write(file.node, at, bytes) {
            Ok(written) => written,
            Err(_) if total > 0 => break,
            Err(error) => return Err(error.into()),
        };
        total += u32::try_from(written)?;
        if written < bytes.len() {
            break;
        }
    }
    Ok(total)
}

/// Reads from the position of a file, and returns the number of bytes.
pub(super) fn read<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    descriptor: u32,
    file: OpenFile,
    array: u32,
    count: u32,
) -> Result<u32, Halt> {
    let read = read_at(memory, state, file, array, count)?;
    if let Some(file) = state.descriptors.file_mut(descriptor) {
        file.at += u64::from(read);
    }
    Ok(read)
}

/// Writes to the position of a file, or to its end, and returns the number of bytes.
pub(super) fn write<P: Platform>(
    memory: &Memory<'_>,
    state: &mut State<P>,
    descriptor: u32,
    mut file: OpenFile,
    array: u32,
    count: u32,
) -> Result<u32, Halt> {
    if file.flags & APPEND != 0 {
        file.at = state.file_system().stat(file.node)?.size;
    }
    let written = write_at(memory, state, file, array, count)?;
    if let Some(open) = state.descriptors.file_mut(descriptor) {
        open.at = file.at + u64::from(written);
    }
    Ok(written)
}

/// Returns the `fdstat` of a file or folder: type, flags, rights.
pub(super) fn fdstat(descriptor: &Descriptor) -> [u64; 3] {
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
    let head = u64::from(filetype) | u64::from(flags) << 16;
    [head, rights, inheriting]
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the `filestat` of a node.
pub(super) fn filestat(stat: &Stat) -> [u64; 8] {
    [
        1,
        inode(stat.node),
        filetype(stat.kind).into(),
        stat.links.into(),
        stat.size,
        nanoseconds(stat.times.accessed),
        nanoseconds(stat.times.modified),
        nanoseconds(stat.times.changed),
    ]
}

/// Returns the inode number of a node. No file has the number 0.
pub(super) fn inode(node: Node) -> u64 {
    u64::from(node) + 1
}

/// Returns the `filestat` of a descriptor; all zero for a pipe.
pub(super) fn filestat_of<P: Platform>(
    state: &mut State<P>,
    descriptor: u32,
) -> Result<[u64; 8], Errno> {
    match state.descriptors.get(descriptor).ok_or(Errno::Badf)?.node() {
        Some(node) => Ok(filestat(&state.file_system().stat(node)?)),
        None => Ok([0; 8]),
    }
}

/// Returns the times that `fstflags` set.
pub(super) fn times(
    (accessed, modified): (u64, u64),
    flags: u32,
    now: Duration,
) -> Result<(Option<Duration>, Option<Duration>), Errno> {
    let time = |given: u64, set, set_now| match (flags & set != 0, flags & set_now != 0) {
        (true, true) => Err(Errno::Inval),
        (true, false) => Ok(Some(Duration::from_nanos(given))),
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
    whence: u32,
) -> Result<u64, Errno> {
    let file = state.file(descriptor, Errno::Spipe)?;
    let from = match whence {
        0 => 0,
        1 => file.at,
        2 => state.file_system().stat(file.node)?.size,
        _ => return Err(Errno::Inval),
    };
    let at = from.checked_add_signed(offset).ok_or(Errno::Inval)?;
    if let Some(file) = state.descriptors.file_mut(descriptor) {
        file.at = at;
    }
    Ok(at)
}

fn sync<P: Platform>(state: &State<P>, descriptor: u32) -> Result<(), Halt> {
    let descriptor = state.descriptors.get(descriptor).ok_or(Errno::Badf)?;
    // Files exist in memory only, so there is nothing to synchronise.
    descriptor.node().ok_or(Errno::Inval)?;
    Ok(())
}

functions! {
    fn fd_pread(memory, state; descriptor: u32, array: u32, count: u32, at: u64, read_to: u32) {
        let file = state.file(descriptor, Errno::Spipe)?;
        let read = read_at(memory, state, OpenFile { at, ..file }, array, count)?;
        Ok(memory.write_u32(read_to, read)?)
    }

    fn fd_pwrite(memory, state; descriptor: u32, array: u32, count: u32, at: u64, written_to: u32) {
        let file = state.file(descriptor, Errno::Spipe)?;
        let written = write_at(memory, state, OpenFile { at, ..file }, array, count)?;
        Ok(memory.write_u32(written_to, written)?)
    }

    fn fd_seek(memory, state; descriptor: u32, offset: i64, whence: u32, at_to: u32) {
        let at = seek(state, descriptor, offset, whence)?;
        Ok(memory.write_u64s(at_to, [at])?)
    }

    fn fd_tell(memory, state; descriptor: u32, at_to: u32) {
        let file = state.file(descriptor, Errno::Spipe)?;
        Ok(memory.write_u64s(at_to, [file.at])?)
    }

    fn fd_advise(_memory, state; descriptor: u32, _at: u64, _length: u64, advice: u32) {
        state.file(descriptor, Errno::Spipe)?;
        match advice {
            0..=5 => Ok(()),
            _ => Err(Errno::Inval.into()),
        }
    }

    fn fd_allocate(_memory, state; descriptor: u32, at: u64, length: u64) {
        let file = state.file(descriptor, Errno::Spipe)?;
        let end = at.checked_add(length).filter(|_| length != 0).ok_or(Errno::Inval)?;
        if !file.writes {
            return Err(Errno::Badf.into());
        }
        let mut files = state.file_system();
        if end > files.stat(file.node)?.size {
            files.set_size(file.node, end)?;
        }
        Ok(())
    }

    fn fd_filestat_set_size(_memory, state; descriptor: u32, size: u64) {
        let file = state.file(descriptor, Errno::Inval)?;
        if !file.writes {
            return Err(Errno::Badf.into());
        }
        Ok(state.file_system().set_size(file.node, size)?)
    }

    fn fd_filestat_set_times(
        _memory, state;
        descriptor: u32, accessed: u64, modified: u64, flags: u32,
    ) {
        let descriptor = state.descriptors.get(descriptor);
        let node = descriptor.ok_or(Errno::Badf)?.node().ok_or(Errno::Inval)?;
        let mut files = state.file_system();
        let (accessed, modified) = times((accessed, modified), flags, files.now())?;
        Ok(files.set_times(node, accessed, modified)?)
    }

    fn fd_sync(_memory, state; descriptor: u32) {
        sync(state, descriptor)
    }

    fn fd_datasync(_memory, state; descriptor: u32) {
        sync(state, descriptor)
    }
}
