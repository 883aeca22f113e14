//! Operations on paths, relative to an open folder.

use core::time::Duration;

use wasmtime::{Caller, Linker, Result};

use super::MODULE;
use super::errno::{Errno, Halt};
use super::files::{RIGHT_READ, RIGHT_WRITE, filestat, times};
use super::memory::{Memory, call, unsigned};
use crate::descriptors::{Descriptor, OpenFile};
use crate::files::{FileError, Files, Node, Opening};
use crate::memory::MemoryLimit;
use crate::platform::Platform;
use crate::state::State;
use faasw_abi::files::Kind;

/// Bit of `lookupflags`: a link at the end of a path is followed.
const FOLLOW: i32 = 1;

/// `oflags`.
const CREATE: i32 = 1;
const DIRECTORY: i32 = 2;
const EXCLUSIVE: i32 = 4;
const TRUNCATE: i32 = 8;

fn text<'a>(memory: &'a Memory<'_>, pointer: i32, length: i32) -> Result<&'a str, Errno> {
    let bytes = memory.bytes(unsigned(pointer), unsigned(length))?;
    core::str::from_utf8(bytes).map_err(|_| Errno::Ilseq)
}

/// How a path is to be opened.
struct OpenRequest {
    lookup: i32,
    how: i32,
    rights: u64,
    flags: i32,
}

fn open<P: Platform>(
    memory: &mut Memory<'_>,
    state: &mut State<P>,
    folder: i32,
    (path, length): (i32, i32),
    wanted: &OpenRequest,
    descriptor_to: i32,
) -> Result<(), Halt> {
    // The arguments are checked first: a call that fails later would leave a file open whose
    // descriptor the function does not know.
    let flags = u16::try_from(wanted.flags).map_err(|_| Errno::Inval)?;
    memory.read_u32(unsigned(descriptor_to))?;
    let folder = state.folder(unsigned(folder))?;
    let path = text(memory, path, length)?;
    let writes = wanted.rights & RIGHT_WRITE != 0;
    let opening = Opening {
        create: wanted.how & CREATE != 0,
        folder: wanted.how & DIRECTORY != 0,
        exclusive: wanted.how & EXCLUSIVE != 0,
        truncate: wanted.how & TRUNCATE != 0,
        write: writes,
        follow: wanted.lookup & FOLLOW != 0,
    };
    let (files, room, now) = state.files()?;
    let node = files.open(folder, path, opening, now, room)?;
    state.opens(node)?;
    let (files, ..) = state.files()?;
    let descriptor = match files.kind(node)? {
        Kind::Folder => Descriptor::Folder {
            node,
            is_preopened: false,
        },
        Kind::File | Kind::Link => Descriptor::File(OpenFile {
            node,
            at: 0,
            reads: wanted.rights & RIGHT_READ != 0,
            writes,
            flags,
        }),
    };
    let Some(number) = state.descriptors.add(descriptor) else {
        let (files, room, _) = state.files()?;
        files.close(node, room);
        return Err(Errno::Mfile.into());
    };
    Ok(memory.write_u32(unsigned(descriptor_to), number)?)
}

/// Adds the functions of this module.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "path_open",
        |caller: Caller<'_, State<P>>,
         folder: i32,
         lookup: i32,
         path: i32,
         length: i32,
         how: i32,
         rights: i64,
         _inheriting: i64,
         flags: i32,
         descriptor: i32| {
            call(caller, |memory, state| {
                let wanted = OpenRequest {
                    lookup,
                    how,
                    rights: rights.cast_unsigned(),
                    flags,
                };
                open(memory, state, folder, (path, length), &wanted, descriptor)
            })
        },
    )?;
    add_queries(linker)?;
    add_changes(linker)?;
    add_moves(linker)
}

