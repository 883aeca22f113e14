//! Which instances are warm again, how often and for how long.

use std::time::{Duration, Instant};

use faasw_pool::{ClientError, FreezePolicy, FunctionVersion, InvokeError, ReplyBody, Served};
use http_body::Frame;

use crate::probe;
use crate::support::processes::{cpu_time, kill, sandboxes};
use crate::support::{Bench, arriving, bytes_of, call, give_up, next_part, slowness};

/// Ways in which a request can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Trap,
    TrapAfterHead,
    Panic,
    Exit,
    NoResponse,
    TimeLimit,
    CpuLimit,
    ClientIdle,
    ClientBreaksOff,
    ClientLeavesEarly,
    ClientLeavesInBody,
    Killed,
}

impl Failure {
    const ALL: [Self; 12] = [
        Self::Trap,
        Self::TrapAfterHead,
        Self::Panic,
        Self::Exit,
        Self::NoResponse,
        Self::TimeLimit,
        Self::CpuLimit,
        Self::ClientIdle,
        Self::ClientBreaksOff,
        Self::ClientLeavesEarly,
        Self::ClientLeavesInBody,
        Self::Killed,
    ];

    fn path(self) -> &'static str {
        match self {
            Self::Trap => "/trap/unreachable",
            Self::TrapAfterHead => "/drop-body/100",
            Self::Panic => "/panic",
            Self::Exit => "/exit/1",
            Self::NoResponse => "/no-response",
            Self::TimeLimit | Self::CpuLimit => "/loop",
            Self::ClientIdle | Self::ClientBreaksOff => "/echo",
            Self::ClientLeavesEarly | Self::Killed => "/sleep/100000",
            Self::ClientLeavesInBody => "/body/100000000",
        }
    }

    /// Makes this failure happen to a request. Returns the error that the caller received, if any.
    async fn happen(self, bench: &Bench, seed: &FunctionVersion) -> Option<InvokeError> {
        let mut order = call(self.path());
        let short = Duration::from_millis(100) * slowness();
        match self {
            Self::TimeLimit => order.limits.first_byte = short,
            Self::CpuLimit => order.limits.cpu = short,
            Self::ClientIdle => order.limits.idle_client = short,
            _ => {}
        }
        let instance = sandboxes()[0];
        let used_before = cpu_time(instance);
        let (client, body) = arriving();
        if matches!(self, Self::ClientIdle | Self::ClientBreaksOff) {
            order.body = body;
            client.send(Ok(Frame::data("begun".into()))).await.unwrap();
        }
        if self == Self::ClientBreaksOff {
            let broken = ClientError::Broken("on purpose".to_owned());
            client.send(Err(broken)).await.unwrap();
        }
        let invoking = tokio::spawn({
            let (pool, seed) = (bench.pool.clone(), seed.clone());
            async move { pool.invoke(&seed, order).await }
        });
        if matches!(self, Self::ClientLeavesEarly | Self::Killed) {
            bench
                .settles("it is at work", |stats| stats.warm == 0 && stats.busy == 1)
                .await;
        }
        match self {
            Self::ClientLeavesEarly => {
                invoking.abort();
                return None;
            }
            Self::Killed => {
                // A request that has begun is not repeated. That the guest waits shows that it has
                // begun.
                bench
                    .settles("it runs", |_| cpu_time(instance) > used_before)
                    .await;
                rests(instance).await;
                kill(instance);
            }
            _ => {}
        }
        let reply = match invoking.await.unwrap() {
            Ok(reply) => reply,
            Err(error) => return Some(error),
        };
        match reply.body {
            ReplyBody::Stream(mut stream) if self == Self::ClientLeavesInBody => {
                next_part(&mut stream).await.unwrap().unwrap();
                None
            }
            body => bytes_of(body).await.err(),
        }
    }

    fn is(self, ended: Option<&InvokeError>) -> bool {
        use InvokeError as E;
        match self {
            Self::Trap | Self::TrapAfterHead | Self::Panic => {
                matches!(ended, Some(E::Trap { .. }))
            }
            Self::Exit => matches!(ended, Some(E::Exit { .. })),
            Self::NoResponse => matches!(ended, Some(E::NoResponse)),
            Self::TimeLimit => matches!(ended, Some(E::TimedOut(_))),
            Self::CpuLimit => matches!(ended, Some(E::CpuLimit(_))),
            Self::ClientIdle => matches!(ended, Some(E::IdleClient(_))),
            Self::ClientBreaksOff => matches!(ended, Some(E::Client(_))),
            Self::ClientLeavesEarly | Self::ClientLeavesInBody => ended.is_none(),
            Self::Killed => matches!(ended, Some(E::Platform(_))),
        }
    }
}

