//! `fetch` of scripts in JavaScript, natively: what the node is sent, and what a script receives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod codings;
mod failures;
mod lifetime;
mod requests;

use faasw_abi::channel::CALLS;
use faasw_runtime::function::Ready;
use faasw_runtime::testing::{MemoryAnswer, MemoryCall, MemoryPlatform};
use support::scripts::{JAVASCRIPT, asked};
use support::{Call, calls, values};

/// Returns an answer that arrives after a wait.
fn answer(status: u16, fields: &[(&str, &str)], pieces: &[&str]) -> MemoryAnswer {
    MemoryAnswer {
        delay: 1,
        ..calls::answer(status, fields, pieces)
    }
}

fn ok(body: &str) -> MemoryAnswer {
    answer(200, &[], &[body])
}

fn redirect(status: u16, location: &str) -> MemoryAnswer {
    answer(status, &[("location", location)], &["moved"])
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
