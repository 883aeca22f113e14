//! Outbound calls of scripts in Python, natively: the standard library's clients, those of PyPI,
//! and their failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/mod.rs"]
mod support;

mod clients;
mod failures;
mod library;

use faasw_abi::channel::CALLS;
use faasw_runtime::platform::LogStream;
use faasw_runtime::testing::{MemoryAnswer, MemoryCall};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use support::archives::unpack;
use support::calls;
use support::calls::answer;
use support::scripts::{PYTHON, asked};

/// The HTTP clients from PyPI that are stored for tests, by the paths of their files.
static PACKAGES: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    unpack("tests/fixtures/scripts/client-packages.tar.zst")
        .into_iter()
        .collect()
});

/// Returns an answer with JSON, whose length is declared.
fn json(text: &str) -> MemoryAnswer {
    let length = text.len().to_string();
    let fields = [
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
    ];
    answer(200, &fields, &[text])
}

/// The results of a request to a script.
struct Called {
    text: String,
    log: String,
    asked: Vec<MemoryCall>,
}

/// Returns the results of a request to the script, with these packages, while servers send
/// `answers`. Checks that no call remains open.
#[track_caller]
fn called(script: &str, packages: &[&str], answers: Vec<MemoryAnswer>) -> Called {
    called_with(script, packages, answers, 112 << 10)
}

#[track_caller]
fn called_with(script: &str, packages: &[&str], answers: Vec<MemoryAnswer>, ring: usize) -> Called {
    let mut files: Vec<(&str, &[u8])> = vec![("a.py", script.as_bytes())];
    for (path, content) in PACKAGES.iter() {
        let is_of = |package: &&str| {
            let rest = path.strip_prefix(package);
            rest.is_some_and(|rest| rest.starts_with(['/', '.']))
        };
        if packages.iter().any(is_of) {
            files.push((path, content));
        }
    }
    let call = asked("/");
    let mut ready = PYTHON
        .init(&files, &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    let calls = &mut ready.platform_mut().calls;
    (calls.open, calls.ring, calls.answers) = (CALLS, ring, answers.into());
    let result = ready.handle(call.request);
    let log = String::from_utf8(ready.platform().logged(LogStream::Err)).unwrap();
    if let Err(failure) = result {
        panic!("{}\n{log}", failure.report);
    }
    let text = String::from_utf8(ready.platform().response_body.clone()).unwrap();
    let asked = std::mem::take(&mut ready.platform_mut().calls.asked);
    assert!(asked.iter().all(|call| call.is_over), "{asked:?}");
    Called { text, log, asked }
}

/// Returns method, URL and body of a request.
fn line(call: &MemoryCall) -> String {
    let body = String::from_utf8(call.body.clone()).unwrap();
    format!("{} {body}", calls::line(call))
        .trim_end()
        .to_owned()
}

fn lines(asked: &[MemoryCall]) -> Vec<String> {
    asked.iter().map(line).collect()
}
