//! Language engines and their scripts, in real microVMs: `tests/fixtures/lua-engine.wasm`, which
//! `examples/lua-engine` builds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../e2e/mod.rs"]
mod e2e;

mod engines;

use std::collections::HashSet;

use common::time_limit;
use e2e::{Bench, bundle, limits};
use engines::{
    a_script_whose_seed_does_not_fit_is_served,
    a_slow_script_without_a_seed_delays_no_other_function, an_engine_is_warm_once_a_script_has_it,
    an_engine_whose_seed_was_evicted_is_made_again,
    compiled_code_is_shared_by_scripts_of_one_engine_only, modules_that_are_no_engine_are_rejected,
    scripts_keep_the_engine_of_their_deployment, scripts_survive_a_restart_and_a_rollback,
};
use faasw::{
    DeployError, DeployOutcome, Digest, EngineError, Extension, FreezePolicy, FunctionOptions,
    Node, SeedError,
};

const LUA: &str = "tests/fixtures/lua-engine.wasm";

/// A script that returns a greeting with the request's path.
const HELLO: &str = "return function(request) return 'hello ' .. request.path end";

fn lua() -> Vec<Extension> {
    vec![Extension::new(".lua").unwrap()]
}

fn add(bench: &Bench, name: &str, component: &[u8]) -> Result<faasw::EngineInfo, EngineError> {
    bench.block_on(bench.node.add_engine(name, component.to_vec(), lua()))
}

/// Returns the node's information about the engine `lua`.
fn lua_of(bench: &Bench) -> faasw::EngineInfo {
    let mut engines = bench.node.engines().into_iter();
    engines
        .find(|engine| engine.name.as_str() == "lua")
        .unwrap()
}

/// Runs a test with a node of its own that has the engine.
fn with_engine(test: impl FnOnce(&Bench)) {
    let bench = Bench::start(Node::builder(), limits());
    add(&bench, "lua", &e2e::file(LUA)).unwrap();
    test(&bench);
    bench.end();
}

fn one(text: &str) -> Vec<u8> {
    bundle(&[("handler.lua", text)])
}

fn deploy(bench: &Bench, name: &str, text: &str) -> DeployOutcome {
    bench.deploy(name, &one(text), FunctionOptions::default())
}

fn refused(bench: &Bench, name: &str, upload: &[u8], options: FunctionOptions) -> DeployError {
    let deployed = bench.block_on(bench.node.deploy(name, upload.to_vec(), options));
    deployed.map(|done| panic!("{done:?}")).unwrap_err()
}

fn why(bench: &Bench, text: &str) -> String {
    refused(bench, "bad", &one(text), FunctionOptions::default()).to_string()
}

fn a_script_answers_requests() {
    with_engine(|bench| {
        let deployed = deploy(bench, "f", HELLO);
        assert_eq!(deployed.compile_time, None);
        let function = deployed.function;
        let engine = function.engine.unwrap();
        assert_eq!(engine.name.as_str(), "lua");
        assert_eq!(engine.digest, Digest::of(&e2e::file(LUA)));
        assert_eq!(function.digest, Digest::of(&one(HELLO)));
        assert!(function.frozen_after_init);
        for _ in 0..10 {
            assert_eq!(bench.text("/f/a/b"), "hello /a/b");
        }
    });
}

