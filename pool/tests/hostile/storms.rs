//! Doorbells rung as fast as it goes: what that costs the node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use faasw_abi::channel::Waits;
use faasw_abi::doorbell::Ring;
use faasw_abi::mailbox::LOG;
use faasw_pool::{Call, CallLimits, InvokeError, LogSink, LogStream};

use crate::script::{Op, Script, word};
use crate::support::processes::cpu_time;
use crate::support::{Bench, call, slowness, whole};
use crate::{Battlefield, short_limits};

/// Takes lines and keeps none.
#[derive(Debug)]
struct Deaf;

impl LogSink for Deaf {
    fn line(&self, _: u64, _: LogStream, _: &[u8]) {}
}

/// Lets a guest do something again and again for a while, in which this process, the
/// node, is to use less than a third of a processor.
async fn costs_little(bench: &Bench, before: Script, again: Script) {
    let field = Battlefield::new(bench).await;
    let from = before.here();
    let script = before.then(again).for_ever_from(from);
    let long = Duration::from_secs(2) * slowness();
    let order = Call {
        body: whole(&script.bytes()),
        limits: CallLimits {
            cpu: long * 10,
            first_byte: long,
            idle_guest: long,
            total: Some(long),
            ..short_limits()
        },
        log: Arc::new(Deaf),
        ..call("/")
    };
    let own = std::process::id();
    let (used, began) = (cpu_time(own), Instant::now());
    let answered = field.send(order).await;
    let (used, took) = (cpu_time(own) - used, began.elapsed());
    assert!(
        matches!(
            answered,
            Err(InvokeError::TimedOut(_) | InvokeError::TotalTime(_) | InvokeError::IdleGuest(_))
        ),
        "{answered:?}"
    );
    assert!(took >= long, "it went on until its time was up: {took:?}");
    println!("{used:?} of the node's time in {took:?}");
    // On an emulated processor each look takes as many times longer.
    assert!(slowness() > 1 || used < took / 3, "{used:?} in {took:?}");
    field.nothing_is_left().await;
}

pub async fn a_storm_of_progress_costs_the_node_little(bench: &Bench) {
    costs_little(bench, Script::new().head(), Script::new().progress()).await;
}

/// The log is there once; the guest only says each time that it is new, which costs it
/// next to nothing, and the node a line for each byte.
pub async fn a_storm_of_log_costs_the_node_little(bench: &Bench) {
    let before = Script::new()
        .whole_log()
        .store(word!(wait_for), Waits::LOG.word())
        .store(word!(wait_nanoseconds), u64::MAX);
    let again = Script::new()
        // Half of it, since it may be woken once more than it was read.
        .step(Op::Add, word!(log_written), LOG.size() / 2, 0)
        .progress()
        .ring(Ring::Wait);
    costs_little(bench, before, again).await;
}