/// Adds the functions that only read.
fn add_queries<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "path_filestat_get",
        |caller: Caller<'_, State<P>>,
         folder: i32,
         lookup: i32,
         path: i32,
         length: i32,
         stat_to: i32| {
            call(caller, |memory, state| {
                let folder = state.folder(unsigned(folder))?;
                let path = text(memory, path, length)?;
                let (files, ..) = state.files()?;
                let node = files.find(folder, path, lookup & FOLLOW != 0)?;
                let told = filestat(&files.stat(node)?);
                Ok(memory.write(unsigned(stat_to), &told)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_readlink",
        |caller: Caller<'_, State<P>>,
         folder: i32,
         path: i32,
         length: i32,
         buffer: i32,
         most: i32,
         used_to: i32| {
            call(caller, |memory, state| {
                let folder = state.folder(unsigned(folder))?;
                let path = text(memory, path, length)?;
                let (files, ..) = state.files()?;
                let target = files.read_link(folder, path)?.as_bytes();
                let count = target.len().min(unsigned(most) as usize);
                memory.write(unsigned(buffer), target.get(..count).unwrap_or_default())?;
                let count = u32::try_from(count).map_err(|_| Errno::Overflow)?;
                Ok(memory.write_u32(unsigned(used_to), count)?)
            })
        },
    )?;
    Ok(())
}

/// Adds a function that changes the object at one path, and has no other parameters.
fn add_change<P: Platform>(
    linker: &mut Linker<State<P>>,
    name: &str,
    change: fn(&mut Files, Node, &str, Duration, &mut MemoryLimit) -> Result<(), FileError>,
) -> Result<()> {
    linker.func_wrap(
        MODULE,
        name,
        move |caller: Caller<'_, State<P>>, folder: i32, path: i32, length: i32| {
            call(caller, |memory, state| {
                let folder = state.folder(unsigned(folder))?;
                let path = text(memory, path, length)?;
                let (files, room, now) = state.files()?;
                Ok(change(files, folder, path, now, room)?)
            })
        },
    )?;
    Ok(())
}

/// Adds the functions that change the object at one path.
fn add_changes<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    add_change(linker, "path_create_directory", Files::create_folder)?;
    add_change(
        linker,
        "path_remove_directory",
        |files, folder, path, _, room| files.remove_folder(folder, path, room),
    )?;
    add_change(
        linker,
        "path_unlink_file",
        |files, folder, path, _, room| files.unlink(folder, path, room),
    )?;
    linker.func_wrap(
        MODULE,
        "path_filestat_set_times",
        |caller: Caller<'_, State<P>>,
         folder: i32,
         lookup: i32,
         path: i32,
         length: i32,
         accessed: i64,
         modified: i64,
         flags: i32| {
            call(caller, |memory, state| {
                let folder = state.folder(unsigned(folder))?;
                let path = text(memory, path, length)?;
                let (files, room, now) = state.files()?;
                let (accessed, modified) = times((accessed, modified), flags, now)?;
                let node = files.find(folder, path, lookup & FOLLOW != 0)?;
                Ok(files.set_times(node, accessed, modified, now, room)?)
            })
        },
    )?;
    Ok(())
}

/// Adds the functions that link and move.
fn add_moves<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "path_symlink",
        |caller: Caller<'_, State<P>>,
         target: i32,
         target_length: i32,
         folder: i32,
         path: i32,
         length: i32| {
            call(caller, |memory, state| {
                let folder = state.folder(unsigned(folder))?;
                let target = text(memory, target, target_length)?;
                let path = text(memory, path, length)?;
                let (files, room, now) = state.files()?;
                Ok(files.create_link(target, folder, path, now, room)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_link",
        |caller: Caller<'_, State<P>>,
         folder: i32,
         lookup: i32,
         path: i32,
         length: i32,
         to_folder: i32,
         to_path: i32,
         to_length: i32| {
            call(caller, |memory, state| {
                let folder = state.folder(unsigned(folder))?;
                let to_folder = state.folder(unsigned(to_folder))?;
                let path = text(memory, path, length)?;
                let to_path = text(memory, to_path, to_length)?;
                if lookup & FOLLOW != 0 {
                    return Err(Errno::Inval.into());
                }
                let (files, room, _) = state.files()?;
                Ok(files.link((folder, path), (to_folder, to_path), room)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_rename",
        |caller: Caller<'_, State<P>>,
         folder: i32,
         path: i32,
         length: i32,
         to_folder: i32,
         to_path: i32,
         to_length: i32| {
            call(caller, |memory, state| {
                let folder = state.folder(unsigned(folder))?;
                let to_folder = state.folder(unsigned(to_folder))?;
                let path = text(memory, path, length)?;
                let to_path = text(memory, to_path, to_length)?;
                let (files, room, now) = state.files()?;
                Ok(files.rename((folder, path), (to_folder, to_path), now, room)?)
            })
        },
    )?;
    Ok(())
}
