//! Operations on paths, relative to an open folder.

use faasw_abi::files::Kind;

use super::errno::{Errno, Halt};
use super::files::{RIGHT_READ, RIGHT_WRITE, filestat, times};
use super::memory::{Memory, functions};
use crate::descriptors::{Descriptor, OpenFile};
use crate::files::{Node, Opening};
use crate::platform::Platform;
use crate::state::State;

/// Bit of `lookupflags`: a link at the end of a path is followed.
const FOLLOW: u32 = 1;

/// `oflags`.
const CREATE: u32 = 1;
const DIRECTORY: u32 = 2;
const EXCLUSIVE: u32 = 4;
const TRUNCATE: u32 = 8;

fn text<'a>(memory: &'a Memory<'_>, pointer: u32, length: u32) -> Result<&'a str, Errno> {
    let bytes = memory.bytes(pointer, length)?;
    core::str::from_utf8(bytes).map_err(|_| Errno::Ilseq)
}

/// Returns the folder and the path of a call.
fn place<'a, P: Platform>(
    memory: &'a Memory<'_>,
    state: &State<P>,
    folder: u32,
    path: u32,
    length: u32,
) -> Result<(Node, &'a str), Errno> {
    Ok((state.folder(folder)?, text(memory, path, length)?))
}

/// Opens a path, and returns the new descriptor. `flags` are its `fdflags`.
fn open<P: Platform>(
    state: &mut State<P>,
    (folder, path): (Node, &str),
    opening: Opening,
    reads: bool,
    flags: u16,
) -> Result<u32, Halt> {
    let node = state.file_system().open(folder, path, opening)?;
    state.opens(node)?;
    let descriptor = match state.file_system().kind(node)? {
        Kind::Folder => Descriptor::Folder {
            node,
            is_preopened: false,
        },
        Kind::File | Kind::Link => Descriptor::File(OpenFile {
            node,
            at: 0,
            reads,
            writes: opening.write,
            flags,
        }),
    };
    let Some(number) = state.descriptors.add(descriptor) else {
        state.file_system().close(node);
        return Err(Errno::Mfile.into());
    };
    Ok(number)
}

functions! {
    fn path_open(
        memory, state;
        folder: u32, lookup: u32, path: u32, length: u32, how: u32,
        rights: u64, _inheriting: u64, flags: u32, descriptor: u32,
    ) {
        let opening = Opening {
            create: how & CREATE != 0,
            folder: how & DIRECTORY != 0,
            exclusive: how & EXCLUSIVE != 0,
            truncate: how & TRUNCATE != 0,
            write: rights & RIGHT_WRITE != 0,
            follow: lookup & FOLLOW != 0,
        };
        // The arguments are checked first: a call that fails later would leave a file open whose
        // descriptor the function does not know.
        let flags = u16::try_from(flags).map_err(|_| Errno::Inval)?;
        memory.read_u32(descriptor)?;
        let place = place(memory, state, folder, path, length)?;
        let number = open(state, place, opening, rights & RIGHT_READ != 0, flags)?;
        Ok(memory.write_u32(descriptor, number)?)
    }

    fn path_filestat_get(
        memory, state;
        folder: u32, lookup: u32, path: u32, length: u32, stat_to: u32,
    ) {
        let (folder, path) = place(memory, state, folder, path, length)?;
        let files = state.file_system();
        let node = files.find(folder, path, lookup & FOLLOW != 0)?;
        Ok(memory.write_u64s(stat_to, filestat(&files.stat(node)?))?)
    }

    fn path_readlink(
        memory, state;
        folder: u32, path: u32, length: u32, buffer: u32, most: u32, used_to: u32,
    ) {
        let (folder, path) = place(memory, state, folder, path, length)?;
        let files = state.file_system();
        let target = files.read_link(folder, path)?.as_bytes();
        let count = target.len().min(most as usize);
        memory.write(buffer, target.get(..count).unwrap_or_default())?;
        Ok(memory.write_u32(used_to, count.try_into()?)?)
    }

    fn path_create_directory(memory, state; folder: u32, path: u32, length: u32) {
        let (folder, path) = place(memory, state, folder, path, length)?;
        Ok(state.file_system().create_folder(folder, path)?)
    }

    fn path_remove_directory(memory, state; folder: u32, path: u32, length: u32) {
        let (folder, path) = place(memory, state, folder, path, length)?;
        Ok(state.file_system().remove_folder(folder, path)?)
    }

    fn path_unlink_file(memory, state; folder: u32, path: u32, length: u32) {
        let (folder, path) = place(memory, state, folder, path, length)?;
        Ok(state.file_system().unlink(folder, path)?)
    }

    fn path_filestat_set_times(
        memory, state;
        folder: u32, lookup: u32, path: u32, length: u32, accessed: u64, modified: u64, flags: u32,
    ) {
        let (folder, path) = place(memory, state, folder, path, length)?;
        let mut files = state.file_system();
        let (accessed, modified) = times((accessed, modified), flags, files.now())?;
        let node = files.find(folder, path, lookup & FOLLOW != 0)?;
        Ok(files.set_times(node, accessed, modified)?)
    }

    fn path_symlink(
        memory, state;
        target: u32, target_length: u32, folder: u32, path: u32, length: u32,
    ) {
        let (folder, path) = place(memory, state, folder, path, length)?;
        let target = text(memory, target, target_length)?;
        Ok(state.file_system().create_link(target, folder, path)?)
    }

    fn path_link(
        memory, state;
        folder: u32, lookup: u32, path: u32, length: u32,
        to_folder: u32, to_path: u32, to_length: u32,
    ) {
        let from = place(memory, state, folder, path, length)?;
        let to = place(memory, state, to_folder, to_path, to_length)?;
        if lookup & FOLLOW != 0 {
            return Err(Errno::Inval.into());
        }
        Ok(state.file_system().link(from, to)?)
    }

    fn path_rename(
        memory, state;
        folder: u32, path: u32, length: u32, to_folder: u32, to_path: u32, to_length: u32,
    ) {
        let from = place(memory, state, folder, path, length)?;
        let to = place(memory, state, to_folder, to_path, to_length)?;
        Ok(state.file_system().rename(from, to)?)
    }
}
