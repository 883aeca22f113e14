//! Deployments, requests and removals in any order leave no instance, process or descriptor behind.

use std::time::{Duration, Instant};

use faasw_pool::{CompiledFunction, FreezePolicy, FunctionVersion, InvokeError, Pool, ReplyBody};
use fastrand::Rng;
use tokio::task::JoinHandle;

use crate::PROBE;
use crate::support::processes::{
    descriptors, descriptors_of_a_sandbox, our_processes, our_threads, sandboxes,
};
use crate::support::random::seeded;
use crate::support::{Bench, bytes_of, call, give_up, next_part, slowness, spec, usual, whole};

pub const MAX_WARM: usize = 3;
const SEEDS: usize = 3;
const UNDER_WAY: usize = 6;

/// The kind of a request.
#[derive(Clone, Copy, Debug)]
enum Request {
    Good,
    Trapping,
    Streaming,
    Echo,
    AbandonedEarly(Duration),
    AbandonedInBody,
}

impl Request {
    fn any(random: &mut Rng) -> Self {
        match random.usize(..8) {
            0..=2 => Self::Good,
            3 => Self::Trapping,
            4 => Self::Streaming,
            5 => Self::Echo,
            6 => {
                let microseconds = random.u64(..20_000);
                Self::AbandonedEarly(Duration::from_micros(microseconds) * slowness())
            }
            _ => Self::AbandonedInBody,
        }
    }

    async fn send(self, pool: Pool, seed: FunctionVersion) {
        match self {
            Self::Good => {
                let reply = pool.invoke(&seed, call("/count")).await.unwrap();
                assert_eq!(bytes_of(reply.body).await.unwrap(), b"1\n");
            }
            Self::Trapping => {
                let ended = pool.invoke(&seed, call("/trap/div0")).await;
                assert!(matches!(ended, Err(InvokeError::Trap { .. })), "{ended:?}");
            }
            Self::Streaming => {
                let reply = pool.invoke(&seed, call("/body/1500000")).await.unwrap();
                assert_eq!(bytes_of(reply.body).await.unwrap().len(), 1_500_000);
            }
            Self::Echo => {
                let mut order = call("/echo");
                order.body = whole(&[7; 100_000]);
                let reply = pool.invoke(&seed, order).await.unwrap();
                let body = bytes_of(reply.body).await.unwrap();
                assert!(body.ends_with(&[7; 100_000]));
            }
            Self::AbandonedEarly(limit) => {
                let asking = pool.invoke(&seed, call("/sleep/50000"));
                assert!(tokio::time::timeout(limit, asking).await.is_err());
            }
            Self::AbandonedInBody => {
                let reply = pool.invoke(&seed, call("/body/9000000")).await.unwrap();
                let ReplyBody::Stream(mut stream) = reply.body else {
                    panic!("nine megabytes were held back");
                };
                next_part(&mut stream).await.unwrap().unwrap();
            }
        }
    }
}

struct World<'a> {
    bench: &'a Bench,
    code: &'a CompiledFunction,
    seeds: Vec<FunctionVersion>,
    under_way: Vec<JoinHandle<()>>,
}

