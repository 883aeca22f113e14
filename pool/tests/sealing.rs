//! Memory of seeds in real microVMs: while they are made, and as their instances read them.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faasw_pool::steps::StepTree;
use faasw_pool::{Fault, FreezePolicy, FunctionSpec, PoolOptions, PoolStats, SeedError};
use faasw_seedtree::Owner;

use support::processes::sandboxes;
use support::{Bench, spec};

/// The owner of these seeds.
const OWNER: Owner = Owner::Function(0);

const FILLS: &str = "pool/tests/support/fills.wat";
const SPARSE: &str = "pool/tests/support/sparse.wat";
const REWRITES: &str = "pool/tests/support/rewrites.wat";
const PLACES: &str = "pool/tests/support/places.wat";

const MIB: u64 = 1 << 20;

fn with_memory(bytes: u64) -> FunctionSpec {
    FunctionSpec {
        memory_limit: bytes,
        ..spec(FreezePolicy::Auto)
    }
}

/// Options under which a function may hold a seed, but not one as large as its memory limit.
fn little_rests() -> PoolOptions {
    PoolOptions {
        function_memory: 24 * MIB,
        ..support::usual()
    }
}

/// The pages of a guest do not exist twice while its seed is made. Otherwise the kernel would kill
/// the sandbox.
async fn an_initialisation_may_use_all_memory_that_the_function_has(bench: &Bench) {
    let spec = with_memory(512 * MIB);
    let seed = bench.seed_of(FILLS, &spec).await.unwrap();
    assert!(bench.pool.stats().seed_bytes > 480 * MIB);
    assert_eq!(bench.text(&seed, "/").await, "full");
}

/// A process that reads another one's files in `/proc` keeps its mappings alive until it has
/// finished reading, even if that one ends in the meantime.
async fn a_root_is_sealed_while_another_process_reads_its_sandboxs_files(bench: &Bench) {
    let spec = with_memory(64 * MIB);
    let compiled = bench.compile(SPARSE).await;
    let ends = Arc::new(AtomicBool::new(false));
    let watchers = [(); 2].map(|()| {
        let ends = ends.clone();
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                for pid in sandboxes() {
                    let _ = std::fs::read(format!("/proc/{pid}/smaps"));
                }
            }
        })
    });
    let mut made = Vec::new();
    for _ in 0..20 {
        let tree = StepTree::new(&bench.pool, &spec, &compiled).await.unwrap();
        let seed = tree.define(None, OWNER, "", 0).unwrap();
        made.push(tree.make(seed).await);
    }
    ends.store(true, Ordering::Relaxed);
    for watcher in watchers {
        watcher.join().unwrap();
    }
    let failed: Vec<_> = made.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Writing to a hole of a file fills the hole first, and that memory is not charged to the
/// instance.
async fn a_request_may_write_all_memory_that_the_function_has(bench: &Bench) {
    let seed = bench
        .seed_of(REWRITES, &with_memory(512 * MIB))
        .await
        .unwrap();
    assert_eq!(bench.text(&seed, "/").await, "written");
}

/// Reading a hole of a file through a mapping fills it.
async fn pages_that_requests_read_of_a_seed_are_counted(bench: &Bench) {
    let seed = bench.seed_of(SPARSE, &with_memory(64 * MIB)).await.unwrap();
    let new = bench.pool.stats().seed_bytes;
    assert!((1..8 * MIB).contains(&new), "{new}");
    assert_eq!(bench.text(&seed, "/").await, "read");
    let counted = |stats: PoolStats| stats.seed_bytes > new + 32 * MIB;
    bench.settles("it is counted", counted).await;
    // The seed may be counted while its instance is still reading, and then once more.
    let is_told =
        |stats: PoolStats| bench.pool.tree().last().unwrap().layer_bytes == stats.seed_bytes;
    bench.settles("the tree says the same", is_told).await;
}

async fn a_seed_that_has_grown_is_held_to_its_functions_budget(bench: &Bench) {
    let seed = bench.seed_of(SPARSE, &with_memory(64 * MIB)).await.unwrap();
    assert!(bench.pool.tree().last().unwrap().is_in_memory);
    assert_eq!(bench.text(&seed, "/").await, "read");
    let is_gone = |stats: PoolStats| stats.seed_bytes == 0 && stats.warm == 0;
    bench.settles("it is not held", is_gone).await;
    assert_eq!(bench.text(&seed, "/").await, "read");
}

async fn a_guest_that_writes_to_too_many_places_gets_an_error(bench: &Bench) {
    let spec = with_memory(600 * MIB);
    let compiled = bench.compile(PLACES).await;
    let tree = StepTree::new(&bench.pool, &spec, &compiled).await.unwrap();
    let loaded = tree.define(None, OWNER, "", 0).unwrap();
    let sparse = tree.define(Some(loaded), OWNER, "sparse", 0).unwrap();
    let alternate = tree.define(Some(sparse), OWNER, "alternate", 0).unwrap();
    tree.make(sparse).await.unwrap();
    match tree.make(alternate).await {
        Err(SeedError::Function(error)) => {
            assert!(error.to_string().contains("separate ranges"), "{error}");
            assert_eq!(error.fault().0, Fault::Function);
        }
        other => panic!("{other:?}"),
    }
}

fn main() {
    support::main(|skip| {
        trials![skip;
            an_initialisation_may_use_all_memory_that_the_function_has,
            a_root_is_sealed_while_another_process_reads_its_sandboxs_files,
            a_request_may_write_all_memory_that_the_function_has,
            pages_that_requests_read_of_a_seed_are_counted,
            a_seed_that_has_grown_is_held_to_its_functions_budget in little_rests(),
            a_guest_that_writes_to_too_many_places_gets_an_error,
        ]
    });
}
