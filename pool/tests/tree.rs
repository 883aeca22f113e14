//! The tree of seeds in real microVMs: what is shared, what is evicted, and how functions with
//! evicted seeds are served.
//!
//! Without `/dev/kvm` every test here prints a notice and is ignored.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod support;

use std::time::{Duration, Instant};

use std::sync::Arc;

use faasw_abi::command::Command;
use faasw_pool::steps::Steps;
use faasw_pool::{
    FreezePolicy, FunctionSpec, FunctionVersion, InvokeError, PoolOptions, SeedError, SeedInfo,
    Served, TrapKind,
};

use support::{Bench, Log, bytes_of, call, give_up, slowness, spec};

const PROBE: &str = "tests/fixtures/http-probe.wasm";
const HELLO: &str = "examples/hello/hello.wasm";

/// Options under which no function's seed fits into memory.
fn no_room() -> PoolOptions {
    PoolOptions {
        seed_memory: 1,
        ..support::usual()
    }
}

/// Options under which one function's seed fits into memory, but not two.
fn room_for_one() -> PoolOptions {
    PoolOptions {
        seed_memory: 700 << 10,
        ..support::usual()
    }
}

/// Options under which a function may hold no memory.
fn nothing_rests() -> PoolOptions {
    PoolOptions {
        function_memory: 1,
        ..support::usual()
    }
}

fn functions(bench: &Bench) -> Vec<SeedInfo> {
    let mut seeds = bench.pool.tree();
    seeds.retain(|seed| seed.level == 2);
    seeds
}

