//! The private pages of zygotes that are specialised for a snapshot, derived from it alone.

use std::num::NonZeroU32;

use faasw_abi::memory_map::{
    BOOT_PAGE, DATA, DATA_END, HEAP, HEAP_END, PAGE, RODATA_END, STACK_TOP,
};
use faasw_abi::pages::{Page, PageRange, PageSet};
use rustix::io::Errno;

use crate::limits::{PREPARED_PAGES_MAX, SET_MAX};
use crate::snapshot::{Snapshot, Sorted};

/// Number of stack pages that a request uses.
const STACK_PAGES: u64 = 6;
/// Number of heap pages that a guest uses beyond those of its snapshot.
const HEAP_PAGES: u32 = 64;
/// Maximum number of pages that are compared, of all steps together: 64 MiB, in some 30 ms. Each
/// fork handles the rest.
const COMPARED_PAGES: u64 = 16_384;
/// Address of the first page of a request's stack.
const STACK: u64 = STACK_TOP - STACK_PAGES * PAGE;

/// Returns the private pages of a zygote that is specialised for `snapshot`: those that a request
/// writes, and the own pages of a function's seed, if it is a small one. They are the guest's data,
/// the top of its stack, its heap and somewhat more. All of it counts as far as the steps since the
/// root have written it, because pages that one step wrote are written again by the next ones.
///
/// If that is too much, because one of the steps wrote much at once, the largest pieces are left to
/// each fork.
///
/// # Errors
/// Returns the system's error, if a layer cannot be read.
pub fn prepared<S>(snapshot: &Snapshot<S>) -> Result<PageSet, Errno> {
    let changed = changed(snapshot)?;
    let last = |within: PageRange| {
        let mut inside = changed.iter().filter(|range| within.holds(*range));
        inside.next_back().map_or(within.start, |range| range.end)
    };
    let data = PageRange::of_bytes(DATA, DATA_END);
    // Large allocations come from the other end of the heap.
    let heap = PageRange::of_bytes(HEAP, HEAP + (HEAP_END - HEAP) / 2);
    let top = last(heap);
    let behind = PageRange::new(top, Page::new(top.number() + HEAP_PAGES));
    let used = [
        page_at(BOOT_PAGE),
        PageRange::new(data.start, last(data)),
        PageRange::of_bytes(STACK, STACK_TOP),
        behind,
    ];
    let used: PageSet = used.into_iter().collect();
    let below = PageRange::new(page_at(STACK).start, top);
    Ok(bounded(&used, &changed.union(&below.into())))
}

/// Returns the pages that the steps of a snapshot have changed above the guest's own code, up to
/// the limit of compared pages. The root's pages count only if `snapshot` is the root itself:
/// usually no zygote is specialised for the root.
fn changed<S>(snapshot: &Snapshot<S>) -> Result<PageSet, Errno> {
    let above = PageRange::new(
        PageRange::of_bytes(RODATA_END, RODATA_END).start,
        Page::new(u32::MAX),
    );
    let mut changed = Vec::new();
    let mut compared = 0;
    let is_step = |at: &&Snapshot<S>| at.parent().is_some();
    let above_root = snapshot.line().skip(1).take_while(is_step);
    for at in std::iter::once(snapshot).chain(above_root) {
        for own in at.layer().own().intersection(&above.into()).iter() {
            compared += own.count();
            if compared <= COMPARED_PAGES {
                changed.extend(at.differing(own)?.iter());
            }
        }
    }
    Ok(changed.into_iter().collect())
}

impl<S> Snapshot<S> {
    /// Returns those of its own pages in a range that differ from the parent's. For a restored
    /// snapshot the image answers that for the pages that it has. A comparison of a whole language
    /// engine would take as long as reading it, while the first script waits.
    fn differing(&self, own: PageRange) -> Result<PageSet, Errno> {
        let Some(Sorted { stored, inherited }) = &self.sorted else {
            return self.differences(own);
        };
        let own = PageSet::from(own);
        let empty = own.without(stored).without(inherited);
        let mut differing: Vec<PageRange> = own.intersection(stored).iter().collect();
        for range in empty.iter() {
            differing.extend(self.differences(range)?.iter());
        }
        Ok(differing.into_iter().collect())
    }
}