pub async fn an_instance_that_did_not_end_well_is_never_warm(bench: &Bench) {
    let seed = probe(bench).await;
    for failure in Failure::ALL {
        let instance = bench.warm_one(&seed, "/count").await;
        let ended = failure.happen(bench, &seed).await;
        assert!(failure.is(ended.as_ref()), "{failure:?}: {ended:?}");
        bench
            .settles("it has ended", |stats| {
                stats.warm == 0 && stats.busy == 0 && sandboxes().is_empty()
            })
            .await;
        let (text, timing, _) = bench.through(&seed, call("/count")).await;
        assert_eq!(text, b"1\n", "after {failure:?}");
        assert_eq!(timing.served, Served::Made, "after {failure:?}");
        assert!(!sandboxes().contains(&instance), "after {failure:?}");
    }
}

/// Waits until a process has used no CPU time for a while, which means that it waits for something.
/// The span is long enough for a machine where other processes delay it.
async fn rests(pid: u32) {
    let (begun, span) = (Instant::now(), Duration::from_millis(300) * slowness());
    let (mut used, mut since) = (cpu_time(pid), begun);
    while since.elapsed() < span {
        assert!(begun.elapsed() < give_up(), "it does not rest");
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = cpu_time(pid);
        if now != used {
            (used, since) = (now, Instant::now());
        }
    }
}

/// Sends `count` requests one after the other. Returns for each how it was served, and by which
/// process.
async fn servers(bench: &Bench, seed: &FunctionVersion, count: usize) -> Vec<(Served, u32)> {
    let mut servers = Vec::new();
    for _ in 0..count {
        let before = sandboxes();
        // The request lasts until its process has been seen.
        let (client, body) = arriving();
        let mut order = call("/echo");
        order.body = body;
        let (pool, function) = (bench.pool.clone(), seed.clone());
        let invoking = tokio::spawn(async move {
            let reply = pool.invoke(&function, order).await.unwrap();
            let served = reply.timing.served;
            bytes_of(reply.body).await.unwrap();
            served
        });
        bench
            .settles("it is at work", |stats| {
                stats.busy == 1 && sandboxes().len() == 1
            })
            .await;
        let server = sandboxes()[0];
        drop(client);
        let served = invoking.await.unwrap();
        assert_eq!(before.contains(&server), served == Served::Warm);
        bench
            .settles("it is over", |stats| {
                stats.busy == 0 && sandboxes().len() == stats.warm
            })
            .await;
        servers.push((served, server));
    }
    servers
}

pub async fn an_instance_limited_to_one_request_is_never_warm(bench: &Bench) {
    let seed = probe(bench).await;
    for (served, _) in servers(bench, &seed, 5).await {
        assert_eq!(served, Served::Made);
        assert_eq!(bench.pool.stats().warm, 0);
    }
    // No instance is made ahead either when several requests wait at once.
    let at_once: Vec<_> = (0..6)
        .map(|_| {
            let (pool, seed) = (bench.pool.clone(), seed.clone());
            tokio::spawn(async move { pool.invoke(&seed, call("/count")).await.unwrap() })
        })
        .collect();
    for reply in at_once {
        assert_eq!(reply.await.unwrap().timing.served, Served::Made);
    }
    bench
        .settles("all have ended", |stats| {
            stats.busy == 0 && sandboxes().is_empty()
        })
        .await;
}

