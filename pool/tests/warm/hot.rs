//! Hot instances, which poll for their next request, behave like warm ones, but respond sooner.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use faasw_pool::{
    FreezePolicy, FunctionSpec, FunctionVersion, PollingStats, PoolOptions, PoolStats,
};
use http_body::Frame;

use crate::support::hot::can_be_hot;
use crate::support::processes::{cpu_time, sandboxes};
use crate::support::{Bench, arriving, bytes_of, call, give_up, slowness, spec, whole};

const REQUESTS: u32 = 600;

/// Number of requests that polling guests are to find, if guests can be hot here.
const FOUND: u64 = 10;

/// Instances are not hot for a function whose answers take longer than this (`SLOW_ANSWER` in
/// `pool/src/instances/polling`). The emulated machine without nested page tables is that slow.
const SLOW_ANSWER: Duration = Duration::from_micros(500);

/// Rounds of requests, until enough were sent, and enough were found by polling guests.
struct Rounds {
    before: PoolStats,
    begun: Instant,
    done: u32,
    quick: u32,
    slow: u32,
}

impl Rounds {
    fn of(bench: &Bench) -> Self {
        Self {
            before: bench.pool.stats(),
            begun: Instant::now(),
            done: 0,
            quick: 0,
            slow: 0,
        }
    }

    fn next(&mut self, bench: &Bench) -> Option<u32> {
        let found = bench.pool.stats().polling.found - self.before.polling.found;
        let most = give_up().min(Duration::from_secs(60));
        let goes_on = found < FOUND && can_be_hot() && self.begun.elapsed() < most;
        let round = self.done;
        self.done += 1;
        (round < REQUESTS / 2 / slowness() || goes_on).then_some(round)
    }

    /// Sends a request, and notes whether its answer was quick.
    async fn text(&mut self, bench: &Bench, seed: &FunctionVersion, path: &str) -> String {
        let reply = bench.pool.invoke(seed, call(path)).await.unwrap();
        if reply.timing.exec > SLOW_ANSWER {
            self.slow += 1;
        } else {
            self.quick += 1;
        }
        String::from_utf8(bytes_of(reply.body).await.unwrap()).unwrap()
    }

    /// Asserts that polling guests found some requests, or none if guests cannot be hot here. If
    /// most answers were slow, any number is right.
    fn end(&self, bench: &Bench) {
        let found = bench.pool.stats().polling.found - self.before.polling.found;
        let Self { quick, slow, .. } = self;
        eprintln!("{found} requests were found; {quick} answers were quick, {slow} slow");
        if !can_be_hot() {
            assert_eq!(found, 0);
        } else if quick >= slow {
            assert!(found > 0, "{:?}", bench.pool.stats());
        }
    }
}

/// Options under which guests poll for as long as they may.
pub fn often() -> PoolOptions {
    PoolOptions {
        poll: Duration::from_millis(10) * slowness(),
        ..crate::only_instances()
    }
}

async fn text(bench: &Bench, seed: &FunctionVersion, path: &str) -> String {
    let reply = bench.pool.invoke(seed, call(path)).await.unwrap();
    String::from_utf8(bytes_of(reply.body).await.unwrap()).unwrap()
}

pub async fn no_two_hot_requests_draw_the_same(bench: &Bench) {
    let seed = crate::probe(bench).await;
    let mut rounds = Rounds::of(bench);
    let mut all = HashSet::new();
    while rounds.next(bench).is_some() {
        for line in rounds.text(bench, &seed, "/random").await.lines() {
            assert!(all.insert(line.to_owned()), "{line} came twice");
        }
    }
    rounds.end(bench);
}

pub async fn hot_instances_are_as_their_seed(bench: &Bench) {
    let seed = crate::probe(bench).await;
    let mut rounds = Rounds::of(bench);
    while rounds.next(bench).is_some() {
        assert_eq!(rounds.text(bench, &seed, "/count").await.trim(), "1");
    }
    rounds.end(bench);
}

