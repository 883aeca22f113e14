//! Errors, refusals and hostile scripts.

use crate::support::calls::{failed, line};
use crate::support::scripts::{JAVASCRIPT, asked};
use crate::{answer, field, of, ok, unfinished};
use faasw_abi::channel::CALLS;
use faasw_abi::outgoing::{Failure, FailureCode, Tail};

#[test]
fn failures_are_type_errors_with_a_cause() {
    for (code, name) in [
        (FailureCode::HttpRequestDenied, "HTTP-request-denied"),
        (FailureCode::DnsTimeout, "DNS-timeout"),
        (FailureCode::DestinationNotFound, "destination-not-found"),
        (
            FailureCode::DestinationIpProhibited,
            "destination-IP-prohibited",
        ),
        (FailureCode::ConnectionRefused, "connection-refused"),
        (FailureCode::TlsCertificateError, "TLS-certificate-error"),
        (FailureCode::LoopDetected, "loop-detected"),
        (FailureCode::HttpResponseTimeout, "HTTP-response-timeout"),
    ] {
        let (told, calls) = of(
            "let error; try { await fetch('http://a.example/secret?key=1') } catch (caught) { error = caught }
            return [error instanceof TypeError, error.message, error.cause instanceof Error,
            error.cause.code,
                error.stack.includes('a.js'), Object.keys(error)]",
            vec![failed(code)],
        );
        let start = format!("[true,\"cannot fetch http://a.example: {name}: ");
        assert!(told.starts_with(&start), "{told}");
        assert!(
            told.ends_with(&format!(",true,\"{name}\",true,[]]")),
            "{told}"
        );
        assert!(calls[0].is_over);
    }
    // The grant that is missing.
    let (told, _) = of(
        "return fetch('http://a.example/')",
        vec![failed(FailureCode::HttpRequestDenied)],
    );
    assert!(told.contains("--allow-outbound"), "{told}");
    // In the middle of a body.
    for read in [
        "text()",
        "json()",
        "blob()",
        "body.getReader().read().then(() => response.body.getReader())",
    ] {
        let mut sent = answer(200, &[], &["abc"]);
        let failure = Failure::new(FailureCode::HttpResponseIncomplete);
        sent.tail = Some(Tail::Failed(failure).encode());
        let (told, _) = of(
            &format!("const response = await fetch('http://a/'); return response.{read}"),
            vec![sent],
        );
        let is_lock = read.starts_with("body");
        let wanted = "TypeError: cannot fetch http://a: HTTP-response-incomplete: ";
        assert!(is_lock || told.starts_with(wanted), "{told}");
    }
}

#[test]
fn what_is_not_a_request_is_refused_before_anything_is_sent() {
    for (arguments, wanted) in [
        ("", "TypeError: "),
        ("'/relative'", "TypeError: "),
        ("'http://'", "TypeError: "),
        ("'http://u:p@a/'", "TypeError: a request's URL has no user"),
        (
            "'ftp://a/'",
            "TypeError: cannot fetch ftp:: functions send requests to http: and https: only",
        ),
        ("'about:blank'", "TypeError: cannot fetch about:: "),
        ("'blob:http://a/1'", "TypeError: cannot fetch blob:: "),
        ("'file:///a'", "TypeError: cannot fetch file:: "),
        ("'http://a/', { method: 'CONNECT' }", "TypeError: "),
        ("'http://a/', { method: 'a b' }", "TypeError: "),
        (
            "'http://a/', { body: 'x' }",
            "TypeError: a GET request has no body",
        ),
        ("'http://a/', { headers: { 'a b': 'c' } }", "TypeError: "),
        (
            "'http://a/', { headers: { a: 'b\\u007f' } }",
            "TypeError: \"a\" is no header field that a request can have",
        ),
        ("'http://a/', { redirect: 'x' }", "TypeError: "),
        ("'http://a/', { signal: {} }", "TypeError: "),
    ] {
        let (told, calls) = of(&format!("return fetch({arguments})"), vec![]);
        assert!(told.starts_with(wanted), "{arguments}: {told}");
        assert!(calls.is_empty(), "{arguments}");
    }
    // Options without an effect are accepted; a method keeps its case.
    let (told, calls) = of(
        "return (await fetch('http://a/', { method: 'patch', mode: 'no-cors', credentials: 'include', cache: 'no-store',
            integrity: '', keepalive: true, referrer: '', priority: 'high', cf: {} })).text()",
        vec![ok("x")],
    );
    assert_eq!(
        (told.as_str(), line(&calls[0]).as_str()),
        ("x", "patch http://a/")
    );
    assert_eq!(field(&calls[0], "cache-control"), ["no-cache"]);
}

#[test]
fn the_top_level_of_a_script_cannot_call() {
    for script in [
        "\nawait fetch('http://a/');",
        "\nfetch('http://a/').catch(() => {});",
        "\nexport const early = fetch('http://a/');",
    ] {
        let said = JAVASCRIPT.refused(&[("a.js", script.as_bytes())]);
        assert!(
            said.starts_with(
                "a.js:2: TypeError: fetch is only available while a request is answered"
            ),
            "{said}"
        );
    }
}

