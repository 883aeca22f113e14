//! The guest's memory as this process maps it.
//!
//! RAM is one range of addresses for one memory slot. It consists of windows of the seed's layers
//! and of fresh memory:
//!
//! ```text
//!   guest-physical 0                                         ram_bytes
//!   | layer (memfd, private) | fresh (anonymous) | layer | fresh |
//! ```
//!
//! Outside of windows, memory is fresh. The first access to a hole of a memfd within a window
//! allocates a page in the layer, and a write then copies it. So the node counts a layer's pages
//! again after a request.
//!
//! This module never makes a reference to guest memory ([`Mapping`]). From the mailbox the sandbox
//! reads only the guest's words, each by one load.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use faasw_abi::boot::{Activation, BootPage};
use faasw_abi::memory_map::{BOOT_PAGE, FRAMES, LARGE_PAGE, PAGE, RAM_MAX, SMALL_FRAME_WINDOW};
use faasw_abi::pages::{PageRange, PageSet};
use faasw_fri::shared_page::SharedPage;
use faasw_seedtree::Window;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::memory::arena::Arena;
use crate::memory::mapping::Mapping;

fn map(
    address: *mut u8,
    bytes: u64,
    protection: ProtFlags,
    flags: MapFlags,
    file: Option<(BorrowedFd<'_>, u64)>,
) -> Result<Mapping, Errno> {
    let length = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
    // SAFETY: the address is null or lies in a range that an arena reserved.
    let start = unsafe {
        match file {
            Some((fd, offset)) => {
                rustix::mm::mmap(address.cast(), length, protection, flags, fd, offset)
            }
            None => rustix::mm::mmap_anonymous(address.cast(), length, protection, flags),
        }
    }?;
    let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
    Ok(Mapping::new(start, bytes))
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Maps RAM whose every write goes to the layer itself: for making a seed.
pub fn shared_ram(
    arena: &mut Arena,
    layer: BorrowedFd<'_>,
    ram_bytes: u64,
) -> Result<Mapping, Errno> {
    let ram = arena.reserve(ram_bytes)?;
    map(
        ram.start(),
        ram_bytes,
        READ_WRITE,
        MapFlags::SHARED | MapFlags::FIXED,
        Some((layer, 0)),
    )?;
    Ok(ram)
}

/// Maps private RAM that begins with the contents of the layers' windows.
///
/// # Errors
/// Returns `INVAL` if a window does not lie in RAM or has no layer; otherwise the error of `mmap`.
pub fn private_ram(
    arena: &mut Arena,
    layers: &[OwnedFd],
    ram_bytes: u64,
    windows: &[Window],
) -> Result<Mapping, Errno> {
    let ram = arena.reserve(ram_bytes)?;
    fresh(ram, 0)?;
    for window in windows {
        map_window(ram, layers, window)?;
    }
    Ok(ram)
}

/// RAM that can be resized in place: the most RAM that a guest can have is reserved for it.
#[derive(Clone, Copy, Debug)]
pub struct RoomyRam(Mapping);

impl RoomyRam {
    /// Maps RAM as [`private_ram`] does.
    ///
    /// # Errors
    /// Returns the errors of [`private_ram`], and `INVAL` if `ram_bytes` exceeds a guest's maximum.
    pub fn new(
        arena: &mut Arena,
        layers: &[OwnedFd],
        ram_bytes: u64,
        windows: &[Window],
    ) -> Result<Self, Errno> {
        let room = arena.reserve(RAM_MAX)?;
        room.at(0, ram_bytes as usize).ok_or(Errno::INVAL)?;
        let ram = room.resized(ram_bytes);
        fresh(ram, 0)?;
        for window in windows {
            map_window(ram, layers, window)?;
        }
        Ok(Self(ram))
    }

    /// Returns the RAM with its current size.
    pub fn mapping(self) -> Mapping {
        self.0
    }

    /// Makes the RAM `ram_bytes` long. Memory that is cut off cannot be used any more, although the
    /// VM's memory slot still has it: a guest that uses it ends. Memory that is added is fresh, and
    /// in no slot yet.
    ///
    /// # Errors
    /// Returns `INVAL` if that is more than a guest can have; otherwise the error of `mmap`.
    pub fn resize(self, ram_bytes: u64) -> Result<Mapping, Errno> {
        if ram_bytes > RAM_MAX {
            return Err(Errno::INVAL);
        }
        let Self(before) = self;
        let ram = before.resized(ram_bytes);
        if ram_bytes < before.bytes() {
            cut_off(before, ram_bytes)?;
        } else if ram_bytes > before.bytes() {
            fresh(ram, before.bytes())?;
        }
        Ok(ram)
    }
}

/// Makes `ram` inaccessible from `start` on: an access ends the sandbox.
///
/// # Errors
/// Returns `INVAL` if `start` lies beyond the mapping; otherwise the error of `mmap`.
pub fn cut_off(ram: Mapping, start: u64) -> Result<(), Errno> {
    map(
        ram.at(start, 0).ok_or(Errno::INVAL)?,
        ram.bytes() - start,
        ProtFlags::empty(),
        MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
        None,
    )?;
    Ok(())
}

/// The address from which fresh memory is in large pages, up to the end of RAM.
pub const LARGE_FROM: u64 = FRAMES + SMALL_FRAME_WINDOW;

/// Maps fresh zeroed memory to `ram` from `start` on.
fn fresh(ram: Mapping, start: u64) -> Result<(), Errno> {
    let bytes = ram.bytes().checked_sub(start).ok_or(Errno::INVAL)?;
    map(
        ram.at(start, bytes as usize).ok_or(Errno::INVAL)?,
        bytes,
        READ_WRITE,
        MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
        None,
    )?;
    let large_from = start.max(LARGE_FROM).min(ram.bytes());
    for (from, end, advice) in [
        // If a host uses large pages unasked, the first page that is written here would make each
        // instance 2 MiB larger.
        (start, large_from, Advice::LinuxNoHugepage),
        (large_from, ram.bytes(), Advice::LinuxHugepage),
    ] {
        let bytes = end.saturating_sub(from) as usize;
        if bytes > 0
            && let Some(place) = ram.at(from, bytes)
        {
            // Without large pages the host uses small ones: slower, but correct.
            // SAFETY: advice on a mapping made above.
            let _ = unsafe { rustix::mm::madvise(place.cast(), bytes, advice) };
        }
    }
    Ok(())
}

/// Maps a window of a layer to its place in RAM. Earlier contents of these pages are lost.
///
/// # Errors
/// Returns `INVAL` if the window does not lie in RAM or has no layer; otherwise the error of
/// `mmap`.
pub fn map_window(ram: Mapping, layers: &[OwnedFd], window: &Window) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    lay(ram, layers, window, READ_WRITE, flags)
}

fn lay(
    ram: Mapping,
    layers: &[OwnedFd],
    window: &Window,
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<(), Errno> {
    let (start, bytes) = ram.part(window.range)?;
    let layer = layers.get(window.layer as usize).ok_or(Errno::INVAL)?;
    let file = Some((layer.as_fd(), window.range.start.address().get()));
    map(start, bytes as u64, protection, flags, file)?;
    Ok(())
}

/// Maps windows of layers, read-only, at the same offsets as in RAM. Memory outside of windows is
/// inaccessible.
///
/// # Errors
/// Returns the errors of [`private_ram`].
pub fn view(arena: &mut Arena, layers: &[OwnedFd], windows: &[Window]) -> Result<Mapping, Errno> {
    let end = windows.last().map(|window| window.range.end);
    let view = arena.reserve(end.unwrap_or_default().address().get())?;
    for window in windows {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        lay(view, layers, window, ProtFlags::READ, flags)?;
    }
    Ok(view)
}

/// Makes the pages of a write set private before the guest runs (REAP §5.2 for write sets; here by
/// `MADV_POPULATE_WRITE`). Otherwise each page would fault twice, once to read the layer's page and
/// once to copy it.
pub fn make_private(ram: Mapping, write_set: &PageSet) {
    for range in write_set.iter() {
        if let Ok((start, bytes)) = ram.part(range) {
            // Pages that are not filled in now fault later.
            // SAFETY: advice on memory of this module's own.
            let _ = unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxPopulateWrite) };
        }
    }
}

