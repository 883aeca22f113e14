//! Random values that are drawn after the fork are unique, whatever kind of microVM serves.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use faasw_pool::{FreezePolicy, Served};

use crate::support::{Bench, bytes_of, call, slowness};

const REQUESTS: u32 = 10_000;
const CALLERS: u32 = 6;
const TRAP_EVERY: u32 = 20;

/// The values that were drawn, in units of eight bytes: two values that share a part are no better
/// than two equal ones.
#[derive(Default)]
struct HandedOut(HashSet<String>);

impl HandedOut {
    fn take(&mut self, hex_digits: &str) {
        assert!(hex_digits.len().is_multiple_of(16), "{hex_digits}");
        for at in (0..hex_digits.len()).step_by(16) {
            let word = &hex_digits[at..at + 16];
            assert!(self.0.insert(word.to_owned()), "{word} came twice");
        }
    }
}

pub async fn no_two_requests_draw_the_same(bench: &Bench) {
    let seed = crate::probe(bench).await;
    let requests = REQUESTS / slowness();
    let begun = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (pool, seed, begun) = (bench.pool.clone(), seed.clone(), begun.clone());
            tokio::spawn(async move {
                let mut told = Vec::new();
                loop {
                    let number = begun.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        return told;
                    }
                    // Instances that end badly are replaced, so that fresh sandboxes serve, too.
                    if number % TRAP_EVERY == 0 {
                        let ended = pool.invoke(&seed, call("/trap/div0")).await;
                        assert!(ended.is_err());
                    }
                    let reply = pool.invoke(&seed, call("/random")).await.unwrap();
                    let timing = reply.timing;
                    let text = bytes_of(reply.body).await.unwrap();
                    told.push((timing, String::from_utf8(text).unwrap()));
                    // A counter that fell below zero would wrap to a huge number.
                    let stats = pool.stats();
                    assert!(stats.warm < 1000, "{stats:?}");
                }
            })
        })
        .collect();

    let mut handed_out = HandedOut::default();
    let mut numbers = HashSet::new();
    let mut served: BTreeMap<Served, u32> = BTreeMap::new();
    for caller in callers {
        for (timing, text) in caller.await.unwrap() {
            assert!(numbers.insert(timing.instance), "{timing:?}");
            *served.entry(timing.served).or_default() += 1;
            let mut kinds = Vec::new();
            for line in text.lines() {
                let (kind, value) = line.split_once(' ').unwrap();
                kinds.push(kind);
                handed_out.take(value);
            }
            assert_eq!(kinds, ["random", "insecure", "seed"]);
        }
    }
    let counts: Vec<String> = Served::ALL
        .iter()
        .map(|kind| format!("{} {}", kind.name(), served.get(kind).unwrap_or(&0)))
        .collect();
    let counts = counts.join(", ");
    println!(
        "{requests} of {REQUESTS} requests, 1/{} of them: {counts}",
        slowness()
    );

    assert_eq!(numbers.len() as u32, requests);
    assert_eq!(handed_out.0.len() as u32, 7 * requests);
    let of = |kinds: &[Served]| -> u32 { kinds.iter().filter_map(|kind| served.get(kind)).sum() };
    assert!(of(&[Served::Warm]) > requests / 4, "{counts}");
    let fresh = of(&[Served::Ready, Served::Zygote, Served::Made]);
    assert!(fresh > requests / 20, "{counts}");
    assert!(of(&[Served::Zygote, Served::Made]) > 0, "{counts}");
}

pub async fn no_initialisation_draws_what_another_drew(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/init-draws.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    let mut handed_out = HandedOut::default();
    let mut warm = 0;
    for _ in 0..(400 / slowness()).max(10) {
        let (text, timing, _) = bench.through(&seed, call("/")).await;
        warm += u32::from(timing.served == Served::Warm);
        let text = String::from_utf8(text).unwrap();
        for name in ["init-random ", "now-random "] {
            let drawn = text.lines().find_map(|line| line.strip_prefix(name));
            handed_out.take(drawn.unwrap());
        }
    }
    assert!(warm > 5, "{warm}");
}