fn requests_and_responses_are_passed_unchanged() {
    with_engine(|bench| {
        let echo = "return function(r)
            return {
                status = 207,
                headers = { ['x-method'] = r.method, ['x-query'] = r.query, ['x-a'] = {'1', '2'},
                            ['x-sent'] = r.headers['x-sent'] },
                body = r.body,
            }
        end";
        deploy(bench, "echo", echo);
        let bytes = e2e::binary();
        let answer = bench.request("POST", "/echo/", "x-sent: s\r\n", &bytes);
        assert!(answer.bytes == bytes, "{}", answer.bytes.len());
        let body = "grüße\0\u{1f980}".repeat(5000);
        let answer = bench.request("PURGE", "/echo/?a=%C3%BC&b", "x-sent: s\r\n", &body);
        assert_eq!(answer.status, 207, "{answer:?}");
        for (name, value) in [
            ("x-method", "PURGE"),
            ("x-query", "a=%C3%BC&b"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("x-sent", "s"),
        ] {
            let field = (name.to_owned(), value.to_owned());
            assert!(answer.headers.contains(&field), "{name}: {answer:?}");
        }
        assert_eq!(answer.body, body);
        let nothing = bench.request("HEAD", "/echo/", "", "");
        assert_eq!((nothing.status, nothing.body.as_str()), (207, ""));
    });
}

fn a_script_of_several_files_finds_them() {
    with_engine(|bench| {
        let files = [
            (
                "handler.lua",
                "local greet = require 'lib.greet'\nlocal n = require 'numbers'\n\
                 return function() return greet(n.one) .. file('data/täxt.txt') end",
            ),
            (
                "lib/greet.lua",
                "return function(n) return 'hello ' .. n .. ' ' end",
            ),
            ("numbers/init.lua", "return { one = 1 }"),
            ("data/täxt.txt", "naïve"),
        ];
        bench.deploy("f", &bundle(&files), FunctionOptions::default());
        assert_eq!(bench.text("/f/"), "hello 1 naïve");
        let missing = why(bench, "return require 'lib.nothing'");
        assert!(missing.contains("lib/nothing.lua"), "{missing}");
        assert!(missing.contains("handler.lua:1:"), "{missing}");
    });
}

fn the_top_level_of_a_script_runs_once() {
    with_engine(|bench| {
        let counts = "count = 0\nprint('at deployment')\n\
            return function() count = count + 1; print('request'); return tostring(count) end";
        deploy(bench, "f", counts);
        for _ in 0..5 {
            assert_eq!(bench.text("/f/"), "1");
        }
        let log = bench.log_once("f", |lines| lines.len() >= 6);
        let texts: Vec<&str> = log.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts[0], "at deployment");
        assert_eq!(log[0].instance, 0);
        assert_eq!(texts[1..], ["request"; 5]);
    });
}

fn errors_name_file_line_and_stack() {
    with_engine(|bench| {
        let syntax = why(bench, "local x = 1\nlocal y = = 2");
        assert!(
            syntax.contains("handler.lua:2: unexpected symbol"),
            "{syntax}"
        );
        let thrown = why(bench, "local function f() error('boom') end\n\n f()");
        assert!(thrown.contains("handler.lua:1: boom"), "{thrown}");
        assert!(thrown.contains("handler.lua:3: in main chunk"), "{thrown}");
        let none = why(bench, "return 7");
        assert!(none.contains("does not return a function"), "{none}");
        let script = "local function f(t) return t.x.y end\nreturn function(r)\n local y = f({}) \
             return y end";
        deploy(bench, "f", script);
        let answer = bench.get("/f/");
        assert_eq!(answer.status, 502, "{answer:?}");
        let log = bench.log_once("f", |lines| lines.len() >= 4);
        let log: Vec<&str> = log.iter().map(|line| line.text.trim()).collect();
        assert!(
            log[0].starts_with("handler.lua:1: attempt to index"),
            "{log:?}"
        );
        assert!(
            log.contains(&"handler.lua:3: in function <handler.lua:2>"),
            "{log:?}"
        );
        // The function name can be deployed again.
        deploy(bench, "f", HELLO);
        assert_eq!(bench.text("/f/x"), "hello /x");
    });
}

/// The engine and the script were frozen with seeded random generators.
fn random_values_differ_between_forks() {
    with_engine(|bench| {
        let draws = "local early = math.random
            return function()
                return math.random(1 << 60) .. ' ' .. early(1 << 60) .. ' ' .. random(8)
            end";
        deploy(bench, "f", draws);
        let drawn: HashSet<Vec<u8>> = (0..100)
            .map(|_| bench.get("/f/").body.into_bytes())
            .collect();
        assert_eq!(drawn.len(), 100);
        let firsts: HashSet<Vec<u8>> = drawn
            .iter()
            .map(|body| body.split(|byte| *byte == b' ').next().unwrap().to_vec())
            .collect();
        assert_eq!(firsts.len(), 100);
        deploy(
            bench,
            "now",
            "local then_ = os.time() return function() return os.time() - then_ end",
        );
        let passed: u64 = bench.text("/now/").parse().unwrap();
        assert!(passed < time_limit(60).as_secs());
    });
}

/// If scripts shared the engine's frozen generator, one script could predict what another drew
/// first.
fn entropy_drawn_at_deployment_is_not_shared_between_scripts() {
    with_engine(|bench| {
        let early = "local id = math.random(0) return function() return id .. '' end";
        let drawn: HashSet<String> = (0..5)
            .map(|number| {
                let name = format!("f{number}");
                deploy(bench, &name, early);
                bench.text(&format!("/{name}/"))
            })
            .collect();
        assert_eq!(drawn.len(), 5);
    });
}

