//! Tests the arena of the JavaScript engine's small blocks natively, against a model.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../js/src/arena.rs"]
mod arena;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use arena::{ALIGN, Arena, LARGEST};

/// A region as the engine has it, and what lies in it.
struct Region {
    words: Vec<u64>,
    arena: *mut Arena,
}

impl Region {
    fn new(bytes: usize) -> Self {
        let mut words = vec![0_u64; bytes / 8];
        // SAFETY: the region is ours alone, aligned, and lives as long as the arena does.
        let arena = unsafe { Arena::begin(words.as_mut_ptr().cast(), words.len() * 8) };
        assert!(!arena.is_null());
        Self { words, arena }
    }

    fn arena(&mut self) -> &mut Arena {
        // SAFETY: the arena lies in `self.words`, and nothing else refers to it.
        unsafe { &mut *self.arena }
    }
}

/// xorshift64*
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % count
    }
}

#[test]
fn blocks_do_not_overlap_and_keep_their_contents() {
    let seed = RandomState::new().build_hasher().finish() | 1;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut region = Region::new(256 << 10);
    let begin = region.words.as_ptr() as usize;
    let end = begin + region.words.len() * 8;
    let mut blocks: Vec<(*mut u8, usize, u8)> = Vec::new();
    for step in 0..200_000_usize {
        if dice.below(100) < 52 {
            let most = if dice.below(4) == 0 { LARGEST } else { 200 };
            let size = 1 + dice.below(most);
            let block = region.arena().take(size);
            if block.is_null() {
                continue;
            }
            let at = block as usize;
            assert!(at.is_multiple_of(ALIGN) && at >= begin && at + size <= end);
            let filled = step as u8;
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(filled, size) };
            blocks.push((block, size, filled));
        } else if !blocks.is_empty() {
            let (block, size, filled) = blocks.swap_remove(dice.below(blocks.len()));
            // SAFETY: the block has that many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(block, size) };
            assert!(bytes.iter().all(|byte| *byte == filled), "step {step}");
            // SAFETY: the block was taken with that size, and nothing refers to it any more.
            unsafe { region.arena().give(block, size) };
        }
    }
    assert!(blocks.len() > 10);
}

#[test]
fn a_freed_block_is_reused_for_its_size() {
    let mut region = Region::new(64 << 10);
    let mut sum = 0;
    while sum < 1 << 30 {
        for size in [16, 40, 100, 504, 1500, LARGEST] {
            let block = region.arena().take(size);
            assert!(!block.is_null(), "after {sum} bytes");
            // SAFETY: just taken with that size.
            unsafe { region.arena().give(block, size) };
            sum += size;
        }
    }
}

#[test]
fn blocks_of_all_sizes_lie_one_after_the_other() {
    let mut region = Region::new(64 << 10);
    let first = region.arena().take(16) as usize;
    for size in [24, 504, 8, 120, 72] {
        assert!(!region.arena().take(size).is_null());
    }
    let last = region.arena().take(16) as usize;
    assert_eq!(last - first, 16 + 24 + 512 + 8 + 120 + 72);
}

#[test]
fn there_is_no_block_beyond_the_largest_nor_beyond_the_region() {
    let mut region = Region::new(16 << 10);
    assert!(region.arena().take(LARGEST + 1).is_null());
    assert!(region.arena().take(usize::MAX).is_null());
    let count = (0..100)
        .take_while(|_| !region.arena().take(LARGEST).is_null())
        .count();
    assert_eq!(count, 3);
    assert!(Arena::room(500) == 512 && Arena::room(LARGEST + 1) == LARGEST + 1);
    // SAFETY: it is too short, and so nothing is written to it.
    assert!(unsafe { Arena::begin(region.words.as_mut_ptr().cast(), 8) }.is_null());
}

#[test]
fn only_a_few_older_blocks_are_dropped() {
    let mut region = Region::new(16 << 10);
    assert!(!region.arena().give_up(LARGEST + 1));
    let count = (0..1_000_000)
        .take_while(|_| region.arena().give_up(64))
        .count();
    assert_eq!(count, 1024);
    assert!(!region.arena().give_up(64));
}
