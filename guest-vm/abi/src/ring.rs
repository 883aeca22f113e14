//! Arithmetic of the ring buffers that messages and the log pass through.
//!
//! A ring buffer is an [`Area`] and two counters of bytes, written and read, that only grow. The
//! position of a byte is its number modulo the ring's size. Each counter is changed by one side
//! only, so the other side cannot trust it: [`used`] checks whether it can be true before anything
//! is copied.

use crate::area::Area;

/// The position of a ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingBuffer {
    /// All of it.
    pub area: Area,
    /// Offset of byte number 0 in the area: less than the size of the area.
    pub first: u64,
}

impl RingBuffer {
    /// Returns the capacity, in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.area.size
    }

    /// Returns how many bytes are in the ring; `None` if the counters cannot be true.
    #[must_use]
    pub fn used(&self, written: u64, read: u64) -> Option<u64> {
        used(written, read, self.area.size)
    }

    /// Returns the pieces that hold the bytes from number `at` on: up to the ring's end, then from
    /// its start. `length` is cut to the ring's size.
    #[must_use]
    pub fn pieces(&self, at: u64, length: usize) -> [RingSpan; 2] {
        let size = self.area.size;
        // The position is shifted instead of the number, so that no number overflows.
        let at = at.modulo(size) + self.first;
        let (start, first, second) = split(size, at, length as u64);
        [
            RingSpan {
                offset: self.area.offset + start,
                length: first as usize,
            },
            RingSpan {
                offset: self.area.offset,
                length: second as usize,
            },
        ]
    }
}

/// A piece of a ring: offset in the mailbox and length, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpan {
    /// Offset from the start of the mailbox.
    pub offset: u64,
    /// Length; may be 0.
    pub length: usize,
}

/// A counter of bytes: [`u64`], or in proofs a smaller type, whose values can all be tried.
pub trait Counter: Copy + Ord {
    /// Returns `self - other`, if that is not below zero.
    fn less(self, other: Self) -> Option<Self>;
    /// Returns `self` modulo `size`, or `self` if `size` is 0.
    fn modulo(self, size: Self) -> Self;
}

macro_rules! counter {
    ($number:ty) => {
        impl Counter for $number {
            fn less(self, other: Self) -> Option<Self> {
                self.checked_sub(other)
            }

            fn modulo(self, size: Self) -> Self {
                self.checked_rem(size).unwrap_or(self)
            }
        }
    };
}

counter!(u64);
#[cfg(test)]
counter!(u8);

/// Returns how many bytes are in a ring of `size` bytes. Returns `None` if the counters cannot be
/// true: more read than written, or more in the ring than it holds.
#[must_use]
pub fn used<N: Counter>(written: N, read: N, size: N) -> Option<N> {
    written.less(read).filter(|used| *used <= size)
}

/// Returns the offset of the first piece in a ring, its length, and the length of the second piece,
/// which begins at the ring's start.
fn split<N: Counter>(size: N, at: N, length: N) -> (N, N, N) {
    let length = length.min(size);
    let start = at.modulo(size);
    let to_end = size.less(start).unwrap_or(size);
    let first = length.min(to_end);
    (start, first, length.less(first).unwrap_or(length))
}

/// The rules that all values are held to.
#[cfg(test)]
mod rules {
    use super::{split, used};

    pub fn believed(written: u8, read: u8, size: u8) {
        let there = i16::from(written) - i16::from(read);
        let is_possible = there >= 0 && there <= i16::from(size);
        let found = used(written, read, size).map(i16::from);
        assert_eq!(found, is_possible.then_some(there));
    }

    pub fn apart(size: u8, at: u8, length: u8) {
        let (start, first, second) = split(size, at, length);
        let sum = u16::from(first) + u16::from(second);
        assert_eq!(sum, u16::from(length.min(size)));
        assert!(size == 0 || start < size);
        assert!(sum == 0 || u16::from(start) + u16::from(first) <= u16::from(size));
        // The second begins where the first ended, and ends before it begins.
        assert!(second == 0 || first == size - start && second <= start);
    }
}

#[cfg(test)]
mod tests {
    use super::rules::{apart, believed};
    use super::*;

    fn ring(first: u64) -> RingBuffer {
        let area = Area {
            offset: 100,
            size: 7,
        };
        RingBuffer { area, first }
    }

    #[test]
    fn every_byte_of_a_span_lies_at_its_counters_position() {
        for begin in 0..7 {
            for at in 0..21_u64 {
                for length in 0..=10_usize {
                    let [first, second] = ring(begin).pieces(at, length);
                    let offsets = (first.offset..first.offset + first.length as u64)
                        .chain(second.offset..second.offset + second.length as u64);
                    let expected = (at..)
                        .take(length.min(7))
                        .map(|number| 100 + (begin + number) % 7);
                    assert!(offsets.eq(expected), "{begin} {at} {length}");
                }
            }
        }
    }

    #[test]
    fn counters_that_cannot_be_true_are_seen() {
        for written in 0..20_u64 {
            for read in 0..20 {
                let possible = read <= written && written - read <= 7;
                assert_eq!(
                    used(written, read, 7),
                    possible.then(|| written - read),
                    "{written} {read}"
                );
            }
        }
        assert_eq!(used(u64::MAX, 0, 7), None);
        assert_eq!(used(0, u64::MAX, 7), None);
        assert_eq!(used(u64::MAX, u64::MAX - 7, 7), Some(7));
    }

    #[test]
    fn positions_near_the_end_of_numbers_do_not_overflow() {
        let [first, second] = ring(6).pieces(u64::MAX, 7);
        assert_eq!(first.length + second.length, 7);
    }

    // The proofs check each rule for all values of a smaller counter, including its maximum. The
    // functions are the same for [`u64`].

    #[test]
    fn counters_are_believed_exactly_when_they_can_be_true() {
        for size in 0..=u8::MAX {
            for written in 0..=u8::MAX {
                for read in 0..=u8::MAX {
                    believed(written, read, size);
                }
            }
        }
    }

    #[test]
    fn spans_lie_in_the_ring_and_never_overlap() {
        for size in 0..=u8::MAX {
            for at in 0..=u8::MAX {
                for length in 0..=u8::MAX {
                    apart(size, at, length);
                }
            }
        }
    }

    #[test]
    fn every_byte_lies_at_its_number_up_to_the_last_number() {
        for size in 1..=24_u8 {
            for at in 0..=u8::MAX {
                for length in 0..=size {
                    let (start, first, second) = split(size, at, length);
                    let places = (start..start + first).chain(0..second).map(u16::from);
                    let numbers = u16::from(at)..u16::from(at) + u16::from(length);
                    assert!(places.eq(numbers.map(|number| number % u16::from(size))));
                }
            }
        }
    }

    #[test]
    fn a_reader_that_checks_counters_never_overruns() {
        // For each claim that the other side can make next, and each own position.
        for size in 0..=16_u8 {
            for read in 0..=u8::MAX {
                for claimed in 0..=u8::MAX {
                    let Some(there) = used(claimed, read, size) else {
                        continue;
                    };
                    for taken in 0..=there {
                        let after = read.checked_add(taken);
                        assert!(after.is_some_and(|after| after <= claimed));
                    }
                    // A writer fills the ring, and no further.
                    assert!(size.checked_sub(there).is_some());
                }
            }
        }
    }
}