fn shared_entropy_needs_an_explicit_option() {
    with_engine(|bench| {
        let draws = "local id = random(16) return function() return ('%q'):format(id) end";
        let refusal = refused(bench, "f", &one(draws), FunctionOptions::default());
        assert!(
            matches!(refusal, DeployError::Seed(SeedError::ScriptDrew(_))),
            "{refusal:?}"
        );
        let told = refusal.to_string();
        assert!(told.contains("get-random-bytes: 16 bytes"), "{told}");
        let options = FunctionOptions::default().freeze(FreezePolicy::AfterInit);
        let deployed = bench.deploy("f", &one(draws), options);
        assert!(deployed.notice.unwrap().contains("all requests share"));
        assert_eq!(bench.get("/f/").body, bench.get("/f/").body);
    });
}

fn scripts_have_their_own_settings() {
    with_engine(|bench| {
        let script = "local at_deploy = os.getenv('GREETING')
            return function() return at_deploy .. os.getenv('GREETING') end";
        let options = |greeting: &str| FunctionOptions::default().env("GREETING", greeting);
        bench.deploy("a", &one(script), options("hi"));
        bench.deploy("b", &one(script), options("yo"));
        assert_eq!(
            (bench.text("/a/"), bench.text("/b/")),
            ("hihi".into(), "yoyo".into())
        );
        // Each script has its own memory limit, too: lower than the engine's initial memory, or
        // higher.
        let grows = "return function(r) return #string.rep('x', tonumber(r.query)) .. '' end";
        bench.deploy(
            "small",
            &one(grows),
            FunctionOptions::default().memory(4 << 20),
        );
        bench.deploy(
            "large",
            &one(grows),
            FunctionOptions::default().memory(512 << 20),
        );
        assert_eq!(bench.text("/small/?1000000"), "1000000");
        assert_eq!(bench.get("/small/?8000000").status, 502);
        assert_eq!(bench.text("/large/?100000000"), "100000000");
        let tiny = FunctionOptions::default().memory(64 << 10);
        let refusal = refused(bench, "tiny", &one(HELLO), tiny).to_string();
        assert!(refusal.contains("memory limit is 64 KiB"), "{refusal}");
    });
}

/// Ten scripts have one engine in memory, and little memory each.
fn scripts_share_their_engine() {
    with_engine(|bench| {
        let of = |number: usize| format!("local n = {number} return function() return n .. '' end");
        for number in 0..10 {
            deploy(bench, &format!("f{number}"), &of(number));
        }
        for number in 0..10 {
            assert_eq!(bench.text(&format!("/f{number}/")), number.to_string());
        }
        let tree = bench.node.tree();
        let engines: Vec<_> = tree.iter().filter(|seed| seed.name == "lua").collect();
        assert_eq!(engines.len(), 1);
        let engine = engines[0];
        assert!(engine.is_shared && engine.level == 2, "{engine:?}");
        let scripts: Vec<_> = tree.iter().filter(|seed| seed.level == 3).collect();
        assert_eq!(scripts.len(), 10);
        // Each script was forked from it at least once.
        assert!(engine.forks >= 10, "{engine:?}");
        let most = scripts.iter().map(|seed| seed.layer_bytes).max().unwrap();
        assert!(most <= 640 << 10, "{most}");
        assert_eq!(lua_of(bench).functions, 10);
    });
}

fn a_large_script_is_deployed_completely() {
    with_engine(|bench| {
        let data: String = (0..1_200_000).map(|n| format!("{:08}", n * 7)).collect();
        let files = [
            (
                "handler.lua",
                "local data = file('data.txt')\nlocal size, last = #data, data:sub(-8)\n\
                 return function() return size .. ' ' .. last .. ' ' .. #file('data.txt') end",
            ),
            ("data.txt", data.as_str()),
        ];
        let options = FunctionOptions::default().memory(256 << 20);
        bench.deploy("f", &bundle(&files), options);
        let size = data.len();
        assert_eq!(
            bench.text("/f/"),
            format!("{size} {} {size}", &data[size - 8..])
        );
        // Memory that the guest used while it loaded the script is not part of the seed.
        let layer = bench.node.tree().last().unwrap().layer_bytes;
        assert!(layer < 3 * size as u64, "{layer}");
    });
}

