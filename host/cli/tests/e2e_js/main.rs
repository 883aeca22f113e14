//! Scripts in JavaScript, with the engine that faasw includes, in real microVMs. The environment of
//! such scripts is tested beside the engine: `guest-vm/runtime/tests/javascript.rs`.

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

mod answers;
mod bindings;
mod bodies;
mod engine;
mod hostile;
mod packages;

use std::collections::HashSet;

use answers::{
    a_304_keeps_its_content_length, the_text_of_a_thrown_error_reaches_only_the_operator,
};
use bindings::{
    a_secret_at_the_top_level_is_refused, scripts_keep_data_in_stores,
    scripts_read_configuration_and_secrets, scripts_serve_their_files,
    the_examples_that_call_out_behave_as_documented, the_examples_with_grants_behave_as_documented,
};
use bodies::{binary_bodies_arrive_as_they_were_sent, bodies_stream_both_ways};
use common::time_limit;
use e2e::{BENCH, Bench, bundle};
use engine::{
    an_engine_of_the_operator_replaces_the_built_in_one, scripts_share_their_engine,
    the_engine_is_built_once_and_kept,
};
use faasw::{
    DeployError, DeployOutcome, EngineInfo, FreezePolicy, FunctionOptions, SeedError, WarmUpRequest,
};
use hostile::hostile_scripts_affect_no_other_request;
use packages::{clients_from_npm_call_a_real_server, libraries_from_npm_stream_responses};

const HELLO: &str = "export default { fetch(request) { return new Response('hello') } }";

fn one(text: &str) -> Vec<u8> {
    bundle(&[("handler.js", text)])
}

/// Deploys a script to the shared node.
fn deploy(name: &str, text: &str) -> DeployOutcome {
    BENCH.deploy(name, &one(text), FunctionOptions::default())
}

fn refused(text: &str) -> DeployError {
    refused_with(text, FunctionOptions::default())
}

fn refused_with(text: &str, options: FunctionOptions) -> DeployError {
    let upload = one(text);
    let deployed = BENCH.block_on(BENCH.node.deploy("refused", upload, options));
    deployed.map(|done| panic!("{done:?}")).unwrap_err()
}

fn engine(bench: &Bench, name: &str) -> Option<EngineInfo> {
    let mut engines = bench.node.engines().into_iter();
    engines.find(|engine| engine.name.as_str() == name)
}

fn a_script_needs_nothing_else() {
    let deployed = deploy("hello", HELLO);
    let used = deployed.function.engine.unwrap();
    assert_eq!(used.name.as_str(), "js");
    for _ in 0..10 {
        assert_eq!(BENCH.text("/hello/"), "hello");
    }
    let info = engine(&BENCH, "js").unwrap();
    assert!(info.is_carried && info.is_warm, "{info:?}");
    assert_eq!(info.digest, used.digest);
    let modules = bundle(&[("handler.mjs", HELLO)]);
    BENCH.deploy("module", &modules, FunctionOptions::default());
    assert_eq!(BENCH.text("/module/"), "hello");
}

