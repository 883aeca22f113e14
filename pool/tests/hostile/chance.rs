//! Hostile guests that act at random.

use std::mem::offset_of;

use faasw_abi::channel::ChannelWords;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::{GUEST_WORDS, GuestWords, LOG, MAILBOX_BYTES, REPORT};
use faasw_abi::memory_map::{GDT, IDT, MAILBOX, PML4, TABLE_ZONE};
use fastrand::Rng;

use crate::Battlefield;
use crate::script::{AREAS, Op, RESPONSE, Script, place, word};
use crate::support::processes::memory;
use crate::support::random::seeded;
use crate::support::{Bench, slowness};

/// Numbers at the edges of valid ranges.
const EDGES: [u64; 16] = [
    0,
    1,
    7,
    8,
    9,
    4095,
    4096,
    LOG.size() - 1,
    LOG.size(),
    LOG.size() + 1,
    RESPONSE.size - 1,
    RESPONSE.size,
    RESPONSE.size + 1,
    u32::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// Size in bytes of the words that the node reads, up to and including those of the first channel.
const WORDS: usize = offset_of!(GuestWords, channels) + size_of::<ChannelWords>();

fn number(random: &mut Rng) -> u64 {
    match random.usize(..4) {
        0 => random.u64(..),
        1 => random.u64(..4096),
        _ => EDGES[random.usize(..EDGES.len())],
    }
}

/// Returns the address of a random word or area that the node reads.
fn of_mailbox(random: &mut Rng) -> u64 {
    let words = WORDS / 4;
    match random.usize(..8) {
        0 | 1 => place(RESPONSE) + 4 * random.u64(..64),
        2 => place(LOG.area) + 4 * random.u64(..64),
        3 => place(REPORT),
        _ => place(GUEST_WORDS) + 4 * random.usize(..words) as u64,
    }
}

fn step(random: &mut Rng, script: Script) -> Script {
    match random.usize(..16) {
        0..4 => {
            let (at, value) = (of_mailbox(random), number(random));
            script.store(at, value)
        }
        4..7 => script.progress(),
        7 => script.rings(random.u32(..12)),
        8 => {
            let wait = random.u64(..3_000_000);
            script
                .store(word!(wait_nanoseconds), wait)
                .ring(Doorbell::Wait)
        }
        9 => {
            let bits = number(random);
            let (size, seed) = (1 << (3 + random.usize(..5)), random.u64(..));
            script.race(
                place(GUEST_WORDS),
                size,
                seed,
                bits,
                random.u64(..10_000) + 1,
            )
        }
        10 => {
            let area = AREAS[random.usize(..AREAS.len())];
            let (seed, bits) = (random.u64(..), number(random));
            script.race(place(area), 1 << 12, seed, bits, 2_000)
        }
        11 => script.head(),
        12 => script.end(),
        13 => script.step(Op::Add, word!(response_written), random.u64(..9000), 0),
        14 => {
            let zones = [GDT, IDT, PML4, TABLE_ZONE, MAILBOX];
            let zone = zones[random.usize(..zones.len())];
            match random.usize(..8) {
                // Most of these end the guest at once.
                0 => script.store(zone + 8 * random.u64(..512), number(random)),
                1 => script.breakpoint(),
                2 => {
                    let (seed, bits) = (random.u64(..), number(random));
                    script.race(
                        MAILBOX,
                        MAILBOX_BYTES.next_power_of_two() / 2,
                        seed,
                        bits,
                        4_000,
                    )
                }
                _ => script,
            }
        }
        _ => script.done(),
    }
}

fn runs(usual: u32) -> u32 {
    let given = std::env::var("FAASW_HOSTILE_RUNS").ok();
    given
        .and_then(|runs| runs.parse().ok())
        .unwrap_or((usual / slowness()).max(10))
}

/// Returns the private dirty memory of this process, in KiB.
fn own_memory() -> u64 {
    memory(std::process::id(), &["Private_Dirty:"])
}

/// The most memory that all runs together may leave behind, in KiB: allocators keep some.
const KEPT: u64 = 16 << 10;

async fn runs_of(bench: &Bench, count: u32, mut script: impl FnMut() -> Script) {
    let field = Battlefield::new(bench).await;
    let mut before = 0;
    for run in 0..count {
        if run == count / 4 {
            before = own_memory();
        }
        // Any result will do, but it must arrive in time.
        let _ = field.attack(&script()).await;
        if run % 8 == 0 {
            field.other_functions_are_unaffected().await;
        }
    }
    field.nothing_is_left().await;
    let after = own_memory();
    assert!(after < before + KEPT, "{before} KiB, then {after} KiB");
}

pub async fn by_chance_at_rest(bench: &Bench) {
    let mut random = seeded("by_chance_at_rest");
    runs_of(bench, runs(200), || {
        let mut script = Script::new();
        for _ in 0..random.usize(..24) {
            script = step(&mut random, script);
        }
        script.done()
    })
    .await;
}

/// This doorbell lets the guest run on, so the node reads words while the guest changes them.
pub async fn by_chance_while_the_node_reads(bench: &Bench) {
    let mut random = seeded("by_chance_while_the_node_reads");
    runs_of(bench, runs(60), || {
        let mut script = Script::new();
        if random.bool() {
            script = script.head();
        }
        let from = script.here();
        for _ in 0..1 + random.usize(..6) {
            let bits = EDGES[random.usize(..EDGES.len())];
            let area = [GUEST_WORDS, RESPONSE, LOG.area][random.usize(..3)];
            let size = if area == GUEST_WORDS {
                WORDS.next_power_of_two() as u64
            } else {
                512
            };
            let (seed, count) = (random.u64(..), 1 + random.u64(..500));
            script = script.progress().race(place(area), size, seed, bits, count);
        }
        script
            .repeat_from(from, 1 + random.u64(..200))
            .end()
            .progress()
            .done()
    })
    .await;
}
