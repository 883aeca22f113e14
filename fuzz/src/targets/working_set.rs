//! What shells say that their instances used, and what the next fork is given of it.
//!
//! Input: rounds of what a shell said at a survey, and at resets.

use faasw_abi::memory_map::PAGE;
use faasw_fri::messages::{SET_MAX, SET_PAGES_MAX};
use faasw_pool::ResetEffort;
use faasw_pool::fuzzing::{UsedPages, WorkingSet};
use faasw_seedtree::{Extent, coalesce, overlay, sound};

use crate::Target;
use crate::input::Input;

/// Sets are bounded, whatever was said.
pub const TARGET: Target = Target {
    name: "working_set",
    read,
    memory: 512 << 10,
    per_byte: 8,
    executions: 50_000,
};

/// RAM of the instances.
const RAM: u64 = 256 << 20;

fn told(input: &mut Input<'_>) -> Vec<Extent> {
    let count = usize::from(input.short()) % (SET_MAX + 1);
    let mut told = Vec::new();
    // The socket's message has so much room; what is behind the input is zeroes.
    while told.len() < count && !input.is_over() {
        told.push(Extent {
            start: input.number(),
            end: input.number(),
        });
    }
    told
}

fn read(bytes: &[u8]) -> bool {
    let mut input = Input::new(bytes);
    let set = WorkingSet::default();
    let mut is_good = true;
    while !input.is_over() {
        let used = UsedPages {
            changed: input.number(),
            written: told(&mut input),
            read: told(&mut input),
        };
        is_good &= sound(&used.written, PAGE, RAM) == used.written;
        set.learn(set.current().generation, &used, RAM);
        is_bounded(&set);
        for _ in 0..input.byte() % 80 {
            set.is_count_due();
            set.note(
                set.current().generation,
                &ResetEffort {
                    outside: input.number(),
                    unused: Some(input.number()),
                    ..ResetEffort::default()
                },
            );
            is_bounded(&set);
        }
        layers(&used);
    }
    is_good
}

/// What a fork is given: stretches of RAM, in order and apart, few and small.
fn is_bounded(set: &WorkingSet) {
    let sets = set.current();
    for pages in [&sets.written, &sets.read] {
        assert!(pages.len() <= SET_MAX);
        assert_eq!(sound(pages, PAGE, RAM), pages.as_slice());
        let sum: u64 = pages.iter().map(|stretch| stretch.bytes() / PAGE).sum();
        assert!(sum <= SET_PAGES_MAX);
    }
}

/// Extents that a shell said its new layer has, over a parent's.
fn layers(used: &UsedPages) {
    let parent = coalesce(sound(&used.read, PAGE, RAM), PAGE, 8);
    let own = sound(&used.written, PAGE, RAM);
    let windows = overlay([parent.as_slice(), own]);
    let stretches: Vec<Extent> = windows.iter().map(|window| window.extent).collect();
    assert_eq!(sound(&stretches, PAGE, RAM), stretches.as_slice());
    assert!(stretches.len() <= parent.len() + 2 * own.len());
}