impl World<'_> {
    async fn step(&mut self, random: &mut Rng) {
        match random.usize(..16) {
            0 | 1 if self.seeds.len() < SEEDS => {
                let freeze = if random.bool() {
                    FreezePolicy::Auto
                } else {
                    FreezePolicy::BeforeInit
                };
                let made = self.bench.pool.make_seed(&spec(freeze), self.code).await;
                self.seeds.push(made.unwrap().version);
            }
            2 if !self.seeds.is_empty() => {
                // The version's requests that are under way continue.
                self.seeds.swap_remove(random.usize(..self.seeds.len()));
            }
            3 => self.settle().await,
            _ if self.seeds.is_empty() => {}
            _ => {
                if self.under_way.len() == UNDER_WAY {
                    let done = self.under_way.swap_remove(random.usize(..UNDER_WAY));
                    done.await.unwrap();
                }
                let seed = self.seeds[random.usize(..self.seeds.len())].clone();
                let request = Request::any(random);
                let sent = request.send(self.bench.pool.clone(), seed);
                self.under_way.push(tokio::spawn(sent));
            }
        }
        let stats = self.bench.pool.stats();
        // Each request under way can be about to evict the oldest warm instance.
        assert!(stats.warm <= MAX_WARM + UNDER_WAY + 1, "{stats:?}");
    }

    /// Waits until no request is under way and each process is accounted for.
    async fn settle(&mut self) {
        for request in self.under_way.drain(..) {
            request.await.unwrap();
        }
        let none_may_be_warm = self.seeds.is_empty();
        self.bench
            .settles("each sandbox is accounted for", |stats| {
                stats.busy == 0
                    && stats.zygotes >= usual().zygotes
                    && sandboxes().len() == stats.warm + stats.zygotes
                    && stats.warm <= MAX_WARM
                    && !(none_may_be_warm && stats.warm > 0)
            })
            .await;
    }
}

pub async fn random_sequences_leave_nothing_behind(bench: &Bench) {
    let mut random = seeded("random_sequences_leave_nothing_behind");
    let code = bench.compile(PROBE).await;
    let mut world = World {
        bench,
        code: &code,
        seeds: Vec::new(),
        under_way: Vec::new(),
    };
    // The seeds that all functions share are made with the first function's seed, and stay.
    let first = bench.pool.make_seed(&spec(FreezePolicy::Auto), &code).await;
    drop(first.unwrap());
    world.settle().await;
    let at_first = held(bench);
    for _ in 0..(600 / slowness()).max(40) {
        world.step(&mut random).await;
    }
    world.seeds.clear();
    world.settle().await;
    // A zygote in the making counts as a process before it counts as ready.
    bench
        .settles("nothing is left", |_| held(bench) == at_first)
        .await;

    bench.pool.shutdown().await;
    all_end().await;
    assert_eq!(bench.pool.stats().warm, 0);
}

/// Returns the number of descriptors and processes, without those of ready zygotes, whose number
/// follows demand.
fn held(bench: &Bench) -> (usize, usize) {
    let sandboxes = bench.pool.stats().zygotes;
    let descriptors = descriptors() - descriptors_of_a_sandbox() * sandboxes;
    (descriptors, our_processes().len() - sandboxes)
}

/// Waits until no process is left. Threads have ended by now.
async fn all_end() {
    let deadline = Instant::now() + give_up();
    let threads = our_threads();
    assert!(sandboxes().iter().all(|sandbox| !threads.contains(sandbox)));
    while !our_processes().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", our_processes());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn a_pool_that_is_shut_down_at_work_leaves_nothing(bench: &Bench) {
    bench.pool.shutdown().await;
    all_end().await;
    let mut random = seeded("a_pool_that_is_shut_down_at_work_leaves_nothing");
    for _ in 0..(20 / slowness()).max(3) {
        let bench = bench.another(usual()).await;
        let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
        let under_way: Vec<_> = (0..UNDER_WAY)
            .map(|_| {
                let (pool, seed) = (bench.pool.clone(), seed.clone());
                tokio::spawn(async move {
                    // Requests end, well or not, until the first one fails.
                    while let Ok(reply) = pool.invoke(&seed, call("/count")).await {
                        match bytes_of(reply.body).await {
                            Ok(text) => assert_eq!(text, b"1\n"),
                            Err(_) => return,
                        }
                    }
                })
            })
            .collect();
        let at = Duration::from_micros(random.u64(..100_000));
        tokio::time::sleep(at * slowness()).await;
        bench.pool.shutdown().await;
        all_end().await;
        for request in under_way {
            request.await.unwrap();
        }
        bench
            .settles("nothing is at work or warm", |stats| {
                stats.zygotes == 0 && stats.warm == 0 && stats.busy == 0
            })
            .await;
    }
}
