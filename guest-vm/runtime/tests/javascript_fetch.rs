//! `fetch` of scripts in JavaScript, natively: what the node is sent, and what a script receives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use faasw_abi::channel::CALLS;
use faasw_abi::outgoing::{Answer, Failure, FailureCode, Tail};
use faasw_abi::wire::ResponseHead;
use faasw_runtime::function::Ready;
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::{MemoryAnswer, MemoryCall, MemoryPlatform};
use support::scripts::{JAVASCRIPT, asked};
use support::{Call, bytes, values};

/// Returns an answer with this status, these fields and this body, which arrives in pieces.
fn answer(status: u16, fields: &[(&str, &str)], pieces: &[&str]) -> MemoryAnswer {
    let head = ResponseHead {
        status,
        headers: fields
            .iter()
            .map(|(name, value)| (bytes(name), bytes(value)))
            .collect(),
    };
    MemoryAnswer {
        delay: 1,
        head: Answer::Response(head).encode(),
        pieces: pieces.iter().map(|piece| bytes(piece)).collect(),
        tail: Some(Vec::new()),
    }
}

fn ok(body: &str) -> MemoryAnswer {
    answer(200, &[], &[body])
}

fn redirect(status: u16, location: &str) -> MemoryAnswer {
    answer(status, &[("location", location)], &["moved"])
}

fn failed(code: FailureCode) -> MemoryAnswer {
    MemoryAnswer {
        head: Answer::Failed(Failure::new(code)).encode(),
        tail: Some(Vec::new()),
        ..MemoryAnswer::default()
    }
}

/// Returns an answer whose head never arrives.
fn never() -> MemoryAnswer {
    MemoryAnswer {
        delay: usize::MAX,
        ..MemoryAnswer::default()
    }
}

/// Returns an answer whose body begins and never continues.
fn unfinished(piece: &str) -> MemoryAnswer {
    MemoryAnswer {
        tail: None,
        ..answer(200, &[], &[piece])
    }
}

/// Returns the function after its request, which it answers while servers send `answers`.
#[track_caller]
fn run_with(
    script: &str,
    call: Call,
    ring: usize,
    answers: Vec<MemoryAnswer>,
) -> Ready<MemoryPlatform> {
    let mut ready = JAVASCRIPT
        .init(&[("a.js", script.as_bytes())], &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let calls = &mut ready.platform_mut().calls;
    (calls.open, calls.ring, calls.answers) = (CALLS, ring, answers.into());
    ready
        .handle(call.request)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    ready
}

#[track_caller]
fn run(script: &str, call: Call, answers: Vec<MemoryAnswer>) -> Ready<MemoryPlatform> {
    run_with(script, call, 112 << 10, answers)
}

/// Returns the text of the response.
fn text(ready: &Ready<MemoryPlatform>) -> String {
    String::from_utf8(ready.platform().response_body.clone()).unwrap()
}

/// Returns the result of a script's statements, and the requests that servers received. What the
/// statements throw is the result, too: the error, and its cause.
#[track_caller]
fn of(statements: &str, answers: Vec<MemoryAnswer>) -> (String, Vec<MemoryCall>) {
    let script = format!(
        "const shown = (error) => `${{error}}` + (error?.cause ? ` <- ${{error.cause}}` : '');
        export default {{ async fetch(request) {{
            try {{
                const value = await (async () => {{ {statements} }})();
                return new Response(typeof value === 'string' ? value : JSON.stringify(value));
            }} catch (error) {{
                return new Response(shown(error));
            }}
        }} }};"
    );
    let mut ready = run(&script, asked("/"), answers);
    let calls = std::mem::take(&mut ready.platform_mut().calls.asked);
    (text(&ready), calls)
}

fn field(call: &MemoryCall, name: &str) -> Vec<String> {
    values(&call.head.headers, name)
        .into_iter()
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .collect()
}

fn line(call: &MemoryCall) -> String {
    let part = String::from_utf8_lossy;
    let head = &call.head;
    format!(
        "{} {}://{}{}",
        part(&head.method),
        part(&head.scheme),
        part(&head.authority),
        part(&head.path_and_query)
    )
}

#[test]
fn a_request_is_sent_and_its_response_is_received() {
    let (told, calls) = of(
        "const response = await fetch('https://api.example:8443/a/b?c=d#e', {
            headers: { 'X-Key': 'k', Host: 'other', connection: 'close' },
        });
        const { status, statusText, ok, url, redirected, type, bodyUsed } = response;
        const a = response.headers.get('x-a');
        const body = await response.json();
        return [status, statusText, ok, url, redirected, type, bodyUsed, a, body,
            response.bodyUsed];",
        vec![answer(
            201,
            &[("X-A", "b"), ("connection", "close")],
            &["{\"n\":", "7}"],
        )],
    );
    assert_eq!(
        told,
        "[201,\"Created\",true,\"https://api.example:8443/a/b?c=d\",false,\"basic\",false,\"b\",{\"n\":7},true]"
    );
    assert_eq!(line(&calls[0]), "GET https://api.example:8443/a/b?c=d");
    assert!(calls[0].is_whole && calls[0].is_over);
    let names: Vec<_> = calls[0]
        .head
        .headers
        .iter()
        .map(|(name, _)| name.as_slice())
        .collect();
    assert_eq!(names, [b"x-key".as_slice(), b"accept", b"user-agent"]);
    assert_eq!(field(&calls[0], "accept"), ["*/*"]);
    assert_eq!(field(&calls[0], "user-agent"), ["faasw"]);
}