fn bundles_of_frameworks_run_unchanged() {
    for name in ["hono", "itty"] {
        let text =
            String::from_utf8(e2e::file(&format!("tests/fixtures/scripts/{name}.js"))).unwrap();
        deploy(name, &text);
        assert!(BENCH.text(&format!("/{name}/")).contains("Hello "));
        let user = BENCH.text(&format!("/{name}/users/%C3%BC?q=a%20b"));
        // The framework itty does not decode it.
        let id = if name == "hono" { "ü" } else { "%C3%BC" };
        assert_eq!(user, format!(r#"{{"id":"{id}","q":"a b"}}"#));
        let sent = BENCH.request(
            "POST",
            &format!("/{name}/echo"),
            "content-type: application/json\r\n",
            r#"{"a":["ü"]}"#,
        );
        assert_eq!(sent.body, r#"{"a":["ü"]}"#);
        assert_eq!(BENCH.get(&format!("/{name}/nothing")).status, 404);
    }
    let failed = BENCH.get("/hono/fail");
    assert_eq!(
        (failed.status, failed.body.as_str()),
        (500, "caught a handler's error")
    );
    let tagged = BENCH.get("/hono/etag");
    assert!(
        tagged.headers.iter().any(|(name, _)| name == "etag"),
        "{tagged:?}"
    );
}

fn requests_and_responses_are_passed_unchanged() {
    deploy(
        "echo",
        "export default { async fetch(request) {
            const headers = new Headers({ 'x-method': request.method, 'x-url': request.url });
            headers.append('set-cookie', 'a=1'); headers.append('set-cookie', 'b=2');
            headers.set('x-sent', request.headers.get('X-Sent'));
            return new Response(await request.text(), { status: 207, headers });
        } }",
    );
    let body = "grüße\0\u{1f980}".repeat(5000);
    let answer = BENCH.request("PURGE", "/echo/ü/../b?a=%C3%BC&b", "x-sent: s\r\n", &body);
    assert_eq!(answer.status, 207, "{answer:?}");
    let values = |wanted: &str| -> Vec<String> {
        let pairs = answer.headers.iter().filter(|(name, _)| name == wanted);
        pairs.map(|(_, value)| value.clone()).collect()
    };
    assert_eq!(values("x-method"), ["PURGE"]);
    assert!(values("x-url")[0].ends_with("/b?a=%C3%BC&b"), "{answer:?}");
    assert!(values("set-cookie")[0].starts_with("a=1"), "{answer:?}");
    assert!(values("set-cookie")[1].starts_with("b=2"), "{answer:?}");
    assert_eq!(values("x-sent"), ["s"]);
    assert_eq!(answer.body, body);
    let nothing = BENCH.request("HEAD", "/echo/", "x-sent: s\r\n", "");
    assert_eq!((nothing.status, nothing.body.as_str()), (207, ""));
}

fn the_top_level_of_a_script_runs_once() {
    deploy(
        "once",
        "console.log('at deployment');
         let count = 0;
         const index = new Map(Array.from({ length: 1000 }, (_, i) => [`k${i}`, i]));
         await new Promise((done) => setTimeout(done, 1));
         export default { fetch: () => new Response(`${++count} ${index.get('k999')}`) }",
    );
    for _ in 0..5 {
        assert_eq!(BENCH.text("/once/"), "1 999");
    }
    let log = BENCH.log("once");
    let said = log.iter().filter(|line| *line == "at deployment");
    assert_eq!(said.count(), 1, "{log:?}");
}

fn errors_name_file_line_and_stack() {
    let syntax = refused("let a = 1;\nlet b = = 2;").to_string();
    assert!(syntax.contains("handler.js:2: SyntaxError: "), "{syntax}");
    let thrown = refused("function f() { throw new Error('boom') }\n\nf()").to_string();
    assert!(thrown.contains("handler.js:1: Error: boom"), "{thrown}");
    assert!(thrown.contains("handler.js:3:"), "{thrown}");
    deploy(
        "fails",
        "function inner(o) { return o.x.y }\nexport default { fetch() {\n  return inner({});\n} }",
    );
    let answer = BENCH.get("/fails/");
    assert_eq!(answer.status, 502, "{answer:?}");
    let log = BENCH.log_once("fails", |lines| lines.len() >= 3);
    let log: Vec<&str> = log.iter().map(|line| line.text.trim()).collect();
    assert!(log[0].starts_with("Uncaught TypeError: "), "{log:?}");
    assert!(log[1].starts_with("at inner (handler.js:1:"), "{log:?}");
    assert!(log[2].starts_with("at fetch (handler.js:3:"), "{log:?}");
    deploy("fails", HELLO);
    assert_eq!(BENCH.text("/fails/"), "hello");
}

/// The engine and the script were frozen with seeded random generators.
fn random_values_differ_between_forks() {
    deploy(
        "draws",
        "const early = Math.random;
         const first = early();
         export default { fetch: () => new Response([first, Math.random(), early(),
             crypto.randomUUID(), crypto.getRandomValues(new Uint8Array(8))].join(' ')) }",
    );
    let drawn: Vec<String> = (0..100).map(|_| BENCH.text("/draws/")).collect();
    for column in 1..5 {
        let values = drawn
            .iter()
            .map(|line| line.split(' ').nth(column).unwrap());
        assert_eq!(values.collect::<HashSet<_>>().len(), 100, "{column}");
    }
    deploy(
        "draws",
        "const first = Math.random(); export default { fetch: () => new Response(`${first} `) }",
    );
    let again = BENCH.text("/draws/");
    assert_ne!(drawn[0].split(' ').next(), again.split(' ').next());
    deploy(
        "now",
        "const then = Date.now(); export default \
         { fetch: () => new Response(String(Date.now() - then)) }",
    );
    let passed: f64 = BENCH.text("/now/").parse().unwrap();
    assert!(passed >= 0.0 && passed < time_limit(60).as_millis() as f64);
}

/// Modules that were loaded at deployment are in the frozen state of each fork.
fn commonjs_and_modules_of_node_work_in_forks() {
    let upload = bundle(&[
        (
            "handler.js",
            "const { randomBytes } = require('node:crypto');
             const { AsyncLocalStorage } = require('node:async_hooks');
             const counter = require('./counter.cjs');
             const storage = new AsyncLocalStorage();
             const answer = async () => {
                 await new Promise((resolve) => setTimeout(resolve, 1));
                 const random = randomBytes(8).toString('hex');
                 return new Response(`${storage.getStore()} ${counter.next()} ${random}`);
             };
             module.exports = { fetch: (request) => storage.run(request.method, answer) };",
        ),
        (
            "counter.cjs",
            "let count = 0; exports.next = () => ++count;",
        ),
    ]);
    BENCH.deploy("node", &upload, FunctionOptions::default());
    let answers: HashSet<String> = (0..20).map(|_| BENCH.text("/node/")).collect();
    assert_eq!(answers.len(), 20);
    assert!(
        answers.iter().all(|answer| answer.starts_with("GET 1 ")),
        "{answers:?}"
    );
}

/// Without an option, a script may not draw random numbers at deployment that all requests would
/// share.
fn reading_secrets_at_deployment_needs_an_explicit_option() {
    let text = "const key = crypto.randomUUID();
        export default { fetch: () => new Response(key) }";
    let error = refused(text);
    assert!(
        matches!(error, DeployError::Seed(SeedError::ScriptDrew(_))),
        "{error:?}"
    );
    let options = FunctionOptions::default().freeze(FreezePolicy::AfterInit);
    BENCH.deploy("secret", &one(text), options);
    assert_eq!(BENCH.text("/secret/"), BENCH.text("/secret/"));
}

fn the_examples_behave_as_documented() {
    let example = |name: &str| {
        let path = format!("examples/js/{name}");
        String::from_utf8(e2e::file(&path)).unwrap()
    };
    deploy("hello", &example("hello.js"));
    assert!(BENCH.text("/hello/").starts_with("Hello from http://"));

    deploy("api", &example("api.js"));
    let found = BENCH.text("/api/books?q=lem");
    assert!(found.contains("Stanisław Lem") && !found.contains("Kindred"));
    assert_eq!(BENCH.get("/api/books/4").status, 404);
    let book = r#"{"title":"Roadside Picnic","author":"Strugatsky","year":1972}"#;
    let added = BENCH.request("POST", "/api/books", "", book);
    assert_eq!(added.status, 201, "{added:?}");
    assert!(added.body.starts_with(r#"{"id":4,"#), "{added:?}");
    assert_eq!(BENCH.request("POST", "/api/books", "", "{").status, 400);
    assert_eq!(BENCH.request("POST", "/api/books", "", "null").status, 422);
    assert_eq!(BENCH.get("/api/books/4").status, 404);

    let files = ["index.js", "template.js", "layout.html"]
        .map(|name| (name, example(&format!("page/{name}"))));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    BENCH.deploy("page", &bundle(&files), FunctionOptions::default());
    let page = BENCH.text("/page/?name=%3Cb%3E&name=%C3%BC");
    assert!(page.contains("<h1>2 of us</h1>"), "{page}");
    assert!(
        page.contains("<ul><li>&lt;b&gt;</li><li>ü</li></ul>"),
        "{page}"
    );

    deploy("csv", &example("csv.js"));
    let csv = "name,said\r\n\"Lem, S.\",\"\"\"yes\"\"\nno\"\nü,";
    let lines = BENCH.request("POST", "/csv/", "", csv).body;
    assert_eq!(
        lines,
        "{\"name\":\"Lem, S.\",\"said\":\"\\\"yes\\\"\\nno\"}\n{\"name\":\"ü\",\"said\":\"\"}\n"
    );
    assert_eq!(BENCH.get("/csv/").status, 405);

    deploy("upload", &example("upload.js"));
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; \
         filename=\"a\"\r\n\r\n{}\r\n--b--\r\n",
        "x".repeat(700_000)
    );
    let kind = "content-type: multipart/form-data; boundary=b\r\n";
    let page = BENCH.request("POST", "/upload/", kind, &form).body;
    assert!(page.contains("a: 700000 bytes"), "{page}");

    let options = FunctionOptions::default().env("SECRET", "It's a Secret to Everybody");
    BENCH.deploy("webhook", &one(&example("webhook.js")), options);
    // The pair is GitHub's own example.
    let signed = "x-hub-signature-256: \
         sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\r\n";
    let forged = BENCH.request("POST", "/webhook/", signed, "Hello, World?");
    assert_eq!(forged.status, 401, "{forged:?}");
    assert_eq!(BENCH.request("POST", "/webhook/", "", "x").status, 401);
    // This body is signed, but is no JSON.
    let answer = BENCH.request("POST", "/webhook/", signed, "Hello, World!");
    assert_eq!(answer.status, 502, "{answer:?}");
    BENCH.log_once("webhook", |lines| {
        lines.iter().any(|line| line.text.contains("SyntaxError"))
    });
    // By `openssl dgst -sha256 -hmac`.
    let signed = "x-github-event: issues\r\n\
        x-hub-signature-256: sha256=\
        5ccdd8275f57d608741ad8390e42e8696ebfcd85607d9c2ef890769dda8f7568\r\n";
    let taken = BENCH.request("POST", "/webhook/", signed, r#"{"action":"opened"}"#);
    assert_eq!((taken.status, taken.body.as_str()), (204, ""), "{taken:?}");
    BENCH.log_once("webhook", |lines| {
        lines.iter().any(|line| line.text == "issues opened")
    });
}

fn the_environment_is_an_argument() {
    let options = FunctionOptions::default()
        .env("COLOUR", "grün")
        .env("__proto__", "x");
    let text = "export default { fetch: (request, env) => Response.json(Object.entries(env)
        .filter(([name, value]) => typeof value === 'string' && !name.startsWith('FAASW_'))) }";
    BENCH.deploy("env", &one(text), options);
    assert_eq!(
        BENCH.text("/env/"),
        r#"[["COLOUR","grün"],["__proto__","x"]]"#
    );
}

/// Cycles are collected while a request runs; otherwise it would exceed its memory limit by far.
fn cycles_are_collected_while_a_request_runs() {
    let text = "export default { fetch(request) {
        const isKept = new URL(request.url).pathname === '/kept';
        const kept = [];
        for (let i = 0; i < 20000; i++) {
            const ring = { data: new Uint8Array(4096) };
            ring.data.ring = ring;
            if (isKept) kept.push(ring);
        }
        return new Response('done');
    } }";
    let options = FunctionOptions::default().memory(16 << 20);
    BENCH.deploy("cycles", &one(text), options);
    assert_eq!(BENCH.text("/cycles/"), "done");
    assert_eq!(BENCH.get("/cycles/kept").status, 502);
}

