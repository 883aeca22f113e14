//! Configuration, secrets, key-value stores and files in JavaScript, natively; and the forms of
//! handlers of other platforms.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/mod.rs"]
mod support;

mod environment;
mod files;
mod handlers;
mod stores;

use faasw_abi::store::Answer;
use support::Kind;
use support::scripts::JAVASCRIPT;
use support::stores::script_answered;

/// Returns the response of a handler to which the store sends these answers, and what the handler
/// sent to the store.
fn stored(body: &str, answers: &[Answer<'_>]) -> (String, Vec<u8>) {
    let script = format!(
        "const show = (value) => new Response(typeof value === 'string' ? value : \
         JSON.stringify(value instanceof Map ? [...value] : value));
         export default {{ async fetch(request, env) {{
             try {{ {body} }} catch (error) {{ return new Response(String(error)); }}
         }} }};"
    );
    script_answered(&JAVASCRIPT, ("a.js", &script), answers)
}

const SITE: &[(Kind, &str, &[u8])] = &[
    (Kind::File, "index.html", b"<p>home"),
    (Kind::File, "a b/page.css", b"p {}"),
    (Kind::File, "docs/index.html", b"<p>docs"),
    (Kind::File, "docs/.hidden", b"hidden"),
    (Kind::Folder, "empty", b""),
    (Kind::Link, "link.css", b"a b/page.css"),
    (Kind::File, "noextension", b"\xff"),
];