#[test]
fn headers_of_a_response_cannot_be_changed_and_cookies_stay_apart() {
    let (told, _) = of(
        "const response = await fetch('http://a/');
        const cookies = response.headers.getSetCookie();
        let error; try { response.headers.set('a', 'b') } catch (caught) { error = caught }
        const copy = new Response(response.body, response);
        copy.headers.set('a', 'b');
        return [cookies, error instanceof TypeError, copy.headers.get('a'), await copy.text()];",
        vec![answer(
            200,
            &[("set-cookie", "a=1"), ("set-cookie", "b=2")],
            &["x"],
        )],
    );
    assert_eq!(told, "[[\"a=1\",\"b=2\"],true,\"b\",\"x\"]");
}

#[test]
fn bodies_of_known_size_have_their_type_and_length() {
    for (body, kind, sent) in [
        ("'gr\\u00fc\\u00df'", "text/plain;charset=UTF-8", "grüß"),
        (
            "new URLSearchParams({ a: 'b c' })",
            "application/x-www-form-urlencoded;charset=UTF-8",
            "a=b+c",
        ),
        ("new Blob(['x', 'y'], { type: 'a/b' })", "a/b", "xy"),
        ("new Uint8Array([65, 66])", "", "AB"),
        ("new Uint8Array([65, 66]).buffer", "", "AB"),
        ("new DataView(new Uint8Array([65, 66]).buffer, 1)", "", "B"),
        ("''", "text/plain;charset=UTF-8", ""),
    ] {
        let (told, calls) = of(
            &format!(
                "return (await fetch('http://a/', {{ method: 'post', body: {body}, headers: {{ 'content-length': '99' }} }})).text()"
            ),
            vec![ok("done")],
        );
        assert_eq!(
            (told.as_str(), calls[0].body.as_slice()),
            ("done", sent.as_bytes()),
            "{body}"
        );
        assert_eq!(line(&calls[0]), "POST http://a/");
        assert_eq!(
            field(&calls[0], "content-length"),
            [sent.len().to_string()],
            "{body}"
        );
        assert_eq!(field(&calls[0], "content-type").concat(), kind, "{body}");
        assert_eq!(calls[0].tail, Some(Tail::Trailers(Vec::new())));
    }
    let (_, calls) = of(
        "const form = new FormData(); form.set('a', 'b'); form.set('f', new File(['x'], 'f.txt'));
        return (await fetch('http://a/', { method: 'PUT', body: form })).text()",
        vec![ok("")],
    );
    let kind = field(&calls[0], "content-type").concat();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let body = String::from_utf8_lossy(&calls[0].body).into_owned();
    assert!(body.starts_with(&format!("--{boundary}\r\n")), "{body}");
    assert!(body.contains("name=\"f\"; filename=\"f.txt\""), "{body}");
    assert_eq!(field(&calls[0], "content-length"), [body.len().to_string()]);
    // Without a body, only methods that expect one send a length.
    for (method, length) in [("POST", "0"), ("PUT", "0"), ("GET", ""), ("DELETE", "")] {
        let (_, calls) = of(
            &format!("return (await fetch('http://a/', {{ method: '{method}' }})).text()"),
            vec![ok("")],
        );
        assert_eq!(
            field(&calls[0], "content-length").concat(),
            length,
            "{method}"
        );
    }
}

