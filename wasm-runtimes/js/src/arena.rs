//! An allocator that places small blocks next to each other in one region of memory. Blocks follow
//! each other in the order of allocation, whatever their sizes. A freed block is reused for the
//! next allocation of its size class.
//!
//! A request changes little of the memory that existed before it, but does so in many places: a
//! block here, a link of a free block there. Each such place costs its fork a page. An arena that
//! begins after all long-lived memory keeps later allocations in pages of their own. The region has
//! an end. Allocations that do not fit in it, and all larger ones, go to the general allocator.

use std::ptr;

/// The largest block, in bytes.
pub(crate) const LARGEST: usize = 4 << 10;

/// Alignment of blocks in bytes, and the size of the smallest block.
pub(crate) const ALIGN: usize = 8;

/// How many bytes of blocks from outside the arena are abandoned before such a block is really
/// freed. Freeing writes into the block's page and those of its neighbours. Most of these blocks
/// are older than the arena. Blocks that were allocated after the arena was full are not
/// distinguished from them.
const GIVEN_UP: usize = 64 << 10;

/// Size classes as (largest size, step): up to that size, classes are that many bytes apart.
const STEPS: [(usize, usize); 6] = [
    (128, 8),
    (256, 16),
    (512, 32),
    (1024, 128),
    (2048, 256),
    (LARGEST, 512),
];

/// Number of size classes. Class 0 has no blocks.
const CLASSES: usize = 45;

/// Returns the class of a size and the size of the class's blocks.
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

/// An arena. The structure lies at the begin of its region.
pub(crate) struct Arena {
    at: *mut u8,
    end: *mut u8,
    given_up: usize,
    free: [*mut Free; CLASSES],
}

impl Arena {
    /// Creates an arena in this region. Returns null if the region is too small for one.
    ///
    /// # Safety
    ///
    /// The region is used by nothing else, is aligned for an `Arena`, and lasts as long as the
    /// arena.
    pub(crate) unsafe fn begin(region: *mut u8, length: usize) -> *mut Self {
        if length < size_of::<Self>() {
            return ptr::null_mut();
        }
        let arena = region.cast::<Self>();
        // SAFETY: the caller keeps the contract of this function.
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

    /// Allocates a block of at least `size` bytes. Returns null if the arena has no room for it.
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

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// The block is of this region, was allocated with a size of the same class, and is no longer
    /// used.
    pub(crate) unsafe fn give(&mut self, block: *mut u8, size: usize) {
        let free = class(size.max(ALIGN)).and_then(|(class, _)| self.free.get_mut(class));
        if let Some(free) = free {
            let block = block.cast::<Free>();
            // SAFETY: the caller keeps the contract; each block has room for a link and is aligned
            // for it.
            unsafe { block.write(Free { next: *free }) };
            *free = block;
        }
    }

    /// Abandons a block of `size` bytes that is not of this arena, if the limit for such blocks
    /// allows it. Returns whether it did; if not, the caller frees the block.
    pub(crate) fn give_up(&mut self, size: usize) -> bool {
        let given_up = self.given_up.saturating_add(size);
        let is_little = size <= LARGEST && given_up <= GIVEN_UP;
        if is_little {
            self.given_up = given_up;
        }
        is_little
    }

    /// Returns how many bytes a block has that was allocated with this size.
    pub(crate) fn room(size: usize) -> usize {
        class(size.max(ALIGN)).map_or(size, |(_, room)| room)
    }
}
