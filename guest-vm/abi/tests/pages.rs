//! The page types against the plain definition: a page is in a set, or it is not.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::num::NonZeroU32;

use faasw_abi::memory_map::PAGE;
use faasw_abi::pages::{GuestAddress, Page, PageRange, PageSet, Ranges};
use proptest::prelude::*;

/// Number of pages that the sets of these tests may use.
const PAGES: u32 = 64;

fn range(start: u32, end: u32) -> PageRange {
    PageRange::new(Page::new(start), Page::new(end))
}

/// Ranges in any order, including overlapping, empty and reversed ones.
fn ranges() -> impl Strategy<Value = Vec<PageRange>> {
    prop::collection::vec((0..PAGES, 0..=PAGES), 0..10).prop_map(|pairs| {
        pairs
            .into_iter()
            .map(|(start, end)| range(start, end))
            .collect()
    })
}

fn sets() -> impl Strategy<Value = PageSet> {
    ranges().prop_map(PageSet::from_iter)
}

/// The definition of a set: whether each page is in it.
fn model(set: &PageSet) -> Vec<bool> {
    let mut model = vec![false; PAGES as usize];
    for range in set.iter() {
        for page in range.pages() {
            model[page.number() as usize] = true;
        }
    }
    model
}

/// Returns whether the ranges are in order, none is empty, and none touch.
fn is_normal(set: &PageSet) -> bool {
    set.iter().all(|range| !range.is_empty())
        && set
            .ranges()
            .windows(2)
            .all(|pair| pair[0].end < pair[1].start)
}

fn both(left: &PageSet, right: &PageSet, rule: fn(bool, bool) -> bool) -> Vec<bool> {
    let pairs = model(left).into_iter().zip(model(right));
    pairs.map(|(left, right)| rule(left, right)).collect()
}