pub async fn an_instance_serves_as_many_requests_as_allowed(bench: &Bench) {
    let seed = probe(bench).await;
    // The first instance records the working set, and instances without it end.
    servers(bench, &seed, 1).await;
    let servers = servers(bench, &seed, 9).await;
    for three in servers.chunks(3) {
        let kinds: Vec<_> = three.iter().map(|(served, _)| *served).collect();
        let process = three[0].1;
        assert_eq!(
            kinds,
            [Served::Made, Served::Warm, Served::Warm],
            "{servers:?}"
        );
        assert!(three.iter().all(|(_, own)| *own == process), "{servers:?}");
        let others = servers.iter().filter(|(_, own)| *own != process).count();
        assert_eq!(others, 6, "{servers:?}");
    }
}

/// Returns a time that is long enough for a request in between, also on a slow machine.
pub fn keep_alive() -> Duration {
    Duration::from_millis(500) * slowness().min(4)
}

pub async fn an_unused_warm_instance_ends_after_the_keep_alive_time(bench: &Bench) {
    let keep_alive = keep_alive();
    let seed = probe(bench).await;
    let begun = Instant::now();
    // Each use restarts the instance's time: four uses in a row together take longer than it.
    let (mut taken, mut in_a_row) = (begun, 0);
    let mut instance = bench.warm_one(&seed, "/count").await;
    while in_a_row < 4 {
        assert!(begun.elapsed() < give_up(), "the machine is too slow");
        tokio::time::sleep(keep_alive / 4).await;
        let before = Instant::now();
        let (_, timing, _) = bench.through(&seed, call("/count")).await;
        if taken.elapsed() < keep_alive {
            assert_eq!(timing.served, Served::Warm);
            assert_eq!(sandboxes(), [instance]);
            in_a_row += 1;
            taken = before;
        } else {
            // On a busy machine its time may have expired.
            (taken, in_a_row) = (Instant::now(), 0);
            instance = bench.warm_one(&seed, "/count").await;
        }
    }
    bench
        .settles("nobody takes it", |stats| stats.warm == 0)
        .await;
    assert!(taken.elapsed() >= keep_alive);
    bench
        .settles("its process ends", |_| sandboxes().is_empty())
        .await;
    assert_eq!(bench.text(&seed, "/count").await, "1\n");
}

pub async fn the_oldest_instance_ends_when_too_many_are_warm(bench: &Bench) {
    let mut functions = Vec::new();
    for number in 0..3 {
        // Each seed has its own name: versions of a function would share what is known about it.
        let mut spec = crate::support::spec(FreezePolicy::Auto);
        spec.name.push_str(&number.to_string());
        let seed = bench.seed_of(crate::PROBE, &spec).await.unwrap();
        // The working set is known when the first request is over.
        bench.through(&seed, call("/count")).await;
        bench.settles("it is over", |stats| stats.busy == 0).await;
        functions.push(seed);
    }
    let mut owners: Vec<(usize, u32)> = Vec::new();
    // The function to call, and whether an instance of it is still warm: 0 ends for 2; 1 is
    // taken, and so younger than 2; 2 ends for 0.
    for (function, is_warm) in [
        (0, false),
        (1, false),
        (2, false),
        (1, true),
        (0, false),
        (1, true),
        (2, false),
    ] {
        let before = sandboxes();
        let (text, timing, effort) = bench.through(&functions[function], call("/count")).await;
        assert_eq!(text, b"1\n");
        assert!(effort.reset.is_some(), "{effort:?}");
        assert_eq!(
            timing.served == Served::Warm,
            is_warm,
            "{function} {owners:?}"
        );
        bench
            .settles("the oldest ends", |stats| {
                stats.busy == 0 && stats.warm <= 2 && sandboxes().len() == stats.warm
            })
            .await;
        let process = match owners.iter().position(|(owner, _)| *owner == function) {
            Some(at) if is_warm => owners.remove(at).1,
            _ => *sandboxes()
                .iter()
                .find(|pid| !before.contains(pid))
                .unwrap(),
        };
        owners.push((function, process));
        if owners.len() > 2 {
            owners.remove(0);
        }
        let mut expected: Vec<u32> = owners.iter().map(|(_, process)| *process).collect();
        expected.sort_unstable();
        assert_eq!(sandboxes(), expected);
    }
}

