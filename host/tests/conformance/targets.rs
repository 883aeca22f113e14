//! Request lines: methods, targets and versions.

use crate::case::{Case, Problem, Sees, Status, play};

const MALFORMED: super::case::Answer = Problem(400, "bad-request");

fn with(line: &str) -> String {
    format!("{line}\r\nHost: h\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_reach_the_function_as_they_were_sent() {
    play([
        Case::new(
            "absolute form, and its authority is the host (RFC 9112, 3.2.2)",
            "GET http://there:81/f/x?y HTTP/1.1\r\nHost: other\r\n\r\n",
            &[Sees("GET /x?y", "")],
        )
        .has("host: there:81")
        .lacks("other"),
        Case::new(
            "absolute form over a proxy that ends TLS (RFC 9112, 3.2.2)",
            with("GET https://h/f/x HTTP/1.1"),
            &[Sees("GET /x", "")],
        ),
        Case::new(
            "dots and percent-encoding are not touched (RFC 3986, 6.2.2.3)",
            with("GET /f/%2e%2e/a%2Fb/../c%00%0d%0a/./ HTTP/1.1"),
            &[Sees("GET /%2e%2e/a%2Fb/../c%00%0d%0a/./", "")],
        ),
        Case::new(
            "dots do not lead to another function",
            with("GET /f/../g HTTP/1.1"),
            &[Sees("GET /../g", "")],
        ),
        Case::new(
            "the name may be encoded (RFC 3986, 2.3)",
            with("GET /%66/x HTTP/1.1"),
            &[Sees("GET /x", "")],
        ),
        Case::new(
            "empty segments stay",
            with("GET /f//x// HTTP/1.1"),
            &[Sees("GET //x//", "")],
        ),
        Case::new(
            "a query alone",
            with("GET /f?a=/../b&c HTTP/1.1"),
            &[Sees("GET /?a=/../b&c", "")],
        ),
        Case::new(
            "an empty query stays",
            with("GET /f/? HTTP/1.1"),
            &[Sees("GET /?", "")],
        ),
        Case::new(
            "a fragment is no part of a target and goes no further (RFC 9112, 3.2.1)",
            with("GET /f/x#frag HTTP/1.1"),
            &[Sees("GET /x", "")],
        ),
        Case::new(
            "UTF-8 that should have been encoded passes as it is",
            with("GET /f/\u{e9} HTTP/1.1"),
            &[Sees("GET /\u{e9}", "")],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_that_name_no_function_are_not_found() {
    let nothing = Problem(404, "unknown-function");
    let mut cases: Vec<_> = [
        "/", "//f/", "/../f/", "/./f/", "/f%2fx", "/F/", "/?f", "http://h",
    ]
    .map(|target| Case::new(target, with(&format!("GET {target} HTTP/1.1")), &[nothing]))
    .into();
    cases.push(Case::new(
        "its body is read, so that what follows is found",
        "POST /nothere/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
        &[nothing],
    ));
    cases.push(Case::new(
        "the node itself",
        with("GET /healthz HTTP/1.1"),
        &[Status(200)],
    ));
    cases.push(Case::new(
        "asterisk form (RFC 9112, 3.2.4)",
        with("OPTIONS * HTTP/1.1"),
        &[Status(204)],
    ));
    for target in ["POST /healthz", "OPTIONS *"] {
        let bytes = format!("{target} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
        let status = if target == "OPTIONS *" { 204 } else { 200 };
        cases.push(Case::new(
            "nor is theirs a request",
            bytes,
            &[Status(status)],
        ));
    }
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_targets_are_rejected() {
    let mut cases: Vec<_> = [
        (
            "asterisk form is for OPTIONS (RFC 9112, 3.2.4)",
            "GET * HTTP/1.1",
        ),
        (
            "authority form is for CONNECT (RFC 9112, 3.2.3)",
            "GET h:80 HTTP/1.1",
        ),
        ("another scheme", "GET ftp://h/f/ HTTP/1.1"),
        (
            "user information (RFC 9110, 4.2.4)",
            "GET http://u@h/f/ HTTP/1.1",
        ),
    ]
    .map(|(name, line)| Case::closing(name, with(line), &[MALFORMED]))
    .into();
    // RFC 9112, section 3: the answer to an invalid request line is 400.
    for line in [
        "GET f/x HTTP/1.1",
        "GET  HTTP/1.1",
        "GET /f/x",
        "GET /f/ x HTTP/1.1",
        "GET /f/\tx HTTP/1.1",
        "GET /f/\rx HTTP/1.1",
        "GET /f/\0 HTTP/1.1",
        "GET /f/\x7f HTTP/1.1",
        "GET\t/f/ HTTP/1.1",
        " GET /f/ HTTP/1.1",
        "G@T /f/ HTTP/1.1",
        "GET /f/ HTTP/1.1 ",
        "GET /f/ http/1.1",
        "GET /f/ HTTP/1.2",
        "GET /f/ HTTP/2.0",
        "GET /f/ HTTP/11",
        "GET /f/ HTTP/1.",
        "GET /f/ HTTP/01.1",
        "GET http:///f/ HTTP/1.1",
    ] {
        cases.push(Case::closing(line, with(line), &[Status(400)]));
    }
    let bytes = b"GET /f/\xe9 HTTP/1.1\r\nHost: h\r\n\r\n";
    cases.push(Case::closing(
        "bytes that are no text",
        bytes,
        &[Status(400)],
    ));
    play(cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_up_to_the_limit_are_accepted() {
    let path = |length: usize| format!("GET /f/{} HTTP/1.1", "x".repeat(length - 3));
    // RFC 9110, section 4.1: at least 8000 octets; RFC 9112, section 3: 414.
    let fits: &'static str = format!("GET /{}", "x".repeat(8_000 - 3)).leak();
    play([
        Case::new("fits", with(&path(8_000)), &[Sees(fits, "")]),
        Case::closing(
            "too long",
            with(&path((16 << 10) + 1)),
            &[Problem(414, "target-too-long")],
        ),
        Case::closing("much too long", with(&path(70_000)), &[Status(414)]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_method_reaches_the_function() {
    let mut cases: Vec<_> = [
        "FROB",
        "get",
        "PROPFIND",
        "M-SEARCH",
        "TRACE",
        "OPTIONS",
        "PATCH",
        "!#$%&'*+-.^_`|~",
    ]
    .map(|method| {
        let seen: &'static str = format!("{method} /x").leak();
        Case::new(
            method,
            with(&format!("{method} /f/x HTTP/1.1")),
            &[Sees(seen, "")],
        )
    })
    .into();
    let refused = Problem(501, "not-implemented");
    for target in ["h:443", "/f/"] {
        let line = format!("CONNECT {target} HTTP/1.1");
        // The bytes that follow could be meant for a tunnel (RFC 9110, section 9.3.6).
        cases.push(Case::closing(&line, with(&line), &[refused]));
    }
    play(cases).await;
}
