//! Operations on open folders: listing, and the paths of preopened folders.

use alloc::string::String;

use super::errno::Errno;
use super::files::{filetype, inode};
use super::memory::functions;
use crate::descriptors::Descriptor;
use crate::files::{Files, Node};
use crate::platform::Platform;
use crate::state::State;
use faasw_abi::files::Kind;

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
        let length_and_kind = u64::from(name.len() as u32) | u64::from(filetype(kind)) << 32;
        let dirent = [next, inode(node), length_and_kind].map(u64::to_le_bytes);
        for bytes in [dirent.as_flattened(), name.as_bytes()] {
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

/// Returns the path of a preopened folder, by its descriptor.
fn preopened<P: Platform>(state: &State<P>, descriptor: u32) -> Result<String, Errno> {
    // C libraries search for preopened folders from 3 up, until this error.
    let Some(Descriptor::Folder {
        node,
        is_preopened: true,
    }) = state.descriptors.get(descriptor)
    else {
        return Err(Errno::Badf);
    };
    let without = Files::default();
    let files = state.files.as_deref().unwrap_or(&without);
    let mut preopened = files.preopened();
    let (_, path) = preopened
        .find(|(other, _)| *other == node)
        .ok_or(Errno::Badf)?;
    Ok(path.into())
}

functions! {
    fn fd_prestat_get(memory, state; descriptor: u32, prestat: u32) {
        let length = u32::try_from(preopened(state, descriptor)?.len())?;
        Ok(memory.write_u64s(prestat, [u64::from(length) << 32])?)
    }

    fn fd_prestat_dir_name(memory, state; descriptor: u32, path: u32, length: u32) {
        let name = preopened(state, descriptor)?;
        if name.len() > length as usize {
            return Err(Errno::Nametoolong.into());
        }
        Ok(memory.write(path, name.as_bytes())?)
    }

    fn fd_readdir(
        memory, state;
        descriptor: u32, buffer: u32, length: u32, cookie: u64, used: u32,
    ) {
        let folder = state.folder(descriptor)?;
        let buffer = memory.bytes_mut(buffer, length)?;
        let files = state.file_system();
        let listed = list(&files, folder, cookie, buffer)?;
        Ok(memory.write_u32(used, listed.try_into()?)?)
    }
}
