//! What seeds take of memory in real microVMs: while they are made, and as their instances
//! read them.
//!
//! Without `/dev/kvm` every test here says so and counts as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use faasw_pool::steps::StepTree;
use faasw_pool::{Fault, FreezePolicy, FunctionSpec, SeedError};

use support::{Bench, spec};

const FILLS: &str = "pool/tests/support/fills.wat";
const PLACES: &str = "pool/tests/support/places.wat";

const MIB: u64 = 1 << 20;

fn with_memory(bytes: u64) -> FunctionSpec {
    FunctionSpec {
        memory_limit: bytes,
        ..spec(FreezePolicy::Auto)
    }
}

/// Its pages are not there twice while they are taken over: the kernel would end it.
async fn an_initialisation_may_use_all_memory_that_the_function_has(bench: &Bench) {
    let spec = with_memory(512 * MIB);
    let seed = bench.seed_of(FILLS, &spec).await.unwrap();
    assert!(bench.pool.stats().seed_bytes > 480 * MIB);
    assert_eq!(bench.text(&seed, "/").await, "full");
}

async fn whoever_writes_to_too_many_places_is_told_so(bench: &Bench) {
    let spec = with_memory(600 * MIB);
    let compiled = bench.compile(PLACES).await;
    let tree = StepTree::new(&bench.pool, &spec, &compiled).await.unwrap();
    let loaded = tree.define(None, "", 0).unwrap();
    let sparse = tree.define(Some(loaded), "sparse", 0).unwrap();
    let alternate = tree.define(Some(sparse), "alternate", 0).unwrap();
    tree.make(sparse).await.unwrap();
    match tree.make(alternate).await {
        Err(SeedError::Function(error)) => {
            assert!(error.to_string().contains("far apart"), "{error}");
            assert_eq!(error.fault().0, Fault::Function);
        }
        other => panic!("{other:?}"),
    }
}

fn main() {
    support::main(|skip| {
        trials![skip;
            an_initialisation_may_use_all_memory_that_the_function_has,
            whoever_writes_to_too_many_places_is_told_so,
        ]
    });
}
