//! Instances that are warm before any request arrives.

use std::time::Duration;

use faasw_pool::{
    EarlierBuild, FreezePolicy, FunctionVersion, InvocationRequest, InvokeError, PoolOptions,
    SeedInfo, Served, ShortfallCause, ShortfallStats, WarmShortfall,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::processes::{kill, name_of, our_processes, sandboxes, signal};
use crate::support::{Bench, Frames, arriving, bytes_of, call, give_up};
use crate::{PROBE, only_instances, probe};

/// Number of instances that each function is to have.
const LEAST: usize = 3;

/// Options under which each sandbox is an instance, and each function has [`LEAST`] of them.
pub fn three() -> PoolOptions {
    PoolOptions {
        min_warm: LEAST,
        ..only_instances()
    }
}

/// Returns the only function.
fn function(bench: &Bench) -> SeedInfo {
    let mut seeds = bench.pool.tree().into_iter();
    seeds.find(|seed| seed.level == 2).unwrap()
}

fn forks(bench: &Bench) -> u64 {
    function(bench).forks
}

/// Returns how many sandboxes were ever taken or made for requests, or for seeds that found none
/// ready.
fn taken(bench: &Bench) -> u64 {
    let zygote_pool = bench.pool.stats().zygote_pool;
    zygote_pool.hits + zygote_pool.misses
}

/// Returns a function that has all its instances before its first request.
async fn provided(bench: &Bench) -> FunctionVersion {
    let seed = probe(bench).await;
    bench.pool.provision_and_wait(&seed).await;
    let (warm, forks) = (bench.pool.stats().warm, forks(bench));
    assert_eq!((warm, forks), (LEAST, LEAST as u64));
    seed
}

/// Sends `count` requests at once. Returns how they were served.
async fn served(
    bench: &Bench,
    seed: &FunctionVersion,
    count: usize,
    path: &str,
) -> Vec<Result<Served, InvokeError>> {
    let asking = (0..count).map(|_| {
        let (pool, seed, order) = (bench.pool.clone(), seed.clone(), call(path));
        tokio::spawn(async move {
            let reply = pool.invoke(&seed, order).await?;
            let served = reply.timing.served;
            bytes_of(reply.body).await?;
            Ok(served)
        })
    });
    let mut all = Vec::new();
    for asked in asking.collect::<Vec<_>>() {
        all.push(asked.await.unwrap());
    }
    all
}

/// Requests that are at work at once until [`AtWork::end`]: their clients do not end the request
/// bodies before.
struct AtWork {
    clients: Vec<Frames>,
    answers: Vec<JoinHandle<Result<Served, InvokeError>>>,
}

impl AtWork {
    /// Sends `count` requests, and waits until all are at work.
    async fn begin(bench: &Bench, seed: &FunctionVersion, count: usize) -> Self {
        let (clients, answers) = (0..count)
            .map(|_| {
                let (client, body) = arriving();
                let order = InvocationRequest {
                    body,
                    ..call("/echo")
                };
                let (pool, seed) = (bench.pool.clone(), seed.clone());
                let answer = tokio::spawn(async move {
                    let reply = pool.invoke(&seed, order).await?;
                    let served = reply.timing.served;
                    bytes_of(reply.body).await?;
                    Ok::<_, InvokeError>(served)
                });
                (client, answer)
            })
            .unzip();
        bench
            .settles("all are at work", |stats| stats.busy == count)
            .await;
        Self { clients, answers }
    }

    /// Ends all requests. Returns how they were served.
    async fn end(self) -> Vec<Result<Served, InvokeError>> {
        drop(self.clients);
        let mut all = Vec::new();
        for answer in self.answers {
            all.push(answer.await.unwrap());
        }
        all
    }
}

pub async fn the_first_requests_find_warm_instances(bench: &Bench) {
    let seed = provided(bench).await;
    let before = taken(bench);
    for result in served(bench, &seed, LEAST, "/count").await {
        assert_eq!(result.unwrap(), Served::Ready);
    }
    assert_eq!(taken(bench), before, "no request took a sandbox");
}

pub async fn outdated_instances_are_replaced(bench: &Bench) {
    let seed = provided(bench).await;
    // The instance ends, because it recorded the working set, with which the others were not made.
    let (_, timing, effort) = bench.through(&seed, call("/count")).await;
    assert_eq!((timing.served, effort.reset), (Served::Ready, None));
    bench
        .settles("all are made again", |stats| {
            // The ended sandbox is reaped a moment after its successor is made.
            stats.warm == LEAST && forks(bench) == 2 * LEAST as u64 && sandboxes().len() == LEAST
        })
        .await;
    for _ in 0..LEAST {
        let (text, _, effort) = bench.through(&seed, call("/count")).await;
        assert_eq!(text, b"1\n");
        assert!(effort.reset.is_some());
    }
    bench.pool.provision_and_wait(&seed).await;
    assert_eq!(forks(bench), 2 * LEAST as u64);
}

pub async fn instances_at_work_count_as_present(bench: &Bench) {
    let seed = provided(bench).await;
    let at_work = AtWork::begin(bench, &seed, LEAST).await;
    bench
        .settles("each has its instance", |stats| stats.warm == 0)
        .await;
    bench.pool.provision_and_wait(&seed).await;
    let (stats, forks) = (bench.pool.stats(), forks(bench));
    assert!(
        stats.busy == LEAST && stats.warm == 0 && forks == LEAST as u64,
        "{forks} forks: {stats:?}"
    );
    for result in at_work.end().await {
        assert_eq!(result.unwrap(), Served::Ready);
    }
}

pub async fn a_function_that_is_called_gets_warm_instances(bench: &Bench) {
    let seed = probe(bench).await;
    assert_eq!(bench.text(&seed, "/count").await, "1\n");
    bench
        .settles("all are there", |stats| stats.warm == LEAST)
        .await;
}

pub async fn an_instance_that_ends_is_replaced(bench: &Bench) {
    let _seed = provided(bench).await;
    let ended = sandboxes()[0];
    kill(ended);
    bench
        .settles("there is another", |stats| {
            let now = sandboxes();
            stats.warm == LEAST && now.len() == LEAST && !now.contains(&ended)
        })
        .await;
    assert_eq!(forks(bench), LEAST as u64 + 1);
}

/// A single task makes the instances of all functions. An instance whose making hangs delays it
/// only for a limited time.
pub async fn making_an_instance_times_out(bench: &Bench) {
    let seed = probe(bench).await;
    let is_spawner = |pid: &u32| name_of(*pid) == "faasw-spawner";
    let spawner = our_processes().into_iter().find(is_spawner).unwrap();
    signal(spawner, "STOP");
    // Ten seconds, and a margin for a busy machine. Without an end it would take for ever.
    let given_up = timeout(give_up(), bench.pool.provision_and_wait(&seed)).await;
    signal(spawner, "CONT");
    assert!(given_up.is_ok(), "{:?}", bench.pool.stats());
    bench
        .settles("they are made afterwards", |stats| {
            stats.warm == LEAST && sandboxes().len() == LEAST
        })
        .await;
}

/// A sandbox for a missing instance is made when no other work is waiting. Instances that requests
/// have left warm by then count.
pub async fn an_instance_that_is_no_longer_missing_is_not_made(bench: &Bench) {
    let seed = probe(bench).await;
    bench
        .settles("sandboxes are ready", |stats| stats.zygotes == 2)
        .await;
    let is_spawner = |pid: &u32| name_of(*pid) == "faasw-spawner";
    let spawner = our_processes().into_iter().find(is_spawner).unwrap();
    signal(spawner, "STOP");
    let waits = timeout(
        Duration::from_millis(300),
        bench.pool.provision_and_wait(&seed),
    )
    .await;
    // The first instance records the working set, and ends; the next one is warm then.
    bench.through(&seed, call("/count")).await;
    bench.get(&seed, "/count").await.unwrap();
    let warm = timeout(give_up(), async {
        while bench.pool.stats().warm == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    });
    let warm = warm.await;
    let made = forks(bench);
    signal(spawner, "CONT");
    assert!(waits.is_err() && warm.is_ok(), "{:?}", bench.pool.stats());
    // Waits until the task that makes instances has run again.
    bench.pool.provision_and_wait(&seed).await;
    assert_eq!((bench.pool.stats().warm, forks(bench)), (1, made));
}

/// However requests end, only as many instances are made as have ended.
pub async fn failing_requests_cause_no_needless_instances(bench: &Bench) {
    const FAILING: u64 = 10;
    let seed = provided(bench).await;
    for _ in 0..FAILING {
        let failed = bench.get(&seed, "/trap/unreachable").await;
        assert!(
            matches!(failed, Err(InvokeError::Trap { .. })),
            "{failed:?}"
        );
    }
    bench
        .settles("all are there again", |stats| {
            stats.warm == LEAST && stats.busy == 0
        })
        .await;
    let made = forks(bench);
    assert!(made <= LEAST as u64 + 2 * FAILING, "{made}");
    for _ in 0..3 {
        bench.pool.provision_and_wait(&seed).await;
    }
    assert_eq!(forks(bench), made);
}

pub async fn instances_that_do_not_fit_are_not_made(roomy: &Bench) {
    let _seed = provided(roomy).await;
    let held = function(roomy);
    let each = held.warm_bytes / held.warm as u64;
    assert!(each >= 4096, "{held:?}");
    let most_warm = PoolOptions {
        max_warm: 2,
        ..three()
    };
    let most_held = PoolOptions {
        function_memory: held.layer_bytes + 2 * each + each / 2,
        ..three()
    };
    for options in [most_warm, most_held] {
        let bench = roomy.another(options).await;
        let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
        bench.pool.provision_and_wait(&seed).await;
        let (warm, made) = (bench.pool.stats().warm, forks(&bench));
        // The size of a seed's layer varies by some pages.
        assert!((1..LEAST).contains(&warm), "{warm}");
        assert_eq!(made, warm as u64);
        // No instance is made only to be ended, however often the pool checks.
        for _ in 0..3 {
            bench.pool.provision_and_wait(&seed).await;
        }
        assert_eq!(forks(&bench), made);
        bench.pool.shutdown().await;
    }
}

/// A start adopts functions whose seeds are not in memory. The pool makes seeds and instances as
/// far as memory allows, and reports what the other functions lack.
pub async fn seeds_for_warm_instances_fit_the_memory_for_seeds(roomy: &Bench) {
    let _seed = provided(roomy).await;
    let layer_bytes = function(roomy).layer_bytes;
    let bench = roomy
        .another(PoolOptions {
            seed_memory: 3 * layer_bytes + layer_bytes / 2,
            ..three()
        })
        .await;
    let compiled = bench.compile(PROBE).await;
    let known = EarlierBuild {
        after_init: true,
        instantiation: Duration::from_millis(1),
        layer_bytes,
    };
    let mut all = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let mut spec = crate::support::spec(FreezePolicy::Auto);
        spec.name = name.to_owned();
        let version = bench
            .pool
            .register_existing(&spec, &compiled, known)
            .unwrap();
        version.prewarm_seed();
        bench.pool.provision(&version);
        all.push(version);
    }
    bench
        .settles("three have all", |stats| {
            stats.warm == 3 * LEAST && stats.shortfall.of(ShortfallCause::SeedMemory) == LEAST
        })
        .await;
    let shortfall: Vec<_> = all.iter().map(|of| bench.pool.shortfall(of)).collect();
    let place = shortfall.iter().position(Option::is_some).unwrap();
    let (instances, why) = (LEAST, ShortfallCause::SeedMemory);
    assert_eq!(shortfall[place], Some(WarmShortfall { instances, why }));
    assert_eq!(shortfall.iter().flatten().count(), 1, "{shortfall:?}");
    assert!(bench.pool.stats().seed_bytes <= 3 * layer_bytes + layer_bytes / 2);
    // No seed is made only to be evicted.
    let linked = || bench.pool.tree()[1].forks;
    let made = linked();
    for _ in 0..3 {
        bench.pool.provision_and_wait(&all[place]).await;
    }
    assert_eq!(linked(), made);

    // A function that goes leaves its memory to the other.
    let last = all.swap_remove(place);
    drop(all.pop());
    bench
        .settles("it has all, too", |stats| {
            stats.warm == 3 * LEAST && stats.shortfall == ShortfallStats::default()
        })
        .await;
    assert_eq!(bench.pool.shortfall(&last), None);
    bench.pool.shutdown().await;
}

