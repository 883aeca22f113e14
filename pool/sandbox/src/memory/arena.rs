//! The address ranges in which a VM's memory is mapped.
//!
//! A sandbox that is a process only adds mappings until it ends, when the kernel releases all of
//! them: its jail does not even allow unmapping. On a thread of another program, a VM's memory must
//! be unmapped with the VM. So each range is recorded before anything is mapped there, and the VM
//! drops its arena last, when none of its descriptors is open.

use std::ptr::{self, NonNull};

use faasw_abi::memory_map::LARGE_PAGE;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::memory::mapping::Mapping;

/// Address ranges. They stay mapped when the arena is dropped, unless [`Arena::release_at_end`] was
/// called.
#[derive(Debug, Default)]
pub struct Arena {
    rooms: Vec<(NonNull<u8>, usize)>,
    releases: bool,
}

impl Arena {
    /// Makes the arena unmap all its ranges when it is dropped.
    ///
    /// # Safety
    /// After the drop, no [`Mapping`] of the arena may be used, and no VM may have one as a memory
    /// slot.
    pub unsafe fn release_at_end(&mut self) {
        self.releases = true;
    }

    /// Reserves `bytes`, aligned to a large page so that both host and guest can map large pages.
    /// The range is not accessible yet.
    ///
    /// # Errors
    /// Returns `NOMEM` if there is no room in the address space; otherwise the error of `mmap`.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<Mapping, Errno> {
        let room = bytes.checked_add(LARGE_PAGE).ok_or(Errno::NOMEM)?;
        let length = usize::try_from(room).map_err(|_| Errno::NOMEM)?;
        // SAFETY: the kernel chooses addresses that are not in use.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                length,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        self.rooms.push((start, length));
        Mapping::new(start, room).aligned(LARGE_PAGE, bytes)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if !self.releases {
            return;
        }
        for (start, length) in self.rooms.drain(..) {
            // This fails only if the process has no room for one more mapping; then the memory
            // stays.
            // SAFETY: a range of this arena's own, which is no longer used: see `release_at_end`.
            let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), length) };
        }
    }
}