#[test]
fn a_large_body_waits_for_room() {
    let script = "export default { async fetch() {
        const body = new Uint8Array(1000003).map((_, at) => at % 251);
        const response = await fetch('http://a/', { method: 'POST', body });
        return new Response(await response.text());
    } }";
    let mut late = ok("done");
    late.delay = 3;
    let ready = run_with(script, asked("/"), 10_000, vec![late]);
    assert_eq!(text(&ready), "done");
    let (told, calls) = of(
        "const body = new Uint8Array(1000003).map((_, at) => at % 251);
        const sent = fetch('http://a/', { method: 'POST', body });
        await new Promise((done) => setTimeout(done, 100));
        return (await sent).text();",
        vec![MemoryAnswer {
            delay: 40,
            ..ok("done")
        }],
    );
    assert_eq!(told, "done");
    let expected: Vec<u8> = (0..1_000_003).map(|at| (at % 251) as u8).collect();
    assert!(calls[0].body == expected, "{} bytes", calls[0].body.len());
    assert_eq!(field(&calls[0], "content-length"), ["1000003"]);
}

#[test]
fn streams_are_sent_piece_by_piece() {
    for body in [
        "new ReadableStream({ start(to) {
            for (const piece of pieces) to.enqueue(piece); to.close() } })",
        "(async function* () { for (const piece of pieces) { await null; yield piece } })()",
    ] {
        let (told, calls) = of(
            &format!(
                "const pieces = ['one ', 'two ', 'three'].map(
                (text) => new TextEncoder().encode(text));
                return (await fetch('http://a/', {{ method: 'POST', body: {body}, duplex: 'half' }})).text()"
            ),
            vec![MemoryAnswer { delay: 5, ..ok("done") }],
        );
        assert_eq!(told, "done");
        assert_eq!(calls[0].body, b"one two three");
        assert_eq!(calls[0].tail, Some(Tail::Trailers(Vec::new())));
        assert!(field(&calls[0], "content-length").is_empty());
    }
    for (body, why) in [
        (
            "'text'",
            "TypeError: cannot fetch http://a: the request's body failed: ",
        ),
        (
            "null",
            "TypeError: cannot fetch http://a: the request's body failed: ",
        ),
    ] {
        let (told, calls) = of(
            &format!(
                "const body = new ReadableStream({{ start(to) {{ to.enqueue({body}) }} }});
                return (await fetch('http://a/', {{ method: 'POST', body, duplex: 'half' }})).text()"
            ),
            vec![never()],
        );
        assert!(told.starts_with(why), "{told}");
        assert!(calls[0].is_over);
    }
    let (told, calls) = of(
        "const body = new ReadableStream({ pull(to) { to.error(new RangeError('no more')) } });
        return (await fetch('http://a/', { method: 'POST', body, duplex: 'half' })).text()",
        vec![never()],
    );
    assert_eq!(
        told,
        "TypeError: cannot fetch http://a: the request's body failed: no more <- RangeError: no more"
    );
    assert!(!matches!(calls[0].tail, Some(Tail::Trailers(_))));
    let (told, _) = of(
        "return fetch('http://a/', { method: 'POST', body: new ReadableStream() })",
        vec![],
    );
    assert!(
        told.starts_with("TypeError: ") && told.contains("duplex"),
        "{told}"
    );
}

#[test]
fn the_clients_body_is_passed_on() {
    let script = "export default { async fetch(request) {
        return fetch('http://b/upload', request);
    } }";
    let call = asked("/x")
        .method("POST")
        .header("x-mine", "1")
        .body(b"first ")
        .arriving(&[b"second ", b"third"]);
    let answers = vec![MemoryAnswer {
        delay: 8,
        ..ok("taken")
    }];
    let mut ready = run(script, call, answers);
    let calls = std::mem::take(&mut ready.platform_mut().calls.asked);
    assert_eq!(text(&ready), "taken");
    assert_eq!(calls[0].body, b"first second third");
    assert_eq!(field(&calls[0], "x-mine"), ["1"]);
    assert_eq!(line(&calls[0]), "POST http://b/upload");
    let script = "export default { fetch: (request) => fetch(new Request('http://b/', request)) }";
    let call = asked("/x").method("PUT").body(b"all");
    let mut ready = run(
        script,
        call,
        vec![MemoryAnswer {
            delay: 8,
            ..ok("taken")
        }],
    );
    let calls = std::mem::take(&mut ready.platform_mut().calls.asked);
    assert_eq!(
        (calls[0].body.as_slice(), text(&ready).as_str()),
        (b"all".as_slice(), "taken")
    );
}

