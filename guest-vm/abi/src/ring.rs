//! Arithmetic of the rings that bodies and log pass through.
//!
//! A ring is an [`Area`] and two counters of bytes, written and read, that only
//! grow; where a byte lies is its number modulo the ring's size. Each counter
//! is changed by one side alone, and the other side's is only its word: [`used`]
//! says whether it can be true before anything is copied.

use crate::mailbox::Area;

/// A piece of a ring: offset in the mailbox and length, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset from the start of the mailbox.
    pub offset: u64,
    /// Length; may be 0.
    pub length: usize,
}

/// How many bytes are in a ring of `size` bytes; `None` when the counters cannot
/// be true: more read than written, or more in it than it holds.
#[must_use]
pub fn used(written: u64, read: u64, size: u64) -> Option<u64> {
    written.checked_sub(read).filter(|used| *used <= size)
}

/// Where the bytes from number `at` on lie: up to the ring's end, then from its
/// start. `length` is cut to the ring's size.
#[must_use]
pub fn pieces(ring: Area, at: u64, length: usize) -> [Piece; 2] {
    let length = (length as u64).min(ring.size);
    let start = at % ring.size;
    let first = length.min(ring.size - start);
    [
        Piece {
            offset: ring.offset + start,
            length: first as usize,
        },
        Piece {
            offset: ring.offset,
            length: (length - first) as usize,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Area = Area {
        offset: 100,
        size: 7,
    };

    #[test]
    fn every_byte_of_every_span_lies_where_its_number_says() {
        for at in 0..21_u64 {
            for length in 0..=10_usize {
                let [first, second] = pieces(RING, at, length);
                let offsets = (first.offset..first.offset + first.length as u64)
                    .chain(second.offset..second.offset + second.length as u64);
                let expected = (at..).take(length.min(7)).map(|number| 100 + number % 7);
                assert!(offsets.eq(expected), "{at} {length}");
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
        let [first, second] = pieces(RING, u64::MAX, 7);
        assert_eq!(first.length + second.length, 7);
    }
}
