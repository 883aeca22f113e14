//! The guest's memory as this process maps it.
//!
//! RAM is one range of addresses for one memory slot, put together from the
//! seed's layer and fresh memory:
//!
//! ```text
//!   guest-physical 0                                         ram_bytes
//!   | layer (memfd, private) | fresh (anonymous) | layer | fresh |
//! ```
//!
//! Where a layer has no window, memory is fresh. Touching a hole of a memfd
//! within one allocates a page in the layer first and copies it then: the node
//! counts what a layer has again when a request is over.
//!
//! No reference to it is ever made ([`Mapping`]): what the sandbox reads of the mailbox are
//! the guest's words, each by one load.

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

/// RAM whose every write goes to the layer itself: for making a seed.
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

/// RAM that begins as windows of layers and is private from then on.
///
/// # Errors
/// `INVAL` when a window does not lie in RAM or has no layer; the system's.
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

/// RAM that can become larger or smaller where it lies: behind it is room for the
/// most that a guest can have.
#[derive(Clone, Copy, Debug)]
pub struct RoomyRam(Mapping);

impl RoomyRam {
    /// As [`private_ram`].
    ///
    /// # Errors
    /// Likewise.
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

    /// The RAM as it is.
    pub fn mapping(self) -> Mapping {
        self.0
    }

    /// Makes it `ram_bytes` long. What is cut off cannot be used any more, although
    /// the VM's memory slot still has it: a guest that tries ends. What is added is
    /// fresh, and in no slot yet.
    ///
    /// # Errors
    /// `INVAL` when that is more than a guest can have; the system's.
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

/// Leaves nothing mapped of `ram` from `start` on: whoever touches it ends.
///
/// # Errors
/// `INVAL` beyond the mapping; the system's.
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

/// Where fresh memory is in large pages, up to the end of RAM.
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
        // Where a host gives large pages unasked, the first page that is written here
        // would make each instance 2 MiB larger.
        (start, large_from, Advice::LinuxNoHugepage),
        (large_from, ram.bytes(), Advice::LinuxHugepage),
    ] {
        let bytes = end.saturating_sub(from) as usize;
        if bytes > 0
            && let Some(place) = ram.at(from, bytes)
        {
            // A host without huge pages serves small ones: slower, not wrong.
            // SAFETY: advice on a mapping made above.
            let _ = unsafe { rustix::mm::madvise(place.cast(), bytes, advice) };
        }
    }
    Ok(())
}

/// Maps a window of a layer where it belongs. What was there is gone.
///
/// # Errors
/// `INVAL` when the window does not lie in RAM or has no layer; the system's.
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

/// Windows of layers as they lie in RAM, for reading; where there is none, nothing can
/// be read.
///
/// # Errors
/// As [`private_ram`].
pub fn view(arena: &mut Arena, layers: &[OwnedFd], windows: &[Window]) -> Result<Mapping, Errno> {
    let end = windows.last().map(|window| window.range.end);
    let view = arena.reserve(end.unwrap_or_default().address().get())?;
    for window in windows {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        lay(view, layers, window, ProtFlags::READ, flags)?;
    }
    Ok(view)
}

/// Makes the pages of a write set private before the guest runs (REAP §5.2 for
/// write sets; here by `MADV_POPULATE_WRITE`): left to the guest, each would
/// fault twice, once for reading the layer's page and once for the copy.
pub fn make_private(ram: Mapping, write_set: &PageSet) {
    for range in write_set.iter() {
        if let Ok((start, bytes)) = ram.part(range) {
            // What is not filled in now faults later.
            // SAFETY: advice on memory of this module's own.
            let _ = unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxPopulateWrite) };
        }
    }
}

/// Memory that others have too, of `bytes` bytes.
///
/// # Errors
/// The system's.
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

/// The page of a file at `offset`, shared with others.
///
/// # Errors
/// The system's.
pub fn shared_page(
    arena: &mut Arena,
    fd: BorrowedFd<'_>,
    offset: u64,
) -> Result<SharedPage, Errno> {
    let room = arena.reserve(PAGE)?;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    let page = map(room.start(), PAGE, READ_WRITE, flags, Some((fd, offset)))?;
    let start = NonNull::new(page.start()).ok_or(Errno::FAULT)?;
    // SAFETY: it stays mapped as long as the arena, which goes last of all that its VM has, and is
    // known to nobody else.
    Ok(unsafe { SharedPage::borrowed(start) })
}

/// Compiled code, which nobody writes.
///
/// # Errors
/// The system's.
pub fn code(arena: &mut Arena, fd: BorrowedFd<'_>, bytes: u64) -> Result<Mapping, Errno> {
    let room = arena.reserve(bytes)?;
    map_code(room, fd, bytes)
}

/// Room of `bytes` for compiled code. Nobody can use it yet.
///
/// # Errors
/// The system's.
pub fn code_room(arena: &mut Arena, bytes: u64) -> Result<Mapping, Errno> {
    arena.reserve(bytes)
}

/// Maps compiled code to where there is room for it. Nobody can write it, and yet it is mapped
/// privately: some of it may be on its way, and where a mapping is shared that cannot be written
/// the system has nobody wait (`vma_can_userfault` in `mm/userfaultfd.c`).
///
/// # Errors
/// `INVAL` when there is not enough; the system's.
pub fn map_code(room: Mapping, fd: BorrowedFd<'_>, bytes: u64) -> Result<Mapping, Errno> {
    map(
        room.at(0, bytes as usize).ok_or(Errno::INVAL)?,
        bytes,
        ProtFlags::READ,
        MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
        Some((fd, 0)),
    )
}

/// Has a mapping that nobody has touched be of small pages, also where its file has large ones.
///
/// The system maps a large page of a file as it is wherever the mapping has room for all of it,
/// advice or not. So each is cut: advice for the first half of it only makes two mappings of one.
pub fn in_small_pages(mapped: Mapping) {
    const HALF: u64 = LARGE_PAGE / 2;
    for at in (0..mapped.bytes()).step_by(LARGE_PAGE as usize) {
        // What is too short has no large page. All of one that is not cut counts as used: slower,
        // and not wrong.
        let _ = mapped.stay_small(PageRange::of_bytes(at, at + HALF));
    }
}

/// Tells the guest who it is.
pub fn write_activation(ram: Mapping, activation: &Activation) {
    let offset = BOOT_PAGE + std::mem::offset_of!(BootPage, activation) as u64;
    if let Some(at) = ram.at(offset, size_of::<Activation>()) {
        // SAFETY: in bounds and aligned; the vCPU is not running.
        unsafe { ptr::write_volatile(at.cast(), *activation) }
    }
}