#[test]
fn a_body_is_read_in_each_form() {
    for (read, told) in [
        ("return response.text()", "gr\u{fc}n"),
        ("return [...await response.bytes()].length", "5"),
        ("return (await response.arrayBuffer()).byteLength", "5"),
        (
            "return (await response.blob()).type",
            "text/x;charset=utf-8",
        ),
        (
            "let all = ''; const to = new TextDecoder();
            for await (const piece of response.body) all += to.decode(piece, { stream: true });
            return all",
            "gr\u{fc}n",
        ),
        (
            "const copy = response.clone();
            return await copy.text() + await response.text() + copy.url",
            "gr\u{fc}ngr\u{fc}nhttp://a/",
        ),
        (
            "const [one, other] = response.body.tee();
            return await new Response(one).text() + await new Response(other).text()",
            "gr\u{fc}ngr\u{fc}n",
        ),
        (
            "await response.text(); return response.text()",
            "TypeError: the body was used already",
        ),
    ] {
        let body = "grün";
        let (first, second) = body.as_bytes().split_at(3);
        let mut sent = answer(200, &[("content-type", "text/x;charset=utf-8")], &[]);
        sent.pieces = [first.to_vec(), second.to_vec()].into();
        let (found, calls) = of(
            &format!("const response = await fetch('http://a/'); {read}"),
            vec![sent],
        );
        assert_eq!(found, told, "{read}");
        assert!(calls[0].is_over, "{read}");
    }
    let form = answer(
        200,
        &[("content-type", "application/x-www-form-urlencoded")],
        &["a=b&c=d"],
    );
    let (told, _) = of(
        "return [...await (await fetch('http://a/')).formData()]",
        vec![form],
    );
    assert_eq!(told, "[[\"a\",\"b\"],[\"c\",\"d\"]]");
}

#[test]
fn responses_without_a_body_have_none() {
    for status in [204, 205, 304] {
        let (told, calls) = of(
            "const response = await fetch('http://a/'); return [response.status, response.body, await response.text()]",
            vec![answer(status, &[], &[])],
        );
        assert_eq!(told, format!("[{status},null,\"\"]"));
        assert!(calls[0].is_over);
    }
    let (told, calls) = of(
        "const response = await fetch('http://a/', { method: 'HEAD' });
        return [response.body, response.headers.get('content-length')]",
        vec![answer(200, &[("content-length", "7")], &[])],
    );
    assert_eq!(told, "[null,\"7\"]");
    assert_eq!(line(&calls[0]), "HEAD http://a/");
}

#[test]
fn redirects_are_followed_hop_by_hop() {
    for (status, method, then) in [
        (301, "GET", "GET"),
        (301, "POST", "GET"),
        (301, "PUT", "PUT"),
        (302, "POST", "GET"),
        (302, "HEAD", "HEAD"),
        (302, "DELETE", "DELETE"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
    ] {
        let has_body = matches!(method, "POST" | "PUT");
        let body = if has_body { ", body: 'abc'" } else { "" };
        let (told, calls) = of(
            &format!(
                "const response = await fetch('http://a/x/y?z#f', {{ method: '{method}'{body},
                    headers: {{ authorization: 'k', 'x-b': 'c' }} }});
                return [response.url, response.redirected, await response.text()]"
            ),
            vec![redirect(status, "../w?v"), ok("here")],
        );
        let text = if method == "HEAD" { "" } else { "here" };
        assert_eq!(
            told,
            format!("[\"http://a/w?v\",true,\"{text}\"]"),
            "{status} {method}"
        );
        assert_eq!(
            line(&calls[1]),
            format!("{then} http://a/w?v"),
            "{status} {method}"
        );
        let keeps_body = has_body && then == method;
        let sent = if keeps_body { "abc" } else { "" };
        assert_eq!(calls[1].body, sent.as_bytes(), "{status} {method}");
        assert_eq!(!field(&calls[1], "content-type").is_empty(), keeps_body);
        assert_eq!(field(&calls[1], "authorization"), ["k"]);
        assert_eq!(field(&calls[1], "x-b"), ["c"]);
        assert!(calls[0].is_over);
    }
}

