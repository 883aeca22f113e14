//! What the operator gives a script in JavaScript: configuration, secrets, key-value stores and
//! files, natively; and the forms of handlers of other platforms.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use faasw_abi::mailbox::DRAW_STORE;
use faasw_abi::store::{Answer, LENGTH_BYTES, ListFrom, Operation, Request, length};
use faasw_runtime::platform::LogStream;
use support::scripts::{JAVASCRIPT, asked};
use support::{Call, Kind, values};

/// Returns the response of a handler with this body, which has `env` and `request`.
fn handled(body: &str, call: Call) -> String {
    let script =
        format!("export default {{ async fetch(request, env) {{ {body} }} }};").into_bytes();
    JAVASCRIPT.answer(&[("a.js", &script)], call)
}

/// Returns the response of a handler to which the store sends these answers, and what the handler
/// sent to the store.
fn stored(body: &str, answers: &[Answer<'_>]) -> (String, Vec<u8>) {
    let script = format!(
        "const show = (value) => new Response(typeof value === 'string' ? value : \
         JSON.stringify(value instanceof Map ? [...value] : value));
         export default {{ async fetch(request, env) {{
             try {{ {body} }} catch (error) {{ return new Response(String(error)); }}
         }} }};"
    );
    let call = asked("/").store("stock");
    let mut ready = JAVASCRIPT
        .init(&[("a.js", script.as_bytes())], &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let records = answers.iter();
    let records = records.flat_map(|answer| answer.encode().unwrap());
    ready.platform_mut().store_answers = Some(records.collect());
    ready
        .handle(call.request)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let platform = ready.platform();
    assert!(
        platform.store_answers.as_ref().unwrap().is_empty(),
        "{body}"
    );
    let text = String::from_utf8(platform.response_body.clone()).unwrap();
    (text, platform.store_asked.clone())
}

fn records(mut asked: &[u8]) -> Vec<Request<'_>> {
    let mut requests = Vec::new();
    while let Some((announced, rest)) = asked.split_first_chunk::<LENGTH_BYTES>() {
        let (record, next) = rest.split_at(length(*announced).unwrap());
        requests.push(Request::decode(record).unwrap());
        asked = next;
    }
    requests
}

/// Checks the response and the operations on the function's own store.
#[track_caller]
fn check(body: &str, answers: &[Answer<'_>], operations: &[Operation<'_>], expected: &str) {
    let (text, sent) = stored(body, answers);
    assert_eq!(text, expected, "{body}");
    let requests = records(&sent);
    let own = requests.iter().all(|request| request.store == "default");
    assert!(own, "{requests:?}");
    let sent: Vec<&Operation<'_>> = requests.iter().map(|request| &request.operation).collect();
    assert_eq!(sent, operations.iter().collect::<Vec<_>>(), "{body}");
}

fn value(text: &str) -> Answer<'_> {
    Answer::Values(vec![Some(text.as_bytes())])
}

#[test]
fn variables_configuration_secrets_and_stores_are_properties_of_env() {
    let call = asked("/")
        .environment("COLOUR", "gr\u{fc}n")
        .environment("BOTH", "environment")
        .environment("KEY", "environment")
        .environment("__proto__", "x")
        .config("BOTH", "configuration")
        .config("api.url", "https://example.org")
        .config("stock", "configuration")
        .secret_value("KEY", "s3cret")
        .secret("UNSET")
        .store("stock");
    let body = "return Response.json([Object.keys(env), env.COLOUR, env.BOTH, env['api.url'], \
        env.KEY, typeof env.UNSET, String(env.stock), String(env.default), 'UNSET' in env, \
        env.ASSETS ?? null]);";
    assert_eq!(
        handled(body, call),
        concat!(
            r#"[["COLOUR","BOTH","__proto__","api.url","KEY","UNSET","stock","default"],"#,
            r#""grün","configuration","https://example.org","s3cret","undefined","#,
            r#""[object KeyValueStore]","[object KeyValueStore]",true,null]"#
        )
    );
}

#[test]
fn the_module_has_the_same_environment() {
    let call = asked("/")
        .environment("A", "b")
        .config("c", "d")
        .secret_value("KEY", "s3cret");
    let script = b"import faasw, { env, kv, secrets, config, files } from 'faasw';
        import { again } from './lib/b.js';
        export default { async fetch(request, argument) {
            const missing = await (async () => secrets.get('OTHER'))().catch(String);
            return Response.json([env === argument, env === again, faasw.kv === kv, env.A,
                config.get('c'), config.get('A') ?? null, secrets.get('KEY'), missing,
                String(kv.open())]);
        } };";
    let files: [(&str, &[u8]); 2] = [
        ("a.js", script),
        ("lib/b.js", b"export { env as again } from 'faasw';"),
    ];
    assert_eq!(
        JAVASCRIPT.answer(&files, call),
        concat!(
            r#"[true,true,true,"b","d",null,"s3cret","#,
            r#""Error: the function has no secret \"OTHER\": deploy it with --secret OTHER","#,
            r#""[object KeyValueStore]"]"#
        )
    );
}