/// The pool reports the instances that exceed their function's memory, and does not make the seed
/// again and again.
pub async fn instances_beyond_the_functions_memory_are_reported(roomy: &Bench) {
    let _seed = provided(roomy).await;
    let layer_bytes = function(roomy).layer_bytes;
    let bench = roomy
        .another(PoolOptions {
            function_memory: layer_bytes / 2,
            ..three()
        })
        .await;
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    bench.pool.provision_and_wait(&seed).await;
    bench
        .settles("it is told", |stats| {
            stats.shortfall.of(ShortfallCause::FunctionMemory) == LEAST
        })
        .await;
    let linked = || bench.pool.tree()[1].forks;
    let made = linked();
    for _ in 0..3 {
        bench.pool.provision_and_wait(&seed).await;
    }
    assert_eq!((linked(), bench.pool.stats().warm), (made, 0));
    bench.pool.shutdown().await;
}

/// A function that has its least number of instances does not lose them to functions that have more
/// than theirs.
pub async fn instances_beyond_the_minimum_end_first(bench: &Bench) {
    let seed = provided(bench).await;
    let mut other = crate::support::spec(FreezePolicy::Auto);
    other.name = "other".to_owned();
    let other = bench.seed_of(PROBE, &other).await.unwrap();
    bench.pool.provision_and_wait(&other).await;
    // Two more instances may be warm. The first requests record the working set.
    for _ in 0..4 {
        let at_work = AtWork::begin(bench, &other, LEAST + 4).await;
        for result in at_work.end().await {
            result.unwrap();
        }
        bench.settles("all are over", |stats| stats.busy == 0).await;
    }
    bench
        .settles("all rest", |stats| {
            stats.busy == 0 && stats.warm == 2 * LEAST + 2
        })
        .await;
    assert_eq!(warm_of(bench, "test"), LEAST);
    drop(seed);
}

