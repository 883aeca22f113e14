//! Secrets, configuration, key-value stores and files in Python, natively; bodies, forms, prefixes,
//! threads, and the forms of handlers of other platforms.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/mod.rs"]
mod support;

mod files;
mod handlers;
mod settings;
mod threads;

use faasw_abi::store::Answer;
use faasw_runtime::platform::LogStream;
use support::Call;
use support::scripts::PYTHON;
use support::stores::script_answered;

/// Returns the response of a script in one file.
#[track_caller]
fn answer(text: &str, call: Call) -> String {
    response(text, call).1
}

/// Returns the status and the text of a script's response.
#[track_caller]
fn response(text: &str, call: Call) -> (u16, String) {
    let mut ready = PYTHON
        .init(&[("a.py", text.as_bytes())], &call)
        .unwrap_or_else(|failure| panic!("{}", failure.report));
    if let Err(failure) = ready.handle(call.request) {
        let log = ready.platform().logged(LogStream::Err);
        panic!("{failure}\n{}", String::from_utf8_lossy(&log));
    }
    let platform = ready.platform();
    let status = platform.response_head.as_ref().unwrap().status;
    let body = String::from_utf8(platform.response_body.clone()).unwrap();
    (status, body)
}

/// Returns the text of a handler's expression, to which the store sends these answers, and what the
/// handler sent to the store.
#[track_caller]
fn stored(expression: &str, answers: &[Answer<'_>]) -> (String, Vec<u8>) {
    let script = format!(
        "import faasw
def handler(request):
    store = faasw.kv.open()
    try:
        return repr({expression})
    except Exception as error:
        return f'{{type(error).__name__}}: {{error}}'
"
    );
    script_answered(&PYTHON, ("a.py", &script), answers)
}
