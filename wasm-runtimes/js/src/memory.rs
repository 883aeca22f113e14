//! Memory of the interpreter and of ourselves: the C library's, but that small blocks come from
//! an [`Arena`] once the engine is made, and that it is known whether memory ran out.
//!
//! QuickJS has small blocks of its own, sorted by their sizes into pages: a request that has
//! blocks of twenty sizes writes to twenty pages. As `lasting.py` changes it, it asks here first.
//!
//! Where not even an error has room the interpreter throws `null`, which says nothing to anybody.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ffi::c_void,
    ptr,
};

use rquickjs::allocator::Allocator;

use crate::arena::{ALIGN, Arena, LARGEST};

/// An error and its stack take no more at once. What is larger fails with an error that says so.
const SMALL: usize = 4 << 10;

/// How much of small blocks lies close to each other. A page of it that was never written to is
/// nobody's.
const REGION: usize = 256 << 10;

/// What a fork copies at once.
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

/// The arena of now, and where the regions of all are.
struct Blocks {
    arena: Cell<*mut Arena>,
    regions: Cell<*mut u8>,
}

// SAFETY: an engine has one thread.
unsafe impl Sync for Blocks {}

static BLOCKS: Blocks = Blocks {
    arena: Cell::new(ptr::null_mut()),
    regions: Cell::new(ptr::null_mut()),
};

impl Blocks {
    fn arena(&self) -> Option<&mut Arena> {
        // SAFETY: it lasts, there is one thread, and no arena's method calls anything that
        // comes here again.
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
    /// Was taken with a size of the same class, and is used by nobody.
    unsafe fn give(&self, block: *mut u8, size: usize) {
        if let Some(arena) = self.arena() {
            let is_older = block < self.arena.get().cast();
            if !(is_older && arena.give_up(size)) {
                // SAFETY: the caller's.
                unsafe { arena.give(block, size) };
            }
        }
    }

    fn give_up(&self, size: usize) -> bool {
        self.arena().is_some_and(|arena| arena.give_up(size))
    }
}

/// From now on small blocks lie close together, and apart from what is there already: those of
/// scripts' first steps.
pub(crate) fn begin() {
    let Ok(layout) = Layout::from_size_align(2 * REGION, PAGE) else {
        return;
    };
    // SAFETY: it has a size.
    let regions = unsafe { System.alloc(layout) };
    if !regions.is_null() {
        BLOCKS.regions.set(regions);
        // SAFETY: new, and never freed.
        BLOCKS.arena.set(unsafe { Arena::begin(regions, REGION) });
    }
}

/// The same once more, after [`begin`]: those of a request.
pub(crate) fn begin_request() {
    let regions = BLOCKS.regions.get();
    if !regions.is_null() {
        // SAFETY: the other half, which is never freed.
        BLOCKS
            .arena
            .set(unsafe { Arena::begin(regions.add(REGION), REGION) });
    }
}

/// Whether there was not even a little room left, at some time.
pub(crate) fn ran_out() -> bool {
    RAN_OUT.get()
}

/// A block for QuickJS, whose header says what size it has; null where there is none here.
#[unsafe(no_mangle)]
extern "C" fn faasw_take(size: usize) -> *mut u8 {
    BLOCKS.take(size)
}

/// Takes one back.
#[unsafe(no_mangle)]
unsafe extern "C" fn faasw_give(block: *mut u8, size: usize) {
    if BLOCKS.has(block) {
        // SAFETY: QuickJS's: it was taken with that size.
        unsafe { BLOCKS.give(block, size) };
    }
}

/// Whether a block of QuickJS's own of that size was given up rather than to be freed.
#[unsafe(no_mangle)]
extern "C" fn faasw_give_up(size: usize) -> bool {
    BLOCKS.give_up(size)
}

/// What QuickJS asks for in pieces larger than its small blocks.
pub(crate) struct Memory;

/// Before a block of the arena's that is [`Memory`]'s: what was asked for.
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
    // SAFETY: it has that much, and is aligned for it.
    unsafe {
        block.cast::<Head>().write(Head { size: whole });
        block.add(HEAD)
    }
}

/// The size of what [`take_with_head`] gave, with its head.
///
/// # Safety
///
/// It gave it.
unsafe fn whole(block: *mut u8) -> usize {
    // SAFETY: the caller's.
    unsafe { (*block.sub(HEAD).cast::<Head>()).size }
}

// SAFETY: each is the C library's function of that name, or does the same in the arena.
unsafe impl Allocator for Memory {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        let block = take_with_head(size);
        if !block.is_null() {
            return block;
        }
        // SAFETY: takes any size.
        noted(unsafe { malloc(size) }, size)
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let all = count.saturating_mul(size);
        let block = take_with_head(all);
        if !block.is_null() {
            // SAFETY: it has that much.
            unsafe { block.write_bytes(0, all) };
            return block;
        }
        // SAFETY: takes any size, and looks whether the product is one.
        noted(unsafe { calloc(count, size) }, all)
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller's: it came from here.
        unsafe {
            if BLOCKS.has(ptr) {
                BLOCKS.give(ptr.sub(HEAD), whole(ptr));
            } else if !BLOCKS.give_up(malloc_usable_size(ptr.cast())) {
                free(ptr.cast());
            }
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if ptr.is_null() {
            return self.alloc(new_size);
        }
        // SAFETY: the caller's: it came from here.
        unsafe {
            if !BLOCKS.has(ptr) {
                return noted(realloc(ptr.cast(), new_size), new_size);
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
        // SAFETY: the caller's: it came from here.
        unsafe {
            if BLOCKS.has(ptr) {
                return Arena::room(whole(ptr)) - HEAD;
            }
            malloc_usable_size(ptr.cast())
        }
    }
}

/// What Rust's own parts allocate.
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
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's: it came from here, with this layout.
        unsafe {
            if BLOCKS.has(ptr) {
                BLOCKS.give(ptr, layout.size());
            } else if !BLOCKS.give_up(layout.size()) {
                System.dealloc(ptr, layout);
            }
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's: it came from here, with this layout.
        unsafe {
            if !BLOCKS.has(ptr) {
                return System.realloc(ptr, layout, new_size);
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
