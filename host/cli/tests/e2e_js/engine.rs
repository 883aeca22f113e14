//! The built-in engine: which scripts it runs, when it is made, and which functions share it.

use faasw::{DeployError, EngineError, Extension, FunctionOptions, Node};

use crate::{
    HELLO, bundle,
    e2e::{self, Bench, limits},
    engine, one,
};

/// An operator's engine takes precedence over the built-in one.
pub fn an_engine_of_the_operator_replaces_the_built_in_one() {
    let bench = Bench::start(Node::builder(), limits());
    let lua = e2e::file("tests/fixtures/lua-engine.wasm");
    let add = |name: &str, extension: &str| {
        let extensions = vec![Extension::new(extension).unwrap()];
        let adding = bench.node.add_engine(name, lua.clone(), extensions);
        bench.block_on(adding)
    };
    assert!(engine(&bench, "js").is_some());
    add("mine", "js").unwrap();
    assert!(engine(&bench, "js").is_none());
    let script = one("return function() return 'lua' end");
    bench.deploy("f", &script, FunctionOptions::default());
    assert_eq!(bench.text("/f/"), "lua");
    // No part of the built-in engine remains, either.
    let deploying = bench.node.deploy(
        "g",
        bundle(&[("handler.mjs", HELLO)]),
        FunctionOptions::default(),
    );
    let error = bench.block_on(deploying).unwrap_err();
    assert!(matches!(error, DeployError::NoEngine { .. }), "{error}");
    bench.block_on(bench.node.remove_engine("mine")).unwrap();
    assert!(engine(&bench, "js").is_some());
    let unknown = bench.block_on(bench.node.remove_engine("js"));
    assert!(matches!(unknown, Err(EngineError::Unknown(_))));
    // This holds even if the built-in engine is in memory; scripts deployed with it keep it.
    bench.deploy("i", &one(HELLO), FunctionOptions::default());
    assert!(engine(&bench, "js").unwrap().is_warm);
    add("mine", "js").unwrap();
    assert!(engine(&bench, "js").is_none());
    bench.deploy("f", &script, FunctionOptions::default());
    assert_eq!(
        (bench.text("/f/"), bench.text("/i/")),
        ("lua".into(), "hello".into())
    );
    bench.block_on(bench.node.remove_engine("mine")).unwrap();
    bench.block_on(bench.node.warm_engine("js")).unwrap();
    add("js", "lua").unwrap();
    assert!(!engine(&bench, "js").unwrap().is_carried);
    let deploying = bench
        .node
        .deploy("h", one(HELLO), FunctionOptions::default());
    let error = bench.block_on(deploying).unwrap_err();
    assert!(matches!(error, DeployError::NoEngine { .. }), "{error}");
    bench.end();
}

/// Scripts that are deployed at once share one making of the engine. It survives a restart, and
/// after its removal it is only added again on demand.
pub fn the_engine_is_built_once_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Bench::start(Node::builder().data_dir(folder.path()), limits());
    let bench = start();
    assert!(!engine(&bench, "js").unwrap().is_warm);
    bench.block_on(async {
        let deploy = |name| {
            bench
                .node
                .deploy(name, one(HELLO), FunctionOptions::default())
        };
        let (a, b, c) = tokio::join!(deploy("a"), deploy("b"), bench.node.warm_engine("js"));
        assert!(a.is_ok() && b.is_ok() && c.unwrap().is_warm);
    });
    let digest = engine(&bench, "js").unwrap().digest;
    bench.end();
    drop(bench);
    let bench = start();
    assert_eq!(bench.text("/a/"), "hello");
    let kept = engine(&bench, "js").unwrap();
    assert!(kept.is_carried && kept.added.is_some() && kept.digest == digest);
    bench.block_on(bench.node.remove_engine("js")).unwrap();
    assert_eq!(bench.text("/b/"), "hello");
    let removed = engine(&bench, "js").unwrap();
    assert!(removed.added.is_none(), "{removed:?}");
    bench.deploy("c", &one(HELLO), FunctionOptions::default());
    assert!(engine(&bench, "js").unwrap().added.is_some());
    bench.end();
}

/// Ten scripts have one engine below them, and little memory each.
pub fn scripts_share_their_engine() {
    const DATA: u64 = 256 << 10;
    let bench = Bench::start(Node::builder(), limits());
    let hello =
        |number: u64| format!("export default {{ fetch: () => new Response('hello {number}') }}");
    // A script's data does not count towards its share.
    let with_data = |number: u64| {
        format!(
            "const data = new Uint8Array({DATA}).fill({number} + 1);
             export default {{ fetch: () => new Response(`hello ${{data[{number}] - 1}}`) }}"
        )
    };
    let mut code = 0;
    for number in 0..20 {
        let text = if number < 10 {
            hello(number)
        } else {
            with_data(number)
        };
        let name = format!("s{number}");
        let deployed = bench.deploy(&name, &one(&text), FunctionOptions::default());
        code = deployed.function.code_bytes;
        assert_eq!(bench.text(&format!("/{name}/")), format!("hello {number}"));
    }
    let tree = bench.node.tree();
    let engines: Vec<_> = tree
        .iter()
        .filter(|seed| seed.is_shared && seed.level == 2)
        .collect();
    assert_eq!(engines.len(), 1, "{tree:?}");
    let engine = code + engines[0].layer_bytes;
    let layer = |number: u64| {
        let name = format!("s{number}");
        let mut scripts = tree.iter().filter(|seed| seed.level == 3);
        scripts.find(|seed| seed.name == name).unwrap().layer_bytes
    };
    let small: Vec<u64> = (0..10).map(layer).collect();
    assert!(small.iter().all(|bytes| *bytes <= 512 << 10), "{small:?}");
    let one = engine + small[0];
    for (numbers, data) in [(0..10, 0), (10..20, 10 * DATA)] {
        let ten = engine + numbers.map(layer).sum::<u64>();
        assert!(2 * (ten - data) <= 3 * one, "{ten} of ten, {one} of one");
    }
    bench.end();
}
