//! Stretches of guest-physical space.

/// A stretch of bytes; `end` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Extent {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// What can be believed of extents that somebody else told: those at the start that
/// are sorted, disjoint, not empty, made of whole units of `unit` bytes and within
/// `bytes`. All that follow one that is not are left out.
#[must_use]
pub fn sound(told: &[Extent], unit: u64, bytes: u64) -> &[Extent] {
    let mut end = 0;
    let count = told
        .iter()
        .take_while(|extent| {
            let is_sound = end <= extent.start
                && extent.start < extent.end
                && extent.end <= bytes
                && extent.start.is_multiple_of(unit)
                && extent.end.is_multiple_of(unit);
            end = extent.end;
            is_sound
        })
        .count();
    told.get(..count).unwrap_or_default()
}

/// Widens sorted, disjoint extents to whole units of `unit` bytes, joins those
/// that then touch, and joins the nearest ones until at most `most` are left.
///
/// Each extent costs an instance a mapping, and each byte that no extent needs
/// costs nothing but the chance to be a hole, so few and wide is right.
#[must_use]
pub fn coalesce(extents: &[Extent], unit: u64, most: usize) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::new();
    for extent in extents {
        let start = extent.start - extent.start % unit;
        let end = extent.end.next_multiple_of(unit);
        match joined.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => joined.push(Extent { start, end }),
        }
    }
    while joined.len() > most.max(1) {
        let gaps = joined
            .windows(2)
            .map(|pair| match pair {
                [left, right] => right.start - left.end,
                _ => u64::MAX,
            })
            .enumerate();
        let Some((index, _)) = gaps.min_by_key(|(_, gap)| *gap) else {
            break;
        };
        let right = joined.remove(index + 1);
        if let Some(left) = joined.get_mut(index) {
            left.end = right.end;
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent { start, end }
    }

    #[test]
    fn what_was_told_is_believed_up_to_the_first_lie() {
        let good = [extent(0, 10), extent(10, 20), extent(40, 50)];
        assert_eq!(sound(&good, 10, 50), good);
        assert_eq!(sound(&[], 10, 50), []);
        for lie in [
            extent(5, 20),
            extent(0, 20),
            extent(20, 20),
            extent(30, 20),
            extent(20, 60),
            extent(15, 20),
            extent(20, 25),
            extent(20, u64::MAX),
        ] {
            let told = [extent(0, 10), lie, extent(40, 50)];
            assert_eq!(sound(&told, 10, 50), &told[..1], "{lie:?}");
        }
    }

    #[test]
    fn extents_are_widened_and_joined_where_they_touch() {
        assert_eq!(
            coalesce(&[extent(1, 2), extent(12, 13), extent(35, 41)], 10, 16),
            [extent(0, 20), extent(30, 50)]
        );
        assert_eq!(coalesce(&[], 10, 16), []);
    }

    #[test]
    fn the_nearest_are_joined_until_few_enough_are_left() {
        let many = [
            extent(0, 10),
            extent(20, 30),
            extent(100, 110),
            extent(300, 310),
        ];
        assert_eq!(coalesce(&many, 10, 2), [extent(0, 110), extent(300, 310)]);
        assert_eq!(coalesce(&many, 10, 0), [extent(0, 310)]);
    }
}