#[test]
fn credentials_stay_with_their_origin() {
    for (location, stays) in [
        ("/other", true),
        ("http://a:80/other", true),
        ("https://a/", false),
        ("http://a:81/", false),
        ("//b/", false),
    ] {
        let (_, calls) = of(
            "return (await fetch('http://a/', { headers: { authorization: 'k', cookie: 'c=d', accept: 'x' } })).text()",
            vec![redirect(302, location), ok("")],
        );
        assert_eq!(
            !field(&calls[1], "authorization").is_empty(),
            stays,
            "{location}"
        );
        assert_eq!(!field(&calls[1], "cookie").is_empty(), stays, "{location}");
        assert_eq!(field(&calls[1], "accept"), ["x"]);
    }
    // They do not come back with a second redirect.
    let (_, calls) = of(
        "return (await fetch('http://a/', { headers: { authorization: 'k' } })).text()",
        vec![
            redirect(302, "http://b/"),
            redirect(302, "http://a/"),
            ok(""),
        ],
    );
    assert!(field(&calls[2], "authorization").is_empty());
}

#[test]
fn redirects_have_modes_and_a_limit() {
    let (told, calls) = of(
        "const response = await fetch('http://a/', { redirect: 'manual' });
        return [response.status, response.headers.get('location'), response.redirected,
            await response.text()]",
        vec![redirect(302, "/b")],
    );
    assert_eq!(
        (told.as_str(), calls.len()),
        ("[302,\"/b\",false,\"moved\"]", 1)
    );
    let (told, calls) = of(
        "return (await fetch('http://a/', { redirect: 'error' })).text()",
        vec![redirect(302, "/b")],
    );
    assert!(
        told.starts_with("TypeError: cannot fetch http://a: the server redirected"),
        "{told}"
    );
    assert!(calls.len() == 1 && calls[0].is_over);
    let (told, _) = of(
        "const response = await fetch('http://a/'); return [response.status, response.redirected]",
        vec![answer(302, &[], &[])],
    );
    assert_eq!(told, "[302,false]");
    for (count, wanted) in [(20, "here"), (21, "more than 20 redirects")] {
        let mut answers = vec![redirect(302, "/again"); count];
        answers.push(ok("here"));
        let (told, calls) = of("return (await fetch('http://a/')).text()", answers);
        assert!(told.contains(wanted), "{told}");
        assert_eq!(calls.len(), 21);
    }
    for (location, wanted) in [
        ("http://[", "the redirect's location is not a URL"),
        (
            "data:,x",
            "functions send requests to http: and https: only",
        ),
        (
            "file:///etc/passwd",
            "functions send requests to http: and https: only",
        ),
        ("http://user@b/", "the redirect names a user or a password"),
    ] {
        let (told, calls) = of(
            "return (await fetch('http://a/')).text()",
            vec![redirect(302, location), ok("here")],
        );
        assert!(
            told.starts_with("TypeError: cannot fetch ") && told.contains(wanted),
            "{told}"
        );
        assert_eq!(calls.len(), 1);
    }
    let (told, calls) = of(
        "const body = new ReadableStream({ start(to) { to.close() } });
        return (await fetch('http://a/', { method: 'POST', body, duplex: 'half' })).text()",
        vec![redirect(307, "/b"), ok("here")],
    );
    assert!(
        told.contains("cannot be sent again") && calls.len() == 1,
        "{told}"
    );
    let (told, calls) = of(
        "return (await fetch('http://a/#one')).text()",
        vec![redirect(302, "/gr\u{fc}n"), ok("here")],
    );
    assert_eq!(told, "here");
    assert_eq!(line(&calls[1]), "GET http://a/gr%C3%BCn");
}

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
fn a_response_has_the_integrity_that_its_request_names() {
    const ABC: &str = "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
    let other = ABC.replace("ung", "unh");
    for (integrity, is_intact) in [
        (ABC.to_owned(), true),
        (format!("{other} {ABC}?option"), true),
        ("md5-x unknown".to_owned(), true),
        (other, false),
        // Only the strongest digests count.
        (format!("{ABC} sha512-AAAA"), false),
    ] {
        let (told, calls) = of(
            &format!("return (await fetch('http://a/', {{ integrity: '{integrity}' }})).text()"),
            vec![answer(200, &[], &["a", "bc"])],
        );
        assert_eq!(told == "abc", is_intact, "{integrity}: {told}");
        assert!(is_intact || told.contains("integrity"), "{told}");
        assert!(calls[0].is_over);
    }
}