fn warm_up_requests_keep_the_state_of_a_script() {
    let text = "const pages = new Map();
        let count = 0;
        export default { async fetch(request) {
            const { pathname } = new URL(request.url);
            if (!pages.has(pathname))
                pages.set(pathname, `page ${++count}: ${await request.text()}`);
            return new Response(pages.get(pathname));
        } }";
    let warm = ["POST /b\n\nüb", "/c"].map(|text| WarmUpRequest::new(text).unwrap());
    let options = warm
        .into_iter()
        .fold(FunctionOptions::default(), FunctionOptions::warm_up);
    BENCH.deploy("warm", &one(text), options);
    for _ in 0..3 {
        let ask = |path: &str| BENCH.text(&format!("/warm/{path}"));
        assert_eq!(
            (ask("b"), ask("c")),
            ("page 1: üb".into(), "page 2: ".into())
        );
        assert_eq!(ask("d"), "page 3: ");
    }
}

fn a_call_without_a_grant_is_denied_with_an_explanation() {
    deploy(
        "fetches",
        "export default { fetch: () => fetch('http://example.com/').then(
            () => new Response('fetched'),
            (error) => new Response(`${error instanceof TypeError} ${error}`)) }",
    );
    let told = BENCH.text("/fetches/");
    let start = "true TypeError: cannot fetch http://example.com: HTTP-request-denied: ";
    assert!(
        told.starts_with(start) && told.contains("--allow-outbound"),
        "{told}"
    );
}