#[test]
fn commonjs_modules_require_the_same_module() {
    let script = b"const { env, config, default: whole } = require('faasw');
        module.exports = { fetch: (request, argument) => Response.json([
            env === argument, env.A, config.get('c'), whole.env === env,
            require('faasw').env === env, require('./lib/b.mjs').again === env]) };";
    let files: [(&str, &[u8]); 2] = [
        ("a.cjs", script),
        ("lib/b.mjs", b"export { env as again } from 'faasw';"),
    ];
    let call = asked("/").environment("A", "b").config("c", "d");
    assert_eq!(
        JAVASCRIPT.answer(&files, call),
        r#"[true,"b","d",true,true,true]"#
    );
}

/// A secret at the top level would become a part of the seed.
#[test]
fn what_only_a_request_may_use_fails_at_the_top_level_with_file_and_line() {
    let secret = "the secret \"KEY\" is available only while a request is answered";
    let own = "the key-value store \"default\" is available only while a request is answered";
    let stock = "the key-value store \"stock\" is available only while a request is answered";
    for (text, wanted) in [
        ("import { env } from 'faasw';\n\nenv.KEY;", secret),
        (
            "import { env } from 'faasw';\n\nconst all = { ...env };",
            secret,
        ),
        (
            "import { secrets } from 'faasw';\n\nsecrets.get('KEY');",
            secret,
        ),
        (
            "import { env } from 'faasw';\n\nenv.default.put('a', 'b');",
            own,
        ),
        (
            "import { env } from 'faasw';\n\nawait env.stock.get('a');",
            stock,
        ),
        (
            "import { kv } from 'faasw';\n\nawait kv.open('stock').list();",
            stock,
        ),
    ] {
        let call = asked("/").secret_value("KEY", "s3cret").store("stock");
        let failure = JAVASCRIPT.init(&[("a.js", text.as_bytes())], &call).err();
        let report = failure.expect("it was taken").report;
        assert!(report.starts_with("a.js:3: Error: "), "{text}: {report}");
        assert!(report.contains(wanted), "{text}: {report}");
        assert!(
            !report.contains("s3cret") && !report.contains("faasw:"),
            "{report}"
        );
    }
    // A name alone reads nothing, and no part of this is a draw.
    let script = b"import { env, kv } from 'faasw';
        const { stock } = env, own = kv.open(), names = Object.keys(env).length;
        export default { fetch: async () => new Response(await own.get('a')) };";
    let call = asked("/").secret_value("KEY", "s3cret").store("stock");
    let ready = JAVASCRIPT.init(&[("a.js", script)], &call).unwrap();
    assert_eq!(ready.draws().bits() & DRAW_STORE, 0, "{}", ready.draws());
    assert_eq!(ready.draws().bits(), 0, "{}", ready.draws());
}

#[test]
fn process_env_has_the_texts_of_the_handlers_environment() {
    let script = b"const isThere = 'KEY' in process.env;
        export default { fetch() {
            const { env } = process;
            const seen = [isThere, env.NODE_ENV, env.KEY, 'MISSING' in env, 'stock' in env];
            env.NODE_ENV = 'mine';
            seen.push(env.NODE_ENV);
            delete env.NODE_ENV;
            delete env.KEY;
            seen.push(env.NODE_ENV ?? null, 'KEY' in env);
            return Response.json(seen);
        } };";
    let call = asked("/")
        .config("NODE_ENV", "staging")
        .secret_value("KEY", "s3cret")
        .store("stock");
    assert_eq!(
        JAVASCRIPT.answer(&[("a.js", script)], call),
        r#"[true,"staging","s3cret",false,false,"mine",null,false]"#
    );
}

#[test]
fn secrets_stay_out_of_the_log() {
    let script = b"export default { fetch(request, env) {
        console.log(env, [env], { env });
        console.error('%o', env);
        return new Response(env.KEY.length);
    } };";
    let call = asked("/")
        .secret_value("KEY", "s3cret")
        .environment("A", "b");
    let ready = JAVASCRIPT.answered(&[("a.js", script)], call);
    let platform = ready.platform();
    let logged = [LogStream::Out, LogStream::Err].map(|stream| platform.logged(stream));
    let logged = String::from_utf8(logged.concat()).unwrap();
    assert!(
        logged.contains("KEY: [Getter]") && logged.contains("A: \"b\""),
        "{logged}"
    );
    assert!(!logged.contains("s3cret"), "{logged}");
    assert_eq!(platform.response_body, b"6");
}

