//! Which RAM was never handed out.
//!
//! Small frames are cut from the bottom, large ones taken from the top, so that they
//! never mix in a 2 MiB page. RAM that is added behind large frames is a range of its
//! own; what was left in front of them stays in use. Only numbers are here, no memory:
//! [`crate::frames`] makes frames of them.

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};

/// Most ranges that are kept apart: how often RAM can be added behind large frames.
const RANGES: usize = 8;

/// Guest-physical addresses, in whole large pages.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    const NONE: Self = Self { start: 0, end: 0 };

    fn bytes(self) -> u64 {
        self.end - self.start
    }
}

/// RAM that was never handed out.
pub struct Room {
    next_small: u64,
    /// End of the 2 MiB page that small frames are being cut from.
    small_end: u64,
    /// Upwards. Empty ones are room for more.
    ranges: [Range; RANGES],
    /// End of all RAM.
    end: u64,
}

impl Room {
    /// None at all.
    pub const fn none() -> Self {
        Self {
            next_small: 0,
            small_end: 0,
            ranges: [Range::NONE; RANGES],
            end: 0,
        }
    }

    /// All from `start` to `end`.
    pub const fn of(start: u64, end: u64) -> Self {
        let mut room = Self::none();
        room.next_small = start;
        room.small_end = start;
        room.ranges[0] = Range { start, end };
        room.end = end;
        room
    }

    /// Adds what is between the end so far and `end`. `false` when that is less, is no
    /// whole large page, or when there are too many ranges already.
    pub fn extend(&mut self, end: u64) -> bool {
        let start = self.end;
        if end < start || !end.is_multiple_of(LARGE_PAGE) {
            return false;
        }
        if end == start {
            return true;
        }
        let ends_there = |range: &&mut Range| range.bytes() > 0 && range.end == start;
        if let Some(last) = self.ranges.iter_mut().find(ends_there) {
            last.end = end;
        } else if !self.add(Range { start, end }) {
            return false;
        }
        self.end = end;
        true
    }

    /// Puts a range behind all others.
    fn add(&mut self, new: Range) -> bool {
        let mut kept = self.ranges.into_iter().filter(|range| range.bytes() > 0);
        let mut ranges = [Range::NONE; RANGES];
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

    /// The next small frame; `None` when RAM is used up.
    pub fn small(&mut self) -> Option<u64> {
        if self.next_small == self.small_end {
            let free = |range: &&mut Range| range.bytes() >= LARGE_PAGE;
            let lowest = self.ranges.iter_mut().find(free)?;
            self.next_small = lowest.start;
            lowest.start += LARGE_PAGE;
            self.small_end = lowest.start;
        }
        let frame = self.next_small;
        self.next_small += PAGE;
        Some(frame)
    }

    /// `count` large frames in a row; `None` when there are not.
    pub fn large(&mut self, count: u64) -> Option<u64> {
        let bytes = count.checked_mul(LARGE_PAGE)?;
        let fits = |range: &&mut Range| range.bytes() >= bytes;
        let highest = self.ranges.iter_mut().rev().find(fits)?;
        highest.end -= bytes;
        Some(highest.end)
    }

    /// Where the next `count` small frames will lie, if next to each other.
    pub fn next_small(&self, count: u64) -> Option<u64> {
        let bytes = count.checked_mul(PAGE)?;
        if self.next_small == self.small_end {
            let mut free = self.ranges.iter().filter(|range| range.bytes() > 0);
            let lowest = free.next()?;
            return (bytes <= lowest.bytes()).then_some(lowest.start);
        }
        let behind = |range: &&Range| range.start == self.small_end;
        let behind = self.ranges.iter().find(behind);
        let end = behind.map_or(self.small_end, |range| range.end);
        (self.next_small.checked_add(bytes)? <= end).then_some(self.next_small)
    }
}
