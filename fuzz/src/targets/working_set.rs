//! The pages that sandboxes report as used by their instances, and the sets that the next fork
//! receives.
//!
//! Input: rounds of what a sandbox reports at a survey, and at resets.

use faasw_abi::memory_map::CODE_MAX;
use faasw_abi::pages::{Page, PageRange, PageSet};
use faasw_seedtree::limits::{SET_MAX, SET_PAGES_MAX};
use faasw_seedtree::{Misses, Owner, UsedPages, WorkingSet, overlay};
use std::num::NonZeroU32;

use crate::Target;
use crate::input::Input;

/// The sets are bounded, whatever a sandbox reports.
pub const TARGET: Target = Target {
    name: "working_set",
    read,
    memory: 512 << 10,
    per_byte: 8,
    executions: 50_000,
};

/// RAM of the instances.
const RAM: PageRange = PageRange::of_bytes(0, 256 << 20);

fn read_ranges(input: &mut Input<'_>) -> Vec<PageRange> {
    let count = usize::from(input.short()) % (SET_MAX + 1);
    let mut ranges = Vec::new();
    // A message on the socket has no more ranges than that. Behind the end of the input are zeroes.
    while ranges.len() < count && !input.is_over() {
        let [start, end] = [(); 2].map(|()| Page::new(input.number() as u32));
        ranges.push(PageRange { start, end });
    }
    ranges
}

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let set = WorkingSet::of(Owner::Function(0));
    let mut is_good = true;
    while !input.is_over() {
        let used = UsedPages {
            changed: input.number(),
            written: read_ranges(&mut input),
            read: read_ranges(&mut input),
            code: read_ranges(&mut input),
        };
        is_good &= PageSet::from_reported(&used.written, RAM).is_some();
        set.learn(set.current().generation, &used, RAM.bytes());
        is_bounded(&set);
        for _ in 0..input.byte() % 80 {
            let _ = set.count_reset();
            set.note(
                set.current().generation,
                Misses {
                    outside: input.number(),
                    unused: Some(input.number()),
                },
            );
            is_bounded(&set);
        }
        layers(&used);
    }
    is_good
}

/// Checks that a fork receives only pages of RAM, in few ranges and not many.
fn is_bounded(set: &WorkingSet) {
    let sets = set.current();
    for pages in [&sets.written, &sets.read] {
        assert!(pages.ranges().len() <= SET_MAX);
        assert!(pages.iter().all(|range| RAM.holds(range)));
        assert!(pages.count() <= SET_PAGES_MAX);
    }
    let most = PageRange::of_bytes(0, CODE_MAX);
    assert!(sets.code.ranges().len() <= SET_MAX);
    assert!(sets.code.iter().all(|range| most.holds(range)));
}

/// Checks the overlay of the pages that a sandbox reports for its new layer over a parent's.
fn layers(used: &UsedPages) {
    let parent = PageSet::from_reported_clipped(&used.read, RAM).coalesced(NonZeroU32::MIN, 8);
    let own = PageSet::from_reported_clipped(&used.written, RAM);
    let windows = overlay([&parent, &own]);
    let ranges: Vec<_> = windows.iter().map(|window| window.range).collect();
    let all = PageSet::from_reported(&ranges, RAM);
    assert_eq!(all, Some(parent.union(&own)));
    assert!(ranges.len() <= parent.ranges().len() + 2 * own.ranges().len());
}
