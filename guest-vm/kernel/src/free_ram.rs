//! The RAM that was never allocated.
//!
//! Small frames are cut from the bottom and large ones from the top, so that they never mix in a 2
//! MiB page. RAM that is added behind large frames is a range of its own; the rest in front of them
//! stays in use. This module handles numbers only, no memory: [`crate::frames`] makes frames of
//! them.

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use faasw_abi::pages::{GuestAddress, Page, PageRange};

/// Maximum number of separate ranges: how often RAM can be added behind large frames.
const RANGES: usize = 8;

/// Number of small pages in a large page.
const LARGE: u32 = (LARGE_PAGE / PAGE) as u32;

const NO_PAGES: PageRange = PageRange::new(Page::new(0), Page::new(0));

/// RAM that was never allocated.
pub struct FreeRam {
    /// The next small frame.
    next_small: Page,
    /// End of the 2 MiB page that small frames are being cut from.
    small_end: Page,
    /// The free ranges in ascending order, in whole large pages. Empty entries are unused.
    ranges: [PageRange; RANGES],
    /// End of all RAM.
    end: Page,
}

impl FreeRam {
    /// Returns an account without RAM.
    pub const fn none() -> Self {
        Self {
            next_small: NO_PAGES.start,
            small_end: NO_PAGES.start,
            ranges: [NO_PAGES; RANGES],
            end: NO_PAGES.end,
        }
    }

    /// Returns an account of all RAM from `start` to `end`, in whole large pages.
    pub const fn of(start: u64, end: u64) -> Self {
        let all = PageRange::of_bytes(start, end);
        let mut room = Self::none();
        room.next_small = all.start;
        room.small_end = all.start;
        room.ranges[0] = all;
        room.end = all.end;
        room
    }

    /// Adds the RAM between the current end and `end`. Returns `false` if `end` is lower, is no
    /// multiple of a large page, or if there are too many ranges already.
    pub fn extend(&mut self, end: u64) -> bool {
        let page = GuestAddress::new(end).page();
        let Some(end) = page.filter(|_| end.is_multiple_of(LARGE_PAGE)) else {
            return false;
        };
        let added = PageRange::new(self.end, end);
        if added.is_empty() {
            return end == self.end;
        }
        let ends_there = |range: &&mut PageRange| !range.is_empty() && range.end == added.start;
        if let Some(last) = self.ranges.iter_mut().find(ends_there) {
            last.end = end;
        } else if !self.add(added) {
            return false;
        }
        self.end = end;
        true
    }

    /// Appends a range behind all others.
    fn add(&mut self, new: PageRange) -> bool {
        let mut kept = self.ranges.into_iter().filter(|range| !range.is_empty());
        let mut ranges = [NO_PAGES; RANGES];
        for place in &mut ranges {
            match kept.next() {
                Some(range) => *place = range,
                None => {
                    *place = new;
                    self.ranges = ranges;
                    return true;
                }
            }
        }
        false
    }

    /// Allocates the next small frame; returns `None` if RAM is used up.
    pub fn small(&mut self) -> Option<u64> {
        if self.next_small == self.small_end {
            let free = |range: &&mut PageRange| !range.is_empty();
            let lowest = self.ranges.iter_mut().find(free)?;
            let (cut, rest) = lowest.split_at(LARGE);
            (self.next_small, self.small_end) = (cut.start, cut.end);
            *lowest = rest;
        }
        let frame = self.next_small;
        self.next_small = frame.next();
        Some(frame.address().get())
    }

    /// Allocates `count` consecutive large frames; returns `None` if no range has as many.
    pub fn large(&mut self, count: u64) -> Option<u64> {
        let pages = count.checked_mul(u64::from(LARGE))?;
        let fits = |range: &&mut PageRange| range.count() >= pages;
        let highest = self.ranges.iter_mut().rev().find(fits)?;
        highest.end = Page::new(highest.end.number() - pages as u32);
        Some(highest.end.address().get())
    }

    /// Returns the address of the next `count` small frames, if they are consecutive.
    pub fn next_small(&self, count: u64) -> Option<u64> {
        let there = if self.next_small == self.small_end {
            *self.ranges.iter().find(|range| !range.is_empty())?
        } else {
            let behind = |range: &&PageRange| range.start == self.small_end;
            let behind = self.ranges.iter().find(behind);
            let end = behind.map_or(self.small_end, |range| range.end);
            PageRange::new(self.next_small, end)
        };
        (count <= there.count()).then_some(there.start.address().get())
    }
}