/// Timers and streams do not block each other, and the node waits for pending promises.
fn timers_streams_and_wait_until_all_make_progress() {
    deploy(
        "turns",
        "const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
         export default { async fetch(request, env, ctx) {
            let isThere = false;
            request.text().then(() => isThere = true);
            while (!isThere) await sleep(0);
            const first = sleep(1);
            ctx.waitUntil(first);
            first.then(() => ctx.waitUntil(sleep(5).then(() => console.log('the last'))));
            return new Response(request.headers.get('host'), { headers: { connection: 'close' } });
         } }",
    );
    let body = "x".repeat(3 << 20);
    let answer = BENCH.request("POST", "/turns/", "", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!answer.body.is_empty(), "{answer:?}");
    BENCH.log_once("turns", |lines| {
        lines.iter().any(|line| line.text == "the last")
    });
}

fn main() {
    e2e::main(tests![
        a_script_needs_nothing_else,
        bundles_of_frameworks_run_unchanged,
        requests_and_responses_are_passed_unchanged,
        bodies_stream_both_ways,
        binary_bodies_arrive_as_they_were_sent,
        the_top_level_of_a_script_runs_once,
        errors_name_file_line_and_stack,
        the_text_of_a_thrown_error_reaches_only_the_operator,
        a_304_keeps_its_content_length,
        random_values_differ_between_forks,
        commonjs_and_modules_of_node_work_in_forks,
        reading_secrets_at_deployment_needs_an_explicit_option,
        the_examples_behave_as_documented,
        the_environment_is_an_argument,
        scripts_read_configuration_and_secrets,
        a_secret_at_the_top_level_is_refused,
        scripts_keep_data_in_stores,
        scripts_serve_their_files,
        the_examples_with_grants_behave_as_documented,
        the_examples_that_call_out_behave_as_documented,
        cycles_are_collected_while_a_request_runs,
        warm_up_requests_keep_the_state_of_a_script,
        a_call_without_a_grant_is_denied_with_an_explanation,
        hostile_scripts_affect_no_other_request,
        timers_streams_and_wait_until_all_make_progress,
        an_engine_of_the_operator_replaces_the_built_in_one,
        the_engine_is_built_once_and_kept,
        scripts_share_their_engine,
        clients_from_npm_call_a_real_server,
        libraries_from_npm_stream_responses,
    ]);
}