proptest! {
    #[test]
    fn a_set_has_the_pages_of_the_ranges_that_it_was_made_of(ranges in ranges()) {
        let set: PageSet = ranges.iter().copied().collect();
        prop_assert!(is_normal(&set));
        for page in (0..PAGES).map(Page::new) {
            let has = ranges.iter().any(|range| range.contains(page));
            prop_assert_eq!(set.contains(page), has);
            prop_assert_eq!(model(&set)[page.number() as usize], has);
        }
        let mut pushed = PageSet::new();
        for range in ranges {
            pushed.push(range);
            prop_assert!(is_normal(&pushed));
        }
        prop_assert_eq!(pushed, set);
    }

    #[test]
    fn operations_are_those_of_sets(left in sets(), right in sets()) {
        let union = left.union(&right);
        let common = left.intersection(&right);
        let rest = left.without(&right);
        prop_assert!(is_normal(&union) && is_normal(&common) && is_normal(&rest));
        prop_assert_eq!(model(&union), both(&left, &right, |left, right| left || right));
        prop_assert_eq!(model(&common), both(&left, &right, |left, right| left && right));
        prop_assert_eq!(model(&rest), both(&left, &right, |left, right| left && !right));
        prop_assert_eq!(&union, &right.union(&left));
        prop_assert_eq!(rest.union(&common), left.clone());
        prop_assert_eq!(union.count() + common.count(), left.count() + right.count());
        prop_assert_eq!(left.bytes(), left.count() * PAGE);
    }

    #[test]
    fn a_range_is_cut_where_a_set_begins_and_ends(
        set in sets(), start in 0..PAGES, end in 0..=PAGES
    ) {
        let whole = range(start, end);
        let mut at = whole.start;
        let mut before = None;
        for (piece, is_in) in set.cut(whole) {
            prop_assert_eq!(piece.start, at);
            prop_assert!(!piece.is_empty());
            prop_assert_ne!(before, Some(is_in), "pieces alternate");
            prop_assert!(piece.pages().all(|page| set.contains(page) == is_in));
            (at, before) = (piece.end, Some(is_in));
        }
        prop_assert_eq!(at, if whole.is_empty() { whole.start } else { whole.end });
        let first = whole.pages().find(|page| set.contains(*page));
        prop_assert_eq!(set.first_in(whole), first);
    }

    #[test]
    fn coalescing_covers_the_set_with_few_ranges(
        set in sets(), unit in 1_u32..9, most in 0_usize..6
    ) {
        let unit = NonZeroU32::new(unit).unwrap();
        let wide = set.coalesced(unit, most);
        prop_assert!(is_normal(&wide));
        prop_assert!(wide.ranges().len() <= most.max(1));
        prop_assert!(set.without(&wide).is_empty());
        for range in wide.iter() {
            prop_assert!(range.start.number().is_multiple_of(unit.get()));
            prop_assert!(range.end.number().is_multiple_of(unit.get()));
            prop_assert!(set.first_in(range).is_some(), "it is there for a page");
        }
        if set.ranges().len() <= most && unit == NonZeroU32::MIN {
            prop_assert_eq!(wide, set);
        }
    }

    /// Joining one pair costs the smallest of the gaps.
    #[test]
    fn the_nearest_are_joined_first(set in sets()) {
        let ranges = set.ranges();
        let gap = |pair: &[PageRange]| range(pair[0].end.number(), pair[1].start.number());
        let gaps = ranges.windows(2).map(gap);
        if let Some(least) = gaps.map(PageRange::count).min() {
            let joined = set.coalesced(NonZeroU32::MIN, ranges.len() - 1);
            prop_assert_eq!(joined.count(), set.count() + least);
        }
    }

    /// Joining several ranges at once equals joining two at a time.
    #[test]
    fn joining_at_once_is_joining_one_by_one(
        pages in prop::collection::vec((1_u32..6, 1_u32..4), 0..80), most in 0_usize..90
    ) {
        let mut at = 0;
        let set: PageSet = pages
            .iter()
            .map(|(gap, length)| {
                let start = at + gap;
                at = start + length;
                range(start, at)
            })
            .collect();
        let mut one_by_one = set.ranges().to_vec();
        while one_by_one.len() > most.max(1) {
            let gap = |left: &usize| {
                let [left, right] = [one_by_one[*left], one_by_one[*left + 1]];
                right.start.number() - left.end.number()
            };
            let nearest = (0..one_by_one.len() - 1).min_by_key(gap).unwrap();
            one_by_one[nearest].end = one_by_one.remove(nearest + 1).end;
        }
        let at_once = set.coalesced(NonZeroU32::MIN, most);
        prop_assert_eq!(at_once.ranges(), one_by_one);
    }

    /// Any numbers may come from an untrusted source.
    #[test]
    fn reported_ranges_are_accepted_up_to_the_first_invalid_one(
        told in prop::collection::vec(
            prop_oneof![
                (0..PAGES, 0..PAGES),
                (any::<u32>(), any::<u32>()),
            ],
            0..10
        ),
        within in (0..PAGES, 0..PAGES),
    ) {
        let told: Vec<PageRange> = told.into_iter().map(|(start, end)| range(start, end)).collect();
        let within = range(within.0, within.1);
        let set = PageSet::from_reported_clipped(&told, within);
        prop_assert!(is_normal(&set));
        prop_assert!(set.iter().all(|range| within.holds(range)));
        let mut end = 0;
        let lie = told.iter().position(|range| {
            let (first, last) = (range.start.number(), range.end.number());
            let is_lie = first >= last || first < end
                || first < within.start.number() || last > within.end.number();
            end = last;
            is_lie
        });
        let believed: PageSet = told[..lie.unwrap_or(told.len())].iter().copied().collect();
        prop_assert_eq!(&set, &believed);
        prop_assert_eq!(
            PageSet::from_reported(&told, within),
            lie.is_none().then_some(believed)
        );
    }

    #[test]
    fn a_message_holds_the_set_or_a_cover_of_it(set in sets()) {
        let told = Ranges::<4>::covering(&set);
        let back = PageSet::from_reported_clipped(told.as_slice(), range(0, PAGES));
        if set.ranges().len() <= 4 {
            prop_assert_eq!(&back, &set);
        }
        prop_assert!(set.without(&back).is_empty());
    }

    #[test]
    fn bytes_and_pages_fit(start in any::<u64>(), end in any::<u64>()) {
        let around = PageRange::around(start, end);
        if start < end && end <= u64::from(u32::MAX) * PAGE {
            prop_assert!(around.start.address().get() <= start);
            prop_assert!(end <= around.end.address().get());
            prop_assert!(around.bytes() < end - start + 2 * PAGE);
        }
        if let Some(page) = GuestAddress::new(start).page() {
            prop_assert!(PageRange::one(page).is_empty() == (page.number() == u32::MAX));
            prop_assert_eq!(page.address().get(), start - start % PAGE);
        }
    }
}

#[test]
fn the_last_page_overflows_nothing() {
    let last = Page::new(u32::MAX);
    assert_eq!(last.address().get(), (1 << 44) - PAGE);
    assert_eq!(last.next(), last);
    let all = range(0, u32::MAX);
    assert_eq!(all.bytes(), (1 << 44) - PAGE);
    let unit = NonZeroU32::new(512).unwrap();
    assert_eq!(PageSet::from(all).coalesced(unit, 1), PageSet::from(all));
    assert_eq!(range(9, 3).bytes(), 0);
    assert_eq!(GuestAddress::new(u64::MAX).page(), None);
}

#[test]
fn addresses_of_constants_are_pages() {
    const TWO: PageRange = PageRange::of_bytes(PAGE, 3 * PAGE);
    assert_eq!(TWO, range(1, 3));
    assert!(std::panic::catch_unwind(|| PageRange::of_bytes(1, PAGE)).is_err());
}