#[test]
fn data_urls_need_no_server() {
    for (url, wanted) in [
        (
            "data:,a%20b",
            "[200,\"OK\",\"text/plain;charset=US-ASCII\",\"a b\"]",
        ),
        (
            "data:text/html;base64,PGI+",
            "[200,\"OK\",\"text/html\",\"<b>\"]",
        ),
        (
            "data:a/b;c=d,%00#hash",
            "[200,\"OK\",\"a/b;c=d\",\"\\u0000\"]",
        ),
    ] {
        let (told, calls) = of(
            &format!(
                "const response = await fetch('{url}');
                return [response.status, response.statusText, response.headers.get('content-type'),
            await response.text()]"
            ),
            vec![],
        );
        assert_eq!(told, wanted);
        assert!(calls.is_empty());
    }
    for url in ["data:no-comma", "data:;base64,?"] {
        let (told, _) = of(&format!("return fetch('{url}')"), vec![]);
        assert!(
            told.starts_with("TypeError: cannot fetch data:: "),
            "{told}"
        );
    }
    let (told, _) = of(
        "return [(await fetch('data:,x', { method: 'HEAD' })).body]",
        vec![],
    );
    assert_eq!(told, "[null]");
}

#[test]
fn calls_are_aborted_at_any_moment() {
    // Before.
    let (told, calls) = of(
        "return fetch('http://a/', { signal: AbortSignal.abort('why') })",
        vec![],
    );
    assert_eq!((told.as_str(), calls.len()), ("why", 0));
    let (told, calls) = of(
        "let reason;
        const body = new ReadableStream({ cancel(given) { reason = given } });
        const request = new Request('http://a/', { method: 'POST', body, duplex: 'half', signal: AbortSignal.abort(7) });
        await fetch(request).catch(() => {});
        return [reason, request.bodyUsed]",
        vec![],
    );
    assert_eq!((told.as_str(), calls.len()), ("[7,true]", 0));
    // While the server does not answer.
    for (signal, wanted) in [
        ("AbortSignal.timeout(50)", "TimeoutError"),
        (
            "AbortSignal.any([new AbortController().signal, AbortSignal.timeout(50)])",
            "TimeoutError",
        ),
        (
            "(() => { const c = new AbortController();
            setTimeout(() => c.abort(), 20); return c.signal })()",
            "AbortError",
        ),
    ] {
        let (told, calls) = of(
            &format!(
                "const signal = {signal};
                try {{ await fetch('http://a/', {{ signal }}) }} catch (error) {{ return [error.name, error === signal.reason] }}"
            ),
            vec![never()],
        );
        assert_eq!(told, format!("[\"{wanted}\",true]"), "{signal}");
        assert!(calls[0].is_over);
    }
    // While the request's body is sent.
    let (told, calls) = of(
        "let reason;
        const controller = new AbortController();
        const body = new ReadableStream({
            pull(to) { to.enqueue(new Uint8Array(10));
            if (!this.n) { this.n = 1; return } return new Promise(() => {}) },
            cancel(given) { reason = given } });
        const sent = fetch('http://a/', { method: 'POST', body, duplex: 'half', signal: controller.signal });
        setTimeout(() => controller.abort('enough'), 10);
        try { await sent } catch (error) { return [error, reason] }",
        vec![never()],
    );
    assert_eq!(told, "[\"enough\",\"enough\"]");
    assert!(calls[0].is_over && !matches!(calls[0].tail, Some(Tail::Trailers(_))));
    // In the middle of the response's body.
    for read in [
        "response.text()",
        "(async () => { for await (const piece of response.body); })()",
        "new Response(response.body).text()",
        "response.clone().text()",
    ] {
        let (told, calls) = of(
            &format!(
                "const controller = new AbortController();
                const response = await fetch('http://a/', {{ signal: controller.signal }});
                setTimeout(() => controller.abort(), 10);
                try {{ await {read} }} catch (error) {{
            return [error.name, error === controller.signal.reason] }}"
            ),
            vec![unfinished("abc")],
        );
        assert_eq!(told, "[\"AbortError\",true]", "{read}");
        assert!(calls[0].is_over, "{read}");
    }
    // Afterwards.
    let (told, _) = of(
        "const controller = new AbortController();
        const text = await (await fetch('http://a/', { signal: controller.signal })).text();
        controller.abort();
        return text",
        vec![ok("all")],
    );
    assert_eq!(told, "all");
    // A cancelled body closes its call.
    let (_, calls) = of(
        "const response = await fetch('http://a/'); await response.body.cancel(); await null; return ''",
        vec![unfinished("abc")],
    );
    assert!(calls[0].is_over);
}

