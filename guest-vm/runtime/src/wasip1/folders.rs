//! Operations on open folders: listing, and the paths of preopened folders.

use faasw_abi::files::Kind;
use wasmtime::{Caller, Linker, Result};

use super::MODULE;
use super::errno::Errno;
use super::files::{filetype, inode};
use super::memory::{call, unsigned};
use crate::descriptors::Descriptor;
use crate::files::{Files, Node};
use crate::platform::Platform;
use crate::state::State;

/// Bytes of a `dirent` before its name.
const DIRENT: usize = 24;

/// Entries that are listed at once.
const AT_ONCE: usize = 64;

/// A buffer for a listing, and the number of used bytes.
struct Listing<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl Listing<'_> {
    /// Adds an entry, or as much of it as there is space for.
    fn put(&mut self, next: u64, node: Node, kind: Kind, name: &str) {
        let mut head = [0; DIRENT];
        let length = (name.len() as u32).to_le_bytes();
        let (next, inode) = (next.to_le_bytes(), inode(node).to_le_bytes());
        let kind = [filetype(kind)];
        let parts: [&[u8]; 4] = [&next, &inode, &length, &kind];
        for (to, from) in head.iter_mut().zip(parts.iter().copied().flatten()) {
            *to = *from;
        }
        for bytes in [&head, name.as_bytes()] {
            let rest = self.room.get_mut(self.used..).unwrap_or_default();
            let count = rest.len().min(bytes.len());
            if let (Some(to), Some(from)) = (rest.get_mut(..count), bytes.get(..count)) {
                to.copy_from_slice(from);
            }
            self.used += count;
        }
    }

    fn is_full(&self) -> bool {
        self.used == self.room.len()
    }
}

/// Writes a listing from a cookie on, as much as there is space for, and returns the number of
/// bytes. The last entry may be truncated.
fn list(files: &Files, folder: Node, cookie: u64, room: &mut [u8]) -> Result<usize, Errno> {
    let mut listing = Listing { room, used: 0 };
    // Checks that the folder can be listed.
    files.list(folder, 0, 0)?;
    if cookie == 0 {
        listing.put(1, folder, Kind::Folder, ".");
    }
    if cookie <= 1 {
        listing.put(2, files.parent(folder), Kind::Folder, "..");
    }
    // The two entries above have the first numbers.
    let mut behind = cookie.saturating_sub(2);
    while !listing.is_full() {
        let entries = files.list(folder, behind, AT_ONCE)?;
        let Some(last) = entries.last() else { break };
        behind = last.number;
        for entry in entries {
            let kind = files.kind(entry.node)?;
            listing.put(entry.number + 2, entry.node, kind, entry.name);
        }
    }
    Ok(listing.used)
}

/// Adds the functions of this module.
pub(super) fn add_to_linker<P: Platform>(linker: &mut Linker<State<P>>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_prestat_get",
        |caller: Caller<'_, State<P>>, descriptor: i32, prestat: i32| {
            call(caller, |memory, state| {
                let name = preopened(state, unsigned(descriptor))?;
                let length = u32::try_from(name.len()).map_err(|_| Errno::Overflow)?;
                let directory = u64::from(length) << 32;
                Ok(memory.write_u64(unsigned(prestat), directory)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_prestat_dir_name",
        |caller: Caller<'_, State<P>>, descriptor: i32, path: i32, length: i32| {
            call(caller, |memory, state| {
                let name = preopened(state, unsigned(descriptor))?;
                if name.len() > unsigned(length) as usize {
                    return Err(Errno::Nametoolong.into());
                }
                Ok(memory.write(unsigned(path), name.as_bytes())?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_readdir",
        |caller: Caller<'_, State<P>>,
         descriptor: i32,
         buffer: i32,
         length: i32,
         cookie: i64,
         used: i32| {
            call(caller, |memory, state| {
                let folder = state.folder(unsigned(descriptor))?;
                let buffer = memory.bytes_mut(unsigned(buffer), unsigned(length))?;
                let listed = list(state.files()?.0, folder, cookie.cast_unsigned(), buffer)?;
                let count = u32::try_from(listed).map_err(|_| Errno::Overflow)?;
                Ok(memory.write_u32(unsigned(used), count)?)
            })
        },
    )?;
    Ok(())
}

/// Returns the path of a preopened folder, by its descriptor.
fn preopened<P: Platform>(state: &State<P>, descriptor: u32) -> Result<&str, Errno> {
    match (state.descriptors.get(descriptor), &state.files) {
        (
            Some(Descriptor::Folder {
                is_preopened: true, ..
            }),
            Some(files),
        ) => Ok(files.mount()),
        // C libraries search for preopened folders from 3 up, until this error.
        _ => Err(Errno::Badf),
    }
}