#[test]
fn values_are_read_as_each_type() {
    let get = || Operation::Get(vec![b"k"]);
    let text = r#"{"a":["ü"]}"#;
    for body in [
        "return show(await env.default.get('k'))",
        "return show(await env.default.get('k', 'text'))",
        "return show(await env.default.get('k', 'json'))",
        "return show(await env.default.get('k', { type: 'json', cacheTtl: 60 }))",
        "return new Response(await env.default.get('k', 'arrayBuffer'))",
        "return new Response(await env.default.get('k', { type: 'stream' }))",
    ] {
        check(body, &[value(text)], &[get()], text);
    }
    let none = || Answer::Values(vec![None]);
    for kind in ["text", "json", "arrayBuffer", "stream"] {
        let body = format!("return show(await env.default.get('k', '{kind}'))");
        check(&body, &[none()], &[get()], "null");
    }
    let body = "return show(await env.default.getWithMetadata('k', 'json'))";
    let expected = r#"{"value":[1],"metadata":null,"cacheStatus":null}"#;
    check(body, &[value("[1]")], &[get()], expected);
    let body = "const map = await env.default.get(['a', 'b'], 'json'); return show(map)";
    let two = Answer::Values(vec![Some(b"1"), None]);
    let operation = Operation::Get(vec![b"a", b"b"]);
    check(body, &[two], &[operation], r#"[["a",1],["b",null]]"#);
    let body = "return show(await env.default.get('k', 'yaml'))";
    let expected = "TypeError: values are read as text, json, arrayBuffer, stream, not as \"yaml\"";
    check(body, &[], &[], expected);
    let body = "return show(await env.default.get({ key: 'k' }))";
    check(
        body,
        &[],
        &[],
        "TypeError: the key of a store is a string, not { key: \"k\" }",
    );
    // Bytes that are no text arrive unchanged.
    let body = "return show([...new Uint8Array(await env.default.get('k', 'arrayBuffer'))])";
    check(
        body,
        &[Answer::Values(vec![Some(b"\xff\0")])],
        &[get()],
        "[255,0]",
    );
}

#[test]
fn values_are_written_from_each_type() {
    for given in [
        "'v\u{fc}'",
        "new TextEncoder().encode('v\u{fc}')",
        "new TextEncoder().encode('xv\u{fc}').subarray(1)",
        "new TextEncoder().encode('v\u{fc}').buffer",
        "new DataView(new TextEncoder().encode('v\u{fc}').buffer)",
        "new Blob(['v', '\u{fc}']).stream()",
    ] {
        let body = format!("return show(await env.default.put('k', {given}) ?? 'done')");
        let set = Operation::Set(vec![(b"k", "v\u{fc}".as_bytes())]);
        check(&body, &[Answer::Done], &[set], "done");
    }
    for (given, why) in [
        ("{ a: 1 }", "not { a: 1 }"),
        ("undefined", "not undefined"),
        (
            "'x', { expirationTtl: 60 }",
            "put cannot keep the option expirationTtl",
        ),
        (
            "'x', { expiration: 1 }",
            "put cannot keep the option expiration",
        ),
        (
            "'x', { metadata: {} }",
            "put cannot keep the option metadata",
        ),
    ] {
        let body = format!("return show(await env.default.put('k', {given}))");
        let (text, sent) = stored(&body, &[]);
        assert!(
            text.starts_with("TypeError: ") && text.contains(why),
            "{text}"
        );
        assert!(sent.is_empty(), "{given}");
    }
    let body = "return show(await env.default.put('k', 'x', { metadata: null }) ?? 'done')";
    let set = Operation::Set(vec![(b"k", b"x")]);
    check(body, &[Answer::Done], &[set], "done");
    let body = "return show(await env.default.delete('k') ?? 'done')";
    check(
        body,
        &[Answer::Done],
        &[Operation::Delete(vec![b"k"])],
        "done",
    );
}

#[test]
fn lists_have_prefix_limit_and_cursor() {
    let keys = |keys: &[&'static str], has_more| {
        Answer::Keys(keys.iter().map(|key| key.as_bytes()).collect(), has_more)
    };
    let body = "return show(await env.default.list())";
    let start = Operation::Keys(ListFrom::Start);
    let expected =
        r#"{"keys":[{"name":"a"},{"name":"b"}],"list_complete":true,"cacheStatus":null}"#;
    check(body, &[keys(&["a", "b"], false)], &[start], expected);
    // A key that equals the prefix comes first, and the first key without it ends the list.
    let body = "return show(await env.default.list({ prefix: 'user:' }))";
    let behind = |key: &'static str| Operation::Keys(ListFrom::Behind(key.as_bytes()));
    let answers = [
        Answer::Exists(true),
        keys(&["user:1"], true),
        keys(&["user:2", "uses"], true),
    ];
    let operations = [
        Operation::Exists(b"user:"),
        behind("user:"),
        behind("user:1"),
    ];
    let expected = concat!(
        r#"{"keys":[{"name":"user:"},{"name":"user:1"},{"name":"user:2"}],"#,
        r#""list_complete":true,"cacheStatus":null}"#
    );
    check(body, &answers, &operations, expected);
    let body = "return show(await env.default.list({ limit: 1, cursor: 'a' }))";
    let expected =
        r#"{"keys":[{"name":"b"}],"list_complete":false,"cursor":"b","cacheStatus":null}"#;
    check(body, &[keys(&["b", "c"], false)], &[behind("a")], expected);
    let body = "return show(await env.default.list({ limit: 2 }))";
    let expected =
        r#"{"keys":[{"name":"b"},{"name":"c"}],"list_complete":true,"cacheStatus":null}"#;
    check(
        body,
        &[keys(&["b", "c"], false)],
        &[Operation::Keys(ListFrom::Start)],
        expected,
    );
    // A cursor before the prefix does not widen the list.
    let body = "return show((await env.default.list({ prefix: 'm', cursor: 'a' })).keys)";
    let answers = [Answer::Exists(false), keys(&["n"], false)];
    check(
        body,
        &answers,
        &[Operation::Exists(b"m"), behind("m")],
        "[]",
    );
    for limit in ["0", "1001", "1.5", "'x'"] {
        let body = format!("return show(await env.default.list({{ limit: {limit} }}))");
        let (text, _) = stored(&body, &[]);
        assert!(
            text.starts_with("RangeError: the limit of a list is 1 to 1000"),
            "{text}"
        );
    }
}

#[test]
fn counters_and_comparisons_are_atomic() {
    let add = |delta| Operation::Increment(b"n", delta);
    let body = "return show(await env.default.increment('n'))";
    check(body, &[Answer::Number(7)], &[add(1)], "7");
    let body = "return show(await env.default.increment('n', -3))";
    check(body, &[Answer::Number(-2)], &[add(-3)], "-2");
    let body = "return show(String(await env.default.increment('n', 9007199254740993n)))";
    let large = 9_007_199_254_740_993;
    check(
        body,
        &[Answer::Number(large)],
        &[add(large)],
        "9007199254740993",
    );
    for (delta, why) in [
        (
            "0.5",
            "TypeError: a number is incremented by an integer, not by 0.5",
        ),
        ("'1'", "TypeError: a number is incremented by an integer"),
        (
            "2n ** 70n",
            "RangeError: 1180591620717411303424 is too large",
        ),
    ] {
        let body = format!("return show(await env.default.increment('n', {delta}))");
        let (text, sent) = stored(&body, &[]);
        assert!(text.starts_with(why) && sent.is_empty(), "{text}");
    }
    let read = || Operation::Get(vec![b"k"]);
    let swap = |seen| Operation::Swap {
        key: b"k",
        seen,
        value: b"new",
    };
    let body = "return show(await env.default.compareAndSet('k', 'old', 'new'))";
    check(
        body,
        &[value("old"), Answer::Done],
        &[read(), swap(Some(b"old"))],
        "true",
    );
    check(body, &[value("other")], &[read()], "false");
    // Another request wrote between the read and the swap.
    let late = Answer::Values(vec![Some(b"late")]);
    check(
        body,
        &[value("old"), late],
        &[read(), swap(Some(b"old"))],
        "false",
    );
    let body = "return show(await env.default.compareAndSet('k', null, 'new'))";
    let none = Answer::Values(vec![None]);
    check(body, &[none, Answer::Done], &[read(), swap(None)], "true");
}

#[test]
fn granted_stores_are_opened_once_and_others_are_denied() {
    let body = "await env.stock.get('a'); return show(await env.stock.get('b'))";
    let (text, sent) = stored(body, &[Answer::Done, value("1"), value("2")]);
    assert_eq!(text, "2");
    let requests = records(&sent);
    let stores: Vec<&str> = requests.iter().map(|request| request.store).collect();
    assert_eq!(stores, ["stock"; 3]);
    assert_eq!(requests[0].operation, Operation::Open);
    let script = b"import { kv } from 'faasw';
        export default { fetch: async (request, env) => new Response(
            [env.other, await kv.open('other').get('k').catch(String),
            await kv.open('no name').get('k').catch(String)].join('\\n')) };";
    let call = asked("/").store("stock");
    let mut ready = JAVASCRIPT.init(&[("a.js", script)], &call).unwrap();
    ready.platform_mut().store_answers = Some(Answer::Denied.encode().unwrap().into());
    ready.handle(call.request).unwrap();
    let text = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    let expected = concat!(
        "\nError: access to the key-value store \"other\" is denied: ",
        "deploy the function with --kv other",
        "\nError: no key-value store can have the name \"no name\""
    );
    assert_eq!(text, expected);
    let asked = records(&ready.platform().store_asked);
    assert_eq!((asked.len(), asked[0].store), (1, "other"));
}

/// Arguments that are much too large would end the request.
#[test]
fn limits_are_errors_that_the_script_can_catch() {
    for (call, why) in [
        ("get('')", "a key has 1 to 1024 bytes, not 0"),
        (
            "get('k'.repeat(1025))",
            "a key has 1 to 1024 bytes, not 1025",
        ),
        (
            "get('k'.repeat(5 << 20))",
            "a key has 1 to 1024 bytes, not 5242880",
        ),
        (
            "delete('k'.repeat(5 << 20))",
            "a key has 1 to 1024 bytes, not 5242880",
        ),
        (
            "list({ prefix: 'k'.repeat(5 << 20) })",
            "a key has 1 to 1024 bytes, not 5242880",
        ),
        (
            "list({ cursor: 'k'.repeat(5 << 20) })",
            "a key has 1 to 1024 bytes, not 5242880",
        ),
        (
            "get(Array(1001).fill('k'))",
            "a call has 1000 keys at most, not 1001",
        ),
        (
            "put('k', 'v'.repeat((1 << 20) + 1))",
            "a value has 1048576 bytes at most, not 1048577",
        ),
        (
            "put('k', new Uint8Array(8 << 20))",
            "a value has 1048576 bytes at most, not 8388608",
        ),
        (
            "compareAndSet('k', null, 'v'.repeat(8 << 20))",
            "a value has 1048576 bytes at most",
        ),
    ] {
        let (text, sent) = stored(&format!("return show(await env.default.{call})"), &[]);
        let start = "Error: the key-value store \"default\": ";
        assert!(
            text.starts_with(start) && text.contains(why),
            "{call}: {text}"
        );
        assert!(sent.is_empty(), "{call}");
    }
    let body = "let sent = 0, ended;
        const stream = new ReadableStream({ \
            pull(controller) { sent++; controller.enqueue(new Uint8Array(65536)); },
            cancel(reason) { ended = reason; } });
        const error = await env.default.put('k', stream).catch(String);
        return show([error, sent < 20, ended instanceof Error])";
    let (text, _) = stored(body, &[]);
    let expected =
        r#"["Error: a value has 1048576 bytes at most, and the stream has more",true,true]"#;
    assert_eq!(text, expected);
    let body = "return show(await env.default.put('k', 'x'))";
    let (text, _) = stored(body, &[Answer::Failed("the store is full")]);
    assert_eq!(
        text,
        "Error: the key-value store \"default\": the store is full"
    );
}

/// The engine takes nothing from prototypes that a script can change.
#[test]
fn changed_prototypes_reveal_and_change_nothing() {
    let script = b"import { secrets } from 'faasw';
        const seen = [];
        const spy = (name) => ({ configurable: true, get() { seen.push(name); return 'planted'; },
            set(value) { seen.push([name, value]); } });
        const names = ['KEY', 'default', 'ASSETS', 'cookie', 'then', 'handler', 'type', 'keys'];
        for (const name of names)
            Object.defineProperty(Object.prototype, name, spy(name));
        Array.prototype.includes = function (value) { seen.push(value); return true; };
        Map.prototype.get = () => 'planted';
        String.prototype.toWellFormed = function () { seen.push(1); return String(this); };
        export default { async fetch(request, env) {
            const got = await env.default.get('k');
            return new Response([env.KEY, secrets.get('KEY'), got].join(' '));
        } };";
    let call = asked("/").secret_value("KEY", "s3cret");
    let mut ready = JAVASCRIPT.init(&[("a.js", script)], &call).unwrap();
    ready.platform_mut().store_answers = Some(value("v").encode().unwrap().into());
    ready.handle(call.request).unwrap();
    assert_eq!(ready.platform().response_body, b"s3cret s3cret v");
}

#[test]
fn caches_keep_nothing_and_say_so_once() {
    let script = b"export default { async fetch(request, env, context) {
        const cache = await caches.open('v1');
        const response = new Response('x');
        const put = await caches.default.put(request, response);
        context.passThroughOnException();
        return Response.json([typeof put, response.bodyUsed, typeof await cache.match(request),
            await cache.delete(request), await caches.has('v1')]);
    } };";
    let mut ready = JAVASCRIPT.init(&[("a.js", script)], &asked("/")).unwrap();
    let told = "a.js uses caches: they keep nothing here, so match never finds a response\n";
    assert_eq!(ready.platform().logged(LogStream::Err), told.as_bytes());
    ready.handle(asked("/").request).unwrap();
    let platform = ready.platform();
    assert_eq!(
        platform.response_body,
        br#"["undefined",true,"undefined",false,false]"#
    );
    assert_eq!(platform.logged(LogStream::Err), told.as_bytes());
}