async fn eventually(what: &str, bench: &Bench, holds: impl Fn(&[SeedInfo]) -> bool) {
    let deadline = Instant::now() + give_up();
    while !holds(&functions(bench)) {
        let tree = bench.pool.tree();
        assert!(Instant::now() < deadline, "{what}: {tree:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn served(bench: &Bench, seed: &FunctionVersion, path: &str) -> (String, Served) {
    let reply = bench.get(seed, path).await.unwrap();
    let served = reply.timing.served;
    let body = bytes_of(reply.body).await.unwrap();
    (String::from_utf8(body).unwrap(), served)
}

async fn functions_share_what_they_have_in_common(bench: &Bench) {
    let seeds = [
        bench.seed(HELLO, FreezePolicy::Auto).await.unwrap(),
        bench.seed(PROBE, FreezePolicy::Auto).await.unwrap(),
        bench
            .seed("tests/fixtures/cgi-probe.wasm", FreezePolicy::Auto)
            .await
            .unwrap(),
    ];
    for seed in &seeds {
        bench.get(seed, "/hello").await.unwrap();
    }
    let tree = bench.pool.tree();
    let levels: Vec<u8> = tree.iter().map(|seed| seed.level).collect();
    assert_eq!(levels, [0, 1, 2, 2, 2]);
    // All of the guest is in level 0, and no other seed has a copy of it.
    let (guest, others) = tree.split_first().unwrap();
    assert!(guest.layer_bytes > 2 << 20, "{guest:?}");
    for seed in others {
        assert!(seed.layer_bytes < guest.layer_bytes / 2, "{seed:?}");
    }
    // Level 1 was forked for each function, its own parent once.
    assert_eq!((guest.forks, others[0].forks), (1, 3));
    drop(seeds);
    eventually("they go", bench, <[SeedInfo]>::is_empty).await;
}

async fn each_deployment_has_its_own_seed(bench: &Bench) {
    let mut specs = vec![support::spec(FreezePolicy::Auto); 3];
    specs[2].name.push_str("-other");
    let mut seeds = Vec::new();
    for spec in &specs {
        seeds.push(bench.seed_of(HELLO, spec).await.unwrap());
    }
    // Equal deployments do not share a seed: an initialisation depends on when it ran, and timing
    // would reveal whose page is in memory.
    let (all, stats) = (functions(bench), bench.pool.stats());
    let bytes: u64 = all.iter().map(|seed| seed.layer_bytes).sum();
    assert_eq!(stats.seed_bytes, bytes, "{all:?}");
    assert_eq!(bench.pool.tree()[1].forks, 3);
    served(bench, &seeds[0], "/").await;
    let forks: Vec<u64> = functions(bench).iter().map(|seed| seed.forks).collect();
    assert!(forks[0] > 0 && forks[1..] == [0, 0], "{forks:?}");
    // A deployment that goes takes nothing of the others' along.
    drop(seeds.remove(0));
    eventually("it goes", bench, |all| all.len() == 2).await;
    let (_, kind) = served(bench, &seeds[0], "/").await;
    assert_ne!(kind, Served::Ancestor);
}

async fn an_unused_seed_fits_its_functions_budget(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    eventually("nothing is held", bench, |all| !all[0].is_in_memory).await;
    let before = bench.pool.tree()[1].forks;
    // The request causes the seed to be made again, and is served from an ancestor in the meantime.
    let (body, _) = served(bench, &seed, "/count").await;
    assert_eq!(body.trim(), "1");
    eventually("it is made again", bench, |_| {
        bench.pool.tree()[1].forks >= before + 2
    })
    .await;
    // No other request comes; the seed is evicted all the same.
    eventually("nothing is held", bench, |all| {
        !all[0].is_in_memory && bench.pool.stats().seed_bytes == 0
    })
    .await;
}

async fn a_function_without_its_seed_is_served_from_an_ancestor(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    eventually("the seed is evicted", bench, |all| !all[0].is_in_memory).await;
    for _ in 0..5 {
        let (body, kind) = served(bench, &seed, "/count").await;
        assert_eq!(body.trim(), "1");
        // While the seed is made again, it may be in memory for a moment.
        assert!(
            matches!(kind, Served::Ancestor | Served::Zygote),
            "{kind:?}"
        );
    }
    // Environment and a body arrive, as with a seed in memory.
    let (body, _) = served(bench, &seed, "/env").await;
    assert!(body.contains("COLOUR=green"), "{body}");
    let mut order = call("/echo");
    order.head.method = b"POST".to_vec();
    order.body = support::whole(&[7; 300_000]);
    let reply = bench.pool.invoke(&seed, order).await.unwrap();
    let body = bytes_of(reply.body).await.unwrap();
    assert!(body.ends_with(&[7; 300_000]), "{} bytes", body.len());
    // The instances are not forked from the function's seed, and so none is warm.
    bench
        .settles("all instances end", |stats| stats.busy == 0)
        .await;
    assert!(functions(bench)[0].hits == 0, "{:?}", bench.pool.tree());
}

async fn a_seed_that_many_requests_wait_for_is_made_once(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    eventually("the seed is evicted", bench, |all| !all[0].is_in_memory).await;
    let before = bench.pool.tree()[1].forks;
    for body in bench.at_once(&seed, 8, "/count").await {
        assert_eq!(body.trim_ascii(), b"1");
    }
    bench
        .settles("all instances end", |stats| stats.busy == 0)
        .await;
    eventually("it is evicted again", bench, |all| !all[0].is_in_memory).await;
    // Each request took at most one fork of level 1, and so did each making. Makings run one at a
    // time.
    let forks = bench.pool.tree()[1].forks - before;
    assert!(forks <= 8 + 8, "{forks}");
}

async fn the_seed_that_is_worth_less_is_evicted(bench: &Bench) {
    let hello = bench.seed(HELLO, FreezePolicy::Auto).await.unwrap();
    for _ in 0..20 {
        served(bench, &hello, "/").await;
    }
    // The function hello has instances, so its seed is not evicted.
    let probe = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    eventually("one is evicted", bench, |all| {
        all.iter().filter(|seed| seed.is_in_memory).count() == 1
    })
    .await;
    assert!(functions(bench)[0].is_in_memory, "{:?}", bench.pool.tree());
    let (_, kind) = served(bench, &probe, "/count").await;
    assert_eq!(kind, Served::Ancestor);
    // Warm after a request, or made ahead while a request was waiting.
    let (_, kind) = served(bench, &hello, "/").await;
    assert!(matches!(kind, Served::Warm | Served::Ready), "{kind:?}");
}

async fn an_early_frozen_function_is_served_from_an_ancestor_too(bench: &Bench) {
    let seed = bench
        .seed("tests/fixtures/init-draws.wasm", FreezePolicy::Auto)
        .await
        .unwrap();
    eventually("the seed is evicted", bench, |all| !all[0].is_in_memory).await;
    let mut drawn = std::collections::BTreeSet::new();
    for _ in 0..6 {
        let (body, _) = served(bench, &seed, "/").await;
        assert!(drawn.insert(body), "two initialisations drew the same");
    }
}

/// Sends several requests to the probe at once, after its write set is known.
async fn load(bench: &Bench, seed: &FunctionVersion) {
    for _ in 0..3 {
        bench.through(seed, call("/hello")).await;
    }
    // All four are at work at once, even if the last one begins late.
    let path = format!("/sleep/{}", (30 * slowness()).max(500));
    bench.at_once(seed, 4, &path).await;
    bench
        .settles("all requests end", |stats| stats.busy == 0)
        .await;
}

async fn a_function_holds_no_more_than_it_may(roomy: &Bench) {
    let seed = roomy.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    load(roomy, &seed).await;
    let (held, stats) = (&functions(roomy)[0], roomy.pool.stats());
    assert!(held.warm >= 3, "{held:?}");
    let each = held.warm_bytes / held.warm as u64;
    assert!(each >= 4096, "{held:?}");
    // This holds even if the kernel provides large pages by itself.
    assert!(held.layer_bytes > 2 * each, "{held:?}");
    assert_eq!(
        (stats.seed_bytes, stats.warm_bytes),
        (held.layer_bytes, held.warm_bytes)
    );

    // The size of a seed's layer varies by some pages, with the holes that were read (552,960 or
    // 630,784 bytes here, and that difference is more than an instance has). So two instances are
    // warm, or more, as many as fit.
    let budget = held.layer_bytes + (20 * 4096) + each * 2;
    let bench = roomy
        .another(PoolOptions {
            function_memory: budget,
            // The budget takes precedence over this.
            min_warm: 3,
            ..support::usual()
        })
        .await;
    let holds = |all: &[SeedInfo]| -> u64 {
        let each = all.iter().map(|version| {
            if version.is_in_memory {
                version.layer_bytes + version.warm_bytes
            } else {
                version.warm_bytes
            }
        });
        each.sum()
    };
    let old = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    load(&bench, &old).await;
    let as_many_rest_as_fit = |all: &[SeedInfo]| {
        let held = holds(all);
        // Instances differ by a page.
        all[0].warm >= 1 && held <= budget && budget < held + each + 4 * 4096
    };
    eventually("one rests", &bench, as_many_rest_as_fit).await;
    let forks = functions(&bench)[0].forks;
    for _ in 0..5 {
        let (_, timing, _) = bench.through(&old, call("/hello")).await;
        assert_eq!(timing.served, Served::Warm);
        // There may be one fewer than before, because the layer grows when its holes are read.
        eventually("it rests again", &bench, |all| {
            all[0].busy == 0 && as_many_rest_as_fit(all)
        })
        .await;
    }
    let held = &functions(&bench)[0];
    assert!(held.is_in_memory);
    assert_eq!(held.forks, forks, "instances are made only to be ended");

    // A second version counts towards the budget, too: first warm instances end, then one seed is
    // evicted.
    let mut other = support::spec(FreezePolicy::Auto);
    other.environment.push((b"VERSION".to_vec(), b"2".to_vec()));
    let new = bench.seed_of(PROBE, &other).await.unwrap();
    eventually("one version stays", &bench, |all| {
        let in_memory = all.iter().filter(|version| version.is_in_memory).count();
        all.len() == 2 && in_memory == 1 && holds(all) <= budget
    })
    .await;
    for seed in [&old, &new] {
        let (body, _) = served(&bench, seed, "/count").await;
        assert_eq!(body.trim(), "1");
    }
    bench.pool.shutdown().await;
}

async fn a_function_that_may_hold_nothing_is_served(bench: &Bench) {
    let seed = bench.seed(PROBE, FreezePolicy::Auto).await.unwrap();
    for _ in 0..3 {
        eventually("nothing is held", bench, |all| {
            !all[0].is_in_memory && all[0].warm == 0 && all[0].busy == 0
        })
        .await;
        let (body, kind) = served(bench, &seed, "/count").await;
        assert_eq!(body.trim(), "1");
        // While the seed is made again, it may be in memory for a moment.
        assert!(
            matches!(kind, Served::Ancestor | Served::Zygote),
            "{kind:?}"
        );
    }
}

/// RAM that a guest of [`stepwise`] has at first: enough for one call of `more`.
const LESS_RAM: u64 = 72 << 20;

/// Returns a guest of the fixture that runs step by step, and its log.
async fn stepwise(bench: &Bench) -> (Steps, Arc<Log>) {
    let log = Arc::new(Log::default());
    let spec = FunctionSpec {
        log: log.clone(),
        ..spec(FreezePolicy::AfterInit)
    };
    let compiled = bench.compile("pool/tests/support/steps.wat").await;
    let steps = Steps::load(&bench.pool, &spec, &compiled, LESS_RAM).await;
    (steps.unwrap(), log)
}

fn evaluate(export: &str) -> Command {
    Command::Evaluate {
        export: export.to_owned(),
    }
}

async fn a_guest_performs_its_commands_and_stops_after_each_batch(bench: &Bench) {
    let (mut steps, log) = stepwise(bench).await;
    assert_eq!(steps.go(&[Command::Instantiate]).await.unwrap(), "");
    assert!(log.lines.lock().unwrap().is_empty());
    let drawn = steps.go(&[evaluate("init")]).await.unwrap();
    assert!(drawn.ends_with("random_get: 4 bytes"), "{drawn}");
    let drawn = steps.go(&[evaluate("init"), evaluate("init")]).await;
    assert!(drawn.unwrap().ends_with("random_get: 12 bytes"));
    // An empty list of commands is valid, too.
    steps.go(&[]).await.unwrap();
    assert_eq!(*log.lines.lock().unwrap(), ["count1", "count2", "count3"]);

    let missing = steps.go(&[evaluate("nothing"), evaluate("init")]).await;
    match missing {
        Err(SeedError::Function(InvokeError::LoadFailed { report })) => {
            assert!(report.contains("nothing"), "{report}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(log.lines.lock().unwrap().len(), 3);
}

async fn a_command_at_the_wrong_stage_ends_the_guest(bench: &Bench) {
    for (commands, told) in [
        (vec![evaluate("init")], "evaluate came at the stage Loaded"),
        (
            vec![Command::Instantiate, Command::Instantiate],
            "instantiate came at the stage Ready",
        ),
        (vec![Command::Link], "link came at the stage Loaded"),
        (
            vec![Command::Grow { ram_bytes: 4096 }],
            "4096 bytes of RAM do not fit",
        ),
    ] {
        let (mut steps, _) = stepwise(bench).await;
        match steps.go(&commands).await {
            Err(SeedError::Function(InvokeError::GuestFailed(why))) => {
                assert!(why.contains(told), "{why}");
            }
            other => panic!("{commands:?}: {other:?}"),
        }
    }
    // A guest that stops before the expected stage is reported.
    let (mut steps, _) = stepwise(bench).await;
    let stops_early = steps.go(&[]).await;
    assert!(
        matches!(&stops_early, Err(SeedError::Function(InvokeError::GuestFailed(why)))
            if why.contains("Loaded instead of Ready")),
        "{stops_early:?}"
    );
}

async fn ram_can_be_added_more_than_once(bench: &Bench) {
    let more = [evaluate("more")];
    let (mut steps, _) = stepwise(bench).await;
    steps.go(&[Command::Instantiate]).await.unwrap();
    steps.go(&more).await.unwrap();
    // No more RAM is left for a second call.
    match steps.go(&more).await {
        Err(SeedError::Function(InvokeError::Trap { kind, .. })) => {
            assert_eq!(kind, TrapKind::MemoryLimit);
        }
        other => panic!("{other:?}"),
    }

    let (mut steps, _) = stepwise(bench).await;
    let all = steps.ram_bytes();
    let grow = |ram_bytes| Command::Grow { ram_bytes };
    steps.go(&[Command::Instantiate]).await.unwrap();
    for ram_bytes in [LESS_RAM, 112 << 20, all] {
        steps.go(&[grow(ram_bytes)]).await.unwrap();
        steps.go(&more).await.unwrap();
    }
}

fn main() {
    support::main(|skip| {
        let mut all = Vec::new();
        for confinement in support::EACH {
            all.extend(trials![skip, confinement;
                functions_share_what_they_have_in_common,
                each_deployment_has_its_own_seed,
                an_unused_seed_fits_its_functions_budget in nothing_rests(),
                a_function_without_its_seed_is_served_from_an_ancestor in no_room(),
                a_seed_that_many_requests_wait_for_is_made_once in no_room(),
                the_seed_that_is_worth_less_is_evicted in room_for_one(),
                an_early_frozen_function_is_served_from_an_ancestor_too in no_room(),
                a_function_holds_no_more_than_it_may,
                a_function_that_may_hold_nothing_is_served in nothing_rests(),
                a_guest_performs_its_commands_and_stops_after_each_batch,
                a_command_at_the_wrong_stage_ends_the_guest,
                ram_can_be_added_more_than_once,
            ]);
        }
        all
    });
}