/// Maps `bytes` bytes of a file, shared with its other users.
///
/// # Errors
/// Returns the error of `mmap`.
pub fn shared(arena: &mut Arena, fd: BorrowedFd<'_>, bytes: u64) -> Result<Mapping, Errno> {
    let shared = arena.reserve(bytes)?;
    map(
        shared.start(),
        bytes,
        READ_WRITE,
        MapFlags::SHARED | MapFlags::FIXED,
        Some((fd, 0)),
    )
}

/// Maps the page of a file at `offset`, shared with the file's other users.
///
/// # Errors
/// Returns the error of `mmap`.
pub fn shared_page(
    arena: &mut Arena,
    fd: BorrowedFd<'_>,
    offset: u64,
) -> Result<SharedPage, Errno> {
    let room = arena.reserve(PAGE)?;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    let page = map(room.start(), PAGE, READ_WRITE, flags, Some((fd, offset)))?;
    let start = NonNull::new(page.start()).ok_or(Errno::FAULT)?;
    // SAFETY: the page stays mapped as long as the arena, which is dropped last of all parts of its
    // VM, and no other code knows its address.
    Ok(unsafe { SharedPage::borrowed(start) })
}

/// Maps compiled code, read-only.
///
/// # Errors
/// Returns the error of `mmap`.
pub fn code(arena: &mut Arena, fd: BorrowedFd<'_>, bytes: u64) -> Result<Mapping, Errno> {
    let room = arena.reserve(bytes)?;
    map_code(room, fd, bytes)
}