#[test]
fn several_calls_run_at_once() {
    let answers = (0..16)
        .map(|nth| MemoryAnswer {
            delay: (nth * 7) % 5,
            ..ok(&format!("{nth} "))
        })
        .collect();
    let (told, calls) = of(
        "const all = Array.from({ length: 16 }, (_, nth) => fetch(`http://a/${nth}`).then((response) => response.text()));
        return (await Promise.all(all)).join('')",
        answers,
    );
    assert_eq!(told, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ");
    assert_eq!(calls.len(), 16);
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
fn a_response_can_be_the_scripts_own_answer() {
    for given in [
        "fetch('http://a/')",
        "fetch('http://a/').then((response) => new Response(response.body, response))",
        "fetch('http://a/').then((response) => response.clone())",
    ] {
        let script = format!("export default {{ fetch: () => {given} }}");
        let fields = [
            ("content-type", "a/b"),
            ("keep-alive", "1"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ];
        let piece = "x".repeat(50_000);
        let pieces = [piece.as_str(); 9];
        let call = asked("/").ring(20_000);
        let ready = run(&script, call, vec![answer(203, &fields, &pieces)]);
        let platform = ready.platform();
        let head = platform.response_head.as_ref().unwrap();
        assert_eq!(head.status, 203);
        assert_eq!(values(&head.headers, "content-type"), [b"a/b"]);
        assert_eq!(values(&head.headers, "set-cookie"), [b"a=1", b"b=2"]);
        assert!(values(&head.headers, "keep-alive").is_empty());
        assert_eq!(platform.response_body.len(), 450_000);
        assert!(platform.finished.is_some());
    }
    // A body that the server does not complete is not completed either.
    for given in [
        "fetch('http://a/')",
        "fetch('http://a/').then((response) => new Response(response.body))",
    ] {
        let script = format!("export default {{ fetch: () => {given} }}");
        let mut sent = answer(200, &[], &["abc"]);
        sent.tail = Some(Tail::Failed(Failure::new(FailureCode::HttpResponseIncomplete)).encode());
        let mut ready = JAVASCRIPT
            .init(&[("a.js", script.as_bytes())], &asked("/"))
            .unwrap();
        let calls = &mut ready.platform_mut().calls;
        (calls.open, calls.answers) = (CALLS, vec![sent].into());
        let ended = ready.handle(asked("/").request);
        let platform = ready.platform();
        assert!(ended.is_err() || platform.finished.is_none());
        assert_eq!(platform.response_body, b"abc");
        let log = String::from_utf8(platform.logged(LogStream::Err)).unwrap();
        assert!(log.contains("HTTP-response-incomplete"), "{log}");
    }
}

#[test]
fn only_wait_until_keeps_a_call_beyond_the_response() {
    let script = "export default { fetch() { fetch('http://a/').then(() => console.log('never')); return new Response('x') } }";
    let ready = run(script, asked("/"), vec![ok("late")]);
    assert_eq!(text(&ready), "x");
    assert_eq!(ready.platform().logged(LogStream::Out), b"");
    assert!(ready.platform().calls.asked[0].is_over);
    let script = "export default { fetch(request, env, ctx) {
        ctx.waitUntil(fetch('http://a/').then((response) => response.text()).then(console.log));
        return new Response('x') } }";
    let ready = run(
        script,
        asked("/"),
        vec![MemoryAnswer {
            delay: 5,
            ..ok("late")
        }],
    );
    assert_eq!(ready.platform().logged(LogStream::Out), b"late\n");
}

#[test]
fn a_script_that_waits_for_calls_and_timers_gets_both() {
    let (told, _) = of(
        "const ticks = [];
        const timer = setInterval(() => ticks.push(1), 1);
        const text = await (await fetch('http://a/')).text();
        clearInterval(timer);
        return [text, ticks.length > 0]",
        vec![MemoryAnswer {
            // The platform's time passes slowly while it waits for calls.
            delay: 5_000,
            ..ok("x")
        }],
    );
    assert_eq!(told, "[\"x\",true]");
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
