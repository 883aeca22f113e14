//! Unmodified packages from npm, and an example of the repository, in the JavaScript engine,
//! natively. The packages are modules in `node_modules`, not bundled.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/mod.rs"]
mod support;

mod clients;
mod libraries;
mod middleware;

use std::sync::LazyLock;

use faasw_abi::channel::CALLS;
use faasw_runtime::function::Ready;
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::{MemoryAnswer, MemoryCall, MemoryPlatform};
use support::archives::unpack;
use support::scripts::{JAVASCRIPT, asked};
use support::{Call, calls, fixture, values};

/// The files of the archive, by their paths.
static TREE: LazyLock<Vec<(String, Vec<u8>)>> =
    LazyLock::new(|| unpack("tests/fixtures/scripts/npm-tree.tar.zst"));

/// Returns the function of a script of the archive after its request, while servers send `answers`.
#[track_caller]
fn run(script: &str, call: Call, answers: Vec<MemoryAnswer>) -> Ready<MemoryPlatform> {
    let files = TREE.iter().map(|(path, content)| (&**path, &**content));
    let mut files: Vec<(&str, &[u8])> = files.collect();
    // The first file has the handler.
    files.sort_by_key(|(path, _)| *path != script);
    let mut ready = JAVASCRIPT
        .init(&files, &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let calls = &mut ready.platform_mut().calls;
    (calls.open, calls.ring, calls.answers) = (CALLS, 112 << 10, answers.into());
    let handled = ready.handle(call.request);
    handled.unwrap_or_else(|failure| panic!("{}\n{}", failure.report, logged(&ready)));
    ready
}

#[track_caller]
fn get(script: &str, path: &str) -> Ready<MemoryPlatform> {
    run(script, asked(path), Vec::new())
}

fn post(path: &str, kind: &str, body: &str) -> Call {
    let call = asked(path).method("POST").header("content-type", kind);
    let length = body.len().to_string();
    call.header("content-length", &length).body(body.as_bytes())
}

fn text(ready: &Ready<MemoryPlatform>) -> String {
    String::from_utf8(ready.platform().response_body.clone()).unwrap()
}

fn status(ready: &Ready<MemoryPlatform>) -> u16 {
    ready.platform().response_head.as_ref().unwrap().status
}

/// Returns a field of the response; an empty text if it is missing.
fn field(ready: &Ready<MemoryPlatform>, name: &str) -> String {
    let head = ready.platform().response_head.as_ref().unwrap();
    let found = values(&head.headers, name);
    found
        .first()
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .unwrap_or_default()
}

fn logged(ready: &Ready<MemoryPlatform>) -> String {
    let log = ready.platform();
    let all = [log.logged(LogStream::Out), log.logged(LogStream::Err)].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Returns an answer that arrives after a wait.
fn answer(status: u16, fields: &[(&str, &str)], pieces: &[&str]) -> MemoryAnswer {
    MemoryAnswer {
        delay: 1,
        ..calls::answer(status, fields, pieces)
    }
}

fn json(status: u16, body: &str) -> MemoryAnswer {
    let fields = [
        ("content-type", "application/json"),
        ("request-id", "req_1"),
        ("x-request-id", "req_1"),
    ];
    answer(status, &fields, &[body])
}

/// Returns the response of a request during which servers send `answers`, and what they received.
#[track_caller]
fn called(script: &str, path: &str, answers: Vec<MemoryAnswer>) -> (String, Vec<MemoryCall>) {
    let mut ready = run(script, asked(path), answers);
    let calls = std::mem::take(&mut ready.platform_mut().calls.asked);
    (text(&ready), calls)
}

fn sent(call: &MemoryCall, name: &str) -> String {
    let found = values(&call.head.headers, name);
    String::from_utf8_lossy(found.first().copied().unwrap_or_default()).into_owned()
}

fn body(call: &MemoryCall) -> String {
    String::from_utf8_lossy(&call.body).into_owned()
}

/// Ajv, jsonwebtoken, React and semver are CommonJS; the others are ECMAScript modules.
#[test]
fn packages_of_npm_run_unbundled() {
    for (path, wanted) in [
        ("/ajv", r#"[true,false,"must be >= 2"]"#),
        ("/semver", "1.3.0 true"),
        (
            "/jose",
            concat!(
                r#"["eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ."#,
                r#"6Rr6mt46cFv83G1c_M0DUh_3MJ0aC1Bx9p9XhWH3KR4",{"a":1}]"#
            ),
        ),
        (
            "/jsonwebtoken",
            concat!(
                r#"["eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJhIjoxfQ."#,
                r#"57TF7smP9XDhIexBqPC-F1toZReYZLWb_YRU5tv0sxM",{"a":1},"invalid signature"]"#
            ),
        ),
        (
            "/react",
            r#"<ul class="list"><li>a</li><li>&lt;b&gt;</li></ul>"#,
        ),
        ("/itty/x", "itty x"),
        ("/context", "df0e525c"),
    ] {
        assert_eq!(text(&get("main.mjs", path)), wanted, "{path}");
    }
}

/// The public key that the scripts sign for.
const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

#[test]
fn a_form_takes_an_upload() {
    let script = fixture("examples/js/upload.js");
    let files: &[(&str, &[u8])] = &[("upload.js", &script)];
    assert!(JAVASCRIPT.answer(files, asked("/")).contains("<form"));
    let kind = "multipart/form-data; boundary=b";
    let form = |name: &str, content: &str| {
        let part = |name| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"");
        let file = format!("; filename=\"{name}\"\r\n\r\n{content}\r\n");
        format!(
            "{}{file}{}\r\n\r\n<n>\r\n--b--\r\n",
            part("file"),
            part("note")
        )
    };
    let page = JAVASCRIPT.answer(files, post("/", kind, &form("a&b.txt", "hello")));
    let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let wanted = format!("<p>a&#38;b.txt: 5 bytes, SHA-256 {digest}. &#60;n&#62;</p>");
    assert!(page.contains(&wanted), "{page}");
    let large = form("large", &"x".repeat(8 << 20));
    let page = JAVASCRIPT.answer(files, post("/", kind, &large));
    assert!(page.contains("large: 8388608 bytes"), "{page}");
    let malformed = JAVASCRIPT.answered(files, post("/", "text/plain", "x"));
    assert_eq!(status(&malformed), 400);
}