/// Returns all of `used`, and as many of the smallest pieces of `changed` as the limit allows.
fn bounded(used: &PageSet, changed: &PageSet) -> PageSet {
    let rest = changed.without(used);
    let mut pieces: Vec<PageRange> = rest.iter().collect();
    pieces.sort_by_key(|piece| piece.count());
    // A step decides how many pieces there are. Pieces behind these are too many, however ranges
    // are joined.
    let mut pages = 0;
    let few = pieces.iter().take_while(|piece| {
        pages += piece.count();
        pages <= PREPARED_PAGES_MAX
    });
    let few = few.count();
    pieces.truncate(few);
    let of = |count: usize| {
        let taken = pieces.iter().take(count).copied().collect();
        used.union(&taken).coalesced(NonZeroU32::MIN, SET_MAX)
    };
    // A further piece never means fewer pages, whatever gaps are joined for it.
    let counts: Vec<usize> = (1..=few).collect();
    of(counts.partition_point(|count| of(*count).count() <= PREPARED_PAGES_MAX))
}

fn page_at(start: u64) -> PageRange {
    PageRange::of_bytes(start, start + PAGE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::layer::LayerBuilder;

    type Parent = Option<Arc<Snapshot<()>>>;

    /// Returns a child of `parent` that wrote `count` pages from each of these places of the heap.
    fn child(parent: Parent, runs: &[(u64, u64)]) -> Arc<Snapshot<()>> {
        let builder = LayerBuilder::new("test", 64 << 20).unwrap();
        let depth = parent
            .as_ref()
            .map_or(0, |parent| u64::from(parent.depth()) + 1);
        let mut own = Vec::new();
        for (place, count) in runs {
            let start = HEAP + place * PAGE;
            own.push(PageRange::of_bytes(start, start + count * PAGE));
            for page in 0..*count {
                let address = start + page * PAGE;
                builder.write(address, &(depth + 1).to_le_bytes()).unwrap();
            }
        }
        let layer = builder.freeze_at(own.into_iter().collect()).unwrap();
        Arc::new(Snapshot::new(parent, layer, (), 0).unwrap())
    }

    fn at(place: u64) -> Page {
        page_at(HEAP + place * PAGE).start
    }

    /// A place behind the pages that requests use anyway.
    const FAR: u64 = (HEAP_END - HEAP) / PAGE / 2;

    #[test]
    fn pages_written_by_any_step_since_the_root_are_prepared() {
        let root = child(None, &[(0, 2), (FAR + 500, 3)]);
        let first = child(Some(root), &[(0, 4), (FAR + 100, 1)]);
        let second = child(Some(first.clone()), &[(FAR + 200, 1)]);
        let [of_first, of_second] = [&first, &second].map(|snapshot| snapshot.prepared().unwrap());
        for place in [0, 3, 4 + u64::from(HEAP_PAGES) - 1, FAR + 100] {
            assert!(of_first.contains(at(place)) && of_second.contains(at(place)));
        }
        assert!(!of_first.contains(at(FAR + 200)) && of_second.contains(at(FAR + 200)));
        assert!(!of_second.contains(at(FAR + 500)), "only the root's");
    }

    #[test]
    fn the_largest_pieces_are_left_to_each_fork() {
        let root = child(None, &[]);
        let large = (FAR + 1000, PREPARED_PAGES_MAX);
        let parent = child(Some(root), &[(FAR + 100, 3), (FAR + 200, 90), large]);
        let prepared = parent.prepared().unwrap();
        assert!(prepared.count() <= PREPARED_PAGES_MAX);
        for (place, is_prepared) in [
            (0, true),
            (FAR + 102, true),
            (FAR + 289, true),
            (large.0, false),
        ] {
            assert_eq!(prepared.contains(at(place)), is_prepared, "{place}");
        }
    }

    #[test]
    fn prepared_pages_are_bounded_however_far_apart() {
        let page = |number: u64| PageRange::one(Page::new(number as u32));
        let used = PageSet::from(page(5));
        for (count, apart) in [
            (2000, 1),
            (2000, 2),
            (2000, 100),
            (300, 100_000),
            (256, 2),
            (3, 7),
        ] {
            let changed: PageSet = (0..count).map(|at| page(10 + at * apart)).collect();
            let found = bounded(&used, &changed);
            assert!(found.count() <= PREPARED_PAGES_MAX && found.ranges().len() <= SET_MAX);
            assert!(found.contains(used.ranges()[0].start));
            let all = used.union(&changed);
            if all.count() <= PREPARED_PAGES_MAX && all.ranges().len() <= SET_MAX {
                assert_eq!(found, all);
            }
        }
    }
    /// Joins the nearest two ranges until there are few enough.
    fn joined(set: &PageSet) -> u64 {
        let mut ranges = set.ranges().to_vec();
        while ranges.len() > SET_MAX {
            let gap = |left: &usize| {
                let [left, right] = [ranges[*left], ranges[*left + 1]];
                right.start.number() - left.end.number()
            };
            let nearest = (0..ranges.len() - 1).min_by_key(gap).unwrap();
            ranges[nearest].end = ranges.remove(nearest + 1).end;
        }
        ranges.iter().map(|range| range.count()).sum()
    }

    /// Adds the smallest pieces one by one for as long as they fit.
    fn one_by_one(used: &PageSet, changed: &PageSet) -> u64 {
        let rest = changed.without(used);
        let mut pieces: Vec<PageRange> = rest.iter().collect();
        pieces.sort_by_key(|piece| piece.count());
        let mut taken = used.clone();
        for piece in pieces {
            let more = taken.union(&piece.into());
            if joined(&more) > PREPARED_PAGES_MAX {
                break;
            }
            taken = more;
        }
        joined(&taken)
    }

    #[test]
    fn as_much_is_prepared_as_fits_when_pieces_are_added_one_by_one() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move |bound: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            1 + (state % u64::from(bound)) as u32
        };
        for round in 0..60 {
            let mut random = |count: u32, apart: u32, long: u32| -> PageSet {
                let mut at = 0;
                let ranges = (0..count).map(|_| {
                    let start = at + next(apart);
                    at = start + next(long);
                    PageRange::new(Page::new(start), Page::new(at))
                });
                ranges.collect()
            };
            let used = random(1 + round % 5, 400, 60);
            let long = [1, 3, 30][round as usize % 3];
            let changed = random(10 * round, [2, 9, 50][round as usize / 3 % 3], long);
            let found = bounded(&used, &changed);
            assert!(used.without(&found).is_empty(), "round {round}");
            assert!(found.ranges().len() <= SET_MAX, "round {round}");
            let pages = one_by_one(&used, &changed);
            assert_eq!(found.count(), pages, "round {round}");
            assert!(pages <= PREPARED_PAGES_MAX);
        }
    }

    #[test]
    fn a_million_pieces_are_no_work() {
        let page = |number: u32| PageRange::one(Page::new(number));
        let changed: PageSet = (0..1_000_000).map(|place| page(10 + 2 * place)).collect();
        let began = std::time::Instant::now();
        let found = bounded(&page(5).into(), &changed);
        assert!(found.count() <= PREPARED_PAGES_MAX);
        assert_eq!(changed.coalesced(NonZeroU32::MIN, 3).ranges().len(), 3);
        // Two minutes suffice on a busy machine; quadratic work would take hours.
        assert!(began.elapsed().as_secs() < 120, "{:?}", began.elapsed());
    }
}
