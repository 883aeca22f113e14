//! Memory of the interpreter and of the engine's own Rust code. It is the C library's, with two
//! differences: small blocks come from an [`Arena`] once the engine is initialised, and running out
//! of memory is recorded.
//!
//! QuickJS has its own allocator for small blocks, which sorts them by size into pages. A request
//! that allocates blocks of twenty sizes writes to twenty pages. With the changes of `lasting.py`,
//! QuickJS tries this module first.
//!
//! If there is not even memory for an error, the interpreter throws `null`, which says nothing
//! about the cause.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ffi::c_void,
    ptr,
};

use rquickjs::allocator::Allocator;

use crate::arena::{ALIGN, Arena, LARGEST};

/// The largest allocation whose failure counts as running out of memory, in bytes. An error and its
/// stack need no more at once. A larger allocation fails with an error that describes itself.
const SMALL: usize = 4 << 10;

/// Size of the region of an arena in bytes. Pages of it that were never written to take no memory.
const REGION: usize = 256 << 10;

/// The unit in which a fork copies memory, in bytes.
const PAGE: usize = 4 << 10;

thread_local! {
    static RAN_OUT: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn calloc(count: usize, size: usize) -> *mut c_void;
    fn realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn free(old: *mut c_void);
    fn malloc_usable_size(of: *mut c_void) -> usize;
}

/// The current arena, and the address of the regions of all arenas.
struct Blocks {
    arena: Cell<*mut Arena>,
    regions: Cell<*mut u8>,
}

// SAFETY: an engine has one thread.
unsafe impl Sync for Blocks {}

