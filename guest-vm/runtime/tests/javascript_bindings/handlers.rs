//! The forms of handlers, and header fields that they see and send.

use crate::support::scripts::{JAVASCRIPT, asked};
use crate::support::values;

const LAMBDA: &[u8] = b"export const handler = async (event, context) => ({
    statusCode: 201, headers: { 'X-Id': context.awsRequestId, 'content-type': 'application/json' },
    cookies: ['a=1; Path=/', 'b=2'], body: JSON.stringify([event, context.functionName,
        context.memoryLimitInMB, context.getRemainingTimeInMillis() > 9000]) });";

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
