//! Engines: which are added, replaced, kept, and made again.

use faasw::{Digest, EngineError, FunctionOptions, Node};

use crate::{
    HELLO, LUA, add, deploy,
    e2e::{self, Bench, limits},
    lua_of, one, refused,
};

pub fn modules_that_are_no_engine_are_rejected() {
    let bench = Bench::start(Node::builder(), limits());
    let probe = add(&bench, "lua", &e2e::file("tests/fixtures/http-probe.wasm"));
    assert!(matches!(probe, Err(EngineError::NotAnEngine)), "{probe:?}");
    let module = add(&bench, "lua", &e2e::file("tests/fixtures/cgi-probe.wasm"));
    assert!(
        matches!(module, Err(EngineError::NotAnEngine)),
        "{module:?}"
    );
    let malformed = add(&bench, "lua", b"return 1");
    assert!(
        matches!(malformed, Err(EngineError::NotReady(_))),
        "{malformed:?}"
    );
    // With such an engine, the requests of all its scripts would get the same random numbers.
    let draws = add(
        &bench,
        "lua",
        &e2e::file("host/cli/tests/e2e/drawing-engine.wat"),
    );
    let refusal = draws.map(|engine| panic!("{engine:?}")).unwrap_err();
    assert!(
        refusal.to_string().contains("faasw:engine/fresh"),
        "{refusal}"
    );
    assert!(bench.node.engines().iter().all(|engine| engine.is_carried));
    let script = refused(&bench, "f", &one(HELLO), FunctionOptions::default());
    assert!(script.to_string().contains("engine add"), "{script}");
    // Deployed as a function, the component does not answer requests.
    bench.deploy("engine", &e2e::file(LUA), FunctionOptions::default());
    assert_eq!(bench.get("/engine/").status, 502);
    bench.end();
}

/// Returns a component with another digest and the same behaviour.
fn another(component: &[u8]) -> Vec<u8> {
    // Appends a custom section with the name "x".
    [component, &[0, 2, 1, b'x']].concat()
}

pub fn scripts_keep_the_engine_of_their_deployment() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Bench::start(Node::builder().data_dir(folder.path()), limits());
    let component = e2e::file(LUA);
    let bench = start();
    let first = add(&bench, "lua", &component).unwrap();
    deploy(&bench, "old", HELLO);
    let second = add(&bench, "lua", &another(&component)).unwrap();
    assert_ne!(first.digest, second.digest);
    let engine_of = |bench: &Bench, name: &str| {
        let details = bench.block_on(bench.node.inspect(name)).unwrap();
        details.function.engine.unwrap().digest
    };
    deploy(&bench, "new", HELLO);
    assert_eq!(engine_of(&bench, "old"), first.digest);
    assert_eq!(engine_of(&bench, "new"), second.digest);
    let taken = add(&bench, "moon", &component);
    assert!(matches!(taken, Err(EngineError::Taken { .. })), "{taken:?}");
    bench.block_on(bench.node.remove_engine("lua")).unwrap();
    let gone = bench.block_on(bench.node.remove_engine("lua"));
    assert!(matches!(gone, Err(EngineError::Unknown(_))), "{gone:?}");
    bench.end();
    drop(bench);
    // The engines of both are not listed any more, and both functions continue to serve.
    let bench = start();
    assert!(bench.node.engines().iter().all(|engine| engine.is_carried));
    for name in ["old", "new"] {
        assert_eq!(bench.text(&format!("/{name}/x")), "hello /x");
    }
    // Once no function uses an engine, it is removed from disk.
    let has = |bench: &Bench, digest: Digest| {
        let directory = bench.node.data_dir().unwrap().join("modules");
        directory.join(digest.to_string()).exists()
    };
    assert!(has(&bench, first.digest) && has(&bench, second.digest));
    bench.block_on(bench.node.remove("old")).unwrap();
    assert!(!has(&bench, first.digest) && has(&bench, second.digest));
    bench.end();
}

pub fn scripts_survive_a_restart_and_a_rollback() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Bench::start(Node::builder().data_dir(folder.path()), limits());
    let bench = start();
    add(&bench, "lua", &e2e::file(LUA)).unwrap();
    deploy(&bench, "f", "return function() return 'one' end");
    deploy(&bench, "f", "return function() return 'two' end");
    bench.end();
    drop(bench);
    let bench = start();
    assert_eq!(bench.text("/f/"), "two");
    assert_eq!(lua_of(&bench).name.as_str(), "lua");
    bench.block_on(bench.node.rollback("f", None)).unwrap();
    assert_eq!(bench.text("/f/"), "one");
    deploy(&bench, "f", "return function() return 'three' end");
    assert_eq!(bench.text("/f/"), "three");
    bench.end();
}

