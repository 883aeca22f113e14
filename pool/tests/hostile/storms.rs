//! Doorbells rung as fast as possible, and their cost for the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use faasw_abi::channel::Waits;
use faasw_abi::doorbell::Doorbell;
use faasw_abi::mailbox::LOG;
use faasw_pool::{InvocationLimits, InvocationRequest, InvokeError, LogSink, LogStream};

use crate::script::{Op, Script, word};
use crate::support::processes::{cpu_time, reads};
use crate::support::{Bench, call, slowness, whole};
use crate::{Battlefield, short_limits};

/// Counts lines and keeps none.
#[derive(Debug, Default)]
struct CountingLog(AtomicU64);

impl LogSink for CountingLog {
    fn line(&self, _: u64, _: LogStream, _: &[u8]) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often the node looks at a guest at most: per second, and in one burst.
const LOOKS: u64 = 5_000;
const LOOKS_AT_ONCE: u64 = 410;
/// How many lines of log the node takes from a guest at most: per second, and in one burst, which
/// may be all that it finds in the ring.
const LINES: u64 = 100_000;
const LINES_AT_ONCE: u64 = (8 << 10) + LOG.size();
/// System calls that read, for each look: of the doorbell until it is empty, of the guest's words,
/// and of notifications. The figure is doubled for other work of the node.
const READS_A_LOOK: u64 = 8;

/// Lets a guest repeat `again` for a while. Asserts that this process, the node, uses less than a
/// third of a processor, and looks no more often than it allows for one guest. Returns the number
/// of log lines that it took.
async fn costs_little(bench: &Bench, before: Script, again: Script) -> u64 {
    let field = Battlefield::new(bench).await;
    let from = before.here();
    let script = before.then(again).for_ever_from(from);
    let long = Duration::from_secs(2) * slowness();
    let log = Arc::new(CountingLog::default());
    let order = InvocationRequest {
        body: whole(&script.bytes()),
        limits: InvocationLimits {
            cpu: long * 10,
            first_byte: long,
            idle_guest: long,
            total: Some(long),
            ..short_limits()
        },
        log: log.clone(),
        ..call("/")
    };
    let own = std::process::id();
    let (used, looked, began) = (cpu_time(own), reads(own), Instant::now());
    let answered = field.send(order).await;
    let (used, took) = (cpu_time(own) - used, began.elapsed());
    // The difference is 0 if the system does not count reads.
    let looked = reads(own).unwrap_or(0) - looked.unwrap_or(0);
    let lines = log.0.load(Ordering::Relaxed);
    assert!(
        matches!(
            answered,
            Err(InvokeError::TimedOut(_) | InvokeError::TotalTime(_) | InvokeError::IdleGuest(_))
        ),
        "{answered:?}"
    );
    assert!(took >= long, "it went on until its time was up: {took:?}");
    println!("{used:?} of the node's time in {took:?}, {looked} reads, {lines} lines");
    let at_most = |a_second: u64, at_once: u64| at_once + took.as_millis() as u64 * a_second / 1000;
    assert!(
        looked <= READS_A_LOOK * at_most(LOOKS, LOOKS_AT_ONCE),
        "{looked} in {took:?}"
    );
    assert!(
        lines <= at_most(LINES, LINES_AT_ONCE),
        "{lines} in {took:?}"
    );
    // On an emulated processor each look takes many times longer.
    if slowness() == 1 {
        assert!(used < took / 3, "{used:?} in {took:?}");
    }
    field.nothing_is_left().await;
    lines
}

pub async fn a_storm_of_progress_costs_the_node_little(bench: &Bench) {
    let lines = costs_little(bench, Script::new().head(), Script::new().progress()).await;
    assert_eq!(lines, 0);
}

/// The guest writes the log once, and then only announces it again and again. That costs the guest
/// next to nothing, and the node one line for each byte.
pub async fn a_storm_of_log_costs_the_node_little(bench: &Bench) {
    let before = Script::new()
        .whole_log()
        .store(word!(wait_for), Waits::LOG.word())
        .store(word!(wait_nanoseconds), u64::MAX);
    let again = Script::new()
        // Half of the ring, because the guest may be woken once more than its log was read.
        .step(Op::Add, word!(log_written), LOG.size() / 2, 0)
        .progress()
        .ring(Doorbell::Wait);
    let lines = costs_little(bench, before, again).await;
    assert!(lines > LOG.size() / 2, "it was heard: {lines}");
}