thread_local! {
    static CLEARS: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether freed blocks of a page or more are filled with zeroes. While a script is loaded,
/// texts and parsers leave large free blocks, and pages that are all zeroes are not frozen.
pub(crate) fn clear_freed(clears: bool) {
    CLEARS.set(clears);
}

/// Fills a block with zeroes that is about to be freed.
///
/// # Safety
///
/// The block has that many bytes, and they are no longer used.
unsafe fn clear(block: *mut u8, size: usize) {
    if size >= PAGE && CLEARS.get() {
        // SAFETY: the caller keeps the contract.
        unsafe { block.write_bytes(0, size) };
        std::hint::black_box(block);
    }
}

static BLOCKS: Blocks = Blocks {
    arena: Cell::new(ptr::null_mut()),
    regions: Cell::new(ptr::null_mut()),
};

impl Blocks {
    fn arena(&self) -> Option<&mut Arena> {
        // SAFETY: the arena lasts, there is one thread, and no method of the arena calls anything
        // that comes here again.
        unsafe { self.arena.get().as_mut() }
    }

    fn has(&self, block: *mut u8) -> bool {
        let regions = self.regions.get();
        !regions.is_null() && (block as usize).wrapping_sub(regions as usize) < 2 * REGION
    }

    fn take(&self, size: usize) -> *mut u8 {
        self.arena()
            .map_or(ptr::null_mut(), |arena| arena.take(size))
    }

    /// # Safety
    ///
    /// The block was allocated with a size of the same class, and is no longer used.
    unsafe fn give(&self, block: *mut u8, size: usize) {
        if let Some(arena) = self.arena() {
            let is_older = block < self.arena.get().cast();
            if !(is_older && arena.give_up(size)) {
                // SAFETY: the caller keeps the contract of this function.
                unsafe { arena.give(block, size) };
            }
        }
    }

    fn give_up(&self, size: usize) -> bool {
        self.arena().is_some_and(|arena| arena.give_up(size))
    }
}

/// Starts the first arena. From now on small blocks lie close together, and apart from what is
/// there already: those of a script's initialisation.
pub(crate) fn begin() {
    let Ok(layout) = Layout::from_size_align(2 * REGION, PAGE) else {
        return;
    };
    // SAFETY: the layout has a size that is not zero.
    let regions = unsafe { System.alloc(layout) };
    if !regions.is_null() {
        BLOCKS.regions.set(regions);
        // SAFETY: new, and never freed.
        BLOCKS.arena.set(unsafe { Arena::begin(regions, REGION) });
    }
}

/// Starts the second arena, after [`begin`], for the small blocks of a request.
pub(crate) fn begin_request() {
    let regions = BLOCKS.regions.get();
    if !regions.is_null() {
        // SAFETY: the other half, which is never freed.
        BLOCKS
            .arena
            .set(unsafe { Arena::begin(regions.add(REGION), REGION) });
    }
}

/// Returns the size of the linear memory in bytes.
pub(crate) fn size() -> f64 {
    (core::arch::wasm32::memory_size::<0>() << 16) as f64
}

/// Returns whether a small allocation has ever failed.
pub(crate) fn ran_out() -> bool {
    RAN_OUT.get()
}

/// Allocates a block for QuickJS, whose own header records the size. Returns null if the arena has
/// no room.
#[unsafe(no_mangle)]
extern "C" fn faasw_take(size: usize) -> *mut u8 {
    BLOCKS.take(size)
}

/// Frees a block of [`faasw_take`].
#[unsafe(no_mangle)]
unsafe extern "C" fn faasw_give(block: *mut u8, size: usize) {
    if BLOCKS.has(block) {
        // SAFETY: QuickJS guarantees that the block was allocated with that size.
        unsafe { BLOCKS.give(block, size) };
    }
}

/// Returns whether a block of QuickJS's own, of that size, was abandoned and needs no freeing.
#[unsafe(no_mangle)]
extern "C" fn faasw_give_up(size: usize) -> bool {
    BLOCKS.give_up(size)
}

/// The allocator for QuickJS's allocations that are larger than its small blocks.
pub(crate) struct Memory;

/// Precedes each block of the arena that [`Memory`] allocates. It records the requested size,
/// including this head.
#[repr(C, align(8))]
struct Head {
    size: usize,
}

const HEAD: usize = size_of::<Head>();

fn noted(got: *mut c_void, size: usize) -> *mut u8 {
    if got.is_null() && size <= SMALL {
        RAN_OUT.set(true);
    }
    got.cast()
}

fn take_with_head(size: usize) -> *mut u8 {
    let Some(whole) = size.checked_add(HEAD) else {
        return ptr::null_mut();
    };
    let block = BLOCKS.take(whole);
    if block.is_null() {
        return block;
    }
    // SAFETY: the block has that many bytes and is aligned for the head.
    unsafe {
        block.cast::<Head>().write(Head { size: whole });
        block.add(HEAD)
    }
}

/// Returns the size of a block of [`take_with_head`], including its head.
///
/// # Safety
///
/// The block comes from [`take_with_head`].
unsafe fn whole(block: *mut u8) -> usize {
    // SAFETY: the caller keeps the contract of this function.
    unsafe { (*block.sub(HEAD).cast::<Head>()).size }
}

// SAFETY: each is the C library's function of that name, or does the same in the arena.
unsafe impl Allocator for Memory {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        let block = take_with_head(size);
        if !block.is_null() {
            return block;
        }
        // SAFETY: `malloc` takes any size.
        noted(unsafe { malloc(size) }, size)
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let all = count.saturating_mul(size);
        let block = take_with_head(all);
        if !block.is_null() {
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(0, all) };
            return block;
        }
        // SAFETY: `calloc` takes any size, and checks the product for overflow.
        noted(unsafe { calloc(count, size) }, all)
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller guarantees that the block came from this allocator.
        unsafe {
            if BLOCKS.has(ptr) {
                BLOCKS.give(ptr.sub(HEAD), whole(ptr));
            } else {
                let size = malloc_usable_size(ptr.cast());
                if !BLOCKS.give_up(size) {
                    clear(ptr, size);
                    free(ptr.cast());
                }
            }
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if ptr.is_null() {
            return self.alloc(new_size);
        }
        // SAFETY: the caller guarantees that the block came from this allocator.
        unsafe {
            if !BLOCKS.has(ptr) {
                let size = malloc_usable_size(ptr.cast());
                if size < PAGE || new_size < size || !CLEARS.get() {
                    return noted(realloc(ptr.cast(), new_size), new_size);
                }
                let new = noted(malloc(new_size), new_size);
                if !new.is_null() {
                    ptr::copy_nonoverlapping(ptr, new, size);
                    clear(ptr, size);
                    free(ptr.cast());
                }
                return new;
            }
            let room = Self::usable_size(ptr);
            if new_size <= room && new_size >= room / 2 {
                return ptr;
            }
            let new = self.alloc(new_size);
            if !new.is_null() {
                ptr::copy_nonoverlapping(ptr, new, room.min(new_size));
                self.dealloc(ptr);
            }
            new
        }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller guarantees that the block came from this allocator.
        unsafe {
            if BLOCKS.has(ptr) {
                return Arena::room(whole(ptr)) - HEAD;
            }
            malloc_usable_size(ptr.cast())
        }
    }
}

/// The allocator of Rust's own code.
pub(crate) struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

// SAFETY: each is the system's function of that name, or does the same in the arena.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN && layout.size() <= LARGEST {
            let block = BLOCKS.take(layout.size());
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: the caller keeps the contract, which `System` has as well.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that the block came from this allocator, with this layout.
        unsafe {
            if BLOCKS.has(ptr) {
                BLOCKS.give(ptr, layout.size());
            } else if !BLOCKS.give_up(layout.size()) {
                clear(ptr, layout.size());
                System.dealloc(ptr, layout);
            }
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the block came from this allocator, with this layout.
        unsafe {
            if !BLOCKS.has(ptr) {
                if layout.size() < PAGE || new_size < layout.size() || !CLEARS.get() {
                    return System.realloc(ptr, layout, new_size);
                }
                let new = System.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
                if !new.is_null() {
                    ptr::copy_nonoverlapping(ptr, new, layout.size());
                    clear(ptr, layout.size());
                    System.dealloc(ptr, layout);
                }
                return new;
            }
            if Arena::room(layout.size()) == Arena::room(new_size) {
                return ptr;
            }
            let new = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !new.is_null() {
                ptr::copy_nonoverlapping(ptr, new, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
            new
        }
    }
}
