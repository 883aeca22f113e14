//! The guest's account of RAM that was never allocated, natively, because the guest itself is a
//! program for bare metal without a test harness.

#[path = "../../kernel/src/free_ram.rs"]
mod free_ram;

use std::collections::BTreeSet;

use faasw_abi::memory_map::{LARGE_PAGE, PAGE};
use free_ram::FreeRam;
use proptest::prelude::*;

const START: u64 = 8 * LARGE_PAGE;

fn large(pages: u64) -> u64 {
    START + pages * LARGE_PAGE
}

#[test]
fn ram_that_is_added_before_any_large_frame_is_one_with_the_rest() {
    let mut room = FreeRam::of(START, large(2));
    assert_eq!(room.small(), Some(START));
    assert!(room.extend(large(5)));
    assert_eq!(room.next_small(4 * 512), Some(START + PAGE));
    assert_eq!(room.large(4), Some(large(1)));
    assert_eq!(room.large(1), None);
    assert_eq!(room.next_small(511), Some(START + PAGE));
    assert_eq!(room.next_small(512), None);
}

#[test]
fn ram_can_be_added_again_behind_large_frames() {
    let mut room = FreeRam::of(START, large(2));
    for end in [4, 7, 8] {
        // The frame at the end is allocated, so the added RAM is a range of its own.
        assert!(room.large(1).is_some());
        assert!(room.extend(large(end)));
    }
    // Runs are taken from ranges where they fit, and no RAM between them is lost.
    assert_eq!(room.large(2), Some(large(4)));
    let mut left = 0;
    while room.large(1).is_some() {
        left += 1;
    }
    assert_eq!(left, 8 - 3 - 2);
    assert_eq!(room.small(), None);
    assert!(room.extend(large(9)));
    assert_eq!(room.next_small(512), Some(large(8)));
    assert_eq!(room.small(), Some(large(8)));
}

#[test]
fn ram_is_not_taken_back_nor_added_in_parts_of_large_pages() {
    let mut room = FreeRam::of(START, large(2));
    assert!(!room.extend(large(1)));
    assert!(!room.extend(large(3) - PAGE));
    assert!(room.extend(large(2)));
    assert_eq!(room.large(3), None);
    assert_eq!(room.large(u64::MAX), None);
    assert_eq!(room.next_small(u64::MAX), None);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Small,
    Large(u64),
    Extend(u64),
    Look(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => Just(Step::Small),
        2 => (1..4_u64).prop_map(Step::Large),
        1 => (0..4_u64).prop_map(Step::Extend),
        4 => (1..1200_u64).prop_map(Step::Look),
    ];
    proptest::collection::vec(step, 1..2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_page_is_handed_out_twice_and_none_is_lost(steps in steps()) {
        let mut room = FreeRam::of(START, large(3));
        let mut end = 3;
        let mut taken = BTreeSet::new();
        let mut take = |frame: u64, bytes: u64, end: u64| {
            assert!(frame >= START && frame + bytes <= large(end));
            for page in (frame..frame + bytes).step_by(PAGE as usize) {
                assert!(taken.insert(page), "{page:#x} twice");
            }
        };
        for step in steps {
            match step {
                Step::Small => {
                    if let Some(frame) = room.small() {
                        take(frame, PAGE, end);
                    }
                }
                Step::Large(count) => {
                    if let Some(frame) = room.large(count) {
                        take(frame, count * LARGE_PAGE, end);
                    }
                }
                Step::Extend(by) => {
                    if room.extend(large(end + by)) {
                        end += by;
                    }
                }
                Step::Look(count) => {
                    if let Some(start) = room.next_small(count) {
                        for frame in (start..).step_by(PAGE as usize).take(count as usize) {
                            prop_assert_eq!(room.small(), Some(frame));
                            take(frame, PAGE, end);
                        }
                    }
                }
            }
        }
        while let Some(frame) = room.large(1) {
            take(frame, LARGE_PAGE, end);
        }
        while let Some(frame) = room.small() {
            take(frame, PAGE, end);
        }
        prop_assert_eq!(taken.len() as u64, end * LARGE_PAGE / PAGE);
    }
}
