//! Where small blocks lie close together: in the order in which they are asked for, whatever
//! their sizes, from one region of memory. What is given back is given to the next of its size.
//!
//! A request changes little of what was there before it, but does so in many places: a block
//! here, a link of a free block there. Each place costs its fork a page. An arena that is begun
//! at the end of what lasts has all that comes from then on in pages of its own. Its region ends;
//! what finds no room there goes to whoever gives larger blocks, as do those.

use std::ptr;

/// The largest block, in bytes.
pub(crate) const LARGEST: usize = 4 << 10;

/// What blocks begin at multiples of, and the smallest of them.
pub(crate) const ALIGN: usize = 8;

/// How many bytes of blocks that are not the arena's are given up before one of them is really
/// freed, which writes into its page and those of its neighbours. Most are older; those that came
/// when its region was used up are not told from them.
const GIVEN_UP: usize = 64 << 10;

/// Steps of sizes: up to that many bytes, in steps of that many.
const STEPS: [(usize, usize); 6] = [
    (128, 8),
    (256, 16),
    (512, 32),
    (1024, 128),
    (2048, 256),
    (LARGEST, 512),
];

/// The first one has no blocks.
const CLASSES: usize = 45;

/// The class of a size, and what its blocks have.
#[allow(clippy::indexing_slicing, reason = "the index is looked at")]
const fn class(size: usize) -> Option<(usize, usize)> {
    let (mut first, mut below, mut index) = (0, 0, 0);
    while index < STEPS.len() {
        let (most, step) = STEPS[index];
        if size <= most {
            let steps = size.saturating_sub(below).div_ceil(step);
            return Some((first + steps, below + steps * step));
        }
        first += (most - below) / step;
        (below, index) = (most, index + 1);
    }
    None
}

const _: () = assert!(matches!(class(LARGEST), Some((last, LARGEST)) if last + 1 == CLASSES));

struct Free {
    next: *mut Free,
}

/// Lies at its region's begin.
pub(crate) struct Arena {
    at: *mut u8,
    end: *mut u8,
    given_up: usize,
    free: [*mut Free; CLASSES],
}

impl Arena {
    /// An arena in this region; null where that has no room for one.
    ///
    /// # Safety
    ///
    /// The region is nobody else's, aligned for an `Arena`, and lasts as long as the arena.
    pub(crate) unsafe fn begin(region: *mut u8, length: usize) -> *mut Self {
        if length < size_of::<Self>() {
            return ptr::null_mut();
        }
        let arena = region.cast::<Self>();
        // SAFETY: the caller's.
        unsafe {
            arena.write(Self {
                at: region.add(size_of::<Self>().next_multiple_of(ALIGN)),
                end: region.add(length),
                given_up: 0,
                free: [ptr::null_mut(); CLASSES],
            });
        }
        arena
    }

    /// A block of at least so many bytes; null where there is none.
    pub(crate) fn take(&mut self, size: usize) -> *mut u8 {
        let Some((class, size)) = class(size.max(ALIGN)) else {
            return ptr::null_mut();
        };
        let Some(free) = self.free.get_mut(class) else {
            return ptr::null_mut();
        };
        if let Some(block) = ptr::NonNull::new(*free) {
            // SAFETY: a free block begins with its link.
            *free = unsafe { block.as_ref() }.next;
            return block.as_ptr().cast();
        }
        if size > self.end as usize - self.at as usize {
            return ptr::null_mut();
        }
        let block = self.at;
        // SAFETY: there is room.
        self.at = unsafe { block.add(size) };
        block
    }

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// It is of this region, was taken with a size of the same class, and is used by nobody.
    pub(crate) unsafe fn give(&mut self, block: *mut u8, size: usize) {
        let free = class(size.max(ALIGN)).and_then(|(class, _)| self.free.get_mut(class));
        if let Some(free) = free {
            let block = block.cast::<Free>();
            // SAFETY: the caller's; each block has room for a link, and is aligned for it.
            unsafe { block.write(Free { next: *free }) };
            *free = block;
        }
    }

    /// Gives up a block of so many bytes that is none of this arena's, if that may be: says
    /// whether it was. Otherwise it is to be freed.
    pub(crate) fn give_up(&mut self, size: usize) -> bool {
        let given_up = self.given_up.saturating_add(size);
        let is_little = size <= LARGEST && given_up <= GIVEN_UP;
        if is_little {
            self.given_up = given_up;
        }
        is_little
    }

    /// How many bytes a block has that was asked for with this size.
    pub(crate) fn room(size: usize) -> usize {
        class(size.max(ALIGN)).map_or(size, |(_, room)| room)
    }
}