pub async fn bodies_pass_hot_or_cold(bench: &Bench) {
    let seed = crate::probe(bench).await;
    let mut rounds = Rounds::of(bench);
    while let Some(round) = rounds.next(bench) {
        let small = vec![b'a' + (round % 26) as u8; 1 + round as usize % 300];
        let mut order = call("/echo");
        order.body = whole(&small);
        let reply = bench.pool.invoke(&seed, order).await.unwrap();
        let echoed = bytes_of(reply.body).await.unwrap();
        assert!(echoed.ends_with(&small), "{echoed:?}");
        // A body in parts, the first of which arrives while the guest runs.
        let (client, body) = arriving();
        let mut order = call("/echo");
        order.body = body;
        let sends = async {
            for part in small.chunks(1 + small.len() / 2) {
                let frame = Frame::data(Bytes::copy_from_slice(part));
                client.send(Ok(frame)).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let invokes = async {
            let reply = bench.pool.invoke(&seed, order).await.unwrap();
            bytes_of(reply.body).await.unwrap()
        };
        let ((), echoed) = tokio::join!(sends, invokes);
        assert!(echoed.ends_with(&small), "{echoed:?}");
    }
    // In the emulated machine moving the bodies keeps all processors busy, so no guest polls.
    if slowness() == 1 {
        rounds.end(bench);
    }
}

/// Makes a function's seed whose instances poll for `poll`, whatever the pool's setting.
async fn looking(bench: &Bench, poll: Duration) -> FunctionVersion {
    let spec = FunctionSpec {
        poll: Some(poll),
        ..spec(FreezePolicy::Auto)
    };
    bench.seed_of(crate::PROBE, &spec).await.unwrap()
}

pub async fn a_function_can_poll_where_others_do_not(bench: &Bench) {
    let others = crate::probe(bench).await;
    for _ in 0..REQUESTS / slowness() {
        assert_eq!(text(bench, &others, "/count").await.trim(), "1");
    }
    assert_eq!(bench.pool.stats().polling, PollingStats::default());
    let seed = looking(bench, often().poll).await;
    let mut rounds = Rounds::of(bench);
    while rounds.next(bench).is_some() {
        assert_eq!(rounds.text(bench, &seed, "/count").await.trim(), "1");
    }
    rounds.end(bench);
}

pub async fn a_function_can_be_excluded_from_polling(bench: &Bench) {
    let seed = looking(bench, Duration::ZERO).await;
    for _ in 0..REQUESTS / slowness() {
        assert_eq!(text(bench, &seed, "/count").await.trim(), "1");
    }
    assert_eq!(bench.pool.stats().polling, PollingStats::default());
}

/// Waits until none of these processes has used any CPU time for a while.
async fn rest(pids: &[u32]) {
    let used = || -> Duration { pids.iter().map(|pid| cpu_time(*pid)).sum() };
    let begun = Instant::now();
    loop {
        let before = used();
        tokio::time::sleep(Duration::from_millis(100) * slowness()).await;
        if used() == before {
            return;
        }
        assert!(begun.elapsed() < give_up());
    }
}

pub async fn an_instance_that_polled_in_vain_stays_warm(bench: &Bench) {
    let seed = crate::probe(bench).await;
    for _ in 0..3 {
        let mut rounds = Rounds::of(bench);
        while rounds.next(bench).is_some() {
            assert_eq!(rounds.text(bench, &seed, "/count").await.trim(), "1");
        }
        rounds.end(bench);
        let warm: Vec<_> = sandboxes();
        assert!(!warm.is_empty());
        rest(&warm).await;
        assert_eq!(sandboxes(), warm, "none of them has ended for that");
    }
    // Requests that arrive after polling has ended are served all the same.
    let later = often().poll * 3 / 2;
    for _ in 0..20 {
        tokio::time::sleep(later).await;
        assert_eq!(text(bench, &seed, "/count").await.trim(), "1");
    }
    // Their instances then leave the control group of lowest priority, if they were in it.
    let begun = Instant::now();
    while sandboxes().into_iter().any(is_in_background) {
        assert!(begun.elapsed() < give_up(), "{:?}", sandboxes());
        assert_eq!(text(bench, &seed, "/count").await.trim(), "1");
        tokio::time::sleep(later).await;
    }
}

/// Whether a process is in the control group of lowest priority, which is a sibling of the group of
/// all jails.
fn is_in_background(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut names = groups.lines().filter_map(|line| line.rsplit('/').next());
    names.any(|name| name.starts_with("faasw-"))
}

pub async fn no_request_waits_for_a_hot_instance_while_all_processors_work(bench: &Bench) {
    let seed = crate::probe(bench).await;
    for _ in 0..REQUESTS / slowness() {
        assert_eq!(text(bench, &seed, "/count").await.trim(), "1");
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let processors = std::thread::available_parallelism().unwrap().get();
    let spinners: Vec<_> = (0..processors)
        .map(|_| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    // A request that needed a processor which no thread gives up would wait for ever.
    let serves = async {
        for _ in 0..50 {
            assert_eq!(text(bench, &seed, "/count").await.trim(), "1");
        }
    };
    let served = tokio::time::timeout(give_up(), serves).await;
    is_over.store(true, Ordering::Relaxed);
    for spinner in spinners {
        spinner.join().unwrap();
    }
    served.unwrap();
}
