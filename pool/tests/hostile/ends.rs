//! Guests that go on after they have reported their end, and who is charged for it. The tests count
//! CPU time, as the kernel accounts it to each process, not wall time.

use std::sync::Arc;
use std::time::Duration;

use faasw_abi::doorbell::Doorbell;
use faasw_pool::{InvocationLimits, InvocationRequest, InvokeError, ReplyBody};

use crate::script::{Script, word};
use crate::support::processes::{cpu_time, sandboxes};
use crate::support::{Bench, Log, bytes_of, call, slowness, whole};
use crate::{Battlefield, far_limits};

/// CPU time that a guest has at most after it has reported its end.
const AFTER_END: Duration = Duration::from_millis(50);

/// CPU time that a guest may have used beyond that before it is ended, on a machine that is busy
/// with other work. It is still a small part of what the guest would use.
const ENDING: Duration = Duration::from_millis(150);

/// A good answer whose end is reported early.
fn told() -> Script {
    Script::new().head().end().progress()
}

fn spinning(script: Script) -> Script {
    let from = script.here();
    script.for_ever_from(from)
}

fn order(script: &Script, limits: InvocationLimits) -> (InvocationRequest, Arc<Log>) {
    let log = Arc::new(Log::default());
    let order = InvocationRequest {
        body: whole(&script.bytes()),
        limits,
        log: log.clone(),
        ..call("/")
    };
    (order, log)
}

impl Battlefield<'_> {
    /// Keeps an instance of the hostile function warm. The node believes such instances when they
    /// report their end before they stop.
    async fn keep_one_warm(&self) {
        for _ in 0..20 {
            // The node may look at the first ones instead of believing them.
            self.answers().await;
            self.other_functions_are_unaffected().await;
            if self.is_warm() {
                return;
            }
        }
        panic!("no instance is warm");
    }
}

fn went_on(error: &InvokeError) -> bool {
    matches!(error, InvokeError::GuestFailed(why) if why.contains("continued after"))
}

pub async fn a_guest_that_spins_after_its_end_has_little_time_and_pays(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    for (cpu, allowed) in [
        (Duration::from_secs(30), AFTER_END),
        // The remainder of the limit, if that is less.
        (Duration::from_millis(5), Duration::from_millis(6)),
    ] {
        // Ending it takes an order or two.
        let prompt = allowed + Duration::from_millis(25);
        let mut least = Duration::MAX;
        for attempt in 0..16 {
            // While other work takes the processors, the node sees the end of the time late.
            if attempt >= 4 && least < prompt {
                break;
            }
            field.keep_one_warm().await;
            let limits = InvocationLimits {
                cpu: cpu * slowness(),
                ..far_limits()
            };
            let (order, log) = order(&spinning(told()), limits);
            let answered = field.send(order).await;
            // The answer itself is good, unless the node sees the guest only after its time is up,
            // as may happen with a single processor.
            match &answered {
                Ok(answer) => assert_eq!(answer, b""),
                Err(error) => assert!(went_on(error), "{error}"),
            }
            let charged = log.charge().await;
            assert!(charged < allowed + ENDING, "{charged:?} of {cpu:?}");
            least = least.min(charged);
            if answered.is_ok() {
                let ended = log.stream_result().await.unwrap_err();
                assert!(went_on(&ended), "whoever follows it is told");
            }
            field.other_functions_are_unaffected().await;
            assert!(!field.is_warm());
        }
        assert!(least < prompt, "{least:?} of {cpu:?}");
        // This holds only if the limit allowed that much time.
        assert!(least >= allowed / 2 || cpu < AFTER_END, "{least:?}");
    }
    field.nothing_is_left().await;
}

/// The most CPU time that the node may use for a storm, relative to the guest's. With pacing it is
/// about an eighth; without, a quarter up to all of it.
const PACED: f64 = 0.22;

pub async fn a_storm_after_the_end_costs_the_node_little(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let mut shares: Vec<f64> = Vec::new();
    // A busy machine makes some storms more expensive for the node, and none cheaper. So a few
    // cheap storms show that the node paces its looks.
    let are_paced = |shares: &[f64]| shares.iter().filter(|share| **share < PACED).count() >= 5;
    while !are_paced(&shares) {
        assert!(shares.len() < 30, "{shares:?}");
        field.keep_one_warm().await;
        let script = told();
        let from = script.here();
        let storm = script.progress().for_ever_from(from);
        let (order, log) = order(&storm, far_limits());
        let own = std::process::id();
        let before = cpu_time(own);
        assert_eq!(field.send(order).await.unwrap(), b"");
        let charged = log.charge().await;
        let used = cpu_time(own) - before;
        shares.push(used.as_secs_f64() / charged.as_secs_f64());
        assert!(charged < AFTER_END + ENDING, "{charged:?}");
        field.other_functions_are_unaffected().await;
        assert!(!field.is_warm());
    }
    println!("the node's time for that of each storm: {shares:.3?}");
    field.nothing_is_left().await;
}