#[test]
fn cookies_are_one_field() {
    let script =
        b"export default { fetch: (request) => Response.json([request.headers.get('cookie'),
        [...request.headers].filter(([name]) => name === 'cookie').length, request.headers.get('x'),
        request.headers.get('x-forwarded-prefix'), new URL(request.url).pathname]) };";
    let call = asked("/p")
        .header("cookie", "a=1")
        .header("x", "1")
        .header("cookie", "b=2; c=3")
        .header("x", "2");
    let expected = r#"["a=1; b=2; c=3",1,"1, 2","/fn","/p"]"#;
    assert_eq!(JAVASCRIPT.answer(&[("a.js", script)], call), expected);
    let set = b"export default { fetch() {
        const response = new Response();
        response.headers.append('set-cookie', 'a=1'); response.headers.append('set-cookie', 'b=2');
        return Response.json(response.headers.getSetCookie());
    } };";
    let text = JAVASCRIPT.answer(&[("a.js", set)], asked("/"));
    assert_eq!(text, r#"["a=1","b=2"]"#);
}

#[test]
fn a_304_keeps_its_fields() {
    let script = b"export default { fetch: (request) => new Response(null, \
        { status: 304, headers: { etag: '\"v7\"', 'content-length': '1234' } }) };";
    let ready = JAVASCRIPT.answered(&[("a.js", script)], asked("/"));
    let head = ready.platform().response_head.as_ref().unwrap();
    assert_eq!(head.status, 304);
    assert_eq!(values(&head.headers, "content-length"), [b"1234"]);
    assert_eq!(values(&head.headers, "etag"), [b"\"v7\""]);
}

