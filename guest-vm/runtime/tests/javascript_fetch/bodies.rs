//! Bodies of requests and responses.

use crate::support::calls::line;
use crate::support::scripts::{JAVASCRIPT, asked};
use crate::support::values;
use crate::{answer, field, never, of, ok, run, run_with, text};
use faasw_abi::channel::CALLS;
use faasw_abi::outgoing::{Failure, FailureCode, Tail};
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::MemoryAnswer;

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