/// If not all functions' instances fit, functions do not take each other's instances again and
/// again, whatever requests do.
pub async fn functions_do_not_take_each_others_instances_in_turn(bench: &Bench) {
    let mut all = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let mut spec = crate::support::spec(FreezePolicy::Auto);
        spec.name = name.to_owned();
        let version = bench.seed_of(PROBE, &spec).await.unwrap();
        bench.pool.provision_and_wait(&version).await;
        all.push(version);
    }
    let made = || {
        let seeds = bench.pool.tree().into_iter();
        let of = seeds.filter(|seed| seed.level == 2);
        of.map(|seed| seed.forks).sum::<u64>()
    };
    assert_eq!((bench.pool.stats().warm, made()), (3, 3));
    // The pool checks again and again, as it would over a long time.
    let looking = tokio::spawn({
        let (pool, last) = (bench.pool.clone(), all[3].clone());
        async move {
            loop {
                pool.provision_and_wait(&last).await;
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
    for _ in 0..300 {
        bench.text(&all[0], "/sleep/10").await;
        // The next request is to find its instance, which a busy machine resets later.
        bench.settles("it is over", |stats| stats.busy == 0).await;
    }
    looking.abort();
    let made = made();
    // Some instances end and are made again while the pool learns the working set.
    assert!(made <= 12, "{made} were made");
}

/// While requests wait for permits, `Pool::provision_and_wait` returns although instances are
/// missing.
pub async fn waiting_for_instances_ends_while_requests_wait(bench: &Bench) {
    let seed = probe(bench).await;
    let asking: Vec<_> = (0..4)
        .map(|_| {
            let (pool, seed) = (bench.pool.clone(), seed.clone());
            tokio::spawn(async move {
                loop {
                    // Some requests are refused.
                    if let Ok(reply) = pool.invoke(&seed, call("/sleep/20")).await {
                        let _ = bytes_of(reply.body).await;
                    }
                }
            })
        })
        .collect();
    bench
        .settles("requests wait", |stats| stats.waiting > 0)
        .await;
    let mut other = crate::support::spec(FreezePolicy::Auto);
    other.name = "other".to_owned();
    let other = bench.seed_of(PROBE, &other).await.unwrap();
    let provided = timeout(give_up(), bench.pool.provision_and_wait(&other)).await;
    for task in asking {
        task.abort();
    }
    assert!(provided.is_ok(), "{:?}", bench.pool.stats());
    bench.pool.provision_and_wait(&other).await;
    bench
        .settles("they are made afterwards", |_| {
            warm_of(bench, "other") == LEAST
        })
        .await;
}

fn warm_of(bench: &Bench, name: &str) -> usize {
    let seeds = bench.pool.tree().into_iter();
    let of = seeds.filter(|seed| seed.name == name);
    of.map(|seed| seed.warm).sum()
}

pub async fn a_removed_function_leaves_no_process(bench: &Bench) {
    let seed = probe(bench).await;
    bench.pool.provision(&seed);
    // The function goes while its instances may still be in the making.
    drop(seed);
    bench
        .settles("none is left", |stats| {
            stats.warm == 0 && sandboxes().is_empty()
        })
        .await;
    let seed = provided(bench).await;
    drop(seed);
    bench
        .settles("none is left", |stats| {
            stats.warm == 0 && sandboxes().is_empty()
        })
        .await;
}
