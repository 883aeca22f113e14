//! Commands, which run in CGI style.

use faasw::{FunctionKind, FunctionOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::common::raw;
use crate::e2e::BENCH;
use crate::has_line;

pub fn commands_answer_in_cgi_style() {
    BENCH.cgi();
    let headers = "Content-Type: text/x\r\nX-Own: 1\r\nProxy: evil\r\n";
    let seen = BENCH
        .request("POST", "/cgi/env?q=1&r", headers, "body")
        .body;
    for line in [
        "GATEWAY_INTERFACE=CGI/1.1",
        "REQUEST_METHOD=POST",
        "SCRIPT_NAME=/cgi",
        "PATH_INFO=/env",
        "QUERY_STRING=q=1&r",
        "REQUEST_URI=/cgi/env?q=1&r",
        "CONTENT_TYPE=text/x",
        "CONTENT_LENGTH=4",
        "HTTP_X_OWN=1",
        "REMOTE_ADDR=127.0.0.1",
        "SERVER_PROTOCOL=HTTP/1.1",
        "COLOUR=green",
    ] {
        has_line(&seen, line);
    }
    assert!(!seen.contains("HTTP_PROXY"), "{seen}");
    assert_eq!(BENCH.text("/cgi/hello"), "hello\n");
    let teapot = BENCH.get("/cgi/status");
    assert_eq!(
        (teapot.status, teapot.body.as_str()),
        (418, "short and stout\n")
    );
    let plain = BENCH.get("/cgi/no-headers");
    assert!(
        plain
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    assert!(plain.body.starts_with("no header block here\n"));
    let location = BENCH.get("/cgi/location");
    assert_eq!(location.status, 302);
    assert_eq!(
        location.header("location"),
        Some("https://example.com/elsewhere")
    );
    assert_eq!(BENCH.get("/cgi/crlf").header("x-crlf"), Some("yes"));
}

pub fn commands_come_from_c_and_from_text() {
    BENCH.function("c", "tests/fixtures/cgi-c.wasm", FunctionOptions::default());
    let echoed = BENCH.request("POST", "/c/echo?x", "Content-Type: text/y\r\n", "from C");
    assert_eq!(echoed.status, 200);
    assert!(
        echoed
            .body
            .starts_with("POST /echo?x\nCONTENT_TYPE text/y\nCONTENT_LENGTH 6\n"),
        "{}",
        echoed.body
    );
    assert!(echoed.body.ends_with("\n\nfrom C"), "{}", echoed.body);
    assert_eq!(BENCH.get("/c/nothere").status, 404);

    let text = BENCH.function(
        "text",
        "tests/fixtures/wat/hello.wat",
        FunctionOptions::default(),
    );
    assert_eq!(text.function.kind, FunctionKind::CgiModule);
    assert_eq!(BENCH.get("/text/").status, 200);
}

/// RFC 3875, section 4.1.2: programs read as many bytes as CONTENT_LENGTH states, and not to the
/// end of the stream.
pub fn commands_receive_the_length_of_a_chunked_body() {
    BENCH.function("c", "tests/fixtures/cgi-c.wasm", FunctionOptions::default());
    let head =
        "POST /c/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n";
    let send = |body: &str| {
        let request = format!("{head}\r\n{body}");
        BENCH.block_on(raw::send(BENCH.address, request.as_bytes()))
    };
    let few = send("3\r\nfro\r\n3\r\nm C\r\n0\r\n\r\n");
    has_line(&few.body, "CONTENT_LENGTH 6");
    assert!(few.body.ends_with("\n\nfrom C"), "{}", few.body);
    has_line(&send("0\r\n\r\n").body, "CONTENT_LENGTH 0");
    // The node buffers up to 1 MiB of a body to find its length. Without a length the command would
    // read nothing.
    let piece = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    let most = send(&format!("{piece}0\r\n\r\n"));
    has_line(&most.body, "CONTENT_LENGTH 1048576");
    assert_eq!(most.body.matches('x').count(), 1 << 20);
    let more = send(&format!("{}0\r\n\r\n", piece.repeat(3)));
    assert_eq!(more.status, 413, "{more:?}");
    assert_eq!(
        more.problem("type"),
        "urn:faasw:problem:request-body-too-large"
    );
    let detail = more.problem("detail");
    assert!(detail.contains("needs Content-Length"), "{detail}");
    // A body with a length may be longer.
    let body = "x".repeat(3 << 20);
    let many = BENCH.request("POST", "/c/echo", "", &body);
    has_line(&many.body, "CONTENT_LENGTH 3145728");
    assert_eq!(many.body.matches('x').count(), 3 << 20);

    // A client that expects 100 Continue receives it.
    let answer = BENCH.block_on(async {
        let mut stream = TcpStream::connect(BENCH.address).await.unwrap();
        let head = format!("{head}Expect: 100-continue\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
        }
        assert!(seen.starts_with(b"HTTP/1.1 100 "));
        stream.write_all(b"2\r\nok\r\n0\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        raw::parse(&answer)
    });
    has_line(&answer.body, "CONTENT_LENGTH 2");
}

/// RFC 3875, section 6.2: a response has at least one header field, so no output is no response.
pub fn a_command_without_output_is_an_error() {
    BENCH.function(
        "nothing",
        "tests/fixtures/wat/nothing.wasm",
        FunctionOptions::default(),
    );
    let answer = BENCH.get("/nothing/");
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.problem("type"), "urn:faasw:problem:no-response");
    let log = BENCH.log("nothing");
    assert!(
        log.iter().any(|line| line.contains("standard output")),
        "{log:?}"
    );
}

/// The guest's own memory functions must not overwrite bytes that they have not read yet.
pub fn bulk_memory_operations_are_correct() {
    BENCH.function(
        "copies",
        "tests/fixtures/wat/copies.wasm",
        FunctionOptions::default(),
    );
    assert_eq!(BENCH.get("/copies/").body, "right\n");
}