fn invalid_script_uploads_are_rejected() {
    with_engine(|bench| {
        let script = one(HELLO);
        let default = FunctionOptions::default;
        for end in [8, 11, 12, 20, script.len() - 1] {
            let refusal = refused(bench, "f", &script[..end], default());
            assert!(
                matches!(refusal, DeployError::Script(_)),
                "{end}: {refusal:?}"
            );
        }
        let ruby = bundle(&[("handler.rb", "pass"), ("handler.lua", HELLO)]);
        let refusal = refused(bench, "f", &ruby, default());
        assert!(
            matches!(refusal, DeployError::NoEngine { .. }),
            "{refusal:?}"
        );
        let told = refusal.to_string();
        assert!(
            told.contains("handler.rb") && told.contains(".lua"),
            "{told}"
        );
        let escape = [&script[..16], b"../../../x.", &script[27..]].concat();
        let refusal = refused(bench, "f", &escape, default()).to_string();
        assert!(refusal.contains("\"../../../x.\""), "{refusal}");
        for options in [
            default().init("x"),
            default().freeze(FreezePolicy::BeforeInit),
        ] {
            let refusal = refused(bench, "f", &script, options);
            assert!(matches!(refusal, DeployError::Options(_)), "{refusal:?}");
        }
        let wizened = bench.block_on(bench.node.wizen(script, default()));
        assert!(wizened.unwrap_err().to_string().contains("engine"));
        assert!(bench.node.list().is_empty());
    });
}

fn hostile_scripts_affect_no_other_request() {
    let mut tight = limits();
    tight.instantiation = time_limit(2);
    let bench = Bench::start(Node::builder(), tight);
    add(&bench, "lua", &e2e::file(LUA)).unwrap();
    let endless = why(&bench, "while true do end");
    assert!(endless.contains("ran longer"), "{endless}");
    bench.end();
    // The other scripts end by themselves, and have a minute, because a busy machine takes longer
    // than 2 s.
    let bench = Bench::start(Node::builder(), limits());
    add(&bench, "lua", &e2e::file(LUA)).unwrap();
    deploy(&bench, "good", HELLO);
    let memory = why(
        &bench,
        "local t = {} while true do t[#t + 1] = ('x'):rep(1 << 20) end",
    );
    assert!(memory.contains("not enough memory"), "{memory}");
    let deep = why(&bench, "local function f() return 1 + f() end return f()");
    assert!(deep.contains("stack overflow"), "{deep}");
    let c_deep = why(&bench, "return ('('):rep(100000) .. x");
    assert!(c_deep.contains("handler.lua:1:"), "{c_deep}");
    let no_way_out =
        "return function() return tostring(os.execute) .. tostring(io) .. tostring(loadfile) end";
    deploy(&bench, "out", no_way_out);
    assert_eq!(bench.text("/out/"), "nilnilnil");
    // Bytecode is not accepted as a script, because an interpreter trusts it.
    let bytecode = why(&bench, "\u{1b}Lua");
    assert!(bytecode.contains("binary chunk"), "{bytecode}");
    let spoils = "local g, s = _G, string return function() for k in pairs(g) do g[k] = nil end \
         s.rep = nil return 'spoilt' end";
    deploy(&bench, "spoils", spoils);
    for _ in 0..3 {
        assert_eq!(bench.text("/spoils/"), "spoilt");
    }
    assert_eq!(bench.text("/good/x"), "hello /x");
    bench.end();
}

fn main() {
    e2e::main(tests![
        a_script_answers_requests,
        requests_and_responses_are_passed_unchanged,
        a_script_of_several_files_finds_them,
        the_top_level_of_a_script_runs_once,
        errors_name_file_line_and_stack,
        random_values_differ_between_forks,
        entropy_drawn_at_deployment_is_not_shared_between_scripts,
        shared_entropy_needs_an_explicit_option,
        scripts_have_their_own_settings,
        scripts_share_their_engine,
        a_large_script_is_deployed_completely,
        invalid_script_uploads_are_rejected,
        hostile_scripts_affect_no_other_request,
        modules_that_are_no_engine_are_rejected,
        scripts_keep_the_engine_of_their_deployment,
        scripts_survive_a_restart_and_a_rollback,
        an_engine_is_warm_once_a_script_has_it,
        compiled_code_is_shared_by_scripts_of_one_engine_only,
        an_engine_whose_seed_was_evicted_is_made_again,
        a_slow_script_without_a_seed_delays_no_other_function,
        a_script_whose_seed_does_not_fit_is_served,
    ]);
}
