//! The pages that instances receive in advance follow what requests use, up and down.

use faasw_pool::{FreezePolicy, FunctionVersion, Served};

use crate::support::processes::{memory, sandboxes};
use crate::support::{Bench, call};

/// Pages that a large request writes. If memory comes in large pages, half of them are written by a
/// small request, too.
const LARGE: u64 = 2048;

/// Number of resets between two counts of the unused part of the working set.
const COUNT_EVERY: u32 = 64;

fn private_memory() -> u64 {
    memory(sandboxes()[0], &["Private_Clean:", "Private_Dirty:"])
}

/// Returns how many pages the working set says that the function's instances write.
fn written_pages(bench: &Bench) -> u64 {
    let seeds = bench.pool.tree();
    let function = seeds.iter().find(|seed| seed.level == 2);
    function.unwrap().written_pages
}

/// Returns how many pages the reset after a request filled again; `None` if the instance ended
/// instead.
async fn filled(bench: &Bench, seed: &FunctionVersion, path: &str) -> Option<u64> {
    let (text, _, effort) = bench.through(seed, call(path)).await;
    assert!(text.starts_with(b"kernel "), "{text:?}");
    bench.settles("it is over", |stats| stats.busy == 0).await;
    effort.reset.map(|reset| reset.filled)
}

pub async fn a_working_set_that_goes_unused_shrinks(bench: &Bench) {
    let large = format!("/touch?n={}", LARGE / 16);
    let small = "/fib?n=5";
    let seed = bench
        .seed(
            "tests/fixtures/compute/compute-cgi.wasm",
            FreezePolicy::Auto,
        )
        .await
        .unwrap();
    for _ in 0..20 {
        filled(bench, &seed, &large).await;
    }
    bench.warm_one(&seed, small).await;
    let (much, many) = (private_memory(), written_pages(bench));
    assert!(many >= LARGE, "{many}");
    // All of the working set is filled again, though none of it was used.
    assert!(filled(bench, &seed, small).await.unwrap() >= LARGE);

    let mut requests = 0;
    while written_pages(bench) >= LARGE {
        filled(bench, &seed, small).await;
        requests += 1;
        assert!(requests < COUNT_EVERY * 8, "{} pages", written_pages(bench));
    }
    // The set shrinks after three counts in a row. The first of them may have been at one of the
    // two requests before.
    assert!(requests + 2 > COUNT_EVERY * 2, "after {requests} requests");
    // The next instance is forked without a working set and records one; the one after it uses
    // that.
    let process = bench.warm_one(&seed, small).await;
    let (little, few) = (private_memory(), written_pages(bench));
    println!(
        "after {requests} small requests {few} pages instead of {many}, {little} KiB instead of \
         {much} KiB"
    );
    assert!(few > 0 && few < many - LARGE / 4, "{few}");
    assert!(little + LARGE < much, "{little} KiB, {much} KiB before");

    // Pages in use stay, and so does the instance.
    for _ in 0..COUNT_EVERY * 6 {
        let pages = filled(bench, &seed, small).await.unwrap();
        assert!(pages < LARGE, "{pages}");
    }
    assert_eq!(written_pages(bench), few);
    assert_eq!(sandboxes(), [process]);
    // Large requests are still served correctly, and then cost what they use.
    let (text, timing, effort) = bench.through(&seed, call(&large)).await;
    assert!(text.starts_with(b"kernel touch"), "{text:?}");
    assert_eq!(timing.served, Served::Warm);
    assert!(effort.reset.unwrap().outside >= LARGE / 4, "{effort:?}");
}