const LAMBDA: &[u8] = b"export const handler = async (event, context) => ({
    statusCode: 201, headers: { 'X-Id': context.awsRequestId, 'content-type': 'application/json' },
    cookies: ['a=1; Path=/', 'b=2'], body: JSON.stringify([event, context.functionName,
        context.memoryLimitInMB, context.getRemainingTimeInMillis() > 9000]) });";

#[test]
fn a_lambda_handler_gets_an_event_of_format_2() {
    let call = asked("/a%20b/c?x=1&y=%C3%BC&x=2")
        .method("POST")
        .header("content-type", "application/json")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("x-many", "1")
        .header("x-many", "2")
        .header("user-agent", "test")
        .header("x-request-id", "id-1")
        .body("{\"b\":\"\u{fc}\"}".as_bytes());
    let ready = JAVASCRIPT.answered(&[("a.js", LAMBDA)], call);
    let platform = ready.platform();
    let head = platform.response_head.as_ref().unwrap();
    assert_eq!(head.status, 201);
    assert_eq!(values(&head.headers, "x-id"), [b"id-1"]);
    let cookies: [&[u8]; 2] = [b"a=1; Path=/", b"b=2"];
    assert_eq!(values(&head.headers, "set-cookie"), cookies);
    let text = String::from_utf8(platform.response_body.clone()).unwrap();
    for part in [
        r#"{"version":"2.0","routeKey":"$default","rawPath":"/a%20b/c","#,
        r#""rawQueryString":"x=1&y=%C3%BC&x=2","#,
        r#""cookies":["a=1","b=2"],"headers":{"#,
        r#""x-many":"1,2""#,
        r#""queryStringParameters":{"x":"1,2","y":"ü"}"#,
        r#""http":{"method":"POST","path":"/a%20b/c","protocol":"HTTP/1.1","#,
        r#""sourceIp":"","userAgent":"test"}"#,
        r#""requestId":"id-1""#,
        r#""isBase64Encoded":false,"body":"{\"b\":\"ü\"}"},"fn","128",true]"#,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("\"cookie\":"), "{text}");
    let call = asked("/").method("POST").body(b"\xff\0");
    let ready = JAVASCRIPT.answered(&[("a.js", LAMBDA)], call);
    let text = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    assert!(
        text.contains(r#""isBase64Encoded":true,"body":"/wA="}"#),
        "{text}"
    );
    assert!(
        !text.contains("queryStringParameters") && !text.contains("cookies"),
        "{text}"
    );
}

#[test]
fn results_of_lambda_handlers_become_responses() {
    for (result, status, kind, body) in [
        ("'text'", 200, "application/json", "text"),
        ("({ a: 1 })", 200, "application/json", r#"{"a":1}"#),
        ("[1]", 200, "application/json", "[1]"),
        ("undefined", 200, "application/json", "null"),
        (
            "({ statusCode: 200, body: 'x' })",
            200,
            "text/plain;charset=UTF-8",
            "x",
        ),
        (
            "({ statusCode: '404' })",
            404,
            "text/plain;charset=UTF-8",
            "",
        ),
        ("({ statusCode: 204, body: '' })", 204, "", ""),
        (
            "({ statusCode: 200, headers: { 'Content-Type': 'a/b' }, body: 'AP8=', \
             isBase64Encoded: true })",
            200,
            "a/b",
            "\0\u{fffd}",
        ),
    ] {
        for handler in [
            format!("async () => {result}"),
            format!("() => {result}"),
            format!("(event, context, callback) => setTimeout(callback, 1, null, {result})"),
        ] {
            let script = format!("export const handler = {handler};");
            let ready = JAVASCRIPT.answered(&[("a.js", script.as_bytes())], asked("/"));
            let platform = ready.platform();
            let head = platform.response_head.as_ref().unwrap();
            assert_eq!(head.status, status, "{handler}");
            let kinds = values(&head.headers, "content-type").concat();
            assert_eq!(String::from_utf8(kinds).unwrap(), kind, "{handler}");
            let text = String::from_utf8_lossy(&platform.response_body);
            assert_eq!(text, body, "{handler}");
        }
    }
    for (handler, why) in [
        ("async () => { throw new Error('no') }", "Error: no"),
        (
            "(e, c, callback) => callback(new Error('by callback'))",
            "by callback",
        ),
        ("(e, c, callback) => undefined", "never settles"),
        (
            "async () => ({ statusCode: 200, body: { a: 1 } })",
            "use JSON.stringify",
        ),
        (
            "async () => ({ statusCode: 99 })",
            "no status of a response",
        ),
    ] {
        let script = format!("export const handler = {handler};");
        let report = JAVASCRIPT.failed(&[("a.js", script.as_bytes())], asked("/"));
        assert!(report.contains(why), "{handler}: {report}");
    }
}

#[test]
fn handlers_are_looked_for_in_the_documented_order() {
    let lambda = "export const handler = async () => 'lambda';";
    let listener =
        "addEventListener('fetch', (event) => event.respondWith(new Response('event')));";
    for (rest, expected) in [
        (
            "export default { fetch: () => new Response('fetch') };",
            "fetch",
        ),
        ("export default () => new Response('function');", "function"),
        (
            "export default { handler: async () => 'default' };",
            "lambda",
        ),
        ("", "lambda"),
    ] {
        let script = format!("{lambda}{listener}{rest}");
        let text = JAVASCRIPT.answer(&[("a.js", script.as_bytes())], asked("/"));
        assert_eq!(text, expected, "{rest}");
    }
    let script = b"export default { handler: async () => 'of the default export' };";
    let text = JAVASCRIPT.answer(&[("a.js", script)], asked("/"));
    assert_eq!(text, "of the default export");
}

const SITE: &[(Kind, &str, &[u8])] = &[
    (Kind::File, "index.html", b"<p>home"),
    (Kind::File, "a b/page.css", b"p {}"),
    (Kind::File, "docs/index.html", b"<p>docs"),
    (Kind::File, "docs/.hidden", b"hidden"),
    (Kind::Folder, "empty", b""),
    (Kind::Link, "link.css", b"a b/page.css"),
    (Kind::File, "noextension", b"\xff"),
];

/// Returns status, content type, ETag, location and body of an asset.
fn asset(mount: &str, request: &str) -> String {
    let script = format!(
        "const request = () => {request};
         export default {{ async fetch(_, env) {{
             const {{ status, headers, body }} = await env.ASSETS.fetch(request());
             const text = body === null ? 'none' : await new Response(body).text();
             const [kind, length, tag, location] =
                 ['type', 'length'].map((name) => headers.get('content-' + name))
                 .concat(headers.get('etag'), headers.get('location'));
             return new Response([status, kind, length,
                 /^\"[\\da-f]+-[\\da-f]{{16}}\"$/.test(tag), location, text].join(' '));
         }} }};"
    );
    let call = asked("/").files(mount, SITE);
    JAVASCRIPT.answer(&[("a.js", script.as_bytes())], call)
}

#[test]
fn assets_are_served_from_the_files_of_the_function() {
    let css = "200 text/css;charset=utf-8 4 true  p {}";
    for mount in ["/", "/site", "/var/lib/site"] {
        for (request, expected) in [
            ("'/'", "200 text/html;charset=utf-8 7 true  <p>home"),
            ("'http://any.example/a%20b/page.css?q#f'", css),
            ("new URL('http://x/link.css')", css),
            ("new Request('http://x//a%20b//page.css')", css),
            ("'/docs/'", "200 text/html;charset=utf-8 7 true  <p>docs"),
            (
                "'/docs/.hidden'",
                "200 application/octet-stream 6 true  hidden",
            ),
            ("'/docs?q=1'", "307   false ./docs/?q=1 none"),
            (
                "'/noextension'",
                "200 application/octet-stream 1 true  \u{fffd}",
            ),
            (
                "new Request('http://x/index.html', { method: 'HEAD' })",
                "200 text/html;charset=utf-8 7 true  none",
            ),
        ] {
            assert_eq!(asset(mount, request), expected, "{mount}: {request}");
        }
        for path in [
            "/empty",
            "/empty/",
            "/nothing",
            "/index.html/",
            "/index.html/x",
            "/..%2f..%2fetc",
            "/%2e%2e/%2e%2e/x",
            "/a%00",
            "/%",
            "/%ff",
            "/a%20b%2fpage.css",
        ] {
            let told = asset(mount, &format!("'{path}'"));
            assert_eq!(
                told, "404 text/plain;charset=UTF-8  false  404 Not Found\n",
                "{path}"
            );
        }
        let told = asset(
            mount,
            "new Request('http://x/', { method: 'POST', body: '' })",
        );
        assert!(told.starts_with("405 "), "{told}");
    }
}

#[test]
fn unchanged_assets_are_not_sent_again() {
    let script = b"export default { async fetch(request, env) {
        const first = await env.ASSETS.fetch('/index.html');
        const etag = first.headers.get('etag');
        const status = async (value) => {
            const headers = { 'if-none-match': value };
            const response = await env.ASSETS.fetch('http://x/index.html', { headers });
            const isSame = response.headers.get('etag') === etag;
            return [response.status, isSame, (await response.text()).length].join(' ');
        };
        const other = (await env.ASSETS.fetch('/docs/')).headers.get('etag');
        const all = [etag, 'W/' + etag, '\"x\", ' + etag, '*', '\"x\"', other];
        return Response.json(await Promise.all(all.map(status)));
    } };";
    let call = asked("/").files("/site", SITE);
    let expected =
        r#"["304 true 0","304 true 0","304 true 0","304 true 0","200 true 7","200 true 7"]"#;
    assert_eq!(JAVASCRIPT.answer(&[("a.js", script)], call), expected);
}

/// The file is larger than the memory limit, which counts only what the script reads or writes.
#[test]
fn large_assets_are_streamed() {
    let large: &'static [u8] = vec![b'x'; 24 << 20].leak();
    let script = b"export default { fetch: (request, env) => env.ASSETS.fetch('/large.txt') };";
    let call = asked("/")
        .files("/", &[(Kind::File, "large.txt", large)])
        .memory(16 << 20);
    let ready = JAVASCRIPT.answered(&[("a.js", script)], call);
    let platform = ready.platform();
    assert!(
        platform.response_body == large,
        "{}",
        platform.response_body.len()
    );
    let head = platform.response_head.as_ref().unwrap();
    assert_eq!(values(&head.headers, "content-length"), [b"25165824"]);
}

#[test]
fn files_are_read_everywhere_and_written_for_one_request() {
    let script = b"import { files } from 'faasw';
        const home = await files.text('/site/index.html');
        const listed = await files.list('/site/docs');
        const failed = async (path) => files.read(path).catch((error) => error.message);
        export default { async fetch() {
            await files.write('/tmp/a/b/c.txt', 'text');
            await files.write('/tmp/a/bytes', new Uint8Array(200000).fill(7));
            await files.write('tmp/stream', new Blob(['st', 'ream']).stream());
            const bytes = await files.read('/tmp/a/bytes');
            const names = (await files.list('/tmp/a')).map(({ name, kind }) => `${name}: ${kind}`);
            await files.delete('/tmp/a/bytes');
            return Response.json([home, listed, await files.text('/tmp/a/b/c.txt'), bytes.length,
                bytes[199999], names, await files.exists('/tmp/a/bytes'),
                await files.exists('/tmp/a/b'), await files.text('/tmp/stream'),
                await failed('/nothing'), await failed('/site/docs'),
                await failed('/site/../../etc/passwd')]);
        } };";
    let call = asked("/").files("/site", SITE);
    let expected = concat!(
        r#"["<p>home",[{"name":".hidden","kind":"file"},{"name":"index.html","kind":"file"}],"#,
        r#""text",200000,7,["b: folder","bytes: file"],false,true,"stream","#,
        r#""/nothing: there is no such file or folder","/site/docs: this is a folder","#,
        r#""/site/../../etc/passwd: the path leads out of the function's files"]"#
    );
    assert_eq!(JAVASCRIPT.answer(&[("a.js", script)], call), expected);
}
