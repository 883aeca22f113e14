//! Warm-up requests: their effects, their reports, and their failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::sync::LazyLock;

use faasw_abi::mailbox::{DRAW_CLOCK, DRAW_ENTROPY};
use faasw_abi::outcome::Outcome;
use faasw_runtime::failure::Failure;
use faasw_runtime::function::Ready;
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::MemoryPlatform;

use support::scripts::{JAVASCRIPT, asked};
use support::{CgiModule, HttpComponent, bytes, compile, fixture, get};

static PROBE: LazyLock<Vec<u8>> =
    LazyLock::new(|| compile(HttpComponent, &fixture("tests/fixtures/http-probe.wasm")));

fn ready() -> Ready<MemoryPlatform> {
    get(HttpComponent, "/").ready(&PROBE).unwrap()
}

/// Lets the probe answer a warm-up request for `path`.
fn warm(ready: &mut Ready<MemoryPlatform>, path: &str, body: &[u8]) -> Result<(), Failure> {
    ready.warm_up(get(HttpComponent, path).request, body.to_vec())
}

#[test]
fn requests_start_with_the_state_after_warm_up() {
    let mut ready = ready();
    for path in [
        "/count",
        "/count",
        "/status/404",
        "/body/300000",
        "/trailers",
    ] {
        warm(&mut ready, path, b"").unwrap();
    }
    let platform = ready.platform();
    assert!(platform.response_head.is_none() && platform.response_body.is_empty());
    assert!(platform.finished.is_none() && platform.seen.is_empty());
    let [(LogStream::Err, told)] = platform.log.as_slice() else {
        panic!("{:?}", platform.log);
    };
    let expected = "the warm-up request GET /status/404 was answered with status 404\n";
    assert_eq!(told, expected.as_bytes());
    ready.handle(get(HttpComponent, "/count").request).unwrap();
    assert_eq!(ready.platform().response_body, bytes("3\n"));
    assert_eq!(ready.platform().finished, Some(vec![]));
}

#[test]
fn each_has_a_body_of_its_own() {
    let mut ready = ready();
    ready.platform_mut().request_body = bytes("the client's");
    warm(&mut ready, "/echo", &[b'x'; 200_000]).unwrap();
    warm(&mut ready, "/echo", b"").unwrap();
    // A warm-up request whose body is not read.
    warm(&mut ready, "/hello", b"left").unwrap();
    ready.handle(get(HttpComponent, "/echo").request).unwrap();
    assert_eq!(
        ready.platform().response_body,
        bytes("GET /echo\nx-forwarded-prefix: /fn\n\nthe client's")
    );
}

#[test]
fn draws_of_warm_up_requests_count_until_a_request_begins() {
    let mut ready = ready();
    warm(&mut ready, "/hello", b"").unwrap();
    assert!(ready.draws().is_empty());
    warm(&mut ready, "/clock", b"").unwrap();
    assert_eq!(ready.draws().bits(), DRAW_CLOCK);
    warm(&mut ready, "/random", b"").unwrap();
    assert_eq!(ready.draws().bits() & DRAW_ENTROPY, DRAW_ENTROPY);
    let told = ready.draws().to_string();
    ready.handle(get(HttpComponent, "/random").request).unwrap();
    assert_eq!(ready.draws().to_string(), told);
}

#[test]
fn a_bad_warm_up_response_is_reported() {
    for (path, outcome, why) in [
        ("/status/500", Outcome::FunctionError, "status 500"),
        ("/panic", Outcome::Trap, "unreachable"),
        ("/exit/0", Outcome::Exit, "exited with code 0"),
        ("/exit/1", Outcome::Exit, "exited with code 1"),
        (
            "/no-response",
            Outcome::NoResponse,
            "without setting a response",
        ),
        ("/drop-body/10", Outcome::Trap, "trap_after_head"),
    ] {
        let failure = warm(&mut ready(), path, b"").unwrap_err();
        assert_eq!(failure.outcome, outcome, "{failure}");
        assert!(failure.report.contains(why), "{failure}");
    }
}

#[test]
fn a_command_cannot_be_warmed_up() {
    let code = compile(CgiModule, &fixture("tests/fixtures/cgi-probe.wasm"));
    let call = get(CgiModule, "/");
    let mut ready = call.ready(&code).unwrap();
    let failure = ready.warm_up(call.request.clone(), Vec::new()).unwrap_err();
    assert_eq!(failure.outcome, Outcome::LoadFailed);
    assert!(failure.report.contains("command"), "{failure}");
}

const KEEPING: &str = r#"
    const kept = [];
    async function of(read) {
      try {
        return await read();
      } catch (error) {
        return String(error);
      }
    }
    export default {
      async fetch(request, env, ctx) {
        if (request.url.endsWith("/keep")) {
          kept.push(request);
          return new Response("kept");
        }
        if (request.url.endsWith("/clone")) {
          kept.push(request.clone(), request.body.getReader());
          return new Response("cloned");
        }
        // It has not ended by this: nobody has answered yet.
        ctx.waitUntil(Promise.resolve());
        await new Promise((resolve) => setTimeout(resolve, 1));
        const found = [
          await of(() => request.text()),
          await of(() => kept[0].headers.get("x-mine")),
          await of(() => kept[0].text()),
          await of(() => kept[1].text()),
          await of(async () => (await kept[2].read()).value),
          request.headers.get("x-mine"),
        ];
        return new Response(found.join("\n"));
      },
    };
"#;

#[test]
fn a_request_that_a_script_keeps_has_ended() {
    let post = |path| asked(path).method("POST");
    let call = post("/").header("x-mine", "mine").body(b"my body");
    let files: &[(&str, &[u8])] = &[("handler.js", KEEPING.as_bytes())];
    let mut ready = JAVASCRIPT.init(files, &call).unwrap();
    for path in ["/keep", "/clone"] {
        let another = post(path).header("x-mine", "another's").request;
        ready.warm_up(another, b"another's body".to_vec()).unwrap();
    }
    ready.handle(call.request).unwrap();
    let ended = "TypeError: this request has ended: what was not read of it is gone";
    let body = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    let found: Vec<&str> = body.lines().collect();
    assert_eq!(found, ["my body", ended, ended, ended, ended, "mine"]);
}
