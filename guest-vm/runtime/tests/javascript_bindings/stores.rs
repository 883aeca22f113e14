//! Key-value stores and caches.

use crate::stored;
use crate::support::scripts::{JAVASCRIPT, asked};
use crate::support::stores::{assert_operations, records, value};
use faasw_abi::store::{Answer, ListFrom, Operation};
use faasw_runtime::platform::LogStream;

/// Checks the response and the operations on the function's own store.
#[track_caller]
fn check(body: &str, answers: &[Answer<'_>], operations: &[Operation<'_>], expected: &str) {
    let (text, sent) = stored(body, answers);
    assert_eq!(text, expected, "{body}");
    assert_operations(&sent, operations, body);
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
    // The value changed between the read and the swap.
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