pub async fn a_killed_warm_sandbox_is_not_handed_out(bench: &Bench) {
    let seed = probe(bench).await;
    let other = probe(bench).await;
    let instance = bench.warm_one(&seed, "/count").await;
    kill(instance);
    bench.settles("it ends", |_| sandboxes().is_empty()).await;
    // The spawner reports in order: when it has made another sandbox, this end is known.
    bench.through(&other, call("/count")).await;
    let (text, timing, _) = bench.through(&seed, call("/count")).await;
    assert_eq!(
        (text.as_slice(), timing.served),
        (&b"1\n"[..], Served::Made)
    );
}

pub async fn a_removed_seed_ends_its_warm_instances(bench: &Bench) {
    let stays = probe(bench).await;
    let kept = bench.warm_one(&stays, "/count").await;
    let goes = probe(bench).await;
    bench.through(&goes, call("/count")).await;
    bench.through(&goes, call("/count")).await;
    bench
        .settles("both are warm", |stats| {
            stats.busy == 0 && stats.warm == 2 && sandboxes().len() == 2
        })
        .await;
    // An instance that is at work when the seed goes serves its request and then ends, too.
    let (client, body) = arriving();
    let mut order = call("/echo");
    order.body = body;
    let at_work = tokio::spawn({
        let (pool, goes) = (bench.pool.clone(), goes.clone());
        async move {
            let reply = pool.invoke(&goes, order).await.unwrap();
            drop(goes);
            bytes_of(reply.body).await.unwrap()
        }
    });
    bench
        .settles("it is at work", |stats| stats.busy == 1 && stats.warm == 1)
        .await;
    drop(goes);
    assert_eq!(bench.pool.stats().warm, 1);
    drop(client);
    at_work.await.unwrap();
    bench
        .settles("it has gone", |stats| {
            stats.busy == 0 && sandboxes() == [kept]
        })
        .await;
    assert_eq!(bench.pool.stats().warm, 1);

    drop(stays);
    assert_eq!(bench.pool.stats().warm, 0);
    bench
        .settles("all are gone", |_| sandboxes().is_empty())
        .await;
}

/// This holds however requests end: the place stays taken for a moment longer than a caller can
/// see.
pub async fn requests_in_sequence_need_one_permit(bench: &Bench) {
    /// Time that a request waits for a permit before it is refused.
    const WAITS: Duration = Duration::from_millis(200);
    let seed = probe(bench).await;
    let paths = ["/count", "/trap/unreachable", "/count", "/count", "/exit/1"];
    let (mut refused, requests) = (0, (200 / slowness()).max(10) as usize);
    for number in 0..requests {
        let asked = Instant::now();
        let reply = bench.get(&seed, paths[number % paths.len()]).await;
        match reply {
            Ok(reply) => assert_eq!(bytes_of(reply.body).await.unwrap(), b"1\n"),
            // On a slow or busy machine a process may take longer to end than a request waits for
            // it. A request that did not wait would be refused at once.
            Err(InvokeError::OverCapacity(1)) => {
                assert!(asked.elapsed() >= WAITS, "request {number}");
                refused += 1;
            }
            Err(error) => assert!(
                matches!(error, InvokeError::Trap { .. } | InvokeError::Exit { .. }),
                "request {number}: {error:?}"
            ),
        }
    }
    // A permit that is not released would refuse all later requests.
    assert!(slowness() > 1 || refused < requests / 2, "{refused}");
}