/// After a restart, too, the first script causes its engine to be made for all others.
pub fn an_engine_is_warm_once_a_script_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Bench::start(Node::builder().data_dir(folder.path()), limits());
    let bench = start();
    assert!(add(&bench, "lua", &e2e::file(LUA)).unwrap().is_warm);
    deploy(&bench, "f", HELLO);
    bench.end();
    drop(bench);
    let bench = start();
    assert_eq!(bench.text("/f/x"), "hello /x");
    assert!(lua_of(&bench).is_warm);
    assert!(add(&bench, "lua", &e2e::file(LUA)).unwrap().is_warm);
    deploy(&bench, "g", HELLO);
    let tree = bench.node.tree();
    assert_eq!(tree.iter().filter(|seed| seed.name == "lua").count(), 1);
    bench.end();
}

/// Seeds of engines are evicted like others, and made again.
pub fn an_engine_whose_seed_was_evicted_is_made_again() {
    let bench = Bench::start(Node::builder().seed_memory(64 << 10), limits());
    add(&bench, "lua", &e2e::file(LUA)).unwrap();
    for round in 0..3 {
        for name in ["f", "g"] {
            deploy(&bench, name, HELLO);
            assert_eq!(bench.text(&format!("/{name}/x")), "hello /x", "{round}");
        }
    }
    bench.end();
}

/// Requests that wait for a script's seed do not keep other functions from running.
pub fn a_slow_script_without_a_seed_delays_no_other_function() {
    let builder = Node::builder().function_memory(64 << 10);
    let bench = Bench::start(builder, limits());
    add(&bench, "lua", &e2e::file(LUA)).unwrap();
    let slow = "local t = os.time() while os.time() < t + 5 do end return function() return '' end";
    deploy(&bench, "slow", slow);
    bench.deploy(
        "hello",
        &e2e::file("examples/hello/hello.wasm"),
        FunctionOptions::default(),
    );
    bench.block_on(async {
        let ask = |name: &'static str| {
            let node = bench.node.clone();
            async move {
                let request = http::Request::get("/").body(String::new()).unwrap();
                node.invoke(name, request).await.status().as_u16()
            }
        };
        let slow: Vec<_> = (0..8).map(|_| tokio::spawn(ask("slow"))).collect();
        for _ in 0..5 {
            assert_eq!(ask("hello").await, 200);
        }
        assert!(slow.iter().all(|asked| !asked.is_finished()));
        for asked in slow {
            assert_eq!(asked.await.unwrap(), 200);
        }
    });
    bench.end();
}

/// If a function may hold no seed, its seed is made for its requests.
pub fn a_script_whose_seed_does_not_fit_is_served() {
    let builder = Node::builder().function_memory(64 << 10);
    let bench = Bench::start(builder, limits());
    add(&bench, "lua", &e2e::file(LUA)).unwrap();
    deploy(&bench, "f", HELLO);
    for _ in 0..5 {
        assert_eq!(bench.text("/f/x"), "hello /x");
    }
    bench.end();
}

/// CPU caches would reveal which code a function's microVMs map. So each function has a file of its
/// own, even for the same module. Scripts are an exception, because their code is their engine's.
pub fn compiled_code_is_shared_by_scripts_of_one_engine_only() {
    let bench = Bench::start(Node::builder(), limits());
    let before = e2e::code_files();
    let added = || e2e::code_files().difference(&before).count();
    add(&bench, "lua", &e2e::file(LUA)).unwrap();
    assert_eq!(added(), 1);
    for name in ["f", "g"] {
        deploy(&bench, name, HELLO);
        assert_eq!(bench.text(&format!("/{name}/x")), "hello /x");
    }
    assert_eq!(added(), 1);
    let module = e2e::file("examples/hello/hello.wasm");
    for (name, files) in [("a", 2), ("b", 3)] {
        let deployed = bench.deploy(name, &module, FunctionOptions::default());
        // The module is compiled once, and then found by its digest.
        assert_eq!(deployed.compile_time.is_some(), name == "a");
        assert_eq!(bench.get(&format!("/{name}/")).status, 200);
        assert_eq!(added(), files);
    }
    bench.end();
}
