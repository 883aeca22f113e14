//! Frames: the allocation of pages of RAM.
//!
//! Two kinds, taken from opposite ends so that they never mix in a 2 MiB page:
//!
//! ```text
//! FRAMES                                                     RAM end
//!   | small: one 4 KiB frame after the other →  …  ← large: 2 MiB each |
//! ```
//!
//! RAM can be added at any time; [`FreeRam`] keeps account of the part that was never allocated.
//! Small frames hold page tables and the ends of linear memories that fill no large page. Large
//! frames hold memory that a function grows by megabytes, so that one fault on either side brings
//! in 2 MiB. Free frames are linked through their first word, which costs no further memory. Frames
//! that were never allocated are zero, because the host provides zeroed memory. Freed frames are
//! zeroed when they are allocated again.

use core::ptr;

use faasw_abi::memory_map::{FRAMES, LARGE_PAGE, PAGE, TABLE_ZONE, TABLE_ZONE_END};

use crate::free_ram::FreeRam;
use crate::single::Single;

/// Guest-physical address of a frame; also a pointer, since RAM is mapped one to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

impl Frame {
    /// Returns the address of the frame.
    pub fn address(self) -> u64 {
        self.0
    }

    /// Returns the frame at `address`, which must come from a page-table entry of this guest.
    pub fn at(address: u64) -> Self {
        Self(address)
    }

    fn zero(self, bytes: u64) {
        // SAFETY: the frame is free, so nothing refers to it, and all RAM is mapped writable.
        unsafe {
            ptr::write_bytes(
                ptr::with_exposed_provenance_mut::<u8>(self.0 as usize),
                0,
                bytes as usize,
            );
        }
    }
}

/// A list of free frames, linked through their first words; 0 ends it.
struct FreeList(u64);

impl FreeList {
    fn put(&mut self, frame: Frame) {
        // SAFETY: the frame is free; its first word is the link.
        unsafe {
            ptr::write(
                ptr::with_exposed_provenance_mut::<u64>(frame.0 as usize),
                self.0,
            );
        }
        self.0 = frame.0;
    }

    fn take(&mut self) -> Option<Frame> {
        if self.0 == 0 {
            return None;
        }
        let frame = Frame(self.0);
        // SAFETY: every frame on the list has its link in its first word.
        self.0 = unsafe { ptr::read(ptr::with_exposed_provenance::<u64>(frame.0 as usize)) };
        Some(frame)
    }
}

struct Frames {
    room: FreeRam,
    next_table: u64,
    free_small: FreeList,
    free_large: FreeList,
}

static STATE: Single<Frames> = Single::new(Frames {
    room: FreeRam::none(),
    next_table: 0,
    free_small: FreeList(0),
    free_large: FreeList(0),
});

/// Takes RAM up to `ram_bytes`, a multiple of a large page, into use.
pub fn init(ram_bytes: u64) {
    // SAFETY: the closure calls nothing that comes back here.
    unsafe {
        STATE.with(|frames| {
            frames.room = FreeRam::of(FRAMES, ram_bytes);
            frames.next_table = TABLE_ZONE;
        });
    }
}

/// Extends the RAM in use to `ram_bytes`. Returns `false` if that is less than before, or if there
/// is no space to record the new range.
pub fn extend(ram_bytes: u64) -> bool {
    // SAFETY: as above.
    unsafe { STATE.with(|frames| frames.room.extend(ram_bytes)) }
}

impl Frames {
    fn small(&mut self) -> Option<Frame> {
        if let Some(frame) = self.free_small.take() {
            frame.zero(PAGE);
            return Some(frame);
        }
        self.room.small().map(Frame)
    }

    fn large(&mut self) -> Option<Frame> {
        if let Some(frame) = self.free_large.take() {
            frame.zero(LARGE_PAGE);
            return Some(frame);
        }
        self.large_run(1)
    }

    fn large_run(&mut self, count: u64) -> Option<Frame> {
        self.room.large(count).map(Frame)
    }

    fn table(&mut self) -> Option<Frame> {
        if self.next_table < TABLE_ZONE_END {
            let frame = Frame(self.next_table);
            self.next_table += PAGE;
            return Some(frame);
        }
        self.small()
    }
}

/// Returns the address of the next `count` small frames, if all of them are new and consecutive.
pub fn next_small(count: u64) -> Option<u64> {
    // SAFETY: the closure computes.
    unsafe {
        STATE.with(|frames| match frames.free_small.0 {
            0 => frames.room.next_small(count),
            _ => None,
        })
    }
}

/// Allocates a zeroed 4 KiB frame; returns `None` if RAM is used up.
pub fn small() -> Option<Frame> {
    // SAFETY: the closure calls nothing that comes back here.
    unsafe { STATE.with(Frames::small) }
}

/// Allocates a zeroed 2 MiB frame; returns `None` if RAM is used up.
pub fn large() -> Option<Frame> {
    // SAFETY: as above.
    unsafe { STATE.with(Frames::large) }
}

/// Allocates `count` consecutive zeroed 2 MiB frames; returns `None` if there are too few.
pub fn large_run(count: u64) -> Option<Frame> {
    // SAFETY: as above.
    unsafe { STATE.with(|frames| frames.large_run(count)) }
}

/// Allocates a zeroed frame for a page table, next to the other tables as long as they fit.
pub fn table() -> Option<Frame> {
    // SAFETY: as above.
    unsafe { STATE.with(Frames::table) }
}

/// Frees a 4 KiB frame. Nothing may refer to it any more.
pub fn free_small(frame: Frame) {
    // SAFETY: as above.
    unsafe { STATE.with(|frames| frames.free_small.put(frame)) }
}

/// Frees a 2 MiB frame. Nothing may refer to it any more.
pub fn free_large(frame: Frame) {
    // SAFETY: as above.
    unsafe { STATE.with(|frames| frames.free_large.put(frame)) }
}
