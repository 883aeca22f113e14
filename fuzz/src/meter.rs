//! The most memory that a thread takes, because no length that another side claims may determine an
//! allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// A wrapper of the system's allocator that counts bytes.
pub struct CountingAllocator;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // The memory of a thread that is ending is no longer counted.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: all work is the system allocator's; counting does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Runs `work`. Returns its result, and the most memory that it had at once, in bytes.
pub fn with_peak_memory<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    MOST.set(before);
    let given = work();
    (given, usize::try_from(MOST.get() - before).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_at_once_is_measured_not_the_sum() {
        let ((), most) = with_peak_memory(|| {
            for _ in 0..10 {
                std::hint::black_box(vec![0_u8; 100_000]);
            }
        });
        assert!((100_000..200_000).contains(&most), "{most}");
    }
}