/// While many requests are under way, the node does not ask guests to report their end early, and
/// does not believe one that does so.
pub async fn an_unrequested_early_end_is_not_believed(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let processors = std::thread::available_parallelism().unwrap().get();
    let waits = Script::new().store(word!(wait_nanoseconds), u64::MAX);
    let waits = waits.ring(Doorbell::Wait).for_ever_from(0);
    let waiting: Vec<_> = (0..processors)
        .map(|_| {
            let (order, _) = order(&waits, far_limits());
            let (pool, seed) = (bench.pool.clone(), field.hostile.clone());
            tokio::spawn(async move { pool.invoke(&seed, order).await.map(drop) })
        })
        .collect();
    let are_busy = |count| move |stats: faasw_pool::PoolStats| stats.busy == count;
    bench.settles("they wait", are_busy(processors)).await;
    let warm = async || {
        for _ in 0..20 {
            field.answers().await;
            bench.settles("it is over", are_busy(processors)).await;
        }
        assert!(field.is_warm());
    };
    let works_on = Script::new().head().end().store(word!(outcome), 0);
    for (is_over, script) in [
        (true, spinning(told())),
        // The guest has its ordinary CPU limit until it reports by itself that it is done.
        (false, spinning(works_on.progress())),
    ] {
        warm().await;
        let limits = InvocationLimits {
            cpu: Duration::from_millis(400) * slowness(),
            ..far_limits()
        };
        let (order, log) = order(&script, limits);
        // The body is complete, so the client may receive it, but as a stream of a function that is
        // not done.
        let reply = bench.pool.invoke(&field.hostile, order).await.unwrap();
        assert!(
            matches!(reply.body, ReplyBody::Stream(_)),
            "{:?}",
            reply.body
        );
        assert_eq!(bytes_of(reply.body).await.unwrap(), b"");
        let ended = log.stream_result().await.unwrap_err();
        let charged = log.charge().await;
        match ended {
            InvokeError::CpuLimit(limit) if !is_over => {
                assert_eq!(limit, limits.cpu);
                assert!(charged >= limit, "{charged:?}");
            }
            error if is_over && went_on(&error) => {
                assert!(charged < AFTER_END + ENDING, "{charged:?}");
            }
            other => panic!("{other}"),
        }
        bench.settles("it has ended", are_busy(processors)).await;
    }
    for waiting in waiting {
        waiting.abort();
    }
    field.nothing_is_left().await;
}

pub async fn failed_and_abandoned_requests_are_charged(bench: &Bench) {
    let field = Battlefield::new(bench).await;
    let limit = Duration::from_millis(200) * slowness();
    let limits = InvocationLimits {
        cpu: limit,
        ..far_limits()
    };
    for (what, script) in [
        ("it spins", spinning(Script::new())),
        // The sandbox ends by itself, and its CPU account goes with it.
        (
            "it fails",
            Script::new().race(word!(log_written), 8, 1, 0, 20_000_000),
        ),
    ] {
        let (order, log) = order(&script, limits);
        let answered = field.send(order).await;
        assert!(answered.is_err(), "{what}: {answered:?}");
        let charged = log.charge().await;
        assert!(charged > Duration::from_millis(5), "{what}: {charged:?}");
        assert!(charged < limit + ENDING, "{what}: {charged:?}");
        field.other_functions_are_unaffected().await;
    }
    // A client that disconnects.
    let before: Vec<_> = sandboxes();
    let (order, log) = order(&spinning(Script::new()), far_limits());
    let (pool, seed) = (bench.pool.clone(), field.hostile.clone());
    let asking = tokio::spawn(async move { pool.invoke(&seed, order).await.map(drop) });
    let wanted = Duration::from_millis(60);
    let used = || -> Duration {
        let new = sandboxes().into_iter().chain(before.iter().copied());
        new.map(cpu_time).max().unwrap_or_default()
    };
    let already = used();
    bench
        .settles("it has used some time", |_| used() > already + wanted)
        .await;
    asking.abort();
    let charged = log.charge().await;
    assert!(charged >= wanted / 2, "{charged:?}");
    field.nothing_is_left().await;
}
