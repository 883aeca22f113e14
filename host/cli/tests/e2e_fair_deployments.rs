//! Deployments whose initialisation never ends, in real microVMs: they delay no other deployment,
//! and each reports its progress.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod e2e;

use std::time::Duration;

use e2e::{Bench, file, limits, until};
use faasw::{DeployStage, FunctionOptions, Node};

/// A command that sleeps while it is initialised, an hour at a time.
const SLEEPS: &str = r#"(module
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $initialise
    (i32.store (i32.const 80) (i32.const 1))
    (i64.store (i32.const 88) (i64.const 3600000000000))
    (loop $ever
      (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)))
      (br $ever)))
  (start $initialise)
  (func (export "_start")))"#;

/// A command that spins while it is initialised.
const SPINS: &str = r#"(module
  (memory (export "memory") 1)
  (func $initialise (loop $ever (br $ever)))
  (start $initialise)
  (func (export "_start")))"#;

/// Returns a number of deployments that is larger than the number of CPU slots.
fn more_than_slots() -> usize {
    2 * std::thread::available_parallelism().unwrap().get() + 1
}

/// Starts deployments whose initialisation never ends, and waits until all of them run. Then a
/// neighbour's deployment completes while they go on.
fn hold_up_no_other(module: &'static str) {
    let mut patient = limits();
    patient.instantiation = Duration::from_secs(3600);
    let bench = Bench::start(Node::builder().max_instances(1024), patient);
    let count = more_than_slots();
    let endless: Vec<_> = (0..count)
        .map(|number| {
            let node = bench.node.clone();
            bench.runtime().spawn(async move {
                let name = format!("endless-{number}");
                let options = FunctionOptions::default();
                node.deploy(&name, module, options).await.map(drop)
            })
        })
        .collect();
    let are_initialising = || {
        let all = bench.node.deployments();
        let running = all
            .iter()
            .filter(|one| one.stage == DeployStage::Initialising && one.queued_behind.is_none());
        running.count() == count
    };
    until("all are initialised at once", are_initialising);

    let hello = file("tests/fixtures/wat/hello.wat");
    bench.deploy("neighbour", &hello, FunctionOptions::default());
    assert_eq!(bench.text("/neighbour/"), "hello from wat\n");
    assert!(endless.iter().all(|one| !one.is_finished()));
    until("they go on", are_initialising);
    // A client that disconnects ends its deployment.
    endless.iter().for_each(tokio::task::JoinHandle::abort);
    until("none is under way", || bench.node.deployments().is_empty());
    bench.end();
}

fn sleeping_deployments_delay_no_other() {
    hold_up_no_other(SLEEPS);
}

fn spinning_deployments_delay_no_other() {
    hold_up_no_other(SPINS);
}

fn main() {
    let tests = tests![
        sleeping_deployments_delay_no_other,
        spinning_deployments_delay_no_other,
    ];
    e2e::main(tests);
}