#[test]
fn without_grants_calls_are_denied() {
    let script = "export default { fetch: () => fetch('http://a/').catch((error) => new Response(String(error))) }";
    let told = JAVASCRIPT.answer(&[("a.js", script.as_bytes())], asked("/"));
    assert!(
        told.starts_with("TypeError: cannot fetch http://a: HTTP-request-denied: "),
        "{told}"
    );
}

#[test]
fn a_flood_of_calls_ends_in_errors() {
    let (told, calls) = of(
        "const all = Array.from({ length: 200 }, (_, nth) => fetch('http://a/').then((response) => response.text()));
        const done = await Promise.allSettled(all);
        const why = new Set(done.filter((one) => one.reason).map((one) => one.reason.cause.code));
        return [done.filter((one) => one.value === 'x').length, ...why]",
        vec![ok("x"); 16],
    );
    assert_eq!(
        (told.as_str(), calls.len()),
        ("[16,\"connection-limit-reached\"]", 16)
    );
    // A response that nothing refers to does not keep its call.
    let (told, _) = of(
        "let good = 0;
        for (let nth = 0; nth < 100; nth++) if ((await fetch('http://a/')).ok) good++;
        return [good]",
        vec![unfinished("x"); 100],
    );
    assert_eq!(told, "[100]");
    // Nor does one whose stream, or whose signal, refers to the call in turn.
    for statement in ["response.body", "controller.signal"] {
        let (told, _) = of(
            &format!(
                "let good = 0;
                const controller = new AbortController();
                for (let nth = 0; nth < 100; nth++) {{
                    const response = await fetch('http://a/', {{ signal: controller.signal }});
                    if (response.ok && {statement}) good++;
                }}
                return [good]"
            ),
            vec![unfinished("x"); 100],
        );
        assert_eq!(told, "[100]", "{statement}");
    }
    // Responses that a script holds do.
    let (told, _) = of(
        "const held = [];
        for (let nth = 0; nth < 16; nth++) held.push(await fetch('http://a/'));
        const error = await fetch('http://a/').catch((error) => error);
        await held[0].body.cancel();
        return [error.cause.code, (await fetch('http://a/')).status]",
        vec![unfinished("x"); 17],
    );
    assert_eq!(told, "[\"connection-limit-reached\",200]");
}

/// A script may replace what the prototypes of its realm have. The requests that the engine sends
/// stay those that the script made.
#[test]
fn planted_prototypes_do_not_redirect_calls() {
    for plant in [
        "Object.prototype.then = function (done) { seen += 1; done('planted') };",
        "Object.defineProperty(Array.prototype, '0', { set() { seen += 1 }, configurable: true });",
        "Array.prototype[Symbol.iterator] = function* () { yield ['x', 'planted'] };",
        "Headers.prototype.get = Headers.prototype.has = () => { seen += 1; return 'http://evil/' };",
        "WeakMap.prototype.get = WeakMap.prototype.set = () => { seen += 1 };",
        "FinalizationRegistry.prototype.register = () => { seen += 1 };",
        "AbortSignal.prototype.addEventListener = () => { seen += 1 };",
        "Object.defineProperty(Request.prototype, 'url', { get: () => 'http://evil/' });",
        "Object.prototype.type = 'bytes'; Object.prototype.autoAllocateChunkSize = 1;",
        "Object.prototype.cancel = Object.prototype.pull = () => { seen += 1 };",
        "Object.prototype.value = Object.prototype.get = 'planted';",
        "Function.prototype.call = Function.prototype.apply = () => { seen += 1 };",
        "Promise.prototype.constructor = class { constructor() { seen += 1 } };",
        "String.prototype.slice = RegExp.prototype.exec = () => 'http://evil/';",
        "globalThis.Request = globalThis.Response = undefined; globalThis.Promise = undefined;",
    ] {
        let script = format!(
            "let seen = 0;
            export default {{ async fetch() {{
                {plant}
                const response = await fetch('http://a/b', {{ method: 'POST', body: 'text', headers: {{ a: 'b' }} }});
                const text = typeof response === 'string' ? response : await response.text();
                return globalThis.Response ? new Response(text) : response.clone();
            }} }};"
        );
        let call = asked("/");
        let mut ready = JAVASCRIPT
            .init(&[("a.js", script.as_bytes())], &call)
            .unwrap();
        let calls = &mut ready.platform_mut().calls;
        (calls.open, calls.answers) = (CALLS, vec![ok("answer"), ok("answer")].into());
        // A script may well break itself.
        let _ = ready.handle(call.request);
        let calls = &ready.platform().calls.asked;
        assert!(calls.len() <= 1, "{plant}");
        for call in calls {
            assert_eq!(line(call), "POST http://a/b", "{plant}");
            assert_eq!(call.body, b"text", "{plant}");
            assert_eq!(field(call, "a"), ["b"], "{plant}");
        }
    }
}
