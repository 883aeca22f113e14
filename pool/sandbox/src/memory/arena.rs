//! The ranges of addresses that a VM's memory is put together in.
//!
//! A sandbox that is a process maps until it ends, and the system lets go of everything
//! then: its jail does not even allow to unmap. On a thread of another program what a
//! VM was given must go with it. So each range is noted before anything is mapped
//! there, and the VM drops its arena last, when none of its descriptors is open.

use std::ptr::{self, NonNull};

use faasw_abi::memory_map::LARGE_PAGE;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::memory::mapping::Mapping;

/// Ranges of addresses. They stay when it is dropped, unless
/// [`Arena::release_at_end`] was called.
#[derive(Debug, Default)]
pub struct Arena {
    rooms: Vec<(NonNull<u8>, usize)>,
    releases: bool,
}

impl Arena {
    /// Has all its ranges unmapped when it is dropped.
    ///
    /// # Safety
    /// No [`Mapping`] of it may be used after that, nor may a VM have one then.
    pub unsafe fn release_at_end(&mut self) {
        self.releases = true;
    }

    /// Reserves `bytes`, aligned to a large page so that both sides can map huge.
    /// Nobody can use them yet.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<Mapping, Errno> {
        let room = bytes.checked_add(LARGE_PAGE).ok_or(Errno::NOMEM)?;
        let length = usize::try_from(room).map_err(|_| Errno::NOMEM)?;
        // SAFETY: the system chooses addresses that nobody has.
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
            // It only fails where the program has no room for one mapping more, and
            // then the memory stays.
            // SAFETY: a range of this arena's own, which nobody uses any more: see
            // `release_at_end`.
            let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), length) };
        }
    }
}