/// Maps compiled code to its reserved range. It cannot be written, and yet it is mapped privately:
/// parts of the code may not have arrived yet, and the kernel does not let accesses wait for a page
/// of a shared read-only mapping (`vma_can_userfault` in `mm/userfaultfd.c`).
///
/// # Errors
/// Returns `INVAL` if the range is too small; otherwise the error of `mmap`.
pub fn map_code(room: Mapping, fd: BorrowedFd<'_>, bytes: u64) -> Result<Mapping, Errno> {
    map(
        room.at(0, bytes as usize).ok_or(Errno::INVAL)?,
        bytes,
        ProtFlags::READ,
        MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
        Some((fd, 0)),
    )
}

/// Makes a mapping that has not been touched consist of small pages, also if its file has large
/// ones.
///
/// The kernel maps a large page of a file as one wherever the mapping has room for all of it, with
/// or without advice. So the mapping is cut at each large page: advice for only its first half
/// makes two mappings of one.
pub fn in_small_pages(mapped: Mapping) {
    const HALF: u64 = LARGE_PAGE / 2;
    for at in (0..mapped.bytes()).step_by(LARGE_PAGE as usize) {
        // A part that is too short has no large page. If a large page is not cut, all of it counts
        // as used: slower, but correct.
        let _ = mapped.stay_small(PageRange::of_bytes(at, at + HALF));
    }
}

/// Writes the activation, with the instance's identity, to the guest's boot page.
pub fn write_activation(ram: Mapping, activation: &Activation) {
    let offset = BOOT_PAGE + std::mem::offset_of!(BootPage, activation) as u64;
    if let Some(at) = ram.at(offset, size_of::<Activation>()) {
        // SAFETY: in bounds and aligned; the vCPU is not running.
        unsafe { ptr::write_volatile(at.cast(), *activation) }
    }
}
