//! Commands, which are called in CGI style.

use faasw::{FunctionKind, FunctionOptions};

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
    BENCH.function("c", "fixtures/cgi-c.wasm", FunctionOptions::default());
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

    let text = BENCH.function("text", "fixtures/wat/hello.wat", FunctionOptions::default());
    assert_eq!(text.function.kind, FunctionKind::CgiModule);
    assert_eq!(BENCH.get("/text/").status, 200);
}

/// The guest's own memory functions: bytes that were not read yet must not be overwritten.
pub fn memory_is_copied_and_filled_right() {
    BENCH.function(
        "copies",
        "fixtures/wat/copies.wasm",
        FunctionOptions::default(),
    );
    assert_eq!(BENCH.get("/copies/").body, "right\n");
}
