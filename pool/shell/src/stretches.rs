//! Stretches of guest memory, in lists that are in order.

use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::FriExtent;

/// How many pages a stretch has.
pub fn pages(stretch: FriExtent) -> u64 {
    (stretch.end - stretch.start) / PAGE
}

/// The first page of `stretch` that lies in `start..end`.
pub fn first_in(stretch: FriExtent, start: u64, end: u64) -> Option<u64> {
    let first = stretch.start.max(start);
    (first < stretch.end.min(end)).then_some(first)
}

/// All of two lists, in order; what overlaps is not joined.
pub fn union(left: &[FriExtent], right: &[FriExtent]) -> Vec<FriExtent> {
    let mut all = [left, right].concat();
    all.sort_by_key(|extent| extent.start);
    all
}

/// What is left of `stretches` where none of `holes` is; both in order.
pub fn without(stretches: &[FriExtent], holes: &[FriExtent]) -> Vec<FriExtent> {
    stretches
        .iter()
        .flat_map(|stretch| split(*stretch, holes))
        .filter_map(|(piece, is_hole)| (!is_hole).then_some(piece))
        .collect()
}

/// Cuts `stretch` into pieces that are wholly inside or outside of `sorted`.
pub fn split(
    stretch: FriExtent,
    sorted: &[FriExtent],
) -> impl Iterator<Item = (FriExtent, bool)> + use<'_> {
    let mut at = stretch.start;
    std::iter::from_fn(move || {
        if at >= stretch.end {
            return None;
        }
        let start = at;
        let next = sorted.iter().find(|extent| extent.end > start);
        let (end, inside) = match next {
            Some(extent) if extent.start <= start => (extent.end, true),
            Some(extent) => (extent.start, false),
            None => (stretch.end, false),
        };
        at = end.min(stretch.end);
        Some((FriExtent { start, end: at }, inside))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> FriExtent {
        FriExtent { start, end }
    }

    fn pieces(stretch: FriExtent, sorted: &[FriExtent]) -> Vec<(u64, u64, bool)> {
        split(stretch, sorted)
            .map(|(piece, inside)| (piece.start, piece.end, inside))
            .collect()
    }

    #[test]
    fn a_stretch_is_cut_where_sets_begin_and_end() {
        let set = [extent(10, 20), extent(30, 40)];
        assert_eq!(
            pieces(extent(5, 50), &set),
            [
                (5, 10, false),
                (10, 20, true),
                (20, 30, false),
                (30, 40, true),
                (40, 50, false)
            ]
        );
        assert_eq!(pieces(extent(12, 15), &set), [(12, 15, true)]);
        assert_eq!(pieces(extent(20, 30), &set), [(20, 30, false)]);
        assert_eq!(pieces(extent(0, 5), &[]), [(0, 5, false)]);
        assert_eq!(pieces(extent(5, 5), &set), []);
    }

    #[test]
    fn what_lies_in_a_window_is_found() {
        assert_eq!(first_in(extent(0, 10), 5, 7), Some(5));
        assert_eq!(first_in(extent(6, 10), 5, 7), Some(6));
        assert_eq!(first_in(extent(7, 10), 5, 7), None);
        assert_eq!(first_in(extent(0, 5), 5, 7), None);
    }
}
